"""An order that is drawn by a seed: of a step, however many are asked for; the same on all ranks, simulated or live."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest

from ringwright.engines.job.run import simulate
from ringwright.model.rewrites.random_order import drawn
from ringwright.model.stages import LinkCosts
from ringwright.schedulers.priority.tictac import tictac
from ringwright_lab.contracts import small_jobs
from ringwright_lab.live.choose import Chooser
from ringwright_lab.live.plan import ALL, Unit, plan

COSTS = LinkCosts(1e6, overhead_s=0.1)
LAYERS = small_jobs.layers(random.Random(3), scale=4 << 20).job(element_bytes=4)
JOB = small_jobs.on_mesh(LAYERS)


def orders(steps: int, **how: object) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the order of each (step, rank class): the names of its operations, the most urgent first."""
    run = simulate(tictac(JOB, COSTS, random=3), COSTS, steps=steps, **how)  # type: ignore[arg-type]
    urgent = defaultdict(list)
    for row in small_jobs.operation_rows(run):
        for rank_class in row.rank_classes:
            for step in range(steps):
                urgent[step, rank_class].append(
                    (int(run.laid.flat.key[row.first + step * run.laid.per_step]), row.name)
                )
    return {where: tuple(name for _, name in sorted(listed)) for where, listed in urgent.items()}


def test_a_step_has_its_order_however_many_steps_are_asked_for() -> None:
    few, many = orders(2), orders(9)
    assert few == {where: order for where, order in many.items() if where[0] < 2}
    assert len({order for (_, rank_class), order in many.items() if rank_class == 0}) > 2, "anew each step"


def test_all_ranks_have_the_same_order_however_they_are_simulated() -> None:
    folded, whole = orders(4), orders(4, folded=False)
    assert {rank_class for _, rank_class in whole} == set(range(6))
    assert all(order == folded[step, 0] for (step, _), order in whole.items())


def test_live_ranks_take_the_order_that_is_simulated() -> None:
    job = tictac(LAYERS, COSTS, random=3)
    chosen = plan(job, COSTS)
    simulated = orders(3)
    for step in range(3):
        queue = Chooser(chosen)
        for at, operation in enumerate(chosen.operations):
            queue.ready(step, Unit(at, ALL, tuple(each.name for each in operation.payloads)))
        taken = []
        while (first := queue.take()) is not None:
            queue.done(first.operation, first.piece)
            taken.append(chosen.operations[first.operation].name)
        assert tuple(taken) == simulated[step, 0]


@pytest.mark.parametrize("changed", [(4, 0, 0), (3, 1, 0), (3, 0, 1)])
def test_each_seed_step_and_operation_draws_anew(changed: tuple[int, int, int]) -> None:
    here = drawn(3, 0, 0, range(1000))
    assert len(np.unique(here)) == 1000
    assert here.min() >= 0
    assert not np.intersect1d(here, drawn(*changed, range(1000))).size
    assert drawn(3, 0, 0, range(10, 20)).tolist() == here[10:20].tolist()
    half = np.mean(here < 1 << 61)
    assert 0.4 < half < 0.6
