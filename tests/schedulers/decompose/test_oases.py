"""Oases: halves that take turns, sums that are not sent again, the plan of degrees, and what all of it may not change."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

import ringwright
from block_jobs import blocks
from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import RULES, RewriteError, replayed
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.pipelines import order
from ringwright.ground.errors import InfeasibleError, UsageError, WorkloadError
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.oases import PlannedLayer, oases, planned
from ringwright.schedulers.decompose.oases.planner import held, seconds
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.papers.figures import oases as figures
from ringwright_lab.papers.figures.oases_profile import layer_ms

LINK = LinkCosts(1e9)


@cache
def model(recompute: str = "full") -> Workload:
    """A model of twelve layers whose values are small enough to be carried out."""
    made = ringwright.job("gpt3-125m", gpus=2, parallel="tp2", micro_batch_size=2, micro_batches=1, recompute=recompute)
    return small(made)[0]


# ------------------------------------------------------------------------------------------------------------ equality
@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("knobs", [{}, {"form": "domino"}, {"halves": "micro-batches"}])
def test_blocks_by_turns_compute_the_same(p: int, knobs: dict[str, str]) -> None:
    before = blocks(p)
    after = oases(before, LINK, dim="b", **knobs)
    assert check(after, warnings=False) == []
    assert prove(before, after).equal
    again = replayed(before, after.applied)
    assert (again.tasks, again.payloads, again.values, again.policy.order) == (
        after.tasks,
        after.payloads,
        after.values,
        after.policy.order,
    )


def test_a_model_by_turns_computes_the_same_and_sends_less() -> None:
    """Every gradient, state and loss is compared; a block is computed again without a sum."""
    before = model()
    after = oases(before, LINK)
    assert check(after, warnings=False) == []
    lost = [f"all.R.layer{at}.leave.7.all-reduce" for at in reversed(range(12))]  # which nobody reads
    proof = prove(before, after, draws=1)
    assert list(proof.differing) == lost
    assert len(proof.compared) > 150
    kept = oases(before, LINK, schedule="optim-comm")
    sums = [len([each for each in made.payloads if each.role == "tp"]) for made in (before, kept)]
    assert sums[0] - sums[1] == 24  # two of each of twelve layers


def test_domino_cuts_columns_and_keeps_gradients_of_weights_whole() -> None:
    after = oases(blocks(), LINK, dim="b", form="domino")
    assert len([task for task in after.tasks if task.kind == "dW"]) == 2
    assert len(after.payloads) == 4 * 2 * 2  # each of four sums by halves, and each half by columns
    assert "8 products are cut by columns" in " ".join(after.assumptions)


# ------------------------------------------------------------------------------------------------------------ turns and time
@pytest.mark.parametrize("hidden", [1024, 2048, 3072, 4096])
def test_its_steps_take_what_the_closed_forms_say(hidden: int) -> None:
    """Source: the card's cost model. Halves by turns: 2 (max(f, c) + max(f + b, c)) for attention and MLP, of half a batch each."""
    whole, half = (layer_ms(hidden, 4, sequences) for sequences in (4, 2))
    layers = figures.LAYERS[hidden]
    forward, back = whole.attention + whole.mlp, whole.attention_back + whole.mlp_back
    costs = figures.sums_of(hidden, 1.0)
    expected = {
        "default-checkpoint": 2 * forward + back + 6 * whole.sum,
        "optim-comm": 2 * forward + back + 4 * whole.sum,
        "oases": 2
        * sum(max(each, half.sum) for each in (half.attention, half.mlp, half.attention + half.attention_back))
        + 2 * max(half.mlp + half.mlp_back, half.sum),
    }
    for schedule, layer_s in expected.items():
        run = simulate(oases(figures.layers_of(hidden), costs, schedule=schedule), costs, steps=2)
        assert run.step_s * 1e3 == pytest.approx(layers * layer_s, rel=0.04), schedule


def test_six_sums_a_layer_become_four_by_halves() -> None:
    before = figures.layers_of(4096)
    layers = figures.LAYERS[4096]
    after = oases(before, figures.sums_of(4096, 1.0))
    assert [len(each.payloads) for each in (before, after)] == [6 * layers, 2 * 4 * layers]
    assert sum(each.size_bytes for each in after.payloads) * 6 == sum(each.size_bytes for each in before.payloads) * 4


def test_halves_hide_the_sums_of_a_model() -> None:
    step = ringwright.job("llama3-8b", gpus=8, parallel="tp8", micro_batch_size=2, micro_batches=2)
    link = LinkCosts(200e9, ring=True)
    before, after = simulate(step, link, steps=2), simulate(oases(step, link), link, steps=2)
    compute = sum(task.seconds for task in step.tasks if task.kind in ("F", "dO", "dW"))
    assert before.step_s > 1.1 * 2 * compute
    assert after.step_s < 0.75 * before.step_s + 0.25 * 2 * compute


def test_halves_take_turns_block_by_block() -> None:
    line = [name for name, batch in oases(blocks(), LINK, dim="b").line("all") if not batch and name.startswith("out")]
    assert [name.partition("~")[0] for name in line] == ["out0.0", "out0.1", "out1.0", "out1.1"]


# ------------------------------------------------------------------------------------------------------------ two micro-batches
def test_two_micro_batches_take_turns_where_one_is_a_single_sequence() -> None:
    step = ringwright.job("llama3-8b", gpus=16, parallel="tp4,pp2,dp2", micro_batches=4)
    made = oases(step, LINK)
    assert made.tasks == step.tasks
    assert "two micro-batches take turns" in " ".join(made.assumptions)
    first = [batch for name, batch in made.line("stage0") if made.task[name].slot[0] == "F"][:8]
    assert set(first) == {0, 1}
    assert sorted(made.line("stage0")) == sorted(step.line("stage0"))
    assert simulate(made, LINK, steps=2).step_s > 0


@pytest.mark.parametrize(
    ("parallel", "batches", "what", "remedy"),
    [
        ("tp2", 3, "are no pairs", "even"),
        ("tp2,pp2,vp2", 6, "3 pairs, and chunks take turns of 2", "--micro-batches 4"),
    ],
)
def test_what_makes_no_pairs_is_declined(parallel: str, batches: int, what: str, remedy: str) -> None:
    step = ringwright.job("gpt3-125m", parallel=parallel, micro_batches=batches)
    with pytest.raises(WorkloadError, match=what) as caught:
        oases(step, LINK)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "breadth-first", "aiao"])
def test_pairs_go_round_the_chunks_as_their_schedule_runs_half_as_many(schedule: str) -> None:
    step = ringwright.job("gpt3-125m", gpus=4, parallel="tp2,pp2,vp2", micro_batches=8, schedule=schedule)
    made = oases(step, LINK)
    for device, of in enumerate(("stage0", "stage1")):
        line = made.line(of)
        assert sorted(line) == sorted(step.line(of))
        slots = dict.fromkeys((*made.task[name].slot, batch // 2) for name, batch in line)
        assert tuple(slots) == order(schedule, 2, device, 4, 2)
        turns = [batch % 2 for name, batch in line if made.task[name].slot == ("F", 1) and batch in (2, 3)]
        assert sum(one != other for one, other in pairwise(turns)) > 8
    assert simulate(made, LINK, steps=2).step_s > 0


def test_halves_of_a_batch_go_round_the_chunks() -> None:
    step = ringwright.job("gpt3-125m", gpus=4, parallel="tp2,pp2,vp2", micro_batches=4, micro_batch_size=2)
    made = oases(step, LINK)
    assert check(made, warnings=False) == []
    assert len(made.tasks) > 1.5 * len(step.tasks)


def test_pairs_of_an_unknown_order_are_declined() -> None:
    step = ringwright.job("gpt3-125m", gpus=4, parallel="tp2,pp2,vp2", micro_batches=4, schedule="zb-v")
    with pytest.raises(WorkloadError, match="that of pairs is not known") as caught:
        oases(step, LINK)
    assert "--schedule 1f1b" in caught.value.remedy


# ------------------------------------------------------------------------------------------------------------ declines
def test_it_declines_what_has_nothing_to_cut() -> None:
    layers = chain("job", [ChainLayer(1.0, 2.0, 1 << 20)] * 3)
    for step, knobs, remedy in (
        (layers, {}, "--model"),
        (ringwright.job("gpt3-125m", gpus=2, parallel="dp2", micro_batch_size=2), {}, "tp2"),
        (ringwright.job("gpt3-125m", gpus=2, parallel="tp2"), {"halves": "batch"}, "--micro-batch-size 2"),
        (model("none"), {"schedule": "optim-comm"}, "--recompute full"),
    ):
        with pytest.raises(WorkloadError) as caught:
            oases(step, LINK, **knobs)
        assert remedy in caught.value.remedy


@pytest.mark.parametrize("knob", ["schedule", "form", "halves"])
def test_a_word_that_is_none_is_refused(knob: str) -> None:
    with pytest.raises(UsageError, match="nonsense") as caught:
        oases(blocks(), LINK, **{knob: "nonsense"})
    assert "one of" in caught.value.remedy


# ------------------------------------------------------------------------------------------------------------ the plan
def drawn(seed: int, count: int) -> list[PlannedLayer]:
    draw = random.Random(seed)
    layers = []
    for _ in range(count):
        work, sent, size = draw.uniform(1, 9), draw.uniform(0.2, 4), draw.uniform(1, 4)
        degrees = (1, 2, 4)
        layers.append(
            PlannedLayer(
                {t: work / t + 0.1 * t for t in degrees},
                {t: 2 * work / t for t in degrees},
                {t: sent * (t > 1) * t**0.5 for t in degrees},
                {t: size / t for t in degrees},
            )
        )
    return layers


@pytest.mark.parametrize("seed", range(12))
def test_the_plan_is_the_best_of_all(seed: int) -> None:
    pytest.importorskip("scipy")
    layers = drawn(seed, 2 + seed % 5)
    room = 0.6 * sum(layer.held_bytes[1] for layer in layers)
    plan = planned(layers, room)
    every = [each for each in itertools.product((1, 2, 4), repeat=len(layers)) if held(layers, each) <= room]
    best = min(seconds(layers, each) for each in every)
    assert plan.seconds == pytest.approx(best)
    assert plan.seconds == pytest.approx(seconds(layers, plan.degrees))
    assert plan.held_bytes <= room * (1 + 1e-9)


def test_a_plan_that_nothing_fits_names_the_least() -> None:
    layers = drawn(3, 3)
    least = sum(layer.held_bytes[4] for layer in layers)
    with pytest.raises(InfeasibleError, match="the least is"):
        planned(layers, least * 0.99)
    with pytest.raises(UsageError):
        planned([], 1.0)


# ------------------------------------------------------------------------------------------------------------ rules
def test_reuse_refuses_what_was_not_computed_before() -> None:
    step = figures.layers_of(12288)
    with pytest.raises(RewriteError, match="nothing was computed"):
        RULES["reuse"](step, "mlp-back.1.send")
    with pytest.raises(RewriteError, match="no payload"):
        RULES["reuse"](step, "again-mlp.1")
    other = replace(
        step, tasks=tuple(replace(t, work=replace(t.work, settings={})) if t.work else t for t in step.tasks)
    )
    with pytest.raises(RewriteError, match="nothing was computed"):
        RULES["reuse"](other, "again-mlp.1.send")


def test_only_what_computes_nothing_is_left_out() -> None:
    step = figures.layers_of(12288)
    assert "again.1" not in RULES["unbar"](step, "again.1").task
    with pytest.raises(RewriteError, match="does something"):
        RULES["unbar"](step, "mlp.1")


# ------------------------------------------------------------------------------------------------------------ the paper
def test_without_oases_every_form_and_prediction_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "oases", lambda workload, *_, **__: workload)
    kept = (figures.gain_at, figures.fit, figures.expert_gain)
    for each in kept:
        each.cache_clear()
    try:
        assert figures.gain(1024, nvlink=True) == pytest.approx(1.0)
        assert max(figures.bound(hidden) for hidden in (1024, 4096, 12288)) == pytest.approx(1.0)
        assert not figures.order(2048)
        assert figures.sums_kept(2048) == pytest.approx(1.0)
        assert figures.slowdown() < 1.15
    finally:
        for each in kept:
            each.cache_clear()


@pytest.mark.slow
def test_without_turns_experts_gain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "oases", lambda workload, *_, **__: workload)
    figures.expert_gain.cache_clear()
    assert figures.expert_gain(16) == pytest.approx(1.0)
    assert not figures.experts_need_wide_groups()
    figures.expert_gain.cache_clear()
