"""What the columns of a recording identify of a fault that was put in, by comparison with the run without it.

A fault of a rank's own work is identified where another rank does the same. A fault of the network is identified by the groups
whose calls it lengthens, so far as siblings show what is usual: half of the groups that are alike, or more, go on as without it.
Each part (rank, NIC, host, part of the network) would lengthen the calls of the groups that go through it; those of the
narrowest kind that agree with what was lengthened are what can be said, all of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.analysis.slow.own_work import own_work
from ringwright.analysis.slow.places import MachinePart, Places
from ringwright.analysis.slow.slow_groups import classes_of
from ringwright_lab.testing.planted_places import RANK_FAULTS, PlantedJob

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

AFFECTED, UNAFFECTED = 1.2, 1.05  # times the time without the fault
BETWEEN = (1.2, 1.15, 1.1, 1.05)  # what lies between may count as affected or not: each makes an answer that is right
LONGER = 1.5  # times a step, of a fault of a rank's own work that must be named
Group = frozenset[int]


@dataclass(frozen=True)
class Identified:
    """The sets of ranks that may be named (none: nothing is identified; else ``why``), and whether one of them must be."""

    ranks: frozenset[frozenset[int]]
    why: str
    must: bool


NOTHING = frozenset[frozenset[int]]()


def identified(job: PlantedJob) -> Identified:
    """Return what can be said of a planted job."""
    if job.kind == "healthy":
        return Identified(NOTHING, "healthy", must=False)
    if job.is_folded:
        return Identified(NOTHING, "so many events that ranks which are alike stand together", must=False)
    if job.kind in RANK_FAULTS:
        seen = own_work(job.healthy)
        (rank,) = job.ranks
        has_peer = seen is not None and any(seen.ranks.index(rank) in rows and len(rows) > 1 for rows in seen.roles)
        if not has_peer:
            return Identified(NOTHING, "no other rank does the same", must=False)
        return Identified(frozenset((job.ranks,)), "", must=job.times >= LONGER)
    return _of_network(job)


def _of_network(job: PlantedJob) -> Identified:
    parts = Places(job.healthy)
    shown, most = _shown(job, parts)
    if not any(times >= AFFECTED for times in shown.values()):
        why = "no call is lengthened by a fifth" if most < AFFECTED else "no sibling shows what is usual"
        return Identified(NOTHING, why, must=False)
    if not parts.is_told and sum(times >= min(BETWEEN) for times in shown.values()) < 2:
        return Identified(NOTHING, "one group alone is slow, and nothing tells that groups lie alike", must=False)
    told = {_fitting_ranks(shown, parts, least) for least in BETWEEN}
    right = frozenset(ranks for ranks in told if ranks & job.ranks or any(pair <= ranks for pair in job.through))
    if not right:
        return Identified(NOTHING, "no one part goes with the groups that are slow", must=False)
    return Identified(right, "", must=True)


def _fitting_ranks(shown: dict[Group, float], parts: Places, least: float) -> Group:
    """Return the ranks of the parts that agree with the groups that are slow from so many times on."""
    slow = {group for group, times in shown.items() if times >= least}
    beyond = {parts.crosses(group) for group in slow}
    usual = {group for group, times in shown.items() if times <= UNAFFECTED and parts.crosses(group) in beyond}
    return frozenset[int]().union(*(part.ranks for part in _fitting(parts, slow, usual)))


def _fitting(parts: Places, slow: set[Group], usual: set[Group]) -> list[MachinePart]:
    """Return the hypotheses of the narrowest kind that predict what was lengthened."""
    for listed in parts.all(frozenset[int]().union(*slow, *usual)).values():
        told = [each for each in listed if {group for group in slow | usual if each.is_left(group)} == slow]
        if told:
            return told
    return []


def _shown(job: PlantedJob, parts: Places) -> tuple[dict[Group, float], float]:
    """Return how many times longer the calls of each group with usual siblings take, and the most of all groups."""
    with_it, without = _times(job.trace, parts), _times(job.healthy, parts)
    kinds: dict[tuple[object, ...], dict[Group, float]] = defaultdict(dict)
    most = 1.0
    least_of: dict[tuple[object, ...], float] = {}
    for (_, kind), lasted in with_it.items():
        least_of[kind] = min(lasted, least_of.get(kind, lasted))
    for (
        group,
        kind,
    ), lasted in with_it.items():  # a policy may have chosen other sizes: the fastest sibling stands for before
        kinds[kind][group] = lasted / without.get((group, kind), least_of[kind])
        most = max(most, kinds[kind][group])
    shown: dict[Group, float] = {}
    for groups in kinds.values():
        least = max(1.0, min(groups.values()))  # what all of them take longer, by what meets them, no sibling shows
        usual = sum(times <= UNAFFECTED * least for times in groups.values())
        tells = (
            parts.is_told or max(groups.values()) >= min(BETWEEN) * least
        )  # else all may be slow alike, by others' links
        if len(groups) > 1 and 2 * usual >= len(groups) and parts.are_apart(groups) and tells:
            for group, times in groups.items():
                shown[group] = max(times / least, shown.get(group, 0.0))
    return shown, most


def _times(trace: Trace, parts: Places) -> dict[tuple[Group, tuple[object, ...]], float]:
    """Return the median seconds of the calls by group, operation, size, role, and how the group lies."""
    import polars as pl

    calls = trace.scan("events").filter(pl.col("kind").is_in(["collective", "p2p"])).collect()
    of = classes_of(trace)
    members = dict(trace.table("communicators").select("communicator", "members").iter_rows())
    lasted: dict[tuple[Group, tuple[object, ...]], list[float]] = defaultdict(list)
    columns = ("communicator", "op", "size_bytes", "role", "rank", "peer", "duration_s")
    for number, op, size, role, rank, peer, seconds in calls.select(*columns).iter_rows():
        ranks = members[number]
        group = frozenset(ranks) if op != "send-recv" else frozenset((rank, ranks[peer]) if peer is not None else ())
        if len(group) > 1:
            classes = tuple(sorted({of.get(each, "") for each in group}))
            lasted[group, (op, size, role, classes, parts.shape(group))].append(seconds)
    return {key: float(np.median(times)) for key, times in lasted.items()}
