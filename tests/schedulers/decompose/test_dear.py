"""DeAR: scatters before gathers, gathers before their layers, the same bytes and sums, and what that can gain."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ringwright.engines.job.run import JobRun, simulate
from ringwright.graph.algebra import RULES, RewriteError, replayed
from ringwright.graph.algebra.account import totals
from ringwright.graph.algebra.build import Build, partial
from ringwright.graph.algebra.equality import prove
from ringwright.ground.errors import WorkloadError
from ringwright.model.registry import scheduler, schedulers
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Mesh, Workload
from ringwright.schedulers.decompose.dear import dear
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.contracts import small_jobs
from ringwright_lab.papers.figures import dear as figures

MIB = 1 << 20
LINK = LinkCosts(1e6)


def layers(count: int = 6, size_bytes: int = 4 * MIB, ranks: int = 4, **more: Any) -> Workload:
    return chain("job", [ChainLayer(1.0, 2.0, size_bytes, update_s=0.25) for _ in range(count)], ranks, **more)


def rows(run: JobRun) -> dict[str, Any]:
    return {row.name: row for row in run.laid.rows if row.what in ("task", "operation")}


def trained(p: int = 4) -> Workload:
    """Three layers whose gradients are partial sums, and whose update is element by element: two steps are carried out."""
    graph = Build(Mesh((("dp", p),)), **{f"n{at}": 2 * p for at in range(3)})
    for at in range(3):
        x = graph.input(f"x{at}", f"n{at}", partial("dp"))
        made = graph.task(f"B{at}", "", [x], f"n{at}", partial("dp"), kind="B", value="gradient")
        total = graph.send(f"sum{at}", "AR", made, "dp", role="dp", merges="gradients")
        weights = graph.input(f"w{at}", f"n{at}", kind="parameter")
        graph.task(f"U{at}", "pointwise", [weights, total], f"n{at}", kind="U", fn="update", value="activation")
    return graph.step()


# ---------------------------------------------------------------------------------------------------------- invariants
@cache
def run_of(*, conserving: bool) -> tuple[Workload, JobRun]:
    """Backward leaves gaps: a buffer takes half of what the next one takes to be full."""
    costs = LinkCosts(4 * MIB)
    made = dear(layers(), costs, neighbours=2, conserving=conserving)
    assert check(made, warnings=False) == []
    return made, simulate(made, costs, steps=3)


@pytest.mark.parametrize("conserving", [False, True])
def test_a_layer_runs_behind_its_gather_and_update(conserving: bool) -> None:
    made, run = run_of(conserving=conserving)
    at = rows(run)
    for layer in range(6):
        gather = f"layer{layer - layer % 2}.fused.gather"
        ends = [run.ends(at[name], 1).max() for name in (gather, f"U.layer{layer}")]
        assert ends[0] <= run.starts(at[f"U.layer{layer}"], 1).min()
        assert ends[1] <= run.starts(at[f"F.layer{layer}"], 1).min()
        assert run.ends(at[gather.replace("gather", "scatter")], 0).max() <= run.starts(at[gather], 1).min()
    assert made.task["U.layer0"].lag == 1


def test_all_scatters_come_before_the_first_gather_unless_it_conserves_work() -> None:
    for conserving in (False, True):
        made, run = run_of(conserving=conserving)
        at = rows(run)
        scattered = max(run.ends(row, 0).max() for name, row in at.items() if name.endswith("scatter"))
        gathered = min(run.starts(row, 1).min() for name, row in at.items() if name.endswith("gather"))
        assert (gathered >= scattered) != conserving
    assert made.policy.boundary == "layer"


def test_scatters_of_other_groups_come_before_the_first_gather_too() -> None:
    """Gradients of experts are summed up by other ranks than the others', in a queue of their own."""
    costs = LinkCosts(4 * MIB)
    made = dear(small_jobs.experts(random.Random(1), scale=MIB), costs, neighbours=1)
    run = simulate(made, costs, steps=3)
    halves = {name: row for name, row in rows(run).items() if name.endswith((".scatter", ".gather"))}
    scattered = max(run.ends(row, 0).max() for name, row in halves.items() if name.endswith("scatter"))
    assert len({made.payload[name].role for name in halves}) == 2
    assert min(run.starts(row, 1).min() for name, row in halves.items() if name.endswith("gather")) >= scattered


def test_gathers_follow_the_forward_pass_one_ahead() -> None:
    """A small second buffer is there long before it is needed; the third begins when forward reaches the second."""
    made = dear(layers(), LinkCosts(1e9), neighbours=2)
    run = simulate(made, LinkCosts(1e9), steps=3)
    at = rows(run)
    third = run.starts(at["layer4.fused.gather"], 1).min()
    assert third >= run.ends(at["F.layer1"], 1).max()
    free = dear(layers(), LinkCosts(1e9), neighbours=2, ahead=0)
    run = simulate(free, LinkCosts(1e9), steps=3)
    assert run.starts(rows(run)["layer4.fused.gather"], 1).min() < run.ends(rows(run)["F.layer0"], 1).max()


def test_it_sends_what_an_all_reduce_sends() -> None:
    before = layers()
    assert totals(dear(before, LINK)).wire_bytes == pytest.approx(totals(before).wire_bytes)


def test_buffers_close_before_their_size_is_reached() -> None:
    """Four layers of 4 MiB stay below 20 MiB, five reach it."""
    made = dear(layers(9), LINK, threshold_mb=20)
    assert [each.size_bytes // MIB for each in made.payloads if each.op == "reduce-scatter"] == [16, 16, 4]
    alone = dear(layers(9), LINK, threshold_mb=1)
    assert len([each for each in alone.payloads if each.op == "all-gather"]) == 9


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("knobs", [{}, {"neighbours": 1}, {"conserving": True}, {"sharded": True, "neighbours": 2}])
def test_the_same_sums_to_the_bit_the_last_update_with_them(p: int, knobs: dict[str, Any]) -> None:
    before = trained(p)
    after = dear(before, LINK, **knobs)
    assert prove(before, after).equal
    again = replayed(before, after.applied)
    assert (again.tasks, again.payloads, again.values) == (after.tasks, after.payloads, after.values)


def test_sharded_updates_work_on_slices() -> None:
    after = dear(trained(), LINK, sharded=True)
    assert after.task["U0"].seconds == pytest.approx(0.25)
    assert all(any(each.how == "sliced" for each in after.value[name].layout) for name in after.task["U0"].writes)


@pytest.mark.parametrize(
    "slug", [each.slug for each in schedulers() if each.slug != "dear" and each.kind != "decompose"]
)
def test_it_composes_on_either_side(slug: str) -> None:
    for spelling in (f"dear+{slug}", f"{slug}+dear"):
        made = scheduler(spelling)[1](layers(), LINK)
        assert check(made, warnings=False) == [], spelling
        assert simulate(made, LINK, steps=3).step_s > 0


# -------------------------------------------------------------------------------------------------------------- what it gains
def test_its_bounds() -> None:
    """Cost of the card: at most 1.25, within 1 % of it at t_AR = 4 t_ff; 4 / 3 at 3 t_ff where nothing waits."""
    assert figures.pipelining(4.0, 160) == pytest.approx(1.25, rel=0.01)
    assert figures.pipelining(3.0, 160, conserving=True) == pytest.approx(4 / 3, rel=0.01)
    assert figures.pipelining(3.0, 160) <= 4 / 3.5
    assert figures.pipelining(1.0) == pytest.approx(1.0)


def test_without_dear_every_form_and_prediction_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "dear", lambda workload, *_, **__: workload)
    for each in (figures.pipelining, figures.method_s):
        each.cache_clear()
    try:
        assert figures.largest_pipelining() < 1.2375
        assert figures.largest_pipelining(conserving=True) < 1.3
        assert not any(figures.in_order(name) for name in figures.MODELS)
        assert figures.ethernet_over_infiniband() < 2
        assert figures.largest_gain("100GbIB") < 1.035
        assert figures.largest_gain("10GbE") < 1.65
    finally:
        for each in (figures.pipelining, figures.method_s):
            each.cache_clear()


# ------------------------------------------------------------------------------------------------------------------- declines
def test_it_declines_what_has_no_sums() -> None:
    for job in (layers(op="push-pull"), layers(ranks=1)):
        with pytest.raises(WorkloadError, match="no gradients are summed up") as caught:
            dear(job, LINK)
        assert "GPUs" in caught.value.remedy


def test_it_says_why_slices_cannot_be_updated() -> None:
    with pytest.raises(WorkloadError, match="slices cannot be updated") as caught:
        dear(layers(), LINK, sharded=True)
    assert "zero1" in caught.value.remedy


def test_sums_of_other_kinds_are_left_and_said() -> None:
    step = layers()
    joint = replace(step, payloads=(*step.payloads[:-1], replace(step.payloads[-1], op="push-pull")))
    said = " ".join(dear(joint, LINK).assumptions)
    assert "left as they are: 1 sums by push-pull" in said


# ---------------------------------------------------------------------------------------------------------- rule "hold"
def test_an_operation_is_held_behind_tasks_and_operations() -> None:
    step = layers(3)
    held = RULES["hold"](step, "layer2", behind=["layer0"])
    run = simulate(held, LINK, steps=1)
    assert run.starts(rows(run)["layer2"], 0).min() >= run.ends(rows(run)["layer0"], 0).max()
    assert prove(trained(), RULES["hold"](trained(), "sum0", behind=["B2"])).equal
    for behind, why in (("layer2", "nothing else"), ("", "no task"), ("strange", "no task")):
        with pytest.raises(RewriteError, match=why):
            RULES["hold"](step, "layer2", behind=behind)


def test_what_waits_for_it_cannot_be_waited_for() -> None:
    with pytest.raises(RewriteError):
        RULES["hold"](layers(3), "layer2", behind=["B.layer2", "U.layer2"])
