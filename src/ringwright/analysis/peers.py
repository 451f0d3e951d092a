"""The best of the benchmark tables of equal machines, without comparing each table with each other one.

Two tables are compared at the largest size of the one that lies within the sizes of the other. So all peers on one machine that
end at the same size are asked for the same one, and which is the fastest there is worked out once, however many tables ask.
"""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.analysis.benchmarks import gpu_model, same_model

if TYPE_CHECKING:
    from ringwright.analysis.benchmarks import BenchmarkTimes

# Looks at a peer, for all tables of a file. Measured: the published recordings need 45 (30 tables) and 336 (132 tables), a file
# of 10 MB with 22,000 tables of one machine and one size 66,000; tables of as many different sizes would need half their square.
MOST_LOOKS = 1_000_000  # about 5 s
_Machine = tuple[str, int | None]  # GPU and nodes


@dataclass(frozen=True, slots=True)
class Peer:
    """A table to compare another with: how much faster it is, and the size at which both are compared."""

    table: BenchmarkTimes
    factor: float
    size_bytes: int
    order: int


@dataclass
class _Ending:
    """Tables of one machine that end at one size, in the order given, and the two fastest of them at each size asked for."""

    tables: list[tuple[int, BenchmarkTimes]] = field(default_factory=list)
    fastest: dict[int, list[tuple[float, int, BenchmarkTimes]]] = field(default_factory=dict)

    def at(self, size: int) -> list[tuple[float, int, BenchmarkTimes]]:
        """Return time, order and table of the two fastest at a size: one of them is not the table that asks."""
        if size not in self.fastest:
            times = ((table.at(size), order, table) for order, table in self.tables)
            told = [(time_s, order, table) for time_s, order, table in times if time_s is not None]
            self.fastest[size] = heapq.nsmallest(2, told, key=lambda each: each[:2])
        return self.fastest[size]


class Peers:
    """Tables by what must be equal: operation, ranks and GPU, and nodes where both say them."""

    def __init__(self, tables: Iterable[BenchmarkTimes], *, most: int = MOST_LOOKS) -> None:
        self._left = most
        self.left_out = 0  # tables that were compared with nothing, or not with all
        self._alike: dict[tuple[str, int | None, str], dict[_Machine, dict[int, _Ending]]] = defaultdict(dict)
        for order, table in enumerate(tables):
            model = gpu_model(table.gpu)
            if table.nranks is not None and model and table.sizes:
                machines = self._alike[table.op, table.nranks, model.split("-")[0]]
                endings = machines.setdefault((model, table.nnodes), {})
                endings.setdefault(table.sizes[-1], _Ending()).tables.append((order, table))

    def best(self, table: BenchmarkTimes, least_bytes: int) -> Peer | None:
        """Return the peer that is faster than a table by most, at a size from ``least_bytes`` on; the first of equal ones.

        None where there is none, and where it would take more looks than are left to tell.
        """
        sizes = [size for size in table.sizes if size >= least_bytes]
        best: Peer | None = None
        for ending in self._endings(table):
            within = bisect.bisect_right(sizes, ending.tables[0][1].sizes[-1])
            if not within:
                continue
            size = sizes[within - 1]
            self._left -= len(ending.tables) if size not in ending.fastest else 0
            if self._left < 0:
                break
            told = next((each for each in ending.at(size) if each[2] is not table), None)
            if told is not None:
                time_s, order, peer = told
                asked = Peer(peer, table.steady_s(size) / time_s, size, order)
                best = asked if best is None else min(best, asked, key=lambda each: (-each.factor, each.order))
        if self._left < 0:
            self.left_out += 1
            return None
        return best

    def _endings(self, table: BenchmarkTimes) -> Iterator[_Ending]:
        """Yield the peers of a table, those together that are compared at one size."""
        model = gpu_model(table.gpu)
        machines = self._alike.get((table.op, table.nranks, model.split("-")[0]), {})
        for (peer_model, nodes), endings in machines.items():
            self._left -= 1
            nodes_agree = nodes is None or table.nnodes is None or nodes == table.nnodes
            for ending in endings.values() if nodes_agree and same_model(model, peer_model) else ():
                self._left -= 1
                if self._left < 0:
                    return
                yield ending
            if self._left < 0:
                return
