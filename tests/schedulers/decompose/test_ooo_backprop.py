"""Out-of-order backprop: published makespans, equal graphs, updates before their forward pass, live micro-batches, first-k."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import RULES, RewriteError, replayed
from ringwright.graph.algebra.assumed_values import valued
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.pipelines import Shape
from ringwright.graph.pipelines.fast_forward import PassTimes, fast_forward
from ringwright.ground.errors import UsageError, WorkloadError
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose._first_k import LayerTimes, best_k, step_s
from ringwright.schedulers.decompose.ooo_backprop import ooo_backprop
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.pipeline_chain import StageTimes, pipeline_chain
from ringwright_lab.papers import claims
from ringwright_lab.papers.figures import ooo_backprop as figures
from ringwright_lab.papers.figures import rows
from ringwright_lab.papers.figures.pipelines import UnitCosts, computed, plain, steady, units

FREE, PS = UnitCosts(), 1e12
PAPER = claims.read(claims.find(["ooo-backprop"])[0])["rows"]
MEASURED = [row for row in PAPER if "measure" in row]
FAILED = [row for row in MEASURED if str(row.get("note", "")).startswith("NOT reached")]


def model(parallel: str, gpus: int = 4, **more: Any) -> Workload:
    return workload(GeneratedJobSpec(WorkloadSpec("gpt2-small", gpus, parallel, micro_batches=4, **more)))


def got(row: dict[str, Any]) -> float:
    return float(getattr(figures, row["measure"])(**row.get("with", {})))


@pytest.mark.sampled(5, "*")
@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["figure"])
def test_rows_hold_or_say_that_they_do_not(row: dict[str, Any]) -> None:
    assert rows.holds(got(row), row["claimed"], row["tolerance"]) == (row not in FAILED)


def test_without_the_system_every_form_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    figures.step_s.cache_clear()
    monkeypatch.setattr(figures, "ooo_backprop", lambda made, *_, **__: made)
    forms = [row for row in MEASURED if row["kind"] in ("form", "prediction") or row["measure"] == "over_gpipe"]
    kept = [row["figure"] for row in forms if rows.holds(got(row), row["claimed"], row["tolerance"])]
    figures.step_s.cache_clear()
    assert len(forms) == 6
    assert not kept


# ------------------------------------------------------------------------------------------------------------ pipelines
@pytest.mark.parametrize("times", [StageTimes(), StageTimes(2.0, 3.0, 1.0), StageTimes(1.0, 1.0, 4.0)])
@pytest.mark.parametrize(("p", "m", "v"), [(4, 4, 1), (4, 6, 2), (3, 5, 3)])
def test_fast_forwarding_leaves_the_bubble_of_inputs_alone(p: int, m: int, v: int, times: StageTimes) -> None:
    """(p - 1)(f + o) of one stage, however long gradients of weights take: nothing waits for them."""
    step = pipeline_chain(p, m, v, times=times, splits=True)
    work = m * v * (times.forward_s + times.inputs_s + times.weights_s)
    made = ooo_backprop(step, FREE)
    if m >= p:
        assert computed(made) == work + (p - 1) * (times.forward_s + times.inputs_s)
    assert check(made, warnings=False) == []
    assert computed(made) <= computed(step)


def test_gradients_of_weights_go_first_where_they_keep_no_one_waiting() -> None:
    """The first device frees what it keeps in order; the last one hands on all it has before; a gap is filled that is long enough."""
    orders = fast_forward(Shape(3, 4), lambda _: PassTimes())
    first = [slot for slot in orders[0] if slot[0] != "F"]
    assert first == [
        ("I", 0, 0),
        ("W", 0, 0),
        ("I", 0, 1),
        ("W", 0, 1),
        ("I", 0, 2),
        ("W", 0, 2),
        ("I", 0, 3),
        ("W", 0, 3),
    ]
    last = [phase for phase, _, _ in orders[2] if phase != "F"]
    assert last == ["I"] * 4 + ["W"] * 4
    uneven = fast_forward(Shape(3, 4), lambda stage: PassTimes(inputs_s=3.0 if stage == 2 else 1.0))
    assert [phase for phase, _, _ in uneven[1] if phase != "F"] == ["I", "W"] * 4
    late = fast_forward(Shape(3, 4), lambda stage: PassTimes(inputs_s=3.0 if stage == 2 else 1.0, weights_s=2.5))
    assert [phase for phase, _, _ in late[1] if phase != "F"] == ["I"] * 4 + ["W"] * 4


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("live", [1, 2, 4, 5, 7, 9])
def test_a_limit_of_live_micro_batches_holds_and_more_of_them_are_no_slower(live: int) -> None:
    step = plain(4, 12, 1)
    made = ooo_backprop(step, FREE, live=live)
    for each in made.classes:
        kinds = [made.task[name].kind for name, _ in made.line(each.name)]
        assert max(itertools.accumulate((k == "F") - (k == "dW") for k in kinds)) <= live
    assert prove(step, made, draws=1).equal
    assert steady(made, FREE) == {1: 108, 2: 81, 4: 39, 5: 38, 7: 36, 9: 36}[live]


def test_whole_backward_passes_are_split_and_said_so() -> None:
    step = units(2, 4, 2)
    made = ooo_backprop(step, FREE)
    assert prove(step, made).equal
    assert any("backward tasks are split" in text for text in made.assumptions)
    again = replayed(step, made.applied)
    assert {task.name for task in again.tasks} == {task.name for task in made.tasks}
    assert again.policy.order == made.policy.order
    third = ooo_backprop(step, FREE, share=0.25)
    halves = {task.kind: task.seconds for task in third.tasks if task.kind in ("dO", "dW")}
    assert halves == {"dO": 0.5, "dW": 1.5}


# -------------------------------------------------------------------------------------------------------- data parallel
@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize("parallel", ["dp4", "pp2,dp2", "pp2,vp2,dp2"])
def test_models_compute_the_same(parallel: str) -> None:
    step = model(parallel)
    made = ooo_backprop(step, LinkCosts(1e10))
    assert check(made, warnings=False) == []
    before, after = small(step, made)
    assert prove(before, after, draws=1).equal


def test_the_first_k_layers_compute_gradients_of_weights_last_in_their_own_order() -> None:
    made = ooo_backprop(model("dp4"), FREE, k=3)
    line = [made.task[name] for name, batch in made.line("all") if batch == 3]
    tail = list(dict.fromkeys(task.layer for task in itertools.takewhile(lambda t: t.kind == "dW", reversed(line))))
    assert tail == [2, 1, 0]


def test_a_forward_pass_waits_for_its_update_and_the_best_k_is_not_slower_than_none() -> None:
    """Sums as long as backward: what the next forward pass needs first is released sooner, and so is the step."""
    step = chain("eight", [ChainLayer(1.0, 2.0, 1 << 20) for _ in range(8)], ranks=4)
    costs = LinkCosts((1 << 20) / 1.5)
    runs = {k: simulate(ooo_backprop(step, costs, k=k), costs, steps=6) for k in range(9)}
    chosen = simulate(ooo_backprop(step, costs), costs, steps=6)
    assert chosen.step_s == pytest.approx(min(run.step_s for run in runs.values()))
    assert chosen.step_s < runs[0].step_s
    ends = {row.name: chosen.ends(row, 3)[0] for row in chosen.laid.rows if row.what == "task" and row.kind == "U"}
    starts = {row.name: chosen.starts(row, 4)[0] for row in chosen.laid.rows if row.what == "task" and row.kind == "F"}
    assert all(starts[f"F.layer{at}"] >= ends[f"U.layer{at}"] for at in range(8))


@pytest.mark.parametrize("sum_s", [0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("k", [0, 2, 5, 6])
def test_the_cost_model_is_what_the_engine_takes(sum_s: float, k: int) -> None:
    layers = [LayerTimes(1.0, 1.0, 1.0, sum_s) for _ in range(6)]
    step = chain("six", [ChainLayer(1.0, 2.0, 1 << 20) for _ in range(6)], ranks=4)
    costs = LinkCosts((1 << 20) / sum_s)
    run = simulate(ooo_backprop(step, costs, k=k), costs, steps=8)
    assert step_s(layers, k) == pytest.approx(run.step_s, rel=0.05)
    assert best_k(layers).is_best


# ------------------------------------------------------------------------------------------------------------- declined
@pytest.mark.parametrize(
    ("step", "why", "remedy"),
    [
        (pipeline_chain(2, 4, 2, schedule="zb-v"), "go there and back", "--schedule 1f1b"),
        (pipeline_chain(2, 4, schedule="2bw"), "no bubble to fill", "--schedule 1f1b"),
        (chain("one", [ChainLayer(1.0, 2.0, 64)]), "of one layer", "--model in place of a recording"),
        (model("tp4"), "no gradients are summed up once a step", "--parallel pp4"),
        (model("dp4,fsdp"), "no gradients are summed up once a step", "without fsdp"),
        (model("pp2", 2, mode="decode", seq=64), "nothing computes gradients of weights", "--mode training"),
    ],
    ids=["folded", "never emptied", "one layer", "one GPU", "sharded", "inference"],
)
def test_what_it_declines_says_why_and_what_to_type(step: Workload, why: str, remedy: str) -> None:
    with pytest.raises(WorkloadError, match=why) as refused:
        ooo_backprop(step, LinkCosts(1e10))
    assert remedy in str(refused.value.remedy)


def test_a_limit_in_a_loop_is_refused() -> None:
    with pytest.raises(UsageError, match="one stage a device"):
        ooo_backprop(units(2, 4, 2), FREE, live=2)


# ------------------------------------------------------------------------------------------------------------- the rule
def test_a_split_backward_pass_hands_on_before_its_gradients_of_weights() -> None:
    step = units(2, 2, 2)
    made = RULES["split-backward"](step, "B1", share=0.25)
    assert prove(step, made).equal
    assert made.payload["B1-B0"].producers == ("B1.inputs",)
    assert made.payload["sum1"].producers == ("B1.weights",)
    assert [made.task[name].seconds for name in ("B1.inputs", "B1.weights")] == [0.5, 1.5]
    recorded = RULES["split-backward"](valued(chain("c", [ChainLayer(1.0, 2.0, 64)] * 2)), "B.layer1")
    assert recorded.payload["layer1"].producers == ("B.layer1.weights",)
    assert any((edge.src, edge.dst) == ("B.layer1.inputs", "B.layer0") for edge in recorded.edges)
    assert not any((edge.src, edge.dst) == ("B.layer1.weights", "B.layer0") for edge in recorded.edges)


@pytest.mark.parametrize(
    ("at", "knobs", "why"),
    [("F1", {}, "no backward task"), ("B1", {"share": 1.0}, "leaves nothing"), ("B9", {}, "no task")],
)
def test_the_rule_refuses_what_has_no_halves(at: str, knobs: dict[str, Any], why: str) -> None:
    with pytest.raises(RewriteError, match=why):
        RULES["split-backward"](units(2, 2, 2), at, **knobs)
    with pytest.raises(RewriteError, match="no gradient of weights"):
        RULES["split-backward"](pipeline_chain(2, 2), "B1")
