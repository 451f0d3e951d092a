"""Losses are drawn: the same question with other seeds says how far a time is left to chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.switch_slots import is_lossy

if TYPE_CHECKING:
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

MOST_SEEDS = 15
MOST_HOPS = 12_000_000  # packets at ports that further seeds may cost: a few seconds
QUANTILES = (0.05, 0.5, 0.95)


def seeds_of(run: Run, on: Topology) -> int:
    """Return with how many seeds a run by packets is to be done: one where no seed makes a difference."""
    if run.packets is None or not is_lossy(on):
        return 1
    return max(1, min(MOST_SEEDS, MOST_HOPS // max(run.packets.hops * run.packets.hop_cost, 1)))


def times_s(question: SimulationSpec, program: Program, run: Run, on: Topology) -> tuple[float, float, float]:
    """Return the seconds below which 5 %, 50 % and 95 % of the seeds stay, ``run`` being that of the first."""
    times = [run.time_s]
    first = question.packets.seed if question.packets is not None else 0
    times += [question.run(program, on, seed=first + number).time_s for number in range(1, seeds_of(run, on))]
    low, middle, high = np.quantile(times, QUANTILES)
    return float(low), float(middle), float(high)
