"""An axis that is two, sums over micro-batches sent once, gathers that begin elsewhere: proven, and refused where they are wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ringwright
from ringwright.costs.nodes import NodeCosts
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric
from ringwright.graph.algebra import RULES, RewriteError, replayed, rewritten
from ringwright.graph.algebra.account import totals
from ringwright.graph.algebra.equality import prove, small
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.jobs.pricing.siblings import Siblings
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Mesh, Workload

LEVELS = {
    "all-reduce": ("hierarchical-all-reduce", {}),
    "reduce-scatter": ("hierarchical-reduce-scatter", {}),
    "all-gather": ("hierarchical-all-gather", {"first": "across"}),
}


def by_levels(step: Workload, axis: str, inside: int, most: int = 30) -> Workload:
    """Return the step with its first operations along an axis level by level."""
    inner = f"{axis}-inside"
    mine = [each for each in step.payloads if each.axes == (axis,) and each.source and each.op in LEVELS][:most]
    rules = [(LEVELS[each.op][0], each.name, {"inner": inner, **LEVELS[each.op][1]}) for each in mine]
    return rewritten(step, [("split-axis", axis, {"inside": inside}), *rules])


@pytest.mark.sampled(1, "gpus", "parallel", "axis")
@pytest.mark.parametrize(
    ("gpus", "parallel", "axis"), [(4, "fsdp", "dp"), (8, "tp2,sp,fsdp", "dp"), (8, "tp4,sp,pp2", "tp")]
)
def test_a_model_by_levels_computes_the_same(gpus: int, parallel: str, axis: str) -> None:
    """Of FSDP too, whose gathers send what the update of the step before left, in another type of elements."""
    micro_batches = 2 if "pp" in parallel else None  # each is carried out
    before = ringwright.job("gpt3-125m", gpus=gpus, parallel=parallel, micro_batches=micro_batches)
    after = by_levels(before, axis, 2)
    assert check(after, warnings=False) == []
    assert prove(*small(before, after), draws=1).equal
    again = replayed(before, after.applied)
    assert (again.payloads, again.mesh, set(again.task)) == (after.payloads, after.mesh, set(after.task))


def test_an_axis_that_is_two_moves_nothing() -> None:
    before = ringwright.job("gpt3-125m", gpus=8, parallel="tp2,sp,dp4")
    after = RULES["split-axis"](before, "dp", inside=2)
    assert after.mesh.axes == (("dp-across", 2), ("dp-inside", 2), ("tp", 2))
    for payload in before.payloads:
        for rank in range(8):
            assert before.mesh.group(payload.axes, rank) == after.mesh.group(after.payload[payload.name].axes, rank)
    costs = NodeCosts(1e9, 4, 1e11)
    assert simulate(after, costs).step_s == simulate(before, costs).step_s


@pytest.mark.parametrize(
    ("at", "inside", "says"),
    [("ep", 2, "no axis of the mesh"), ("dp", 3, "no groups of 3"), ("dp", 4, "no groups of 4")],
)
def test_an_axis_that_cannot_be_two_is_refused(at: str, inside: int, says: str) -> None:
    with pytest.raises(RewriteError, match=says):
        RULES["split-axis"](ringwright.job("gpt3-125m", gpus=4, parallel="dp4"), at, inside=inside)


def test_an_axis_along_which_a_ring_counts_is_refused() -> None:
    step = ringwright.job("gpt3-125m", gpus=4, parallel="tp4,sp")
    gather = next(each.name for each in step.payloads if each.op == "all-gather")
    with pytest.raises(RewriteError, match="counts along it"):
        RULES["split-axis"](RULES["ring-all-gather"](step, gather), "tp", inside=2)


@pytest.mark.parametrize("ranks", [tuple(range(8)), tuple(range(8, 16)), tuple(range(3, 32, 8))])
def test_groups_along_a_part_of_an_axis_have_their_siblings(ranks: tuple[int, ...]) -> None:
    topology = fabric("dgx-a100:4")
    whole = Siblings(topology, Mesh((("dp", 32),)), frozenset())
    two = Siblings(topology, Mesh((("x", 4), ("i", 8))), frozenset())
    assert set(whole.of(ranks)) == set(two.of(ranks))
    assert len(two.of(ranks)) == (7 if len(ranks) == 4 else 0)


def test_gradients_are_added_up_before_they_are_sent() -> None:
    before = ringwright.job("gpt3-125m", gpus=2, parallel="fsdp", micro_batches=2)
    sums = [each.name for each in before.payloads if each.op == "reduce-scatter" and each.source]
    after = rewritten(before, [("accumulate", name, {}) for name in sums])
    assert prove(*small(before, after), draws=1).equal
    saved = sum(each.change.wire_bytes["dp"] for each in after.applied)
    assert totals(after).wire_bytes["dp"] - totals(before).wire_bytes["dp"] == pytest.approx(saved)
    assert totals(after).held_bytes > totals(before).held_bytes


def test_what_is_needed_in_each_micro_batch_is_not_added_up() -> None:
    step = ringwright.job("gpt3-125m", gpus=4, parallel="tp2,sp,dp2", micro_batches=2)
    scatter = next(each.name for each in step.payloads if each.op == "reduce-scatter" and each.role == "tp")
    with pytest.raises(RewriteError, match="is needed in each micro-batch"):
        RULES["accumulate"](step, scatter)
    once = next(each.name for each in step.payloads if each.per == "step" and each.op == "all-reduce")
    with pytest.raises(RewriteError, match="is sent once a step"):
        RULES["accumulate"](step, once)


def test_a_gather_begins_behind_another_task() -> None:
    before = ringwright.job("gpt3-125m", gpus=2, parallel="fsdp")
    name, task = "all.gather.layer8.dp", "all.F.layer2.dense.0"
    after = RULES["begin-behind"](before, name, task=task)
    assert before.payload[name].producers == ("all.F.layer6.dense.0",)
    assert [each for each in after.payload[name].producers if after.task[each].kind == "F"] == [task]
    assert prove(*small(before, after), draws=1).equal
    with pytest.raises(RewriteError):
        RULES["begin-behind"](before, name, task="all.F.layer9.dense.0")
    scatter = next(each.name for each in before.payloads if each.op == "reduce-scatter" and each.source)
    with pytest.raises(RewriteError, match="waits for nothing but what it sends"):
        RULES["begin-behind"](before, scatter, task=task)


def test_an_order_on_a_fabric_is_not_changed_by_names_of_axes() -> None:
    before = ringwright.job("gpt3-125m", gpus=16, parallel="fsdp")
    after = RULES["split-axis"](before, "dp", inside=8)
    costs = on_fabric(fabric("dgx-h100:2"), before)
    assert simulate(after, costs).step_s == simulate(before, costs).step_s
    assert replace(after, mesh=before.mesh, applied=()).tasks == before.tasks
