"""What runs without the compiled loops, too: the tests of every room that chooses between them and their Python twins."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "ringwright"
ONLY_SAYS_SO = {"capture"}  # which build it is, for whoever asks whether all is well

TESTED_AS = {"sources": "formats"}  # the folder of tests -> the room


def rooms_that_choose() -> set[str]:
    """Return the rooms that take a compiled loop where there is one."""
    rooms = {"native"}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "ringwright.native" in text or "import native" in text else ():
            if isinstance(node, ast.ImportFrom) and (
                (node.module or "").startswith("ringwright.native")
                or (node.module == "ringwright" and "native" in {each.name for each in node.names})
            ):
                rooms.add(path.relative_to(PACKAGE).parts[0])
    return rooms


def test_every_room_with_twins_is_tested_without_the_compiled_loops() -> None:
    (listed,) = re.findall(r"^twins=\((.*)\)$", (REPOSITORY / "scripts" / "test").read_text(), re.MULTILINE)
    paths = [REPOSITORY / each for each in listed.split()]
    assert [path for path in paths if not path.exists()] == []
    tested = {path.relative_to(REPOSITORY / "tests").parts[0] for path in paths}
    assert rooms_that_choose() - ONLY_SAYS_SO == {TESTED_AS.get(each, each) for each in tested}
    assert "schedulers" in rooms_that_choose(), "the search for modules that choose sees nothing"
