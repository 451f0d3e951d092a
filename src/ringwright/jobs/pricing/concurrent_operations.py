"""What a program takes while others are at work on the same machine, and which links they keep busy meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.background_programs import LOWER_BOUND, alone_and_beside
from ringwright.engines.choose import simulate
from ringwright.engines.concurrent_programs import simulate_together
from ringwright.ground.units import PS
from ringwright.jobs.pricing.cost_cache import Timed

if TYPE_CHECKING:
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

MOST_TOGETHER = 8_000_000  # moves of sibling groups in one graph; above, one of them is timed on its share of the links
LEAST_SHARE = 0.02


def timed_at_once(
    programs: Sequence[Program],
    machine: Topology,
    others: Sequence[Program] = (),
    *,
    alike: bool = True,
    watched: Collection[int] = (),
) -> tuple[Timed, Run | None, bool]:
    """Return what the last of several programs takes, its run if it is alone, and whether that is only the least it takes.

    Parameters
    ----------
    programs
        Those of groups that begin at once; where they are ``alike``, the last one ends when all have.
    machine
        What they run on.
    others
        What other jobs repeat meanwhile.
    watched
        Links that are told however little they are used.
    """
    run = simulate(programs[-1], machine) if len(programs) == 1 else None
    alone = (
        _timed(run.busy_ps, run.time_s, machine, watched) if run else _beside(programs, machine, watched, alike=alike)
    )
    if not others:
        return alone, run, False
    *siblings, own = programs
    # As many times longer as the flow engine says, which shares links fairly; alone the event engine is more exact.
    before, after = alone_and_beside(own, others, machine, siblings=siblings)
    longer = after.time_ps / before.time_ps if before.time_ps else 1.0
    return alone.lasting(alone.seconds * longer), run, any(LOWER_BOUND in each for each in after.left_out)


def _beside(programs: Sequence[Program], machine: Topology, watched: Collection[int], *, alike: bool) -> Timed:
    own = programs[-1]
    moves = sum(move.count * move.span for step in own.steps() for move in step.blocks)
    if moves * len(programs) > MOST_TOGETHER:
        runs = [simulate(program, machine) for program in programs]
        run = simulate(own, _shared([each.busy_ps for each in runs], machine))
        busy_ps = np.sum([_of_links(each.busy_ps, machine) for each in runs], axis=0)
        return _timed(busy_ps, run.time_s, machine, watched)
    beside = simulate_together(list(programs), machine)
    seconds = float(beside.ends_ps.max() if alike else beside.ends_ps[-1]) / PS
    return _timed(beside.busy_ps, seconds, machine, watched)


def _timed(busy_ps: np.ndarray, seconds: float, machine: Topology, watched: Collection[int]) -> Timed:
    busy_ps = _of_links(busy_ps, machine)
    share = np.minimum(busy_ps / (seconds * PS), 1.0) if seconds else np.zeros(0)
    mine = share > LEAST_SHARE
    if watched and len(share):
        mine[list(watched)] = share[list(watched)] > 0
    links = np.flatnonzero(mine)
    return Timed(seconds, links, share[links])


def _of_links(busy_ps: np.ndarray, machine: Topology) -> np.ndarray:
    """Return the part that is of links and what they share: behind it programs have resources of their own."""
    return busy_ps[: machine.n_links + len(machine.groups)]


def _shared(busy_ps: list[np.ndarray], machine: Topology) -> Topology:
    """Return the machine as the last of several programs finds it: of each link and capacity its share of all bytes."""
    own, total = busy_ps[-1].astype(np.float64), np.sum(busy_ps, axis=0)
    share = np.where(own > 0, own / np.maximum(total, 1), 1.0)
    capacities = zip(machine.groups, share[machine.n_links :].tolist(), strict=False)
    return replace(
        machine,
        rate=machine.rate * share[: machine.n_links],
        groups=tuple(replace(each, rate=each.rate * part) for each, part in capacities),
    )
