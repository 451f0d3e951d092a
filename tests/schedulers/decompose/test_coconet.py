"""CoCoNet: its nine schedules are equal to the bit, the tuner tries three of them, and what is known of a job decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

import ringwright
from ringwright.graph.algebra import replayed
from ringwright.graph.algebra.account import totals
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.algebra.stages import StageProgram
from ringwright.graph.memory import peak_bytes
from ringwright.ground.errors import WorkloadError
from ringwright.model.registry import scheduler
from ringwright.model.stages import LinkCosts, Stage
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.coconet import autotuned, coconet, step_s
from ringwright.schedulers.decompose.coconet.products import summed_products
from ringwright.schedulers.decompose.coconet.schedules import (
    message_schedules,
    optimizer_schedules,
    product_schedules,
    sum_site,
)
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.papers.figures import coconet as figures

LINK = LinkCosts(1e9, 1e-6, ring=True)


def product(p: int, seconds: float = 1.0) -> Workload:
    step = StageProgram(p, b=2 * p, h=4, f=2 * p)
    x, w = step.input("x", "b f", "sliced", "f"), step.input("w", "f h", "sliced", "f")
    total = step.all_reduce("sum", step.matmul("y", x, w, "b h", seconds=seconds))
    biased = step.pointwise("biased", "add", total, step.input("bias", "h"))
    step.pointwise("out", "add", step.dropout("dropped", biased, 7), step.input("r", "b h"))
    return step.done()


def message(p: int) -> Workload:
    step = StageProgram(p, groups=2, b=2 * p, h=4)
    arrived = step.send("z", step.all_reduce("sum", step.input("x", "b h", "local")))
    biased = step.pointwise("biased", "add", arrived, step.input("bias", "h", group=1))
    step.pointwise("out", "add", step.dropout("dropped", biased, 7), step.input("r", "b h", group=1))
    return step.done()


@dataclass(frozen=True)
class Trees:
    """Sums go by trees where that is shorter than a ring; their halves have rings."""

    rate: float = 1e9
    hop_s: float = 1e-5

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        p = len(ranks)
        ring_s = (p - 1) * self.hop_s + (p - 1) / p * size_bytes / self.rate
        tree_s = 4 * self.hop_s + 4 * size_bytes / self.rate
        return (Stage(min(2 * ring_s, tree_s) if op == "all-reduce" else ring_s),)


# --------------------------------------------------------------------------------------------------------- named schedules
@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize(
    ("make", "schedules", "names"),
    [
        (lambda p: figures.optimizer("sgd", p, 2 * p), optimizer_schedules, ["AR-C", "RS-C-AG", "fuse(RS-C-AG)"]),
        (lambda p: figures.optimizer("adam", p, 2 * p), optimizer_schedules, ["AR-C", "RS-C-AG", "fuse(RS-C-AG)"]),
        (lambda p: figures.optimizer("lamb", p, 2 * p), optimizer_schedules, ["AR-C", "RS-C-AG", "fuse(RS-C-AG)"]),
        (product, product_schedules, ["MM-AR-C", "MM-RS-C-AG", "ol(MM, fuse(RS-C-AG))"]),
        (
            message,
            lambda w, at: message_schedules(w, at, dim="h"),
            ["AR-P2P-C", "RS-P2P-C-AG", "ol(RS, fuse(P2P-C-AG))"],
        ),
    ],
)
def test_named_schedules_are_equal_to_the_bit(
    p: int, make: Callable[[int], Workload], schedules: Callable[[Workload, str], object], names: list[str]
) -> None:
    before = make(p)
    made = dict(schedules(before, "sum"))  # type: ignore[call-overload]
    assert list(made) == names
    for name, after in made.items():
        assert check(after, warnings=False) == [], name
        assert prove(before, after).equal, name
        again = replayed(before, after.applied)
        assert (again.tasks, again.payloads) == (after.tasks, after.payloads), name


def test_all_of_adam_is_one_kernel_on_slices() -> None:
    made = dict(optimizer_schedules(figures.optimizer("adam", 4, 8, 7.0), "sum"))
    last = made["fuse(RS-C-AG)"]
    assert [task.name for task in last.tasks if task.seconds] == ["m.faded.fused"]
    assert [each.op for each in last.payloads] == ["reduce-scatter", "all-gather"]
    assert {last.value[name].along("rank").how for name in ("m", "v")} == {"sliced"}  # type: ignore[union-attr]
    assert last.task["m.faded.fused"].seconds == pytest.approx(7.0 / 4)


def test_lamb_sums_norms_of_slices() -> None:
    made = dict(optimizer_schedules(figures.optimizer("lamb", 4, 8), "sum"))["RS-C-AG"]
    small = [each for each in made.payloads if each.op == "all-reduce"]
    assert [each.size_bytes for each in small] == [4]


def test_messages_carry_a_slice() -> None:
    made = dict(message_schedules(message(4), "sum", dim="h"))
    assert [totals(each).wire_bytes["pp"] for each in made.values()] == [128, 32, 32]
    assert [totals(each).wire_bytes["tp"] for each in made.values()] == [192, 96, 96]


# ------------------------------------------------------------------------------------------------------------- the tuner
@pytest.mark.parametrize("kind", ["sgd", "adam", "lamb"])
def test_it_takes_the_sum_for_small_tensors_and_the_kernel_for_large_ones(kind: str) -> None:
    small, large = (autotuned(figures.optimizer(kind, 16, n, n * 3.5e-11), Trees(), "sum") for n in (1 << 10, 1 << 26))
    assert list(small[1]) == ["AR-C", "RS-C-AG", "fuse(RS-C-AG)"]
    assert small[0] == "AR-C"
    assert large[0] == "fuse(RS-C-AG)"
    assert large[1]["fuse(RS-C-AG)"] < large[1]["AR-C"]


def test_auto_decides_as_the_tuner_does() -> None:
    for n in (1 << 10, 1 << 26):
        step = figures.optimizer("adam", 16, n, n * 3.5e-11)
        best = min(autotuned(step, Trees(), "sum")[1].values())
        assert step_s(coconet(step, Trees()), Trees()) == pytest.approx(best)


def test_a_product_overlaps_its_ring() -> None:
    step = product(4)
    block = 8 * 4 * 4 / 4
    costs = LinkCosts(block / 0.25, ring=True)
    made = coconet(step, costs)
    assert step_s(made, costs) == pytest.approx(0.25 + 3 * 0.25 + 3 * 0.25)
    assert step_s(step, costs) == pytest.approx(1.0 + 6 * 0.25)
    assert "ol(MM, fuse(RS-C-AG)) at 1" in made.assumptions[-2]
    assert "_micro_pipeline_tp" in made.assumptions[-1]
    assert prove(step, made).equal


def test_it_composes_with_an_order() -> None:
    step = figures.optimizer("adam", 4, 1 << 20, 1e-3)
    for spelling in ("coconet+p3", "p3+coconet", "coconet:schedule=fuse"):
        made = scheduler(spelling)[1](step, LINK)
        assert check(made, warnings=False) == [], spelling
        assert prove(*(figures.optimizer("adam", 4, 8),) * 2).equal


# ------------------------------------------------------------------------------------------------------------------ models
@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize(
    ("gpus", "parallel", "schedule"),
    [
        (2, "dp2", "fuse"),
        pytest.param(4, "tp2,sp,dp2", "fuse", marks=pytest.mark.once),  # gradients of norms are summed over tp, too
        pytest.param(4, "pp2,dp2", "rs-c-ag", marks=pytest.mark.once),  # a matrix is of the first and the last stage
        pytest.param(4, "cp2,dp2", "fuse", marks=pytest.mark.once),  # groups of two axes
    ],
)
def test_updates_of_models_work_on_slices_and_compute_the_same(gpus: int, parallel: str, schedule: str) -> None:
    (before,) = small(ringwright.job("gpt3-125m", gpus=gpus, parallel=parallel), at_most=4)
    after = coconet(before, LINK, schedule=schedule)  # type: ignore[arg-type]
    assert check(after, warnings=False) == []
    assert not [
        each.name for each in after.gradients() if each.op == "all-reduce" and each.source and each.role == "dp"
    ]
    proof = prove(before, after, draws=1)
    assert proof.equal, proof.differing[:5]
    again = replayed(before, after.applied)
    assert (again.tasks, again.payloads) == (after.tasks, after.payloads)


@pytest.mark.parametrize(("gpus", "parallel"), [(2, "dp2"), (8, "tp2,pp2,dp2"), (4, "cp2,dp2")])
def test_time_and_memory_are_those_of_states_that_are_shared_out(gpus: int, parallel: str) -> None:
    whole, shared = (ringwright.job("gpt3-125m", gpus=gpus, parallel=parallel + more) for more in ("", ",zero1"))
    after = coconet(whole, LINK, schedule="rs-c-ag")
    updates = [sum(task.seconds for task in job.tasks if task.kind == "U") for job in (whole, after, shared)]
    assert updates[1] == pytest.approx(updates[2])
    assert updates[1] < 0.51 * updates[0]
    assert step_s(after, LINK) == pytest.approx(step_s(shared, LINK), rel=1e-4)  # whose gathers wait for whole blocks
    assert peak_bytes(after) == peak_bytes(shared)
    assert totals(after).wire_bytes["dp"] < totals(whole).wire_bytes["dp"]  # parameters are narrower than gradients


@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize(("gpus", "parallel"), [(2, "tp2"), pytest.param(4, "tp2,dp2", marks=pytest.mark.once)])
def test_products_of_models_overlap_their_scatters_and_compute_the_same(gpus: int, parallel: str) -> None:
    (before,) = small(ringwright.job("gpt3-125m", gpus=gpus, parallel=parallel), at_most=4)
    after = coconet(before, LINK, schedule="ol")
    assert check(after, warnings=False) == []
    assert sum(each.rule == "loop-scatter" for each in after.applied) == 4 * 12 + 2  # two each way, logits, words
    assert step_s(after, LINK) < step_s(before, LINK)
    proof = prove(before, after, draws=1)
    assert proof.equal, proof.differing[:5]


def test_a_product_is_looped_where_blocks_take_less_than_the_sum() -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel="tp2")
    free = {f"{site.task.name}" for _, site in summed_products(step) if not site.work.cuts[site.dim]}
    fast = LinkCosts(1e15, 0.0, ring=True)  # a loop gains nothing, and costs launches and waves that are not full
    for costs, least, most in ((LinkCosts(25e9, 0.0, ring=True), 40, 50), (fast, 1, 1)):
        made = coconet(step, costs)
        assert least <= sum(each.rule == "loop-scatter" for each in made.applied) <= most
        assert step_s(made, costs) <= step_s(step, costs) * (1 + 1e-9)  # times are whole picoseconds
    assert len(free) == 1
    assert coconet(step, LINK, schedule="ar-c").tasks == step.tasks


def test_the_tuner_decides_layer_by_layer() -> None:
    step = ringwright.job("gpt3-125m", gpus=4, parallel="dp4")
    slow, trees = LinkCosts(1e9, 1e-6, ring=True), Trees(1e9, 1e-5)
    made = coconet(step, trees)
    kept = {each.size_bytes for each in made.payloads if each.op == "all-reduce"}
    moved = {each.size_bytes for each in made.payloads if each.op == "reduce-scatter"}
    assert kept
    assert max(kept) < min(moved)
    assert f"AR-C at {sum(each.op == 'all-reduce' for each in made.payloads)}" in made.assumptions[-3]
    assert "no clipping" in made.assumptions[-2]
    assert step_s(coconet(step, slow), slow) < step_s(step, slow)


def test_a_kernel_of_its_own_begins_before_all_gradients_are_there() -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel="dp2")
    apart, fused = (coconet(step, LINK, schedule=each) for each in ("rs-c-ag", "fuse"))  # type: ignore[arg-type]
    assert {task.stream for task in apart.tasks if task.kind == "U"} == {"compute"}
    streams = {task.stream for task in fused.tasks if task.kind == "U"}
    assert streams == {f"kernel of {each.name}" for each in fused.payloads if each.op == "reduce-scatter"}


def test_a_gather_of_other_parameters_is_seen() -> None:
    before = ringwright.job("gpt3-125m", gpus=2, parallel="dp2")
    after = coconet(before, LINK, schedule="rs-c-ag")
    one, other = [each for each in after.payloads if each.op == "all-gather" and ".layer0.norm" in each.name][:2]
    swapped = {one.name: replace(one, source=other.source), other.name: replace(other, source=one.source)}
    wrong = replace(after, payloads=tuple(swapped.get(each.name, each) for each in after.payloads))
    assert not prove(*small(before, wrong), draws=1).equal


# ---------------------------------------------------------------------------------------------------------- the papers' rows
def test_without_coconet_every_prediction_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert figures.speed_up(1 << 28) == pytest.approx(1.362, rel=0.03)
    figures.speed_up.cache_clear()
    monkeypatch.setattr(figures, "coconet", lambda workload, *_, **__: workload)
    for elements, claimed in ((1 << 28, 1.362), (1 << 29, 1.373), (1 << 30, 1.371), (1 << 17, 0.959)):
        assert abs(figures.speed_up(elements) - claimed) > 0.03 * claimed
    figures.speed_up.cache_clear()


# ------------------------------------------------------------------------------------------------------------- declines
def test_it_declines_what_it_knows_nothing_of() -> None:
    job = chain("job", [ChainLayer(1.0, 2.0, 1 << 20)], 4)
    with pytest.raises(WorkloadError, match="nobody knows what is computed of") as caught:
        coconet(job, LINK)
    assert "--model" in caught.value.remedy
    for parallel in ("dp2,zero1", "fsdp"):
        with pytest.raises(WorkloadError, match="scattered and slices updated already"):
            coconet(ringwright.job("gpt3-125m", gpus=2, parallel=parallel), LINK)
    with pytest.raises(WorkloadError, match="no all-reduce in it"):
        coconet(chain("job", [ChainLayer(1.0, 2.0, 1 << 20)], 4, op="push-pull"), LINK)
    with pytest.raises(WorkloadError, match="no product makes"):
        list(product_schedules(figures.optimizer("sgd", 2, 8), "sum"))
    with pytest.raises(WorkloadError, match="nobody sends"):
        list(message_schedules(figures.optimizer("sgd", 2, 8), "sum", dim="n"))
    with pytest.raises(WorkloadError, match="is no all-reduce"):
        sum_site(figures.optimizer("sgd", 2, 8), "strange")
