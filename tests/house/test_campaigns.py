"""What runs each time of a long list of cases: every plain value of every parameter is met, and no case moves another."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from campaigns import few, spread

pytestmark = pytest.mark.once
pytest_plugins = ["pytester"]

TESTS = Path(__file__).resolve().parents[1]
CASES = [
    (f"t[{op}-{p}-{flag}]", {"op": op, "p": p, "flag": flag})
    for op, p, flag in product("abcd", range(10), (True, False))
]


def test_every_value_is_met() -> None:
    kept = spread(CASES, 12)
    assert 12 <= len(kept) < 20
    for name, values in (("op", "abcd"), ("p", range(10)), ("flag", (True, False))):
        assert {case[name] for each, case in CASES if each in kept} == set(values)


def test_as_many_as_asked_for_of_cases_without_plain_values() -> None:
    cases = [(f"t[{each}]", {"case": object()}) for each in range(30)]
    kept = spread(cases, 5)
    assert len(kept) == 5
    assert kept - {"t[3]"} <= spread([case for case in cases if case[0] != "t[3]"], 5)


def test_fewer_cases_than_asked_for_all_run() -> None:
    assert spread(CASES[:3], 12) == {name for name, _ in CASES[:3]}


def test_a_few_rows_of_a_paper_hold_its_headline() -> None:
    rows = [{"figure": f"figure {at}", "headline": at == 7} for at in range(20)]
    kept = few(rows, 3)
    assert len(kept) == 3
    assert rows[7] in kept
    assert kept == sorted(kept, key=rows.index)


def test_what_is_left_out_is_run_by_a_campaign(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((TESTS / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers = sampled(n)\n")
    pytester.makepyfile(
        "import pytest\n@pytest.mark.sampled(3, 'at')\n@pytest.mark.parametrize('at', range(9))\ndef test_it(at): pass\n"
    )
    assert pytester.runpytest_inprocess().parseoutcomes() == {"passed": 3, "deselected": 6}
    assert pytester.runpytest_inprocess("--campaigns").parseoutcomes() == {"passed": 9}
    (named,) = (each for each in pytester.path.glob("test_*.py"))
    assert pytester.runpytest_inprocess(f"{named.name}::test_it").parseoutcomes() == {"passed": 9}
    other = pytester.makepyfile(test_other=named.read_text())
    asked = pytester.runpytest_inprocess(f"{named.name}::test_it", other.name).parseoutcomes()
    assert asked == {"passed": 12, "deselected": 6}, "of the file that is not named some run"


def test_what_campaigns_alone_run_is_left_out_alone(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((TESTS / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers = sampled(n)\n")
    pytester.makepyfile(
        "import pytest\nalone = pytest.mark.sampled(0, '*')\n@alone\ndef test_all(): pass\n"
        "@pytest.mark.parametrize('at', [1, 2, pytest.param(3, marks=alone)])\ndef test_some(at): pass\n"
    )
    assert pytester.runpytest_inprocess().parseoutcomes() == {"passed": 2, "deselected": 2}
    assert pytester.runpytest_inprocess("--campaigns").parseoutcomes() == {"passed": 4}


def test_what_is_left_to_campaigns_says_what_stays() -> None:
    """Directly above such a mark stands a comment, which names the test or the case that holds the same each time."""
    silent = []
    for path in TESTS.rglob("test_*.py"):
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            if "mark.sampled(0" in line and path.name != Path(__file__).name:
                above = next((each for each in reversed(lines[:at]) if not each.lstrip().startswith("@")), "")
                if not (above.lstrip().startswith("#") or "#" in line):
                    silent.append(f"{path.relative_to(TESTS)}:{at + 1}")
    assert silent == []
