"""A slow part of the network, from the times of collectives: a group's calls against the same calls of its sibling groups.

All members of a collective share its time, so that one call accuses nobody. The same call (operation, size, part in the step)
of groups that lie alike tells which groups are slow; a part is accused where each slow group goes through it and no other group
does, the narrowest such places alone. Several of one kind that nothing tells apart are named together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.analysis import remedies
from ringwright.analysis.hangs.hang_mismatch import say_ranks
from ringwright.analysis.slow.places import KINDS, MachinePart, Places

if TYPE_CHECKING:
    from ringwright.analysis.document import Culprit
    from ringwright.model.trace import Trace

LONGER = 1.15  # times the siblings' time, and
NOISES = 5.0  # standard deviations of what calls of healthy groups differ by
STEADY = 0.75  # of a group's calls that must be so
UNTOUCHED = 1.08  # times the siblings' time, up to which a group speaks for what it goes through
EXPLAINED = 0.75  # of how slow groups are, as logarithms, that one place must explain
AS_GOOD = 0.95  # of what the best place explains, for a narrower one
BESIDE = 0.1  # power of the largest factor, below which a group is slow by what others do to it
FEWEST_CALLS = 3
MOST_SLOW = 0.5  # of the groups that are alike: with more of them nothing tells which are the usual ones
MOST_CALLS = 3_000_000
SURE, UNSURE = 0.9, 0.45
Group = frozenset[int]


@dataclass(frozen=True)
class Compared:
    """A group beside its siblings: how many times their time its calls take, of so many calls and siblings."""

    ranks: Group
    op: str
    kind: tuple[object, ...]
    factor: float
    is_slow: bool
    is_usual: bool
    calls: int
    siblings: int


def slow_groups(trace: Trace) -> list[Culprit]:
    """Return the place that slow groups of a recording have in common; none where no group stands out, or none explains them."""
    if _is_folded(trace):
        return []  # of most groups nothing stands there
    places = Places(trace)
    compared = _compared(trace, places)
    slow = _slowest(compared)
    if not slow:
        return []
    is_between = {places.crosses(ranks) for ranks in slow}
    doubtful = {each.ranks for each in compared if not each.is_usual}
    # Where each rank has neighbours of its own, calls go through others' links: groups alike may be slow alike.
    alike = {each.kind for each in compared if places.is_told or each.ranks in slow}
    usual = {
        each.ranks for each in compared if places.crosses(each.ranks) in is_between and each.kind in alike
    } - doubtful
    gathered = narrowest(places, {ranks: math.log(each.factor) for ranks, each in slow.items()}, usual)
    if not gathered or not (places.is_told or len(slow) > 1):
        return []
    return [{**_culprit(gathered, slow, len(usual)), "command": remedies.pairs(trace.meta)}]


def _is_folded(trace: Trace) -> bool:
    """Whether calls stand for several ranks that are alike."""
    import polars as pl

    is_call = pl.col("kind").is_in(["collective", "p2p"])
    of_class = is_call & pl.col("rank").is_null() & pl.col("rank_class").is_not_null()
    return bool(trace.scan("events").select(of_class.any()).collect().item())


def narrowest(places: Places, slow: Mapping[Group, float], usual: Collection[Group]) -> list[MachinePart]:
    """Return the places of the narrowest kind that explain the slow groups, by their weights, and none of the usual ones.

    A part explains the groups that go through it. What none explains must be little: groups wait for slow ones beside them.
    """
    known = places.all(frozenset[int]().union(*slow, *usual))
    weights = {
        kind: [
            (sum(weight for group, weight in slow.items() if part.is_left(group)), part)
            for part in listed
            if not any(part.is_left(group) for group in usual)
        ]
        for kind, listed in known.items()
    }
    most = max((weight for listed in weights.values() for weight, _ in listed), default=0.0)
    if most < (EXPLAINED if places.is_told else AS_GOOD) * sum(slow.values()):
        return []
    for kind in KINDS:
        best = max((weight for weight, _ in weights[kind]), default=0.0)
        if best >= AS_GOOD * most:
            return [part for weight, part in weights[kind] if weight >= best * (1 - 1e-9)]
    return []


def _slowest(compared: list[Compared]) -> dict[Group, Compared]:
    """Return the slow groups with their slowest calls; without those that are slow by little, as what waits for others may be."""
    slow: dict[Group, Compared] = {}
    for each in sorted((each for each in compared if each.is_slow), key=lambda each: each.factor):
        slow[each.ranks] = each
    least = max((each.factor for each in slow.values()), default=1.0) ** BESIDE
    return {ranks: each for ranks, each in slow.items() if each.factor >= least}


def _compared(trace: Trace, places: Places) -> list[Compared]:
    """Return each group that has siblings, by kind of call."""
    calls, of = _calls(trace), classes_of(trace)
    kinds: dict[tuple[object, ...], dict[Group, list[tuple[tuple[object, ...], float]]]]
    kinds = defaultdict(lambda: defaultdict(list))
    for ranks, op, size, role, step, at, lasted in calls:
        kinds[op, size, role, _classes(of, ranks), places.shape(ranks)][ranks].append(((step, at), lasted))
    known = {kind: groups for kind, groups in kinds.items() if len(groups) > 1 and places.are_apart(groups)}
    return [each for kind, groups in known.items() for each in _beside(kind, groups)]


def _calls(trace: Trace) -> list[tuple[Group, str, int, str, int, int, float]]:
    """Return group, operation, size, role, step, place among such calls of the step, and seconds, of calls of known groups."""
    import polars as pl

    is_timed = pl.col("duration_s").is_finite() & (pl.col("duration_s") > 0) & pl.col("rank").is_not_null()
    is_call = pl.col("kind").is_in(["collective", "p2p"]) & ~pl.col("op").is_in(["send", "recv"])
    known = pl.col("communicator").is_not_null() & pl.col("sequence").is_not_null()
    of_pair = pl.when(pl.col("op") == "send-recv").then(pl.col("rank"))
    keys = ("communicator", "sequence", "op", "size_bytes", "iteration", "pair", "peer")
    told = trace.scan("events").filter(is_timed & is_call & known).with_columns(of_pair.alias("pair"))
    once = told.group_by(*keys, maintain_order=True).agg(
        pl.col("duration_s").min(),
        pl.col("start_s").min(),
        pl.col("rank").unique().alias("seen"),
        pl.col("role").first(),
    )
    frame = once.head(MOST_CALLS).collect()
    members = dict(trace.table("communicators").select("communicator", "members").iter_rows())
    order = ["communicator", "pair", "op", "size_bytes", "iteration"]
    frame = frame.sort("sequence").with_columns(pl.int_range(pl.len()).over(order).alias("at"))
    made = []
    wanted = ("communicator", "op", "size_bytes", "role", "iteration", "at", "duration_s", "pair", "peer", "seen")
    for number, op, size, role, step, at, lasted, pair, peer, seen in frame.select(*wanted).iter_rows():
        ranks = _ranks(members.get(number) or seen, pair, peer)
        if len(ranks) > 1:
            made.append((ranks, op, size or 0, role or "", step if step is not None else -1, at, lasted))
    return made


def classes_of(trace: Trace) -> dict[int, str]:
    """Return the class of each rank, where a recording tells it: ranks of two classes work, and send, at different times."""
    import polars as pl

    told = trace.scan("events").filter(pl.col("rank").is_not_null() & pl.col("rank_class").is_not_null())
    return dict(told.group_by("rank").agg(pl.col("rank_class").first()).collect().iter_rows())


def _classes(of: Mapping[int, str], ranks: Group) -> tuple[str, ...]:
    return tuple(sorted({of.get(rank, "") for rank in ranks}))


def _ranks(members: list[int], pair: int | None, peer: int | None) -> Group:
    if pair is None:
        return frozenset(each for each in members if each >= 0)
    return frozenset((pair, members[peer])) if peer is not None and 0 <= peer < len(members) else frozenset()


def _beside(kind: tuple[object, ...], groups: dict[Group, list[tuple[tuple[object, ...], float]]]) -> list[Compared]:
    """Return groups that do the same: each call against the same call of the others."""
    by_call: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for calls in groups.values():
        for call, lasted in calls:
            by_call[call].append(lasted)
    usual = {call: _usual(times) for call, times in by_call.items() if len(times) > 1}
    factors = {
        ranks: np.array([lasted / usual[call] for call, lasted in calls if call in usual])
        for ranks, calls in groups.items()
    }
    factors = {ranks: each for ranks, each in factors.items() if len(each) >= FEWEST_CALLS}
    if len(factors) < 2:
        return []
    middle = {ranks: float(np.median(each)) for ranks, each in factors.items()}
    low = sorted(middle.values())[: max(1, (len(middle) + 1) // 2)]
    logs = np.concatenate([np.log(each) - math.log(middle[ranks]) for ranks, each in factors.items()])
    noise = 1.4826 * float(np.median(np.abs(logs)))
    least = max(LONGER, math.exp(NOISES * max(noise / math.sqrt(FEWEST_CALLS), _spread(low))))
    slow = {ranks for ranks, each in factors.items() if middle[ranks] >= least and (each >= LONGER).mean() >= STEADY}
    tells = len(slow) <= MOST_SLOW * len(factors)
    made = []
    for ranks, each in factors.items():
        is_usual = tells and middle[ranks] <= max(UNTOUCHED, math.exp(noise))
        made.append(
            Compared(
                ranks, str(kind[0]), kind, middle[ranks], tells and ranks in slow, is_usual, len(each), len(factors) - 1
            )
        )
    return made


def _usual(times: list[float]) -> float:
    """Return the time of a healthy group: of few the shortest, of many the lower quartile, as half of them may be slow."""
    return sorted(times)[(len(times) - 1) // 4]


def _spread(middles: list[float]) -> float:
    """Return what the faster half of the groups differ by: a relative standard deviation."""
    return float(np.std(np.log(middles))) if len(middles) > 2 else 0.0


def _culprit(gathered: list[MachinePart], slow: dict[Group, Compared], usual: int) -> Culprit:
    ranks = sorted(frozenset().union(*(part.ranks for part in gathered)))
    worst = max(slow.values(), key=lambda each: each.factor)
    kind = gathered[0].kind if len(gathered) == 1 else "group" if gathered[0].kind == "rank" else "network"
    beside = (
        f"{worst.factor:.2f}x the time of the same call in {worst.siblings} other group{'s' * (worst.siblings > 1)}"
    )
    many = f"{len(slow)} of {len(slow) + usual} groups" if len(slow) > 1 else "one group"
    where = {
        "rank": f"the network of {gathered[0].name}",
        "nic": f"the NIC {gathered[0].name} of {say_ranks(ranks)}",
        "host": f"the network of host {gathered[0].name}",
        "group": f"the network between {say_ranks(ranks)}",
        "network": f"the network that joins {say_ranks(ranks)} to the others",
    }[kind]
    evidence = [
        f"{where} is slow: {worst.op} takes {beside}",
        f"{many} slow, in {worst.calls} calls of the slowest; all go through {', '.join(p.name for p in gathered[:8])}",
    ]
    if len(gathered) > 1:
        evidence.append("nothing recorded tells these apart: each of their groups holds them all, or none")
    hosts = [part.name for part in gathered if part.kind == "host"]
    return {"ranks": ranks, "hosts": hosts, "kind": f"slow-{kind}", "confidence": SURE, "evidence": evidence}
