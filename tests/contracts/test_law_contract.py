"""Every law keeps the contract of laws; one that never refuses, or says not why or whence, is told by name."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from outsiders import install
from ringwright.bounds.laws import LAWS, Law, law
from ringwright_lab.testing import check_law, failures

pytestmark = pytest.mark.once
COUNT = itertools.count()


def too_hot(degrees: float) -> str:
    return f"{degrees:g} degrees, at most 90" if degrees > 90 else ""


WHOLE = Law(
    "heat", "no GPU reports more than 90 degrees while it sums", "its data sheet", too_hot, ((80.0,),), ((95.0,),)
)


@pytest.mark.parametrize("name", sorted(LAWS))
def test_every_law_keeps_its_contract(name: str) -> None:
    assert failures(check_law(name)) == []


def test_the_laws_are_those_of_the_folder() -> None:
    assert set(LAWS) == {
        *(
            "algbw",
            "busbw",
            "correct",
            "columns",
            "time",
            "ranks",
            "alone",
            "records",
            "ceiling",
            "transport",
            "series",
        ),
        "messages",
    }


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("refuses", {"judge": lambda degrees: ""}, "it lets 95.0 pass, which breaks it"),
    ("refuses", {"broken": ()}, "it may never refuse anything"),
    ("kept", {"judge": lambda degrees: "it is always too hot here"}, "it refuses 80.0, which keeps it"),
    ("kept", {"kept": ()}, "it has no example that keeps it"),
    ("why", {"judge": lambda degrees: degrees > 90}, "it says True, not why it is refused"),
    ("why", {"judge": lambda d: f"the {next(COUNT)}th time" if d > 90 else ""}, "something else each time"),
    ("stated", {"source": " "}, "it has no source"),
    ("stated", {"statement": "not hot"}, "'not hot' is no sentence"),
    ("named", {"name": "Heat: GPUs"}, "'Heat: GPUs' is not one word or two"),
    ("kept", {"judge": "ringwright.bounds.laws.ceilings:nobody"}, "has no attribute 'nobody'"),
    ("kept", {"judge": lambda degrees: 1 / 0}, "raised ZeroDivisionError"),
]


@pytest.mark.parametrize(("check", "change", "why"), BROKEN)
def test_what_is_wrong_with_a_law_is_told_by_name(check: str, change: dict[str, Any], why: str) -> None:
    assert failures(check_law(WHOLE)) == []
    (outcome,) = check_law(dataclasses.replace(WHOLE, **change))
    assert why in outcome.failed[check]
    assert "heat" not in LAWS


def test_a_law_of_others_is_known_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from ringwright.bounds.laws import Law\nCOLD = Law('cold', 'no GPU is below 0 degrees while it sums', 'a data sheet',"
        " lambda t: f'{t} degrees below 0' if t < 0 else '', kept=((1,),), broken=((-1,),))\nNONE = 'a law'\n"
    )
    install(
        tmp_path, monkeypatch, {"laws": {"cold": "outside_cold:COLD", "no": "outside_cold:NONE"}}, outside_cold=text
    )
    assert failures(check_law("cold")) == []
    assert law.reason("cold", "-3 degrees") == "law cold: -3 degrees"
    (error,) = law.problems()
    assert "is of type str, not a Law" in error.what
    assert "no" not in LAWS


def test_what_is_no_law_is_told() -> None:
    (line,) = failures(check_law("gravity"))
    assert line.startswith("gravity: known: 'gravity' is no law that is known: ")
