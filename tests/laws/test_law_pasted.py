"""A recording is the same however it was pasted: behind launchers, wrapped, quoted, coloured, with other ends of lines.

Cut or blackened, it says the same or that it cannot tell, and accuses nobody else.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import ringwright
from ringwright.ground.errors import RingwrightError
from ringwright_lab.testing import pasted
from shared_data import needs_shared_data, real

WHOLE = 0.98  # of the recordings of the field; what wide tables lose is told below
SHARES = {
    "wrapped at 80": 0.88,
    "wrapped at 100": 0.96,
    "wrapped at 100 behind a prefix": 0.94,
    "wrapped at 137": 0.96,
    "indented": 0.98,
    "tabs": 0.94,
}
ONCE_CUT = (
    "openr1_620.log",
    "gen_wd_wrap_only.log",
)  # lines of a terminal already: cut again, nobody knows which pieces are one line


LEFT = 0.93  # of the recordings that lost something: a table that is cut has another largest size


def told(path: Path) -> dict[str, Any] | None:
    try:
        summary = ringwright.summary(ringwright.read(str(path)))
    except RingwrightError:
        return None
    return {**pasted.told(summary), "lines": pasted.deciding(summary)}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, dict[str, Any]]:
    """Return what is told of each recording of the field that is read."""
    folder = real("field")
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".log", ".txt") and path.name not in ONCE_CUT]
    known = {path: told(path) for path in files if not path.name.startswith("cr_")}
    return {path: answer for path, answer in known.items() if answer is not None}


@needs_shared_data
@pytest.mark.parametrize("change", [*pasted.KEEPING, *pasted.OF_BYTES])
def test_what_keeps_the_information_keeps_the_answer(
    answers: dict[Path, dict[str, Any]], tmp_path: Path, change: str
) -> None:
    same = 0
    for path, before in answers.items():
        other = tmp_path / (f"pasted{path.suffix}" if change == "another name" else path.name)
        other.write_bytes(pasted.pasted(path.read_bytes(), change, random.Random(change + path.name)))
        after = told(other)
        same += after is not None and pasted.agree({**before, "lines": 0}, {**after, "lines": 0}, change)
    assert len(answers) > 30
    assert same >= SHARES.get(change, WHOLE) * len(answers), f"{same} of {len(answers)}"


@needs_shared_data
@pytest.mark.parametrize("change", pasted.LOSING)
@pytest.mark.parametrize("draw", range(2))
def test_what_loses_information_accuses_nobody_else(
    answers: dict[Path, dict[str, Any]], tmp_path: Path, change: str, draw: int
) -> None:
    kept = 0
    for path, before in answers.items():
        text = path.read_bytes()
        other = tmp_path / path.name
        other.write_bytes(pasted.pasted(text, change, random.Random(f"{change}{path.name}{draw}")))
        lines, left = (len(each.decode("utf-8", "replace").splitlines()) for each in (text, other.read_bytes()))
        first = lines - left + 1 if change == "cut head" else 1
        is_decided = left == lines or (bool(before["lines"]) and before["lines"] <= {*range(first, first + left)})
        after = told(other) or {"kind": "cannot-tell", "blamed": []}
        assert {rank for _, ranks in after["blamed"] for rank in ranks} <= {
            rank for _, ranks in before["blamed"] for rank in ranks
        }, path.name
        kept += pasted.survives(before, after, is_decided=is_decided)
    assert kept >= LEFT * len(answers), f"{kept} of {len(answers)}"


@needs_shared_data
@pytest.mark.parametrize(("name", "ranks"), [("openr1_620.log", 6), ("gen_wd_wrap_only.log", 6)])
def test_what_a_terminal_cut_is_read(name: str, ranks: int) -> None:
    answer = told(real("field") / name)
    assert answer is not None
    assert (answer["kind"], answer["ranks"]) == ("hung", ranks)
