"""What a collective must carry across any cut, and the cut of a machine that makes it slowest.

For a set S with k of p ranks: all-gather must carry out of S what S holds, and into it what others hold; reduce-scatter the
other way round; all-reduce n both ways; broadcast n away from the root, reduce n towards it; scan and exscan n from any rank
towards those behind it; gather, scatter and all-to-all what is addressed across.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import goodput
from ringwright.bounds.maxflow import Cut, tightest, weakest
from ringwright.model.collective import PREFIXES

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

MOST_WORK = 500_000  # flows times links: a fraction of a second
MOST_EXACT = 100_000_000  # likewise, where the search is asked for: a minute or two
ENDLESS = 1 << 100
LARGE = 1e18  # bytes/s
SPREADING = ("all-gather", "gather")  # blocks leave their owners
COLLECTING = ("reduce-scatter", "scatter")  # blocks go to their owners: the same on the reversed machine
WHOLE = ("all-reduce", "broadcast", "reduce")
IN_ONE = (*WHOLE, *PREFIXES)  # what crosses a cut is the whole vector or nothing

Capacities = dict[tuple[int, int], int]


@dataclass(frozen=True)
class Demand:
    """An operation over ``ranks`` (topology nodes, in group order); ``blocks`` are bytes per rank where it has such."""

    op: str
    ranks: np.ndarray
    size_bytes: int
    blocks: np.ndarray
    pairs: np.ndarray | None  # all-to-all counts, (p, p)
    root: int  # place in the group
    added_bytes: float
    topology: Topology

    @cached_property
    def reversed_topology(self) -> Topology:
        """The machine with the direction of every link reversed."""
        return dataclasses.replace(self.topology, src=self.topology.dst, dst=self.topology.src)

    def across(self, part: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes that must leave and enter each part, given the part of each rank (-1: none).

        Both float64 of shape (parts,).
        """
        import numpy as np

        held = np.where(part < 0, parts, part)
        count = np.bincount(held, minlength=parts + 1)[:parts]
        if self.op == "all-to-all":
            return self._exchanged(held, parts, count)
        if self.op == "send-recv":
            after = np.roll(held, -1)
            leaves = held != after
            out = np.bincount(held[leaves], minlength=parts + 1) * float(self.size_bytes)
            into = np.bincount(after[leaves], minlength=parts + 1) * float(self.size_bytes)
            return out[:parts], into[:parts]
        partial = (count > 0) & (count < len(part))
        has_root = np.arange(parts) == held[self.root]
        if self.op in PREFIXES:
            return self._onwards(held, parts)
        if self.op in WHOLE:
            whole = np.where(partial, float(self.size_bytes), 0.0)
            if self.op == "all-reduce":
                return whole, whole
            away, towards = np.where(has_root, whole, 0.0), np.where(has_root, 0.0, whole)
            return (away, towards) if self.op == "broadcast" else (towards, away)
        own = np.bincount(held, weights=self.blocks, minlength=parts + 1)[:parts]
        own, others = np.where(partial, own, 0.0), np.where(partial, self.blocks.sum() - own, 0.0)
        if self.op in ("gather", "scatter"):
            own, others = np.where(has_root, 0.0, own), np.where(has_root, others, 0.0)
        return (own, others) if self.op in SPREADING else (others, own)

    def _onwards(self, held: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
        """Prefix sums: everything out of a part with a rank before some other part's, and into one with a rank behind."""
        import numpy as np

        index = np.arange(len(held))
        out, into = np.zeros(parts), np.zeros(parts)
        for part in range(parts):
            inside, outside = index[held == part], index[held != part]
            if len(inside) and len(outside):
                out[part] = self.size_bytes * float(inside[0] < outside[-1])
                into[part] = self.size_bytes * float(outside[0] < inside[-1])
        return out, into

    def _exchanged(self, held: np.ndarray, parts: int, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        if self.pairs is None:  # every rank has the same row of blocks
            comes = np.bincount(held, weights=self.blocks, minlength=parts + 1)[:parts]
            return count * (self.blocks.sum() - comes), (len(held) - count) * comes
        rows, columns = np.broadcast_arrays(held[:, None], held[None, :])
        crossing = np.where(rows != columns, self.pairs, 0)
        out = np.bincount(rows.reshape(-1), weights=crossing.reshape(-1), minlength=parts + 1)[:parts]
        return out, np.bincount(columns.reshape(-1), weights=crossing.reshape(-1), minlength=parts + 1)[:parts]

    def between(self, sources: int) -> np.ndarray:
        """Return the bytes from each of the first ranks to each rank (all-to-all).

        int64 of shape (sources, ranks).
        """
        import numpy as np

        if self.pairs is not None:
            return self.pairs[:sources]
        return np.broadcast_to(self.blocks, (sources, len(self.ranks)))

    @cached_property
    def is_alike(self) -> bool:
        """Whether all ranks are in the same position, so that one of them may stand for all."""
        is_even = len(self.blocks) < 2 or bool((self.blocks == self.blocks[0]).all())
        return self.topology.is_symmetric and len(self.ranks) == self.topology.n_ranks and is_even

    @property
    def sinks(self) -> list[int]:
        """The ranks of which a cut must leave out one."""
        if self.op in ("gather", "scatter"):
            return [int(self.ranks[self.root])]
        ranks: list[int] = self.ranks[:1].tolist() if self.is_alike else self.ranks.tolist()
        return ranks

    @property
    def is_searched(self) -> bool:
        """Whether there is a search over all cuts for the operation."""
        return self.op in (*SPREADING, *COLLECTING, *IN_ONE)

    def work(self, topology: Topology) -> int:
        """Return flows times links of the search over all cuts."""
        flows = len(self.ranks) if self.op in IN_ONE else len(self.sinks)
        return flows * topology.n_links

    def exact(self, topology: Topology) -> tuple[float, frozenset[int], str, float, float] | None:
        """Return (seconds, nodes, crossing, bytes, bytes/s) of the tightest of all cuts; None where no search exists.

        Rates are weighed with 9 digits, and the time is that of the rates as they are; capacities that links share are not seen.
        """
        if not self.is_searched:
            return None
        turned = self.op in COLLECTING or self.op == "reduce"
        capacities = _capacities(topology, turned=turned)
        cut = self._whole(topology, capacities) if self.op in IN_ONE else self._blocks(topology, capacities)
        ends = zip(topology.src.tolist(), topology.dst.tolist(), goodput(topology).tolist(), strict=True)
        inner = ((src, dst, rate) if not turned else (dst, src, rate) for src, dst, rate in ends)
        carried = sum(rate for here, there, rate in inner if here in cut.nodes and there not in cut.nodes)
        needed = self.size_bytes if self.op in IN_ONE else self._held(cut.nodes)
        time_s = needed / carried if carried else float("inf")
        return time_s, cut.nodes, "into" if turned else "out of", float(needed), float(carried)

    def _held(self, nodes: frozenset[int]) -> int:
        return sum(int(block) for rank, block in zip(self.ranks.tolist(), self.blocks, strict=True) if rank in nodes)

    def _blocks(self, topology: Topology, capacities: Capacities) -> Cut:
        weights = {int(rank): int(block) for rank, block in zip(self.ranks, self.blocks, strict=True)}
        first = _first(topology.n_nodes, capacities, weights, self.sinks)
        return _searched(topology.n_nodes, capacities, weights, self.sinks, first)

    def _whole(self, topology: Topology, capacities: Capacities) -> Cut:
        """Return the set with the least way out between the root and any other rank, or a rank and one behind it."""
        root = int(self.ranks[self.root])
        if self.op in PREFIXES:  # a cut between a rank and one behind it lies between two neighbours
            pairs = list(pairwise(self.ranks.tolist()))
            return weakest(
                topology.n_nodes, capacities, pairs, Cut(Fraction(sum(capacities.values()) + 1), frozenset())
            )
        cut = self._from_root(topology, capacities, root)
        if self.op == "all-reduce" and not self.is_alike:  # where all are alike, a cut may be turned to hold the root
            back = self._from_root(topology, {(there, here): rate for (here, there), rate in capacities.items()}, root)
            if back.value > cut.value:
                cut = Cut(back.value, frozenset(range(topology.n_nodes)) - back.nodes)
        return cut

    def _from_root(self, topology: Topology, capacities: Capacities, root: int) -> Cut:
        """Return the set that holds the root, leaves out a rank, and has the least way out: one byte is to leave it."""
        others, n_nodes = [rank for rank in self.ranks.tolist() if rank != root], topology.n_nodes
        alone = Cut(_ratio(1, sum(rate for (here, _), rate in capacities.items() if here == root)), frozenset((root,)))
        first = max((alone, _first(n_nodes, capacities, {root: 1}, others)), key=lambda cut: cut.value)
        return _searched(n_nodes, capacities, {root: 1}, others, first)


def _searched(n_nodes: int, capacities: Capacities, weights: dict[int, int], sinks: list[int], first: Cut) -> Cut:
    if first.value.denominator == 1 and first.value >= ENDLESS:
        return first
    try:
        return tightest(n_nodes, capacities, weights, sinks, first)
    except ZeroDivisionError:
        return Cut(Fraction(ENDLESS), frozenset(weights))


def _first(n_nodes: int, capacities: Capacities, weights: dict[int, int], sinks: list[int]) -> Cut:
    """Start from the best set of all nodes but one rank, or of one rank."""
    out, into = dict.fromkeys(weights, 0), dict.fromkeys(sinks, 0)
    for (here, there), rate in capacities.items():
        if here in out:
            out[here] += rate
        if there in into:
            into[there] += rate
    total = sum(weights.values())
    without = [(_ratio(total - weights.get(sink, 0), into[sink]), sink, True) for sink in sinks]
    alone = [(_ratio(weights[rank], out[rank]), rank, False) for rank in weights if sinks != [rank]]
    value, rank, is_without = max([*without, *alone], key=lambda cut: cut[0])
    return Cut(value, frozenset(range(n_nodes)) - {rank} if is_without else frozenset((rank,)))


def _ratio(above: int, below: int) -> Fraction:
    return Fraction(above, below) if below else Fraction(ENDLESS if above else 0)


def _capacities(topology: Topology, *, turned: bool) -> Capacities:
    """Return whole numbers in proportion to the rates, the least of them as good as exact."""
    capacities: Capacities = {}
    rates = goodput(topology)
    least = float(rates[rates > 0].min(initial=LARGE))
    unit = 2.0 ** max(0, 30 - math.frexp(least)[1])
    ends = (topology.dst, topology.src) if turned else (topology.src, topology.dst)
    for here, there, rate in zip(ends[0].tolist(), ends[1].tolist(), rates.tolist(), strict=True):
        if rate > 0:
            capacities[here, there] = capacities.get((here, there), 0) + round(min(rate, LARGE) * unit)
    return capacities


def demand(collective: Collective, topology: Topology) -> Demand:
    """Return what the collective asks of a machine; raise UsageError where its group is not on it."""
    import numpy as np

    from ringwright.ground.errors import UsageError

    ranks = np.asarray(collective.group, np.int64)
    if ranks.max() >= topology.n_ranks:
        raise UsageError(f"{topology.name} has no rank {int(ranks.max())}", remedy=f"0 to {topology.n_ranks - 1}")
    is_pairs = collective.op == "all-to-all" and collective.counts is not None
    n, p = collective.size_bytes, collective.p
    by_rank = not is_pairs and collective.op in ("all-gather", "reduce-scatter", "gather", "scatter", "all-to-all")
    return Demand(
        collective.op,
        ranks,
        n,
        collective.block_bytes if by_rank else np.zeros(p),
        collective.block_bytes.reshape(p, p) if is_pairs else None,
        collective.root,
        float(max(len(collective.contributors(p - 1)) - 1, 0) * n) if collective.reduces else 0.0,
        topology,
    )
