"""The order of a run, declared: on every resource messages are served in the order of the program.

The engine serves first come, first served. A message that was to wait, so that a more urgent one goes first, would overtake it
there. Here each waits also for the data that those before it on its resources wait for, and for the last of those that had
arrived when it left in the run: that takes no time as long as all keep to the run.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines import loops
from ringwright.engines.flat import gather, places, routes

if TYPE_CHECKING:
    from ringwright.engines.machine import Machine
    from ringwright.model.program import Program


@dataclass(frozen=True, eq=False)
class Order:
    """``after[i]`` waits for ``before[i]``, int64 of shape (edges,); numbers from the count of messages on are joins."""

    before: np.ndarray
    after: np.ndarray
    joins: int

    def edges(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return (before, after, joins). Both int64 of shape (edges,)."""
        return self.before, self.after, self.joins


def covers(program: Program) -> bool:
    """Return whether a declared ``Order`` has all that the data ask for, names only what is there, and cannot lock up."""
    import rustworkx

    order = program.schedule
    if not isinstance(order, Order):
        return True
    pieces = gather(program)
    natural = loops.order(pieces)
    n = max(len(pieces.src) + order.joins, len(natural.waits))
    ends = np.concatenate((order.before, order.after))
    if len(order.before) != len(order.after) or (len(ends) and (ends.min() < 0 or ends.max() >= n)):
        return False
    before, after = (each.astype(np.int64) for each in natural.edges())
    if not np.isin(before * n + after, order.before * n + order.after).all():
        return False
    graph = rustworkx.PyDiGraph()
    graph.extend_from_edge_list(list(zip(order.before.tolist(), order.after.tolist(), strict=True)))
    return bool(rustworkx.is_directed_acyclic_graph(graph))


def in_order(program: Program, machine: Machine, start: np.ndarray, end: np.ndarray) -> Program:
    """Return the program with a declared order: what follows from its data, and that of its messages on each resource.

    ``start`` and ``end`` are when its messages between ranks are under way in the run, int64 ps, in the order of the program.
    """
    pieces = gather(program)
    n = len(pieces.src)
    remote = np.flatnonzero(pieces.src != pieces.dst)
    begin, stop = np.zeros(n, np.int64), np.zeros(n, np.int64)
    begin[remote], stop[remote] = start, end
    node = places(program)
    starts, hops = routes(machine, node[pieces.src], node[pieces.dst], np.zeros(n, bool))
    message = np.repeat(np.arange(n), np.diff(starts))
    rows = np.lexsort((message, hops))
    natural = loops.order(pieces)
    before, after = (each.astype(np.int64) for each in natural.edges())
    first = len(natural.waits)
    join = np.empty(len(rows), np.int64)  # one a message and resource
    join[rows] = first + np.arange(len(rows))
    same = np.flatnonzero(np.diff(hops[rows]) == 0)
    waits = np.flatnonzero(after < n)
    counts = np.diff(starts)[after[waits]]
    ends = np.cumsum(counts)
    at = np.repeat(starts[after[waits]] - (ends - counts), counts) + np.arange(int(counts.sum()))
    gone, waiting = _gone_before(hops[rows], begin[message[rows]], stop[message[rows]])
    columns = (
        (before, after),
        (np.repeat(before[waits], counts), join[at]),
        (first + same, first + same + 1),
        (join, message),
        (message[rows][gone], first + waiting),
    )
    edges = [np.concatenate(column) for column in zip(*columns, strict=True)]
    return dataclasses.replace(program, schedule=Order(edges[0], edges[1], first - n + len(rows)))


def _gone_before(resource: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of rows: the last on the same resource that had arrived before another started, and that other.

    Both int64. Rows are sorted by resource, then in the order of the run.
    """
    fresh = np.diff(resource, prepend=-1) != 0
    group, first = np.cumsum(fresh) - 1, np.flatnonzero(fresh)
    apart = int(end.max(initial=0)) + 1
    arrived = np.maximum.accumulate(end + group * apart)
    gone = np.searchsorted(arrived, start + group * apart, side="right") - 1
    gone = np.minimum(gone, np.arange(len(start)) - 1)
    waiting = np.flatnonzero(gone >= first[group]) if len(first) else np.zeros(0, np.int64)
    return gone[waiting], waiting
