"""A recording is the same however it was pasted: behind launchers, wrapped, quoted, coloured, with other ends of lines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import ringwright
from ringwright.ground.errors import RingwrightError
from ringwright_lab.testing import pasted
from shared_data import needs_shared_data, real

WHOLE = 0.97  # of the recordings of the field; what a table loses at 80 columns is told below
SHARES = {
    "wrapped at 80": 0.81,
    "wrapped at 100": 0.93,
    "wrapped at 100 behind a prefix": 0.93,
    "indented": 0.93,
    "tabs": 0.92,
}
ONCE_CUT = (
    "openr1_620.log",
    "gen_wd_wrap_only.log",
)  # lines of a terminal already: cut again, nobody knows which pieces are one line


def told(path: Path) -> dict[str, Any] | None:
    try:
        return pasted.told(ringwright.summary(ringwright.read(str(path))))
    except RingwrightError:
        return None


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
        same += after is not None and pasted.agree(before, after, change)
    assert len(answers) > 30
    assert same >= SHARES.get(change, WHOLE) * len(answers), f"{same} of {len(answers)}"


@needs_shared_data
@pytest.mark.parametrize(("name", "ranks"), [("openr1_620.log", 6), ("gen_wd_wrap_only.log", 6)])
def test_what_a_terminal_cut_is_read(name: str, ranks: int) -> None:
    answer = told(real("field") / name)
    assert answer is not None
    assert (answer["kind"], answer["ranks"]) == ("hung", ranks)
