"""Forward passes beside backward passes of other micro-batches: what is hidden, that it is legal in every order, what it says."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from block_jobs import blocks
from ringwright.engines.job.run import simulate
from ringwright.graph.algebra.equality import prove
from ringwright.ground.errors import WorkloadError
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts, Stage
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.oases import oases
from ringwright.workloads.moe_chain import MoeLayer, moe_chain

PS = 1e12


class EachTakes:
    """Costs: every operation takes so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        return (Stage(self.seconds),)


def layers(count: int, micro_batches: int) -> Workload:
    """Layers of two times a second forward, as much backward, with two exchanges each way."""
    made = [MoeLayer(0.5, 1.0, 0.5, 1 << 20, backward=1.0)] * count
    return moe_chain("layers", made, 4, micro_batches=micro_batches)


def step_s(made: Workload, exchange_s: float) -> float:
    return simulate(made, EachTakes(exchange_s), steps=1).finished(0) / PS


@pytest.mark.parametrize("exchange_s", [0.1, 0.25, 0.5])
@pytest.mark.parametrize(("count", "m"), [(1, 2), (2, 4), (4, 8)])
def test_exchanges_of_all_but_the_first_and_last_pass_are_hidden(count: int, m: int, exchange_s: float) -> None:
    """F alone, m - 1 pairs, B alone: of 4 L m exchanges those of the two lone passes wait, and one a pair for the other's start."""
    before = layers(count, m)
    after = oases(before, EachTakes(exchange_s), halves="passes")
    assert check(after, warnings=False) == []
    compute, alone = 4.0 * count * m, 2 * count * exchange_s
    assert step_s(before, exchange_s) == pytest.approx(compute + m * 2 * alone)
    assert step_s(after, exchange_s) == pytest.approx(compute + 2 * alone)


def test_more_latency_is_never_faster() -> None:
    after = oases(layers(4, 8), EachTakes(0.1), halves="passes")
    times = [step_s(after, 0.05 * at) for at in range(30)]
    assert times == sorted(times)
    assert times[-1] > times[0]


@pytest.mark.parametrize("p", [2, 3])
def test_blocks_with_passes_in_pairs_compute_the_same(p: int) -> None:
    before = blocks(p)
    after = oases(before, LinkCosts(1e9), halves="passes")
    assert prove(before, after).equal
    assert {task.name for task in after.tasks} == {task.name for task in before.tasks}


@cache
def experts(schedule: str, parallel: str) -> Workload:
    spec = WorkloadSpec("mixtral-8x7b", None, parallel, micro_batches=8)
    return workload(GeneratedJobSpec(spec, schedule=schedule))


@pytest.mark.parametrize(
    ("schedule", "parallel"),
    [
        ("1f1b", "dp8,ep8"),
        ("1f1b", "pp4,dp8,ep8"),
        ("1f1b", "pp2,vp2,dp8,ep8"),
        ("zb-h1", "pp4,dp8,ep8"),
        ("zb-v", "pp2,vp2,dp8,ep8"),
        ("dualpipe-v", "pp2,vp2,dp8,ep8"),
        ("dualpipe", "pp4,dp8,ep8"),
    ],
)
def test_pairs_are_legal_in_every_order_with_turns_and_hide_exchanges(schedule: str, parallel: str) -> None:
    before = experts(schedule, parallel)
    costs = LinkCosts(2e10)
    after = oases(before, costs, halves="passes")
    assert check(after, warnings=False) == []
    times = [simulate(each, costs, steps=2).step_s for each in (before, after)]
    assert times[1] < times[0]


def spans(made: Workload, of: str) -> list[tuple[tuple[str, int, int], int, int]]:
    """Return the passes of a class (phase, chunk, micro-batch; W counts as B) with the first and last place of their tasks."""
    places: dict[tuple[str, int, int], list[int]] = {}
    for at, (name, batch) in enumerate(made.line(of)):
        phase, chunk = made.task[name].slot
        places.setdefault(("F" if phase == "F" else "B", chunk, batch), []).append(at)
    return sorted(((each, min(at), max(at)) for each, at in places.items()), key=lambda each: each[1])


def test_a_pipeline_has_nearly_twice_as_many_passes_ahead() -> None:
    """What a pair makes is handed on with the whole pair: stage r of p needs 2 (p - 1 - r) + 1 micro-batches before it."""
    after = oases(experts("1f1b", "pp4,dp8,ep8"), LinkCosts(2e10), halves="passes")
    phases = [[each[0] for each, _, _ in spans(after, one.name)] for one in after.classes]
    assert [each.index("B") - 1 for each in phases] == [
        7,
        5,
        3,
        1,
    ]  # without that of the first pair, which begins with it


@pytest.mark.parametrize(("schedule", "pairs"), [("1f1b", [1, 3, 5, 7]), ("dualpipe", [3, 4])])
def test_what_runs_beside_each_other_is_one_forward_and_one_backward_pass(schedule: str, pairs: list[int]) -> None:
    """In DualPipe of opposite directions, 2 (m/2 - p + r + 1) + p/2 - r - 1 of them; else of two micro-batches."""
    after = oases(experts(schedule, "pp4,dp8,ep8"), LinkCosts(2e10), halves="passes")
    for of, count in zip([each.name for each in after.classes], pairs, strict=True):
        listed = spans(after, of)
        beside = [
            (one, other)
            for (one, _, end), (other, begin, _) in pairwise(listed)
            if begin < end and one[0] != other[0]  # two whose W is put off overlap too, and do not take turns
        ]
        assert len(beside) == count
        for one, other in beside:
            assert one[2] != other[2] if schedule == "1f1b" else one[1] != other[1]


@pytest.mark.parametrize(("schedule", "batches"), [("gpipe", 8), ("aiao", 8)])
def test_orders_without_turns_are_declined(schedule: str, batches: int) -> None:
    spec = WorkloadSpec("mixtral-8x7b", None, "pp2,dp8,ep8", micro_batches=batches)
    made = workload(GeneratedJobSpec(spec, schedule=schedule))
    with pytest.raises(WorkloadError, match="no backward pass") as refused:
        oases(made, LinkCosts(2e10), halves="passes")
    assert "dualpipe" in str(refused.value.remedy)
    with pytest.raises(WorkloadError, match="no backward pass"):
        oases(layers(2, 1), EachTakes(0.1), halves="passes")


def test_passes_that_are_left_to_the_next_step_are_declined() -> None:
    made = workload(GeneratedJobSpec(WorkloadSpec("gpt2-small", None, "pp2", micro_batches=4), schedule="2bw"))
    with pytest.raises(WorkloadError, match="pairs of two steps"):
        oases(made, LinkCosts(2e10), halves="passes")


def test_it_says_what_turns_it_on_in_practice() -> None:
    after = oases(layers(2, 4), EachTakes(0.1), halves="passes")
    assert any("--overlap-moe-expert-parallel-comm" in each for each in after.assumptions)
    assert any("3 forward passes run beside" in each for each in after.assumptions)
