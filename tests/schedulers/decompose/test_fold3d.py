"""Fold3D: the published scenario to the unit, slices that are the buffer, segments behind both slices, equal graphs, declines."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import replayed
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.memory import peak_bytes
from ringwright.ground.errors import WorkloadError
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.fold3d import fold3d
from ringwright.workloads.pipeline_chain import StageTimes, pipeline_chain
from ringwright_lab.papers import claims
from ringwright_lab.papers.figures import fold3d as figures
from ringwright_lab.papers.figures import rows
from ringwright_lab.papers.figures.pipelines import UnitCosts, steady, units

FREE, PS = UnitCosts(), 1e12
PAPER = claims.read(claims.find(["fold3d"])[0])["rows"]
MEASURED = [row for row in PAPER if "measure" in row]


def model(parallel: str, gpus: int = 8, **more: Any) -> Workload:
    return workload(GeneratedJobSpec(WorkloadSpec("gpt2-small", gpus, parallel, micro_batches=4, **more)))


def got(row: dict[str, Any]) -> float:
    return float(getattr(figures, row["measure"])(**row.get("with", {})))


def forget() -> None:
    figures.step_units.cache_clear()
    figures.over_best_split.cache_clear()


@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["figure"])
def test_every_row_of_the_paper_holds(row: dict[str, Any]) -> None:
    assert rows.holds(got(row), row["claimed"], row["tolerance"])


def test_without_the_system_every_form_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setattr(figures, "fold3d", lambda made, *_, **__: made)
    forms = [row for row in MEASURED if row["kind"] in ("form", "prediction")]
    kept = [row["figure"] for row in forms if rows.holds(got(row), row["claimed"], row["tolerance"])]
    forget()
    assert len(forms) == 3
    assert not kept


def test_messages_on_the_same_nic_make_the_gain_smaller() -> None:
    gains = [figures.over_interleaved(4, 8, message_s) for message_s in (0.0, 0.15, 0.3, 0.45)]
    assert gains == sorted(gains, reverse=True)


# ----------------------------------------------------------------------------------------------------------- invariants
@pytest.mark.parametrize("ratio", [None, 0.2, 1.0, 5.0])
def test_two_slices_are_the_buffer_and_the_first_segment_is_whole(ratio: float | None) -> None:
    step = units(2, 2, 3)
    made = fold3d(step, FREE, ratio=ratio)
    for stage in range(6):
        whole = step.payload[f"sum{stage}"]
        parts = [each for each in made.payloads if each.name.startswith(f"sum{stage}") and each.role == "dp"]
        assert sum(each.size_bytes for each in parts) == whole.size_bytes
        assert len(parts) == (1 if stage < 2 else 2)
        if stage >= 2:
            late = next(each for each in parts if each.lag)
            share = 1 / 3 if ratio is None else ratio / (ratio + 1)
            assert late.size_bytes == 4 * round(share * 480)


def test_it_trains_as_if_it_waited_and_its_rules_repeat_it() -> None:
    """Two steps carried out, the last slices flushed: parameters and what passes hand on are the same to the bit."""
    step = units(2, 2, 3)
    made = fold3d(step, FREE)
    assert check(made, warnings=False) == []
    assert prove(step, made, draws=5).equal
    again = replayed(step, made.applied)
    assert (again.tasks, again.payloads, set(again.edges)) == (made.tasks, made.payloads, set(made.edges))


def test_a_segment_runs_behind_both_slices_and_its_update_and_goes_out_in_reverse() -> None:
    made = fold3d(units(2, 4, 3), FREE)
    costs = UnitCosts(20.0)
    run = simulate(made, costs, steps=4)
    by_name = {row.name: row for row in run.laid.rows}
    for stage in range(2, 6):
        forward = int(run.starts(by_name[f"F{stage}"], 3).min())
        parts = [row for row in run.laid.rows if row.what == "operation" and row.name.startswith(f"sum{stage}")]
        assert len(parts) == 2
        assert all(int(run.ends(row, 3 if made.payload[row.name].lag else 2).max()) <= forward for row in parts)
        assert int(run.ends(by_name[f"U{stage}"], 3).max()) <= forward
    backward = [batch for name, batch in made.line("device0") if name == "B4"]
    assert backward == [3, 2, 1, 0]


def test_slices_begin_when_a_pass_enters_the_segment_before() -> None:
    """The forward slice of segment 2 waits for the forward pass of segment 0; the backward slice for its own segment."""
    run = simulate(fold3d(units(2, 4, 3), FREE), UnitCosts(1.0), steps=4)
    rows_of = {row.name: row for row in run.laid.rows}
    assert int(run.starts(rows_of["sum4.1"], 3).min()) >= int(run.ends(rows_of["F0"], 3).max())
    assert int(run.starts(rows_of["sum4.1"], 3).min()) < int(run.ends(rows_of["F2"], 3).max())
    assert int(run.starts(rows_of["sum4.0"], 2).min()) == int(run.ends(rows_of["B4"], 2).max())


@pytest.mark.parametrize("again", [False, True])
def test_the_cut_follows_forward_and_backward_time(again: bool) -> None:
    """size_f = n r / (k r + 1): with recomputation backward holds a forward pass more, which is k = 2."""
    r = 0.5
    step = pipeline_chain(2, 2, 2, times=StageTimes(r, 0.5, 0.5 + (r if again else 0)), replicas=2, elements=1200)
    made = fold3d(step, FREE)
    late = next(each for each in made.payloads if each.lag and each.role == "dp")
    assert late.size_bytes / 4 == round(1200 * r / ((2 if again else 1) * r + 1))


@pytest.mark.parametrize(("recompute", "share"), [("none", 33), ("full", 25)])
def test_a_given_ratio_is_cut_by_what_is_computed_again(recompute: str, share: int) -> None:
    """r = 1/2: n / 3 of a buffer, or n / 4 where backward computes activations again (k = 2)."""
    made = fold3d(model("pp2,vp2,dp2", 4, recompute=recompute), FREE, ratio=0.5)
    assert any(text.startswith(f"fold3d: {share} % of the gradients") for text in made.assumptions)


# --------------------------------------------------------------------------------------------------------------- models
@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize(
    ("parallel", "recompute"),
    [("pp2,vp2,dp2", "full"), pytest.param("tp2,pp2,vp2,dp2,sp", "none", marks=pytest.mark.once)],
)
def test_models_compute_the_same_in_buffers(parallel: str, recompute: str) -> None:
    (step,) = small(model(parallel, 4 if "tp" not in parallel else 8, recompute=recompute))
    made = fold3d(step, FREE)
    assert check(made, warnings=False) == []
    assert prove(step, made, draws=1).equal
    sums = [each for each in made.payloads if each.role == "dp" and each.op == "all-reduce"]
    assert sum(each.size_bytes for each in sums) == sum(
        each.size_bytes for each in step.payloads if each.role == "dp" and each.op == "all-reduce"
    )
    assert len(sums) < 20


def test_a_slow_network_gains_and_memory_tells_what_it_costs() -> None:
    step, costs = model("pp2,vp2,dp2", 4), LinkCosts(2.5e10, ring=True)
    made = fold3d(step, costs)
    before, after = (simulate(each, costs, steps=5).step_s for each in (step, made))
    assert after < before / 1.05
    held = [peak_bytes(each) for each in (step, made)]
    assert None not in held
    assert held[1] > held[0]  # type: ignore[operator]


def test_without_replicas_only_the_order_changes_and_that_is_said() -> None:
    step = pipeline_chain(2, 4, 2)
    made = fold3d(step, FREE)
    assert {each.rule for each in made.applied} == {"slots"}
    assert any("no gradients are summed" in text for text in made.assumptions)
    assert math.isclose(steady(made, FREE), steady(step, FREE))


@pytest.mark.parametrize(
    ("step", "why", "remedy"),
    [
        (units(4, 8, 1), "one segment", "vp2"),
        (pipeline_chain(2, 4, 2, schedule="zb-v"), "go there and back", "--schedule 1f1b"),
        (units(2, 4, 2, sharded=True), "only whole sums", "without zero1 and fsdp"),
        (model("pp2,vp2,zero1,dp2", 4), "only whole sums", "without zero1 and fsdp"),
        (model("dp4", 4), "one segment", "--parallel pp4,vp2"),
        (model("pp2,vp2", 2, mode="decode", seq=64), "nothing runs backward", "--mode training"),
    ],
    ids=["one stage", "folded", "sharded", "zero1", "no pipeline", "inference"],
)
def test_what_it_declines_says_why_and_what_to_type(step: Workload, why: str, remedy: str) -> None:
    with pytest.raises(WorkloadError, match=why) as refused:
        fold3d(step, FREE)
    assert remedy in str(refused.value.remedy)
