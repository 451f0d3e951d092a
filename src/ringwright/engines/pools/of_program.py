"""The pool of slots that a program is, where it is nothing else: one tree of switches, and workers that all give it as much."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.machine import machine
from ringwright.engines.pools.losses import lost_on
from ringwright.engines.pools.pool_machine import Mending, PoolLink, SlotPool
from ringwright.engines.round_trips import RoundTrips
from ringwright.engines.switch_slots import StreamsInUse, mended, outside
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import PS
from ringwright.model.streams import LOSS_RULES
from ringwright.model.validity.stream_rules import require_streams

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

REMEDY = "--engine events, which takes losses by a closed form"
FIRST_PS = 10**11  # of a timer that adapts, before a round trip was measured: that of ``ringwright switch``


def mends_losses(program: Program) -> bool:
    """Say whether a stream of a program mends losses itself, and does not leave them to what carries its packets."""
    return any(LOSS_RULES[stream.loss].owner != "links" for stream in program.streams)


def slot_pool(program: Program, topology: Topology, alpha: str, starts_ps: np.ndarray | None = None) -> SlotPool:
    """Return the pool that a program is; DeclinedError where it is more than one pool, or does something else besides.

    ``starts_ps``: when each node of the machine comes, int64 of shape (nodes,).
    """
    moves = require_streams(program, topology)
    if moves is None or len(outside(program, topology)):
        raise DeclinedError("packets are followed through pools of slots alone, not through hosts too", remedy=REMEDY)
    return _PoolOf(StreamsInUse(program, topology, moves), alpha).pool(starts_ps)


class _PoolOf:
    def __init__(self, streams: StreamsInUse, alpha: str) -> None:
        self.streams = streams
        program, topology = streams.program, streams.topology
        whole = machine(mended([streams], [program], topology), alpha, program.software)
        self.made = dataclasses.replace(whole, topology=topology)
        self.times = RoundTrips(streams, self.made)
        if len(np.unique(streams.tree)) != 1:
            raise DeclinedError(
                f"packets are followed through one tree, not {len(np.unique(streams.tree))}", remedy=REMEDY
            )
        given = np.flatnonzero(streams.gives & (streams.giver < 0))
        self.ranks = np.unique(streams.src[given])
        self.rules = {stream.loss for stream in program.streams}
        if len(self.rules) != 1 or len(set(streams.payload)) != 1:
            raise DeclinedError("the streams of one tree differ in packets, or in who mends a loss", remedy=REMEDY)

    def pool(self, starts_ps: np.ndarray | None) -> SlotPool:
        """Return the workers, in the order of their ranks, and the switches above, the farthest from the root first."""
        streams = self.streams
        above = {number: self._parent(number) for number in range(len(streams.slots))}
        depth = {number: sum(1 for _ in self._up_from(number, above)) for number in above}
        order = sorted(above, key=lambda number: (-depth[number], number))
        node_of = {number: len(self.ranks) + at for at, number in enumerate(order)}
        rows = [self._of_rank(rank) for rank in self.ranks.tolist()]
        ends = [(up, down, int(streams.taker[up])) for up, down in rows]
        ends += [(*self._of_switch(number, above[number]), above[number]) for number in order[:-1]]
        return SlotPool(
            (*(node_of[parent] for _, _, parent in ends), -1),
            tuple(self._leg(up) for up, _, _ in ends),
            tuple(self._leg(down) for _, down, _ in ends),
            self._packets(),
            min(streams.slots),
            self._mending(0),
            () if starts_ps is None else tuple(starts_ps[self.ranks].tolist()),
        )

    def _parent(self, number: int) -> int:
        """Return the stream above one, -1 above the root."""
        rows = self.times.up[number]
        return int(self.streams.taker[rows[0]]) if len(rows) else -1

    def _up_from(self, number: int, above: dict[int, int]) -> list[int]:
        met = []
        while (number := above[number]) >= 0:
            met.append(number)
        return met

    def _of_rank(self, rank: int) -> tuple[int, int]:
        """Return a row in which a rank gives, and one in which it takes; DeclinedError where these are of two switches."""
        streams = self.streams
        up = np.flatnonzero(streams.gives & (streams.src == rank) & (streams.giver < 0))
        down = np.flatnonzero(~streams.gives & (streams.dst == rank) & (streams.taker < 0))
        switches = np.unique(np.concatenate((streams.taker[up], streams.giver[down])))
        if not len(down) or len(switches) != 1:
            raise DeclinedError(f"rank {rank} gives to one switch and takes from another", remedy=REMEDY)
        return int(up[0]), int(down[0])

    def _of_switch(self, number: int, parent: int) -> tuple[int, int]:
        results = self.times.results[parent]
        down = results[self.streams.taker[results] == number]
        if not len(down):
            raise DeclinedError("a switch gives to one above and takes nothing from it", remedy=REMEDY)
        return int(self.times.up[number][0]), int(down[0])

    def _packets(self) -> int:
        """Return the packets of each worker; DeclinedError where they differ."""
        streams = self.streams
        given = np.flatnonzero(streams.gives & (streams.giver < 0))
        _, rank = np.unique(streams.src[given], return_inverse=True)
        sizes = np.bincount(rank, weights=streams.moves.size_bytes[given])
        counts = np.ceil(sizes / streams.payload[0])
        if len(counts) and counts.min() < counts.max():
            raise DeclinedError("workers of a pool give different numbers of packets", remedy=REMEDY)
        return int(counts.max(initial=0))

    def _leg(self, row: int) -> PoolLink:
        streams = self.streams
        _, links = streams.topology.routes(streams.src[row : row + 1], streams.dst[row : row + 1])
        packet_ps = round(self.times.byte_ps[row] * streams.payload[0])
        return PoolLink(packet_ps, round(self.times.latency[row]), lost_on(streams.topology, links))

    def _mending(self, number: int) -> Mending:
        rule = LOSS_RULES[self.streams.program.streams[number].loss]
        if rule.owner == "server":
            raise DeclinedError("packets that a server mends are not followed", remedy=REMEDY)
        if rule.owner == "transport":
            trip = max(self.times.trips(number).values(), default=0.0)
            byte_ps = float(self.times.byte_ps.max()) * self.streams.payload[number]
            return Mending(math.ceil(self.streams.transport_timeout_ps(number, byte_ps, trip)), goes_back=True)
        timeout_ps = round(self.streams.program.streams[number].timeout_s * PS)
        return Mending(timeout_ps, rule.adapts, max(FIRST_PS, timeout_ps))
