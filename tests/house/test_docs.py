"""The documentation builds without a warning, and names what exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ringwright import errors, trace_tables

pytestmark = pytest.mark.once

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.slow
def test_documentation_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(tmp_path / "trees")]
    built = subprocess.run([*command, str(DOCS), str(tmp_path / "html")], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "html" / "reference" / "trace.html").read_text()
    assert all(column in page for columns in trace_tables.TABLES.values() for column in columns)


def test_every_error_has_its_place_on_the_page() -> None:
    page = (DOCS / "reference" / "errors.md").read_text()
    classes = [name for name, kind in vars(errors).items() if isinstance(kind, type)]
    assert not [name for name in classes if name not in page]


def test_decisions_are_numbered_without_gaps_and_name_what_lost() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    index = (DOCS / "index.md").read_text()
    for page in pages:
        assert "**What lost.**" in page.read_text(), page.name
        assert f"decisions/{page.stem}" in index, page.name


def test_the_layout_page_is_as_the_contract_says() -> None:
    script = DOCS.parent / "scripts" / "layout"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0, "run scripts/layout"
