"""The tutorials run, and say what they hold: every cell again, in a kernel of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ONE_PAGE = 90  # letters of a line that a page shows
TUTORIALS = sorted((REPOSITORY / "docs" / "tutorials").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_says_what_it_holds(path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    command = [sys.executable, str(REPOSITORY / "scripts" / "notebooks"), "--check", path.stem]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stderr}\nrun scripts/notebooks, and look at what changed"


def test_the_tutorials_are_there_with_their_outputs() -> None:
    assert [path.stem for path in TUTORIALS] == ["my-algorithm", "my-log", "my-morning", "my-paper", "my-what-if"]
    index = (REPOSITORY / "docs" / "index.md").read_text()
    for path in TUTORIALS:
        cells = json.loads(path.read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert sum(bool(cell["outputs"]) for cell in code) >= 0.8 * len(code), path.stem
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "run from top to bottom"
        assert max(len(line.rstrip("\n")) for cell in code for line in cell["source"]) <= ONE_PAGE, path.stem
        assert not re.search(r"output_type\": \"error", path.read_text())
        assert f"tutorials/{path.stem}" in index
