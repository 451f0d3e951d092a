"""Every rule leaves every output as it was, to the bit, at every group size; and changes what it says that it changes."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

import pytest

from algebra_cases import CASES, Case
from ringwright.graph.algebra import RULES, RewriteError, replayed
from ringwright.graph.algebra.account import totals
from ringwright.graph.algebra.equality import prove
from ringwright.ground.errors import JobEndsError, NeverArrivesError, RingwrightError
from ringwright.model.validity.workload_finding import Finding
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload

PAIRS = [pytest.param(case, p, id=f"{case.name}, {p} ranks") for case in CASES for p in case.sizes]


def rewritten(case: Case, p: int) -> tuple[Workload, Workload]:
    before = case.make(p)
    after = before
    for rule, at, knobs in case.rules:
        after = RULES[rule](after, at, **knobs)
    return before, after


@pytest.mark.sampled(60)
@pytest.mark.parametrize(("case", "p"), PAIRS)
def test_a_rule_changes_no_output(case: Case, p: int) -> None:
    before, after = rewritten(case, p)
    assert check(before, warnings=False) == []
    assert check(after, warnings=False) == []
    assert after != before
    proof = prove(before, after, draws=6)
    assert proof.equal, proof.differing
    assert [each.rule for each in after.applied] == [rule for rule, _, _ in case.rules]
    assert replayed(before, after.applied) == after


@pytest.mark.sampled(110)
@pytest.mark.parametrize(("case", "p"), PAIRS)
def test_a_rule_changes_what_it_declares(case: Case, p: int) -> None:
    before, after = rewritten(case, p)
    old, new = totals(before), totals(after)
    for role in {*old.wire_bytes, *new.wire_bytes}:
        declared = sum(each.change.wire_bytes.get(role, 0.0) for each in after.applied)
        assert new.wire_bytes.get(role, 0.0) - old.wire_bytes.get(role, 0.0) == pytest.approx(declared, abs=1e-6)
    assert new.operations - old.operations == sum(each.change.operations for each in after.applied)
    assert new.flops - old.flops == pytest.approx(sum(each.change.flops for each in after.applied))
    for name in ("launches", "traffic_bytes", "copied_bytes"):
        declared = sum(getattr(each.change, name) for each in after.applied)
        assert getattr(new, name) - getattr(old, name) == declared, name
    assert new.held_bytes - old.held_bytes <= sum(each.change.held_bytes for each in after.applied)


def test_of_rules_that_are_replayed_the_one_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are checked at once; what is not legal then is looked for one by one."""
    case = next(each for each in CASES if len(each.rules) > 1)
    before, after = rewritten(case, min(case.sizes))
    first, second, *_ = after.applied
    legal = [(each.tasks, each.payloads) for each in (before, replayed(before, [first]))]
    spoilt = Finding("task", "spoilt", "here", "another")
    legality = "ringwright.graph.algebra.rule.check"
    monkeypatch.setattr(legality, lambda each, *_, **__: [] if (each.tasks, each.payloads) in legal else [spoilt])
    with pytest.raises(RewriteError, match="spoilt") as caught:
        replayed(before, after.applied)
    assert (caught.value.rule, caught.value.at) == (second.rule, second.at)


@pytest.mark.parametrize(
    "error",
    [
        RewriteError("cut_batch", "F0", "it is one sequence", "two of them"),
        JobEndsError("dead-link", "its link is dead", between="rank 0 and rank 1", at_s=0.1, prints="timeout"),
        NeverArrivesError("4 messages never arrive", src=0, dst=1, due_s=0.5),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_comes_from_another_process(error: RingwrightError) -> None:
    """A search beside the one that answers met one, and said that it was a bug of ours."""
    back = ForkingPickler.loads(ForkingPickler.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
