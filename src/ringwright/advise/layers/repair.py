"""What is broken: a rank that holds the others up, mended before anything is tuned."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from ringwright.advise.settings import BROKEN, Setting
from ringwright.analysis.arrivals import arrivals
from ringwright.errors import UsageError

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation
    from ringwright.workload import Workload

RISK = "none for the program; the host is out of the job meanwhile"
LEAST = 1.02  # times what other ranks compute, from which on a rank is slow


def repair_settings(situation: Situation) -> list[Setting]:
    """Return a setting by which ranks that hold the others up compute as long as the others; UsageError where none does."""
    if situation.trace is None or not situation.is_timed:
        raise UsageError("only a recording with times shows who is late", remedy="ringwright run -- COMMAND")
    seen = arrivals(situation.trace)
    late = sorted({rank for each in seen["culprits"] for rank in each["ranks"]})
    if not late:
        raise UsageError(seen["reason"] or "nobody is late", remedy="ringwright summary tells what was looked at")
    computing = computed_s(situation.workload)
    others = [seconds for rank, seconds in computing.items() if rank not in late]
    slow = {rank: computing[rank] / median(others) for rank in late if rank in computing and others and median(others)}
    slow = {rank: times for rank, times in slow.items() if times >= LEAST}
    if not slow:
        raise UsageError(
            f"ranks {late} arrive late, and compute no longer than the others", remedy="ringwright summary"
        )
    said = ", ".join(f"rank {rank}" for rank in slow)
    evidence = seen["culprits"][0]["evidence"][0]
    return [
        Setting(
            "repair",
            BROKEN,
            ",".join(f"rank {rank} x{1 / times:.6g}" for rank, times in slow.items()),
            f"{said} as quick as the others ({max(slow.values()):.2f} times their compute today)",
            f"host of {said}: {evidence}",
            RISK,
        )
    ]


def computed_s(workload: Workload) -> dict[int, float]:
    """Return rank -> seconds of computation in a step."""
    by_class: dict[str, float] = defaultdict(float)
    for task in workload.tasks:
        by_class[task.of] += task.seconds * (workload.micro_batches if task.per == "micro-batch" else 1)
    return {
        rank: seconds
        for each in workload.classes
        for seconds in [by_class[each.name]]
        for rank in range(workload.mesh.size)
        if dict(each.at).items() <= workload.mesh.place(rank).items()
    }
