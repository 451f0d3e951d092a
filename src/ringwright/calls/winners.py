"""Who wins where: the fastest of several algorithms over group sizes and message sizes, and what switches that add gain there.

Group sizes are the powers of two up to the ranks of the group, and the group itself; a group of n is the first n ranks. Each
point is answered as ``simulate`` answers it. So the map of architectures (a server, a ring, trees of hosts, a low latency or a
streaming tree of switches, a pool of slots, at the edge the switch inside a host) follows from the machine alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ringwright.calls.simulate import swept
from ringwright.calls.simulated_document import DeclinedCall, FastestCall, SimulatedRow
from ringwright.executors.fan_out import Chosen, ExecutorAccount, fan_out
from ringwright.ground import stepwise
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.calls.provenance import AskedOf
    from ringwright.calls.simulation_spec import SimulationSpec

SCHEMA = "ringwright.winners/1"
NEAR = 1.001  # times as near as this are one: the first wins, and what needs least of the network comes first
# What an architecture is called on the map, and the spelling of the algorithm that does it.
ARCHITECTURES: Mapping[str, str] = {
    "ring": "ring",
    "tree": "double-binary-tree",
    "server": "linear",
    "llt": "sharp:mode=llt",
    "sat": "sharp:mode=sat",
    "pool": "switchml",
    "edge": "nvls",
}


@dataclass(frozen=True, slots=True)
class WonPoint:
    """The winner among ``ranks`` at a size, and the next; times in us.

    ``gain_in_network`` is how many times faster the best that adds in the network is than the best that does not (null: one of
    both has no time); ``chance`` that the winner beats the next (null: nothing was measured on such fabrics).
    """

    ranks: int
    size_bytes: int
    winner: str
    algorithm: str
    in_network: bool
    time_us: float
    time_us_p05: float | None
    time_us_p95: float | None
    next: str | None
    next_us: float | None
    chance: float | None
    gain_in_network: float | None


@dataclass(frozen=True, slots=True)
class WonRegion:
    """Neighbouring sizes among ``ranks`` that one algorithm wins, both ends among them, and the most that it gains there."""

    ranks: int
    winner: str
    in_network: bool
    first_bytes: int
    last_bytes: int
    most_gain_over_next: float | None


@dataclass(frozen=True, slots=True)
class DeclinedWinner:
    """Who has no time among so many ranks, at which sizes, and why."""

    name: str
    why: str
    ranks: list[int]
    sizes_bytes: list[int]


@dataclass(frozen=True, slots=True)
class WinnerMap:
    """The object of schema ``ringwright.winners/1``; ``algorithms``: what each is called on the map, and its spelling."""

    schema: str
    asked: AskedOf
    collective: str
    fabric: str
    provenance: str
    ranks: list[int]
    sizes_bytes: list[int]
    algorithms: dict[str, str]
    points: list[WonPoint]
    regions: list[WonRegion]
    declined: list[DeclinedWinner]
    left_out: list[str]
    executor: ExecutorAccount


def winners(
    question: SimulationSpec,
    spellings: Sequence[str] | None,
    wanted: Sequence[int],
    progress: stepwise.Advance | None = None,
    executor: Chosen = None,
) -> WinnerMap:
    """Return the object of schema ``ringwright.winners/1``: ``points``, ``regions`` and ``declined``.

    ``spellings``: who competes; None: the architectures of in-network computing. A spelling none of whose times came from the
    network's own adders counts as one of hosts. UsageError for a group of one rank and where one is named twice.
    """
    names = dict(ARCHITECTURES) if spellings is None else {spelling: spelling for spelling in spellings}
    if spellings is not None and len(names) < len(spellings):
        raise UsageError("an algorithm is named twice", remedy="each once: --algorithm ring,sharp")
    points: list[WonPoint] = []
    refused: dict[tuple[str, str], tuple[dict[int, None], dict[int, None]]] = {}
    left_out: dict[str, None] = {}
    groups = groups_of(question)
    with fan_out(executor) as fan:
        for ranks in stepwise.track_progress(groups, progress, _named):
            among = replace(question, group=_group(question)[:ranks])
            told = swept(among, list(names.values()), wanted, sums_too=False, executor=fan)
            left_out |= dict.fromkeys((*told.left_out, *told.notes))
            chances = {each.size_bytes: each for each in told.fastest}
            for size, rows in groupby(sorted(told.rows, key=_size), key=_size):
                given = list(rows)
                for row in (row for row in given if isinstance(row, DeclinedCall)):
                    whom = refused.setdefault((_name(names, row.algorithm), row.declined), ({}, {}))
                    whom[0][ranks], whom[1][size] = None, None
                points += _won(names, ranks, size, given, chances.get(size))
    return WinnerMap(
        schema=SCHEMA,
        asked=question.asked(names.values()),
        collective=question.op,
        fabric=question.topology.name,
        provenance=question.topology.provenance,
        ranks=groups,
        sizes_bytes=sorted({point.size_bytes for point in points}),
        algorithms=names,
        points=points,
        regions=list(regions(points)),
        declined=[
            DeclinedWinner(name=name, why=why, ranks=list(ranks), sizes_bytes=list(sizes))
            for (name, why), (ranks, sizes) in refused.items()
        ],
        left_out=list(left_out),
        executor=fan.account.document(),
    )


def groups_of(question: SimulationSpec) -> list[int]:
    """Return the group sizes of a map; UsageError for a group in which nobody has a peer."""
    most = len(_group(question))
    if most < 2:
        raise UsageError("one rank alone has no winner", remedy="--ranks 2, or a larger fabric")
    return [*(1 << bits for bits in range(1, (most - 1).bit_length())), most]


def regions(points: Sequence[WonPoint]) -> Iterator[WonRegion]:
    """Yield neighbouring sizes with one winner, group by group, the smallest first."""
    for (ranks, winner), same in groupby(points, key=lambda each: (each.ranks, each.winner)):
        mine = list(same)
        gains = [each.next_us / each.time_us for each in mine if each.next_us and each.time_us]
        yield WonRegion(
            ranks=ranks,
            winner=winner,
            in_network=mine[0].in_network,
            first_bytes=mine[0].size_bytes,
            last_bytes=mine[-1].size_bytes,
            most_gain_over_next=max(gains, default=None),
        )


def _won(
    names: Mapping[str, str],
    ranks: int,
    size: int,
    rows: Sequence[SimulatedRow | DeclinedCall],
    sure: FastestCall | None,
) -> Iterator[WonPoint]:
    """Yield the point of one size; nothing where all decline."""
    known = [row for row in rows if isinstance(row, SimulatedRow)]
    if not known:
        return
    least = min(row.time_us for row in known)
    best = next(row for row in known if row.time_us <= NEAR * least)
    others = sorted((row for row in known if row is not best), key=lambda row: row.time_us)
    # Of two that are equally fast the chance is that of another order, which says nothing about the winner.
    same = sure is not None and others and sure.algorithm == best.algorithm
    yield WonPoint(
        ranks=ranks,
        size_bytes=size,
        winner=_name(names, best.algorithm),
        algorithm=best.algorithm,
        in_network=best.leased.stream is not None,
        time_us=best.time_us,
        time_us_p05=best.likely.time_us_p05,
        time_us_p95=best.likely.time_us_p95,
        next=_name(names, others[0].algorithm) if others else None,
        next_us=others[0].time_us if others else None,
        chance=sure.chance if sure is not None and same else None,
        gain_in_network=_gain(known),
    )


def _gain(known: Sequence[SimulatedRow]) -> float | None:
    """Return how many times faster the best in the network is than the best of the hosts; None where one has no time."""
    inside = min((row.time_us for row in known if row.leased.stream is not None), default=None)
    hosts = min((row.time_us for row in known if row.leased.stream is None), default=None)
    return hosts / inside if inside and hosts is not None else None


def _group(question: SimulationSpec) -> Sequence[int]:
    return range(question.topology.n_ranks) if question.group is None else question.group


def _name(names: Mapping[str, str], spelling: str) -> str:
    return next((name for name, each in names.items() if each == spelling), spelling)


def _size(row: SimulatedRow | DeclinedCall) -> int:
    return row.size_bytes


def _named(ranks: int) -> str:
    return f"{ranks:,} ranks"
