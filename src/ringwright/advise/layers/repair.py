"""What is broken: a rank that holds the others up, mended before anything is tuned."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean
from typing import TYPE_CHECKING

from ringwright.advise.mended import computed_s, usual_s
from ringwright.advise.settings import BROKEN, Setting, Setup
from ringwright.analysis.arrivals import arrivals
from ringwright.errors import UsageError

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

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
    slow = {rank: times for rank, times in slower(situation, late).items() if times >= LEAST}
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
            ",".join(str(rank) for rank in slow),
            f"{said} as quick as the others ({max(slow.values()):.2f} times their compute today)",
            f"host of {said}: {evidence}",
            RISK,
        )
    ]


def slower(situation: Situation, late: list[int]) -> dict[int, float]:
    """Return how many times as long as others usually do late ranks compute, mean over the iterations."""
    times: dict[int, list[float]] = defaultdict(list)
    for iteration in range(situation.iterations):
        computing = computed_s(situation.job(Setup(), iteration).workload)
        usual = usual_s(computing, late)
        for rank in late if usual else ():
            times[rank].append(computing.get(rank, 0.0) / usual)
    return {rank: mean(each) for rank, each in times.items()}
