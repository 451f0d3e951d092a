"""Centauri: forms and chunks that compute the same, the closed form of chunks, tiers that never lose, what it declines."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

import algebra_cases as cases
import ringwright
from ringwright.costs.nodes import NodeCosts
from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import replayed
from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.memory import peak_bytes
from ringwright.ground.errors import WorkloadError
from ringwright.jobs import model_job
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.values import Work
from ringwright.model.workload import Mesh, Workload
from ringwright.schedulers.compose import compose
from ringwright.schedulers.decompose.centauri import centauri
from ringwright.schedulers.decompose.centauri._operation import (
    WHOLE,
    Axes,
    ComputedPart,
    Leg,
    OperationTier,
    PartitionChoice,
    SentPart,
    forms,
    legs,
    pipelined,
)
from ringwright.schedulers.decompose.centauri._plan import Planned, carried_out
from ringwright.schedulers.decompose.centauri._stretches import sites, stretch_of
from ringwright.schedulers.priority.p3 import p3
from ringwright_lab.papers.figures import centauri as figures

NODES = NodeCosts(1e9, 2, 1e11)  # two ranks a node, a hundred times faster inside
GRAPHS = {
    "all-reduce": cases.all_reduce,
    "reduce-scatter": cases.reduce_scatter,
    "all-gather": cases.all_gather,
    "all-to-all": cases.all_to_all,
}


def few_layers(parallel: str) -> Workload:
    """Return a step of two micro-batches of a model of three layers on eight GPUs."""
    asked = WorkloadSpec("gpt3-125m", 8, parallel, 2, dims={"layers": 3})
    return model_job.workload(model_job.GeneratedJobSpec(asked))


def planned(step: Workload, form: str, chunks: int, inside: int) -> Workload:
    """Return a step with every stretch in one form and so many chunks."""
    levels = {each.axes: inside for each in step.payloads}
    chosen = []
    for site in sites(step):
        sent = [each for each in stretch_of(step, site, levels) if isinstance(each, SentPart)]
        mine = tuple(form if form in forms(each, Axes()) else WHOLE for each in sent)
        chosen.append((site, PartitionChoice(mine, chunks, 0.0)))
    made, refused = carried_out(step, Planned(tuple(chosen), levels))
    assert refused == []
    return made


@pytest.mark.parametrize("p", [4, 6, 8])
@pytest.mark.parametrize("op", list(GRAPHS))
def test_each_form_in_chunks_computes_the_same(op: str, p: int) -> None:
    step, inside = GRAPHS[op](p), 2
    sent = SentPart(op, 1, tuple(range(p)), "tp", inside)
    for form, chunks in product(forms(sent, Axes()), (1, 2)):
        after = planned(step, form, chunks, inside)
        assert (form == WHOLE and chunks == 1) or after.applied
        proof = prove(step, after, draws=1)
        assert proof.equal, (form, chunks, proof.differing)


def test_a_block_is_cut_with_all_of_its_products() -> None:
    """Norm, products, sum and residual are one stretch: rows of a batch go through all of them one after another."""
    step = cases.block(4)
    (site,) = sites(step)
    assert (site.dim, site.at) == ("b", "sum")
    assert [step.task[name].work.meaning for name in site.names if name in step.task][:1] == ["einsum"]
    after = planned(step, WHOLE, 3, 0)
    assert [each.rule for each in after.applied] == ["cut"]
    assert prove(step, after, draws=2).equal


def test_what_levels_save_is_taken_proven_and_repeated() -> None:
    graph = Build(Mesh((("all", 8),)), b=1 << 12, h=64)
    whole = graph.task("x", "", [graph.input("in", "b h", partial("all"))], "b h", partial("all"), seconds=1e-4)
    graph.task("end", "", [graph.send("sum", "AR", whole, "all")], "b h", seconds=1e-4)
    step = graph.step()
    after = centauri(step, NODES)
    assert {"split-axis", "hierarchical-all-reduce"} <= {each.rule for each in after.applied}
    assert check(after, warnings=False) == []
    assert simulate(after, NODES).step_s < simulate(step, NODES).step_s
    again = replayed(step, after.applied)
    assert again.payloads == after.payloads


def test_levels_and_substitution_send_what_they_should() -> None:
    """2 (m - 1) / m of the bytes inside, 2 (q - 1) / (q m) across, of m ranks in each of q nodes."""
    sent = SentPart("all-reduce", 3200, tuple(range(32)), "dp", 8)
    share = {"reduce-scatter": 1, "all-gather": 1, "all-reduce": 2}
    bytes_of = {"inside": 0.0, "across": 0.0}
    for leg in legs(sent, "levels"):
        bytes_of[leg.level] += share[leg.op] * leg.size_bytes * (len(leg.ranks) - 1) / len(leg.ranks)
    assert bytes_of == {"inside": 3200 * 2 * 7 / 8, "across": 3200 * 2 * 3 / (4 * 8)}
    assert [leg.op for leg in legs(sent, "levels-scatter-gather")] == ["reduce-scatter"] * 2 + ["all-gather"] * 2


@pytest.mark.parametrize("chunks", [1, 2, 4, 8])
@pytest.mark.parametrize(("a", "b"), [(1.0, 0.5), (0.5, 1.0), (1.0, 1.0)])
def test_two_resources_take_what_the_closed_form_says(a: float, b: float, chunks: int) -> None:
    assert pipelined([("compute", a, a), ("net", b, b)], chunks) == pytest.approx(a + (chunks - 1) * max(a, b) + b)


@pytest.mark.parametrize(("start_s", "more_s"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.6, 0.2), (3.0, 0.0)])
def test_the_engine_takes_what_the_tier_foresees(start_s: float, more_s: float) -> None:
    """C = n beta = 8 s: the best of c in 1, 2, 4, 8 of a first part, further parts, and what each start and part costs more."""

    def closed(c: int) -> float:
        a, b = 8 / c + more_s, 8 / c + start_s
        return 8 / c + (c - 1) * max(a, b) + b

    best = min(closed(c) for c in (1, 2, 4, 8))
    assert figures.pipelined_s(8.0, start_s, more_s) == pytest.approx(best, rel=0.02)


def test_starts_that_cost_more_than_they_hide_leave_it_whole() -> None:
    assert figures.chunks(8.0, 8.5) == 1.0
    assert figures.chunks(8.0, 0.1) == 8.0


def test_what_none_beats_in_time_and_memory_is_kept() -> None:
    tier = OperationTier(LinkCosts(1e9, latency_s=1e-4, ring=True), least_bytes=1)
    stretch = (ComputedPart(0.01), SentPart("all-reduce", 8 << 20, (0, 1, 2, 3), "dp"), ComputedPart(0.01))
    kept = tier.pareto(stretch, Axes())
    assert len(kept) > 1
    assert [each.seconds for each in kept] == sorted(each.seconds for each in kept)
    assert [each.held_bytes for each in kept] == sorted((each.held_bytes for each in kept), reverse=True)
    assert kept[-1].chunks == 1


def test_levels_on_one_link_are_no_levels() -> None:
    tier = OperationTier(LinkCosts(1e9, ring=True))
    assert tier.levels(SentPart("all-reduce", 1 << 24, tuple(range(8)), "dp")) == 0
    assert OperationTier(NODES).levels(SentPart("all-reduce", 1 << 24, tuple(range(8)), "dp")) == 2
    assert tier.leg_s(Leg("all-reduce", 3 << 20, (0, 1)), "dp") == pytest.approx((3 << 20) / 1e9)


@pytest.mark.parametrize("parallel", ["fsdp", "tp2,sp,fsdp"])
def test_no_axis_and_no_tier_makes_a_step_longer(parallel: str) -> None:
    step, costs = few_layers(parallel), NodeCosts(25e9, 4, 300e9)
    times = [simulate(step, costs, steps=3).step_s]
    for on in range(1, len(figures.SWITCHED) + 1):
        chosen = {**figures.OFF} | {key: each for part in figures.SWITCHED[:on] for key, each in part.items()}
        times.append(simulate(centauri(step, costs, **chosen), costs, steps=3).step_s)
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(times))
    assert times[-1] < 0.95 * times[0]


def test_memory_that_is_short_keeps_gradients_apart() -> None:
    step, costs = few_layers("fsdp"), NodeCosts(25e9, 4, 300e9)
    held = peak_bytes(step) or 0
    roomy, short = (centauri(step, costs, memory_gib=gib) for gib in (64, held * 1.02 / (1 << 30)))
    assert "accumulate" in {each.rule for each in roomy.applied}
    assert "accumulate" not in {each.rule for each in short.applied}
    assert (peak_bytes(short) or 0) <= held * 1.02 < (peak_bytes(roomy) or 0)
    assert any("left out, a rank would hold" in each for each in short.assumptions)
    whole = centauri(step, costs, chunks=1)  # without chunks, whose sizes are those of the whole
    assert prove(*small(step, whole), draws=1).equal


def test_it_says_what_it_did_and_what_turns_it_on() -> None:
    made = centauri(few_layers("fsdp"), NodeCosts(25e9, 4, 300e9))
    said = [each for each in made.assumptions if each.startswith("centauri: ")]
    assert any("step " in each and " ms" in each for each in said)
    assert "--tp-comm-overlap" in said[-1]
    assert made.policy.by["agreement"] == "centauri"


def test_under_another_scheduler() -> None:
    step, costs = ringwright.job("gpt3-125m", gpus=8, parallel="dp8"), NodeCosts(25e9, 4, 300e9)
    made = compose(p3, centauri)(step, costs)
    assert made.policy.by["queue"] == "p3"
    assert made.applied
    assert simulate(made, costs).step_s > 0


def test_nothing_to_partition_is_declined() -> None:
    with pytest.raises(WorkloadError, match="no collective of several ranks") as caught:
        centauri(ringwright.job("gpt3-125m", gpus=1), LinkCosts(1e9))
    assert caught.value.remedy


def test_rows_that_are_not_cut_are_left_in_words() -> None:
    """A product whose work says that it can be cut, before a task that draws by place: the rule refuses, and that is said."""
    graph = Build(Mesh((("a", 4),)), b=64, h=4, f=4)
    x, w = graph.input("x", "b h", sliced("a", "h")), graph.input("w", "h f", sliced("a", "h"))
    y = graph.task("y", "einsum", [x, w], "b f", partial("a"), seconds=8.0, cost=Work(cuts={"b": 0.0}))
    total = graph.send("sum", "AR", y, "a")
    graph.task("drop", "pointwise", [total], "b f", fn="dropout", seconds=1.0)
    step = graph.step()
    (site,) = sites(step)
    assert "drop" not in site.names
    assert prove(step, planned(step, WHOLE, 4, 0)).equal
