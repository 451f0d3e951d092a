"""A step without what slow ranks hold up: they compute as long as the others, and what waited for them waits no more.

A replay takes time in which a rank neither worked nor communicated for work of its host. Of the others that may be waiting for a
slow rank, so what they compute beyond the usual goes with what it computes too much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.model.workload import Workload

USUAL = 0.25  # of the other ranks compute less than this: more of them may have waited
LEAST = 1.1  # times the usual, from which on a rank is slow in a step


def computed_s(workload: Workload) -> dict[int, float]:
    """Return rank -> seconds of computation in a step."""
    by_class: dict[str, float] = defaultdict(float)
    for task in workload.tasks:
        by_class[task.of] += task.seconds * (workload.micro_batches if task.per == "micro-batch" else 1)
    return {
        rank: by_class[each.name]
        for each in workload.classes
        for rank in range(workload.mesh.size)
        if dict(each.at).items() <= workload.mesh.place(rank).items()
    }


def usual_s(computing: Mapping[int, float], slow: Collection[int]) -> float:
    """Return what ranks that are not slow usually compute in a step, s; 0 where there is none."""
    others = [seconds for rank, seconds in computing.items() if rank not in slow]
    return float(np.quantile(others, USUAL)) if others else 0.0


def factors(workload: Workload, slow: Collection[int]) -> dict[int, float]:
    """Return rank -> factor of its computation in a step in which slow ranks are mended; empty where none holds it up."""
    computing = computed_s(workload)
    usual = usual_s(computing, slow)
    worst = max((computing[rank] for rank in slow if rank in computing), default=0.0)
    if not usual or worst < LEAST * usual:
        return {}
    excess = worst - usual
    return {rank: max(usual, seconds - excess) / seconds for rank, seconds in computing.items() if seconds > usual}
