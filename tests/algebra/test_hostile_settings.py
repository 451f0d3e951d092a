"""Every rule, asked at a site or with a setting that makes no sense, declines with its name, the site, why, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from algebra_cases import CASES
from ringwright.cli import main
from ringwright.graph.algebra import RULES, RewriteError
from ringwright.graph.algebra.build import Build
from ringwright.graph.algebra.equality import prove
from ringwright.model.workload import Mesh, Workload

# What rules without a case of their own need, so that one thing at a time is wrong.
PLAIN: dict[str, dict[str, Any]] = {
    "begin-behind": {"task": "f"},
    "fuse-collective": {"within": "y"},
    "hold": {"behind": "f"},
    "move": {"before": "f"},
    "on-network": {"network": "fast"},
    "order": {"tasks": []},
    "reorder": {"over": "y"},
    "slots": {"orders": {}},
    "split-axis": {"inside": 2},
}
FIRST = {rule: (case, turn) for case in reversed(CASES) for turn, (rule, _, _) in enumerate(case.rules)}
NAMES: tuple[object, ...] = ("", "nothing", ",", ["nothing", ""])
NUMBERS: tuple[object, ...] = (-1, 0, 1, 7, 10**9, float("nan"), float("inf"))


def before(rule: str) -> tuple[Workload, str, dict[str, Any]]:
    """Return a small step, a site, and settings: where a rule applies, if a case has it."""
    if rule not in FIRST:
        return CASES[0].make(4), "y", PLAIN.get(rule, {})
    case, turn = FIRST[rule]
    made = case.make(case.sizes[0])
    for earlier, at, knobs in case.rules[:turn]:
        made = RULES[earlier](made, at, **knobs)
    _, at, knobs = case.rules[turn]
    return made, at, dict(knobs)


def hostile(rule: str) -> Iterator[tuple[Workload, str, dict[str, Any]]]:
    """Yield a step, a site and settings, one thing at a time wrong with them."""
    step, at, knobs = before(rule)
    everything = [*step.task, *step.payload, *step.value]
    for site in ("", "nothing", *everything):
        yield step, site, knobs
    for name in RULES[rule].knobs:
        for value in (*NAMES, *NUMBERS, *everything, everything):
            yield step, at, {**knobs, name: value}
    yield step, at, {**knobs, "nothing": 1}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_applies_or_says_why_not(rule: str) -> None:
    errors = [(error, at, knobs) for step, at, knobs in hostile(rule) if (error := declined(rule, step, at, knobs))]
    for error, at, knobs in errors:
        told = (error.rule, at, knobs)
        assert rule in error.rule.split(", "), told
        assert error.why, told
        assert error.remedy, told
        assert error.at == error.where, told
    assert len(errors) >= 3


def declined(rule: str, step: Workload, at: str, knobs: dict[str, Any]) -> RewriteError | None:
    try:
        RULES[rule](step, at, **knobs)
    except RewriteError as error:
        return error
    return None


def refusal(step: Workload, rule: str, at: str, **knobs: Any) -> RewriteError:
    with pytest.raises(RewriteError) as caught:
        RULES[rule](step, at, **knobs)
    return caught.value


def test_seven_rows_go_in_four_and_three_and_in_no_halves_of_blocks() -> None:
    graph = Build(Mesh((("a", 1),)), b=7, h=4, k=2)
    product = graph.task("product", "einsum", [graph.input("x", "b h"), graph.input("w", "h k")], "b k")
    graph.task("end", "", [product], "b k")
    step = graph.step()
    made = RULES["cut"](step, "product", dim="b", parts=2)
    assert [dict(made.value[f"product.{at}"].dims)["b"] for at in (0, 1)] == [4, 3]
    assert prove(step, made, draws=2).equal
    assert "7 in parts of 4, 4" in refusal(step, "cut", "product", dim="b", parts=[4, 4]).why
    assert "'q'" in refusal(step, "cut", "product", dim="q").why


def test_what_has_side_effects_is_not_done_again() -> None:
    graph = Build(Mesh((("a", 2),)), b=4)
    drawn = graph.task("drawn", "", [graph.input("x", "b")], "b", random=True)
    kept = graph.task("forward", "", [drawn], "b")
    graph.task("back", "", [kept, drawn], "b", kind="B")
    refused = refusal(graph.step(), "recompute", kept.name)
    assert (refused.rule, refused.at, refused.why) == (
        "recompute",
        kept.name,
        "drawn is not the same when it is done again",
    )
    assert refused.remedy == "keep what it writes"


@pytest.mark.parametrize("policy", ["oases:dim=nothing"])
def test_a_policy_hands_the_reason_on(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "simulate --model gpt3-125m --gpus 2 --parallel tp2 --micro-batch-size 2 --fabric switch:2 --policy"
    code = main([*asked.split(), policy])
    told = capsys.readouterr()
    assert code == 4
    assert "has a dimension 'nothing'" in told.err
    assert "dim: one of: batch," in told.err
