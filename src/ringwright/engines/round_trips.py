"""How long a packet of a stream is under way: from a rank to its node of the network, up the tree and back."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import places, routes
from ringwright.model.program import ADDING
from ringwright.model.streams import granted, payload_bytes
from ringwright.model.validity.node_moves import RowsByEnd

if TYPE_CHECKING:
    from ringwright.engines.machine import Machine
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology
    from ringwright.model.validity.node_moves import NodeMoves


class StreamMoves:
    """The moves of a program at aggregating nodes by the streams that take them; rows are those of ``moves``.

    ``giver`` and ``taker`` number the streams at both ends, -1 at ranks; ``slots`` and ``payload`` are of each stream.
    """

    def __init__(self, program: Program, topology: Topology, moves: NodeMoves) -> None:
        self.program, self.topology, self.moves = program, topology, moves
        at = places(program)
        self.src, self.dst = at[moves.src], at[moves.dst]
        self.gives = np.isin(moves.op, [int(op) for op in ADDING])
        self.giver, self.taker = self._streams_of(moves.src), self._streams_of(moves.dst)
        of = program.streams
        self.payload = [payload_bytes(each, topology.aggregators[each.node]) for each in of]
        self.slots = [0] * len(of)
        at_nodes: dict[int, list[int]] = {}
        for number, each in enumerate(of):
            at_nodes.setdefault(each.node, []).append(number)
        for node, here in at_nodes.items():
            for number, count in zip(here, granted([of[at] for at in here], topology.aggregators[node]), strict=True):
                self.slots[number] = count

    def _streams_of(self, node: np.ndarray) -> np.ndarray:
        """Return the stream that takes each row's channel at a program node, -1 at ranks. int64 of shape (rows,)."""
        of, rows = np.full(len(node), -1, np.int64), RowsByEnd.of(node)
        index = {at: self.program.p + number for number, at in enumerate(self.program.aggregators)}
        for number, stream in enumerate(self.program.streams):
            here = rows.rows(index[stream.node])
            of[here[np.isin(self.moves.channel[here], stream.channels)] if stream.channels else here] = number
        return of

    def window_bytes(self, number: int) -> int:
        """Return the bytes in all slots of a stream."""
        return self.slots[number] * self.payload[number]


class RoundTrips:
    """The times of the moves of ``streams`` on a machine, in ps."""

    def __init__(self, streams: StreamMoves, made: Machine) -> None:
        self.streams = streams
        starts, hops = routes(made, streams.src, streams.dst, streams.gives)
        row = np.repeat(np.arange(len(streams.src)), np.diff(starts))
        wire = ~made.sends[hops]
        self.latency = np.bincount(row[wire], weights=made.latency[hops[wire]], minlength=len(streams.src))
        self.byte_ps = np.zeros(len(streams.src))  # of the slowest resource on each route
        np.maximum.at(self.byte_ps, row[wire], made.ps_per_byte[hops[wire]])
        takers, givers = RowsByEnd.of(streams.taker), RowsByEnd.of(streams.giver)
        into, out = ([by.rows(number) for number in range(len(streams.slots))] for by in (takers, givers))
        self.into = [rows[streams.gives[rows]] for rows in into]
        self.up = [rows[streams.gives[rows]] for rows in out]
        self.results = [rows[~streams.gives[rows]] for rows in out]
        self._above = cache(self._longest_above)
        self._returns = cache(self._ways_back)

    def packet(self, row: int, size_bytes: int) -> float:
        """Return the ps of one packet on the route of a row."""
        return float(self.latency[row] + size_bytes * self.byte_ps[row])

    def trips(self, number: int) -> dict[int, float]:
        """Return the ps of a packet's round trip from each rank that gives to a stream, by topology node."""
        size, trips = self.streams.payload[number], dict[int, float]()
        for row in self.into[number].tolist():
            if self.streams.giver[row] < 0:
                rank = int(self.streams.src[row])
                trips[rank] = max(trips.get(rank, 0.0), self._trip(row, number, size, ()))
        return trips

    def needed(self, number: int, trip: float, seen: tuple[int, ...] = ()) -> float:
        """Return the most ps per byte that the slots of a stream, or of one above it, need for packets of this round trip."""
        most = trip / self.streams.window_bytes(number)
        for row in self.up[number].tolist():
            parent = int(self.streams.taker[row])
            if parent not in seen:
                further = self._trip(row, parent, self.streams.payload[parent], (*seen, number))
                most = max(most, self.needed(parent, further, (*seen, number)))
        return most

    def line(self, number: int) -> float:
        """Return the ps that links need for what the busiest giver gives to a stream, or the busiest taker takes of it."""
        longest = 0.0
        for rows, ends in ((self.into[number], self.streams.src), (self.results[number], self.streams.dst)):
            busy = self.streams.moves.size_bytes[rows] * self.byte_ps[rows]
            _, end = np.unique(ends[rows], return_inverse=True)
            longest = max(longest, float(np.bincount(end, weights=busy).max(initial=0.0)))
        return longest

    def _trip(self, row: int, number: int, size: int, seen: tuple[int, ...]) -> float:
        """Return the ps of a packet that a row gives to a stream, until its result is back."""
        back, farthest = self._returns(number, size)
        above = self._above(number, size, seen)
        return self.packet(row, size) + above + back.get(int(self.streams.src[row]), farthest)

    def _ways_back(self, number: int, size: int) -> tuple[dict[int, float], float]:
        """Return the ps of a packet from a stream's node to each that it sends results to, and to the farthest."""
        back = dict[int, float]()
        for row in self.results[number].tolist():
            node = int(self.streams.dst[row])
            back[node] = max(back.get(node, 0.0), self.packet(row, size))
        return back, max(back.values(), default=0.0)

    def _longest_above(self, number: int, size: int, seen: tuple[int, ...]) -> float:
        """Return the ps of a packet from a stream's node up to the root and back to it."""
        longest = 0.0
        for row in self.up[number].tolist():
            parent = int(self.streams.taker[row])
            if parent not in seen and parent != number:
                longest = max(longest, self._trip(row, parent, size, (*seen, number)))
        return longest
