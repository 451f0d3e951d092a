"""Streams through nodes of the network as fluids: one flow over a tree of links, up and down, with a common rate.

What members give to a node, what nodes give to each other, and what goes back to the members are one *stream*, where they pass
the same places of the nodes; its n-th segment is the n-th message of each pair. A segment is one *carrier*, whose route is all
links of the tree (a link that carries more counts for more). Carriers of a stream follow each other, so that there is one flow at
a time for each group and stream, whatever the number of members. A message arrives when its carrier's last byte has left and the
latencies on its way have passed, those of what it waits for in the network included.

Exact where all members give at one time and nodes pass on packet by packet; a member that is late makes all wait. Events store
a segment at each node, and are longer by the turns of one segment: k / n of the time for n segments of k turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph, Pieces

MOST_EDGES = 1 << 24


class StreamColumns(TypedDict, total=False):
    """The columns of a graph that say which stream a message is of."""

    tree: np.ndarray
    segment: np.ndarray


def streams(pieces: Pieces, leaves_node: np.ndarray, enters_node: np.ndarray) -> StreamColumns:
    """Return the stream of each message and which of its segments it carries; nothing where no node of the network moves any.

    ``leaves_node`` and ``enters_node`` say which messages begin or end at such a node. Streams are told apart by the places
    that they pass.
    """
    import numpy as np

    inside = leaves_node | enters_node
    if not inside.any():
        return {}
    channel = np.zeros(len(inside), np.int64) if pieces.channel is None else pieces.channel - pieces.channel.min()
    nodes = int(max(pieces.src.max(), pieces.dst.max())) + 1
    _, pair = np.unique((channel * nodes + pieces.src) * nodes + pieces.dst, return_inverse=True)
    owner = pieces.message
    rows = [
        (pair[owner[of]], slots[of])
        for of, slots in ((leaves_node[owner], pieces.reads), (enters_node[owner], pieces.writes))
    ]
    label = _connected(
        np.concatenate([row[0] for row in rows]), np.concatenate([row[1] for row in rows]), int(pair.max()) + 1
    )
    order = np.argsort(pair, kind="stable")
    turn = np.empty(len(pair), np.int64)
    turn[order] = np.arange(len(pair)) - np.searchsorted(pair[order], pair[order])
    return {"tree": np.where(inside, label[pair], -1), "segment": turn}


def _connected(pair: np.ndarray, slot: np.ndarray, pairs: int) -> np.ndarray:
    """Return a number for each pair, equal where pairs pass one slot of a node, directly or through others. Of shape (pairs,)."""
    import numpy as np

    _, slot = np.unique(slot, return_inverse=True)
    label = np.arange(pairs)
    while True:
        least = np.full(int(slot.max()) + 1, pairs)
        np.minimum.at(least, slot, label[pair])
        further = label.copy()
        np.minimum.at(further, pair, least[slot])
        if (further == label).all():
            return label
        label = further


@dataclass(frozen=True)
class TreeFlows:
    """A graph in which ``carrier`` (of each message of the original) flows, and deliveries, numbered behind all, follow it."""

    graph: MessageGraph
    machine: Machine
    carrier: np.ndarray

    @property
    def carriers(self) -> int:
        """How many carriers there are; message m of the original is delivered by message ``carriers + m``."""
        return self.graph.n_messages - len(self.carrier)


def with_carriers(flat: MessageGraph, machine: Machine) -> TreeFlows:
    """Return the graph of carriers and deliveries; raise DeclinedError where streams are none that flow as one."""
    import numpy as np

    tree, segment, n = flat.tree, flat.segment, flat.n_messages
    if tree is None or segment is None or (flat.branches is not None and (tree[flat.branches.child] < 0).any()):
        raise DeclinedError("a multicast of a rank shares links: the flow engine copies nothing on the route")
    if machine.delays or machine.sends[flat.hops].any():
        raise DeclinedError("streams of the network do not flow as one: senders are busy, or latencies change")
    most = int(segment.max()) + 1
    kinds, first, carrier = np.unique(
        np.where(tree < 0, np.arange(n), n + tree * most + segment), return_index=True, return_inverse=True
    )
    _require_even(tree[first], np.bincount(carrier))
    count, alone = len(kinds), tree < 0
    base = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(base, carrier, np.where(flat.size_bytes > 0, flat.size_bytes, base[0]))
    base[base == np.iinfo(np.int64).max] = 0
    times = np.where(flat.size_bytes > 0, np.maximum(np.rint(flat.size_bytes / np.maximum(base[carrier], 1)), 1), 0)
    lengths = np.diff(flat.hop_starts)
    hops = np.repeat(flat.hops, np.repeat(times.astype(np.int64), lengths))
    owner = np.repeat(carrier, lengths * times.astype(np.int64))
    starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=count))))
    delay = np.zeros(count, np.int64)
    delay[carrier[alone]] = flat.delay[alone]
    edges = _Edges(flat, carrier)
    late = edges.latest(_latency(flat, machine) + np.where(alone, 0, flat.delay))
    graph = replace(
        flat,
        src=np.concatenate((flat.src[first], flat.src)),
        dst=np.concatenate((flat.dst[first], flat.dst)),
        size_bytes=np.concatenate((base, np.zeros(n, np.int64))),
        adds=np.concatenate((flat.adds[first], flat.adds)),
        step=np.concatenate((flat.step[first], flat.step)),
        hop_starts=np.concatenate((starts, np.full(n, starts[-1]))),
        hops=hops[np.argsort(owner, kind="stable")],
        delay=np.concatenate((delay, late)),
        weight=None,
        branches=None,
        tree=None,
        segment=None,
    )
    # Segments of a stream follow each other: their carriers are neighbours in number.
    next_one = np.flatnonzero((tree[first][1:] >= 0) & (tree[first][1:] == tree[first][:-1]))
    still = replace(machine, latency=np.zeros_like(machine.latency))
    return TreeFlows(edges.ordered(graph, next_one), still, carrier)


def _require_even(tree: np.ndarray, messages: np.ndarray) -> None:
    """Raise DeclinedError unless every segment of a stream has as many messages as the others."""
    import numpy as np

    least = np.full(int(tree.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, tree[tree >= 0], messages[tree >= 0])
    if (messages[tree >= 0] > least[tree[tree >= 0]]).any():
        raise DeclinedError("pairs of one stream have different numbers of messages")


def _latency(flat: MessageGraph, machine: Machine) -> np.ndarray:
    """Return the latency of each message's route, that of the stem before its fork included. int64 ps of shape (messages,)."""
    import numpy as np

    ends = np.concatenate(([0], np.cumsum(machine.latency[flat.hops])))
    latency: np.ndarray = ends[flat.hop_starts[1:]] - ends[flat.hop_starts[:-1]]
    if flat.branches is not None:
        columns = (flat.branches.child, flat.branches.parent, flat.branches.hop)
        before = np.zeros_like(latency)
        for child, parent, hop in sorted(zip(*(column.tolist() for column in columns), strict=True)):
            start = flat.hop_starts[parent]  # a parent comes before its children in the program
            before[child] = before[parent] + ends[start + hop + 1] - ends[start]
        latency = latency + before
    return latency


def without_joins(before: np.ndarray, after: np.ndarray, joins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges with every pair that waited through one of ``joins`` instead of it; DeclinedError where they are too many.

    All are int64, edges of shape (edges,).
    """
    import numpy as np

    for join in joins.tolist():
        into, out_of = after == join, before == join
        sources, targets = before[into], after[out_of]
        kept = ~(into | out_of)
        if kept.sum() + len(sources) * len(targets) > MOST_EDGES:
            raise DeclinedError(f"more than {MOST_EDGES:,} pairs of messages wait for each other")
        before = np.concatenate((before[kept], np.repeat(sources, len(targets))))
        after = np.concatenate((after[kept], np.tile(targets, len(sources))))
    pairs = np.unique(np.stack((before, after)), axis=1)
    return pairs[0], pairs[1]


class _Edges:
    """What waits for what: ``inside`` a stream, where the order of its segments says it all, and otherwise."""

    def __init__(self, flat: MessageGraph, carrier: np.ndarray) -> None:
        import numpy as np

        assert flat.tree is not None  # noqa: S101 - the caller has looked
        self.carrier, self.n, self.nodes = carrier, flat.n_messages, len(flat.waits)
        self.before, self.after = (
            np.repeat(np.arange(self.nodes), np.diff(flat.next_starts)),
            flat.nexts.astype(np.int64),
        )
        joins = np.arange(self.n, self.nodes)
        # A join is of a stream, or of a carrier, where all that it waits for is; -1: of none, -2: of several.
        of_tree = self._gathered(np.concatenate((flat.tree, np.full(len(joins), -3))))
        mixed = np.flatnonzero(of_tree == -2)
        if len(mixed):
            # Whether many that wait for many have a join is up to whoever made the graph: here each waits for each.
            self.before, self.after = without_joins(self.before, self.after, mixed)
            of_tree = self._gathered(np.concatenate((flat.tree, np.full(len(joins), -3))))
        self.of_carrier = self._gathered(np.concatenate((carrier, np.full(len(joins), -3))))
        ends = np.concatenate((flat.tree, np.full(len(joins), -1)))[self.after]
        self.inside = (ends >= 0) & (of_tree[self.before] == ends)

    def _gathered(self, label: np.ndarray) -> np.ndarray:
        """Give joins the label of all that they wait for (-3: not known yet), -2 where labels differ."""
        import numpy as np

        into = self.after >= self.n
        before, after = self.before[into], self.after[into]
        label = np.where(
            (label == -3) & (np.bincount(after, minlength=self.nodes) == 0), -1, label
        )  # waits for nothing
        while (label == -3).any():
            known = label[before] != -3
            low, high = np.full(self.nodes, 1 << 60), np.full(self.nodes, -4)
            np.minimum.at(low, after, np.where(known, label[before], -4))
            np.maximum.at(high, after, label[before])
            ready = (label == -3) & (low > -4)
            label = np.where(ready, np.where(low == high, low, -2), label)
        return label

    def latest(self, latency: np.ndarray) -> np.ndarray:
        """Return the latency of each message with that of what it waits for in its own carrier. int64 ps of shape (messages,)."""
        import numpy as np

        here = np.concatenate((self.carrier, self.of_carrier[self.n :]))
        joined = (self.after >= self.n) & (here[self.before] == here[self.after]) & (here[self.before] >= 0)
        mine = joined | (self.inside & (here[self.before] == here[self.after]))
        own = np.concatenate((latency, np.zeros(self.nodes - self.n, np.int64)))
        late = own
        while True:
            most = np.zeros(self.nodes, np.int64)
            np.maximum.at(most, self.after[mine], late[self.before[mine]])
            if (own + most == late).all():
                return late[: self.n]
            late = own + most

    def ordered(self, graph: MessageGraph, next_one: np.ndarray) -> MessageGraph:
        """Return the graph with its order: deliveries wait for carriers, which wait for others and follow their like."""
        import numpy as np

        count = graph.n_messages - self.n
        keep = ~self.inside
        to_carrier = np.concatenate((self.carrier, np.arange(self.n, self.nodes) + count))[self.after[keep]]
        before = np.concatenate((self.before[keep] + count, self.carrier, next_one))
        after = np.concatenate((to_carrier, np.arange(self.n) + count, next_one + 1))
        order = np.argsort(before, kind="stable")
        total = self.nodes + count
        starts = np.searchsorted(before[order], np.arange(total + 1)).astype(np.int64)
        waits = np.bincount(after, minlength=total).astype(np.int32)
        return replace(graph, next_starts=starts, nexts=after[order].astype(np.int32), waits=waits)
