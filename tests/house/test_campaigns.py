"""What runs each time of a long list of cases: every plain value of every parameter is met, and no case moves another."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest

from campaigns import spread

pytestmark = pytest.mark.once

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


def test_a_campaign_names_the_test_that_holds_the_same() -> None:
    """A test that never runs by itself is one that nobody would miss: each has a smaller one beside it."""
    named = 0
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in functions.values():
            for mark in node.decorator_list:
                text = ast.unparse(mark)
                if text.startswith("pytest.mark.campaign"):
                    assert isinstance(mark, ast.Call), f"{path}: {node.name} names no other test"
                    other = functions[ast.literal_eval(mark.args[0])]
                    assert not any(
                        ast.unparse(each).startswith("pytest.mark.campaign") for each in other.decorator_list
                    )
                    named += 1
    assert named, "no campaign is seen"
