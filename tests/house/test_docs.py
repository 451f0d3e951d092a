"""The documentation builds without a warning, and names what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringwright.ground import errors, trace_tables

pytestmark = pytest.mark.once

DOCS = Path(__file__).resolve().parents[2] / "docs"
KINDS = ("tutorials", "how-to", "reference", "explanation")


# Warnings come of reading and of resolving references, which text needs too; pages with their menus take three times as long.
@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", pytest.param("html", marks=pytest.mark.sampled(0, "*"))])
def test_documentation_builds_without_warnings(tmp_path: Path, form: str) -> None:
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", form, "-d", str(tmp_path / "trees")]
    built = subprocess.run([*command, str(DOCS), str(tmp_path / form)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / form / "reference" / f"trace.{'txt' if form == 'text' else form}").read_text()
    assert all(column in page for columns in trace_tables.TABLES.values() for column in columns)


def test_every_error_has_its_place_on_the_page() -> None:
    page = (DOCS / "reference" / "errors.md").read_text()
    classes = [name for name, kind in vars(errors).items() if isinstance(kind, type)]
    assert not [name for name in classes if name not in page]


def test_decisions_are_numbered_without_gaps_and_name_what_lost() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    assert not [page.name for page in pages if "**What lost.**" not in page.read_text()]


def test_the_index_has_a_line_for_every_page_under_its_kind() -> None:
    index = (DOCS / "index.md").read_text()
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\): ", index, re.MULTILINE)
    pages = {str(page.relative_to(DOCS)) for kind in KINDS for page in (DOCS / kind).iterdir()}
    assert sorted(listed) == sorted(pages)
    parts = re.findall(r"^## ([\w-]+):(.*?)(?=^## |^```)", index, re.MULTILINE | re.DOTALL)
    assert [name.lower().removesuffix("s") for name, _ in parts] == [kind.removesuffix("s") for kind in KINDS]
    for kind, (_, text) in zip(KINDS, parts, strict=True):
        assert {link.split("/")[0] for link in re.findall(r"^- .*?\]\(([^)]+)\): ", text, re.MULTILINE)} == {kind}
    assert not [page.name for page in DOCS.glob("*.md") if page.name != "index.md"], "a page has a kind"


def test_the_layout_page_is_as_the_contract_says() -> None:
    script = DOCS.parent / "scripts" / "layout"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0, "run scripts/layout"
