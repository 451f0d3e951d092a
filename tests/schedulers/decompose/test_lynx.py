"""Lynx: the program against all choices, the two searches, memory, windows, stages, and what is computed again as it was."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

import ringwright
from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import replayed
from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.memory import peak_bytes
from ringwright.ground.errors import InfeasibleError, UsageError, WorkloadError
from ringwright.ground.units import parse_size
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts, seconds
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Mesh, Workload
from ringwright.schedulers.decompose.lynx import LayerOperation, Recomputation, Window, chosen, lynx, partitioned
from ringwright.schedulers.decompose.lynx.layers import LayersOfClass, joint
from ringwright.schedulers.decompose.lynx.program import DEMAND, KEPT, is_allowed, judged, on_demand, used
from ringwright.schedulers.decompose.lynx.search import MemoryLimits, choices_of
from ringwright.schedulers.decompose.lynx.stages import even, imbalance
from ringwright.schedulers.decompose.oases import oases
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.papers.figures import lynx as figures

pytest.importorskip("scipy")
SLOW, FAST = LinkCosts(20e9, ring=True), LinkCosts(250e9, ring=True)
GIB = 1 << 30


@cache
def model(gpus: int = 4, parallel: str = "tp4", recompute: str = "none") -> Workload:
    return ringwright.job("gpt3-125m", gpus=gpus, parallel=parallel, gpu="a100", micro_batches=4, recompute=recompute)


def room(step: Workload, share: float) -> int:
    """Return memory between what is held with full recomputation (0) and what is held with none (1)."""
    full = model(step.mesh.size, "tp4" if step.mesh.size == 4 else "tp4,pp2", "full")
    low, high = (peak_bytes(each) or 0 for each in (full, step))
    return round(low + share * (high - low))


# ------------------------------------------------------------------------------------------------------------ the program
def drawn(seed: int, count: int, windows: int) -> Recomputation:
    draw = random.Random(seed)
    names = [f"o{at}" for at in range(count)]
    operations = tuple(
        LayerOperation(
            name,
            draw.randint(1, 9) / 10,
            draw.randint(1, 20),
            tuple(sorted(draw.sample(names[:at], min(at, draw.randint(0, 2))))),
            draw.random() < 0.7,
            draw.random() < 0.1,
        )
        for at, name in enumerate(names)
    )
    waits = tuple(Window(f"w{at}", draw.randint(2, 12) / 10, draw.choice([0, 0, 2])) for at in range(windows))
    made = Recomputation(operations, waits, 0.0, draw.randint(1, 4), 2, draw.choice([0.8, 1.0]))
    least = judged(made, on_demand(made)).held_bytes
    most = judged(made, {each.name: KEPT for each in operations}).held_bytes
    return replace(made, budget_bytes=least + draw.uniform(0.0, 0.8) * max(0.0, most - least))


def every(problem: Recomputation) -> Iterator[dict[str, str]]:
    """Yield all choices: an operation is kept, computed again in a window or on demand, or left out."""
    options = [("", KEPT, *(each.name for each in problem.windows), DEMAND)] * len(problem.operations)
    for chosen_ones in itertools.product(*options):
        yield {each.name: where for each, where in zip(problem.operations, chosen_ones, strict=True) if where}


@pytest.mark.parametrize("seed", range(10))
def test_the_program_is_the_best_of_all_choices(seed: int) -> None:
    problem = drawn(seed, 3 + seed % 3, 1 + seed % 2)
    made = chosen(problem)
    assert is_allowed(problem, made.source)
    best = min(judged(problem, each).exposed_s for each in every(problem) if is_allowed(problem, each))
    assert made.exposed_s == pytest.approx(best, abs=1e-5)


def test_it_is_the_best_of_all_for_ten_operations() -> None:
    """Ten in a row, none of which reads another: what is exposed is a knapsack, which a table solves."""
    draw = random.Random(4)
    times, sizes = ([draw.randint(1, 9) for _ in range(10)] for _ in range(2))
    operations = tuple(LayerOperation(f"o{at}", float(times[at]), sizes[at]) for at in range(10))
    problem = Recomputation(operations, (Window("w", 11.0, 1),), sum(sizes) + 12.0, copies=2)
    best = float("inf")
    for kept in itertools.product((0, 1), repeat=10):
        if sum(size for size, each in zip(sizes, kept, strict=True) if each) > 12:
            continue
        left = [time for time, each in zip(times, kept, strict=True) if not each]
        sums = {0}
        for time in left:
            sums |= {each + time for each in sums if each + time <= 11}
        best = min(best, sum(left) - max(sums))
    assert chosen(problem).exposed_s == pytest.approx(best, abs=1e-4)


def test_what_cannot_be_done_again_is_kept() -> None:
    once = LayerOperation("draws", 1.0, 8, is_once=True)
    problem = Recomputation((once, LayerOperation("next", 1.0, 8, ("draws",))), (), 16.0, copies=1)
    assert chosen(replace(problem, copies=1)).source["draws"] == KEPT
    with pytest.raises(InfeasibleError, match="at the least"):
        chosen(replace(problem, budget_bytes=15.0))


def test_between_no_window_and_endless_ones() -> None:
    """Source: the card. B = 2F: nothing is gained without windows, 4/3 at the most, and more never gains less."""
    gains = [figures.hidden_gain(each / 4) for each in range(6)]
    assert gains[0] == pytest.approx(1.0)
    assert gains == sorted(gains)
    assert gains[-1] == pytest.approx(4 / 3)


# ------------------------------------------------------------------------------------------------------------ the searches
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_one_program_for_all_layers_exposes_no_more(share: float) -> None:
    """Every choice of alike layers is one of the joint program's, so that is never worse."""
    step = model(8, "tp4,pp2")
    stage = LayersOfClass(step, SLOW, "stage0")
    spare = share * GIB
    heu = choices_of(stage, MemoryLimits(0, 0.9, "heu", 1, early=True), spare)
    operations, windows = joint(stage.layers, 1)
    problem = Recomputation(
        operations, tuple(each.window for each in windows), 0.0, stage.copies, 1, 0.9, 1, has_turn=True
    )
    problem = replace(problem, budget_bytes=judged(problem, on_demand(problem)).held_bytes + spare)
    opt = chosen(problem, nodes=2_000)
    assert opt.exposed_s <= sum(each.exposed_s for each in heu.values()) * (1 + 1e-6) + 1e-9
    assert is_allowed(problem, opt.source)


@pytest.mark.parametrize("search", ["heu", "opt"])
def test_a_step_keeps_within_its_memory_and_windows(search: str) -> None:
    step = model(8, "tp4,pp2")
    limit = room(step, 0.3)
    made = lynx(step, SLOW, memory_bytes=limit, search=search)
    assert check(made, warnings=False) == []
    assert (peak_bytes(step) or 0) > limit >= (peak_bytes(made) or 0)
    again = [task for task in made.tasks if task.name not in step.task and task.kind == "B"]
    assert again
    stage = LayersOfClass(step, SLOW, "stage0")
    for layer in stage.layers:
        for each in layer.windows:
            sent = [p for p in step.payloads if each.task in {name for name, _ in p.consumers} and p.of == "stage0"]
            longest = max(seconds(SLOW, p.op, p.size_bytes, step.group("stage0", p.axes)) for p in sent)
            assert 0 < each.window.seconds <= longest


def test_windows_hide_what_is_computed_again() -> None:
    step = model(8, "tp4,pp2")
    limit = room(step, 0.3)
    in_windows, late = (lynx(step, SLOW, memory_bytes=limit, overlap=each, early=bool(each)) for each in (0.9, 0.0))
    bare, hidden, shown = (simulate(each, SLOW, steps=3).step_s for each in (step, in_windows, late))
    assert bare <= hidden * (1 + 1e-9)
    assert hidden - bare < 0.7 * (shown - bare)


# ------------------------------------------------------------------------------------------------------------ chunks
def piped(parallel: str, schedule: str, recompute: str = "none") -> Workload:
    dims = {"layers": 4, "hidden": 128, "heads": 4}
    card = WorkloadSpec("gpt3-125m", parallel="tp2,pp2" + parallel, micro_batches=4, recompute=recompute, dims=dims)
    return workload(GeneratedJobSpec(card, schedule=schedule))


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize(
    ("parallel", "schedule", "search"),
    [
        (",vp2", "1f1b", "heu"),
        (",vp2", "breadth-first", "opt"),
        (",vp2,cp2", "1f1b", "heu"),
        (",vp2", "zb-v", "opt"),
        ("", "zb-h1", "heu"),
        (",cp2", "zb-h2", "heu"),
    ],
)
def test_copies_run_behind_what_they_read_in_every_order_of_passes(parallel: str, schedule: str, search: str) -> None:
    """Chunks, and halves of backward, go round by turns: what is computed again is of the pass that reads it, or one before."""
    step = piped(parallel, schedule)
    low, high = (peak_bytes(each) or 0 for each in (piped(parallel, schedule, "full"), step))
    copied = 0
    for share in (0.4, 0.85):
        limit = round(low + share * (high - low))
        made = lynx(step, SLOW, memory_bytes=limit, search=search, reach=8)
        assert check(made, warnings=False) == []
        assert (peak_bytes(made) or 0) <= limit
        for of in made.policy.order or {}:
            line = made.line(of)
            assert len(line) == len(set(line))
        copied += sum(name.endswith(".again") for name in made.task)
        assert simulate(made, SLOW, steps=2).step_s > 0
    assert copied


def test_what_serves_nothing_is_not_done_again() -> None:
    """A solver may do in a window what nobody reads: there is nothing of it to put anywhere."""
    read, unread = LayerOperation("read", 1.0, 8), LayerOperation("unread", 0.1, 8, is_needed=False)
    problem = Recomputation((unread, read), (Window("w", 2.0, 1),), 8.0, copies=2)
    assert set(used(problem, {"unread": "w", "read": "w"})) == {"read"}
    assert set(used(problem, {"unread": "w", "read": KEPT})) == {"read"}
    behind = replace(problem, operations=(unread, replace(read, reads=("unread",))))
    assert set(used(behind, {"unread": "w", "read": "w"})) == {"unread", "read"}
    assert set(used(behind, {"unread": "w", "read": KEPT})) == {"read"}


# ------------------------------------------------------------------------------------------------------------ equality
def test_a_model_computes_the_same() -> None:
    (before,) = small(ringwright.job("gpt3-125m", gpus=2, parallel="tp2", micro_batches=1))
    full = ringwright.job("gpt3-125m", gpus=2, parallel="tp2", micro_batches=1, recompute="full")
    after = lynx(before, SLOW, memory_bytes=round(1.05 * (peak_bytes(full) or 0)))
    assert len(after.tasks) > len(before.tasks)
    assert prove(before, after, draws=1).equal
    again = replayed(before, after.applied)
    assert (again.tasks, again.values, again.policy.order) == (after.tasks, after.values, after.policy.order)


def dropped(counter: int | None) -> Workload:
    """Two layers with dropout between their products, and backward passes that read what it left."""
    graph = Build(Mesh((("tp", 2),)), b=64, h=32, f=64)
    at, held = graph.input("x", "b h"), []
    for layer in range(2):
        up, down = (
            graph.input(f"up{layer}", "h f", sliced("tp", "f")),
            graph.input(f"down{layer}", "f h", sliced("tp", "f")),
        )
        middle = graph.task(f"middle{layer}", "einsum", [at, up], "b f", sliced("tp", "f"))
        drop = graph.task(
            f"drop{layer}", "pointwise", [middle], "b f", sliced("tp", "f"), fn="dropout", counter=counter
        )
        out = graph.task(f"out{layer}", "einsum", [drop, down], "b h", partial("tp"))
        at = graph.send(f"sum{layer}", "AR", out, "tp")
        held.append((middle, drop))
    for layer in (1, 0):
        at = graph.task(f"back{layer}", "", [at, *held[layer]], "b h", kind="B")
    step = graph.step()
    layer_of = {task.name: int(task.name[-1]) for task in step.tasks}
    return replace(
        step,
        tasks=tuple(replace(task, per="micro-batch", layer=layer_of[task.name]) for task in step.tasks),
        payloads=tuple(replace(payload, per="micro-batch") for payload in step.payloads),
        values=tuple(
            replace(each, per="step" if each.name.startswith(("up", "down")) else "micro-batch") for each in step.values
        ),
    )


def test_dropout_is_done_again_with_a_counter_and_kept_without() -> None:
    for counter in (7, None):
        step = dropped(counter)
        layers = LayersOfClass(step, SLOW, "all").layers
        once = {each.name for layer in layers for each in layer.operations if each.is_once}
        assert ("drop1" in once) == (counter is None)
        least = lynx(step, SLOW, memory_bytes=(peak_bytes(step) or 0) - 1) if counter else None
        if least is not None:
            assert prove(step, least).equal
            assert (peak_bytes(least) or 0) < (peak_bytes(step) or 0)


# ------------------------------------------------------------------------------------------------------------ stages
def test_stages_that_compute_much_again_give_layers_away() -> None:
    def stage_s(stage: int, layers: int) -> float:
        return layers * (3.0 + 0.25 * (3 - stage))

    before = even(32, 4)
    after = partitioned(before, stage_s)
    assert sum(after) == 32
    assert after == sorted(after)
    times = [[stage_s(at, each) for at, each in enumerate(made)] for made in (before, after)]
    assert imbalance(times[1]) <= 0.5 * imbalance(times[0])
    best = min(
        max(stage_s(at, each) for at, each in enumerate(made))
        for made in itertools.product(range(5, 12), repeat=4)
        if sum(made) == 32
    )
    assert max(times[1]) == pytest.approx(best)


def test_even_stages_of_alike_layers_stay() -> None:
    assert partitioned([8, 8, 8, 8], lambda _, layers: layers * 2.0) == [8, 8, 8, 8]
    with pytest.raises(UsageError):
        even(3, 4)


# ------------------------------------------------------------------------------------------------------------ declines
def test_what_nothing_can_meet_names_the_least() -> None:
    step = model()
    with pytest.raises(InfeasibleError, match="at the least") as caught:
        lynx(step, SLOW, memory_bytes=GIB // 4)
    needed = parse_size(str(caught.value).split("needs ")[1].split(" at the least")[0].replace(" ", ""))
    made = lynx(step, SLOW, memory_bytes=round(needed * 1.01))
    assert (peak_bytes(made) or 0) <= needed * 1.01


def test_what_fits_is_left_as_it_is() -> None:
    step = model()
    made = lynx(step, SLOW, memory_bytes=1 << 40)
    assert (made.tasks, made.applied) == (step.tasks, ())
    assert "all fits" in " ".join(made.assumptions)


def test_it_declines_with_a_remedy() -> None:
    layers = chain("job", [ChainLayer(1.0, 2.0, 1 << 20)] * 3)
    for step, knobs, error, remedy in (
        (layers, {"memory_bytes": GIB}, WorkloadError, "--model"),
        (layers, {}, WorkloadError, "--memory"),
        (model(recompute="full"), {"memory_bytes": GIB}, WorkloadError, "--recompute none"),
        (model(), {"search": "all"}, UsageError, "heu or opt"),
        (model(), {"overlap": 2.0}, UsageError, "0 to 1"),
    ):
        with pytest.raises(error) as caught:
            lynx(step, SLOW, **knobs)
        assert remedy in caught.value.remedy


def test_passes_that_others_interrupt_are_declined() -> None:
    step = model(8, "tp4,pp2")
    pairs = oases(step, SLOW)
    with pytest.raises(WorkloadError, match="with others between") as caught:
        lynx(pairs, SLOW, memory_bytes=room(step, 0.3))
    assert "alone" in caught.value.remedy


# ------------------------------------------------------------------------------------------------------------ the paper
def test_without_lynx_every_form_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "lynx", lambda workload, *_, **__: workload)
    monkeypatch.setattr(figures, "partitioned", lambda counts, _: list(counts))
    figures.gain_over_full.cache_clear()
    try:
        assert figures.gain_over_full("pcie") < 1.02
        assert not figures.slow_links_gain_more()
        assert figures.imbalance_left() > 0.5
    finally:
        figures.gain_over_full.cache_clear()
