"""What is broken, or not in use: a rank that holds others up, a slow part of the network, TCP in place of RDMA."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean
from typing import TYPE_CHECKING

from ringwright.advise.links import has_rdma, slow_link, sockets_seen
from ringwright.advise.settings import BROKEN, LINK, NETWORK, Setting, Setup
from ringwright.advise.without_stragglers import computed_s, usual_s
from ringwright.analysis.slow.arrivals import arrivals
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.advise.situation import Situation
    from ringwright.model.trace import Trace

RISK = "none for the program; the host is out of the job meanwhile"
RDMA_RISK = "none for the program; a fabric that drops packets needs flow control first"
LEAST = 1.02  # times what other ranks compute, from which on a rank is slow
RDMA = "rdma"


def repair_settings(situation: Situation) -> list[Setting]:
    """Return a setting for each thing that is broken; UsageError, which says what was looked at, where nothing is."""
    if situation.trace is None or not situation.is_timed:
        raise UsageError("only a recording with times shows who is late", remedy="ringwright run -- COMMAND")
    makers: tuple[Callable[[Situation, Trace], Setting | None], ...] = (_network, _link, _ranks)
    settings, refused = [], None
    for maker in makers:
        try:
            made = maker(situation, situation.trace)
        except UsageError as error:
            refused = refused or error
            continue
        settings += [made] if made is not None else []
    if not settings and refused is not None:
        raise refused
    return settings


def _network(situation: Situation, trace: Trace) -> Setting | None:
    """Return that hosts talk by RDMA; None where they do, UsageError where nothing says that they could."""
    seen = sockets_seen(trace)
    if seen is None:
        return None
    said = f"NCCL's log tells {seen.connections} connections over sockets (NET/Socket)"
    if not has_rdma(situation.topology):
        raise UsageError(
            f"{said}, and nothing says that the machine has RDMA",
            remedy="--fabric dgx-h100:2, or what it ran on with transport=infiniband, roce or efa",
        )
    what = "RDMA between hosts in place of TCP sockets"
    return Setting("repair", NETWORK, RDMA, what, f"{seen.where}: {said}", RDMA_RISK)


def _link(_situation: Situation, trace: Trace) -> Setting | None:
    """Return that the slowest part of the network is as quick as its peers; None where none is slow."""
    slow = slow_link(trace)
    if slow is None:
        return None
    what = f"{slow.name} as quick as its peers ({slow.times:.2f} times their time today)"
    return Setting("repair", LINK, slow.spelling, what, f"the part itself: {slow.evidence}", RISK)


def _ranks(situation: Situation, trace: Trace) -> Setting:
    """Return that ranks which hold the others up compute as long as the others; UsageError where none does."""
    seen = arrivals(trace)
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
    return Setting(
        "repair",
        BROKEN,
        ",".join(str(rank) for rank in slow),
        f"{said} as quick as the others ({max(slow.values()):.2f} times their compute today)",
        f"host of {said}: {evidence}",
        RISK,
    )


def slower(situation: Situation, late: list[int]) -> dict[int, float]:
    """Return how many times as long as others usually do late ranks compute, mean over the iterations."""
    times: dict[int, list[float]] = defaultdict(list)
    for iteration in range(situation.iterations):
        computing = computed_s(situation.job(Setup(), iteration).workload)
        usual = usual_s(computing, late)
        for rank in late if usual else ():
            times[rank].append(computing.get(rank, 0.0) / usual)
    return {rank: mean(each) for rank, each in times.items()}
