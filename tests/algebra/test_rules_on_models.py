"""Rules on whole training steps of models: every parameter, state and loss as before, on every rank, of graphs made small."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

import ringwright
from ringwright.graph.algebra import RULES, RewriteError
from ringwright.graph.algebra.account import totals
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.algebra.typed_rules import apply_spelled
from ringwright.ground.errors import UsageError
from ringwright.model.validity.workloads import check


@pytest.mark.sampled(1, "parallel")
@pytest.mark.parametrize("parallel", ["dp2", "tp2,sp,dp2", "tp2,pp2,dp2"])
def test_a_model_with_its_gradients_split_computes_the_same(parallel: str) -> None:
    gpus = {"dp2": 2, "tp2,sp,dp2": 4, "tp2,pp2,dp2": 8}[parallel]
    before = ringwright.job("gpt3-125m", gpus=gpus, parallel=parallel)
    after = apply_spelled(before, "split-all-reduce:role=dp")
    assert check(after, warnings=False) == []
    assert totals(after).wire_bytes["dp"] == pytest.approx(totals(before).wire_bytes["dp"], rel=1e-4)  # padding
    proof = prove(*small(before, after), draws=1)
    assert proof.equal, proof.differing[:5]
    assert len(proof.compared) > 100


def test_a_gather_that_is_not_of_the_gradients_slices_is_seen() -> None:
    before = ringwright.job("gpt3-125m", gpus=2, parallel="dp2")
    after = apply_spelled(before, "split-all-reduce:role=dp")
    gathers = [each for each in after.payloads if each.op == "all-gather"]
    one = gathers[5]
    other = next(each for each in gathers[6:] if each.size_bytes == one.size_bytes)
    swapped = {one.name: replace(one, source=other.source), other.name: replace(other, source=one.source)}
    wrong = replace(after, payloads=tuple(swapped.get(each.name, each) for each in after.payloads))
    assert not prove(*small(before, wrong), draws=1).equal


@pytest.mark.parametrize(
    ("spelling", "says"),
    [
        ("split:role=dp", "no rule is called 'split'"),
        ("split-all-reduce", "does not say where"),
        ("split-all-reduce:role=tp", "no payload of role 'tp'"),
        ("split-all-reduce:at=nothing", "it is no payload"),
        ("split-all-reduce:role=dp,dim=q", "has no dimension 'q'"),
        ("split-all-reduce:role=dp,size=3", "no knob 'size'"),
        ("cut:at=all.F.layer0.dense.0,dim=tokens,parts=1", ""),
        ("split-all-reduce:role", "is no knob of a rule"),
    ],
)
def test_what_is_spelled_wrongly_is_said(spelling: str, says: str) -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel="dp2")
    with pytest.raises(UsageError) as caught:
        apply_spelled(step, spelling)
    assert says in str(caught.value)
    assert caught.value.remedy


def test_rules_are_total() -> None:
    """Each rule at each kind of site of a model applies or raises RewriteError: nothing else comes out."""
    step = ringwright.job("gpt3-125m", gpus=4, parallel="tp2,sp,dp2")
    sites = [
        step.tasks[3].name,
        step.tasks[-1].name,
        step.payloads[0].name,
        step.payloads[-1].name,
        step.values[5].name,
    ]
    given = {
        "inner": "dp",
        "others": step.payloads[1].name,
        "dim": "elements",
        "before": step.tasks[5].name,
        "tasks": [("nothing", 0)],
    }
    for rule in RULES.values():
        for at in [*sites, "nothing", ""]:
            chosen = {knob: given[knob] for knob in rule.knobs if knob in given}
            with suppress(RewriteError):
                rule(step, at, **chosen)


def test_a_graph_that_names_sizes_is_not_made_small() -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel="dp2")
    cut = RULES["cut"](step, step.payloads[0].name, dim=dict(step.value[step.payloads[0].source].dims).popitem()[0])
    with pytest.raises(UsageError, match="names sizes of parts"):
        small(step, cut)
