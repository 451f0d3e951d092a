"""What people paste into public threads, with the truth that was written down before the first run (``docs/explanation/field-log.md``)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ringwright
from ringwright.ground.errors import RingwrightError

FOLDER = Path(__file__).parent.parent / "field"
RIGHT, REFUSED = 57, 8  # of 67; those that are refused are mostly no recordings
# Four H100 in one node reach 121 GB/s by all-to-all: the truth is that one row tells nothing, the answer that it is slow.
DISPUTED = ["61_NVIDIA-nccl-2169"]
TRUTH: dict[str, dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text())


def verdict(name: str, truth: dict[str, Any]) -> str:
    """Return whether the first answer has the kind, the ranks and the words of the truth."""
    try:
        summary = ringwright.summary(ringwright.read(str(FOLDER / name)))
    except RingwrightError:
        return "refused"
    answer = summary["answer"]
    first = next((f"{each['title']} {each['detail']}" for each in summary["findings"]), "")
    text = f"{answer['sentence']} {first}".lower()
    is_kind = answer["kind"] in truth["kinds"]
    is_whom = truth["ranks"] is None or sorted(answer.get("ranks", [])) == sorted(truth["ranks"])
    is_said = all(any(word in text for word in each.split("|")) for each in truth["says"])
    if is_kind and is_whom and is_said:
        return "right"
    return "partly" if is_kind or answer["kind"] == "cannot-tell" else "wrong"


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    files = {path.stem: path.name for path in FOLDER.iterdir() if path.suffix == ".log"}
    return {name: verdict(files[Path(name).stem], truth) for name, truth in TRUTH.items()}


def test_no_first_answer_is_wrong(verdicts: dict[str, str]) -> None:
    assert [name for name, each in verdicts.items() if each == "wrong"] == DISPUTED


def test_as_many_are_right_as_the_page_says(verdicts: dict[str, str]) -> None:
    counts = Counter(verdicts.values())
    assert counts["right"] >= RIGHT
    assert counts["refused"] <= REFUSED


def test_an_answer_that_names_another_is_not_right() -> None:
    """The grading sees what it is there to see."""
    name = next(path.name for path in FOLDER.iterdir() if path.name.startswith("05_"))
    truth = TRUTH.get(name) or TRUTH[Path(name).stem]
    assert verdict(name, truth) == "right"
    assert verdict(name, truth | {"ranks": [6]}) == "partly"
    assert verdict(name, truth | {"kinds": ["hung"]}) == "wrong"
    assert verdict(name, truth | {"says": ["shared memory"]}) == "partly"
