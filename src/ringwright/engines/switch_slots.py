"""The slots of streams as resources of the machine: what a node of the network can hold limits how fast its results leave.

A packet keeps its slot for a round trip: from a rank to its node, up the tree and back, with the time of its bytes on every leg.
So a stream's results leave a node at slots * payload / round trip at the most, the least over the node and those above it; where
that is below what the links allow, all results to ranks pass a resource of that rate. What one sender may have under way
(``Stream.window``) limits its contributions likewise. A node that passes packets several times through its pipeline takes in that
part of a port's rate: a resource behind the link.

Who mends a loss says what it costs (``LOSS_RULES``). Where it is the hosts, a server or the transport of a ring, the links of the
stream are not thinner, and it takes longer by the closed form of ``pools.expected``, or by what packets through the pool met
where these were followed (``late``). Every other loss is a thinner link.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import places
from ringwright.engines.machine import Machine, Pacers, machine
from ringwright.engines.packets.carriage import spoken
from ringwright.engines.pools.expected_losses import PoolTimes, late_ps
from ringwright.engines.pools.hashed_pool import HashedPool, packet_time_ps
from ringwright.engines.pools.losses import lost_on
from ringwright.engines.round_trips import RoundTrips, StreamMoves
from ringwright.engines.wire_width import wire_shares
from ringwright.ground.errors import InfeasibleError
from ringwright.ground.units import PS
from ringwright.model.program import Op
from ringwright.model.software import NO_SOFTWARE
from ringwright.model.streams import LOSS_RULES
from ringwright.model.validity.stream_rules import require_streams

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.streams import Stream
    from ringwright.model.topology import Topology
    from ringwright.model.validity.node_moves import NodeMoves

NO_TIMER = "retransmissions, but of streams that say who mends a loss: a lossy link is a link of as much less rate"


def machines(
    programs: Sequence[Program], topology: Topology, alpha: str = "pipelined", late: Mapping[int, float] | None = None
) -> list[Machine]:
    """Return the machine as each program uses it, each with the resources of those before it too.

    ``late``: the ps that losses add to a program, by its position, where its packets were followed; else a closed form says them.
    Raises ProgramError where a program's streams break a rule on this topology.
    """
    used = [
        StreamsInUse(program, topology, moves, (late or {}).get(number))
        for number, program in enumerate(programs)
        if (moves := require_streams(program, topology))
    ]
    # The first program's software decides what a message costs its ends: what is asked about together is one algorithm's.
    software = programs[0].software if programs else NO_SOFTWARE
    made = dataclasses.replace(machine(mended(used, programs, topology), alpha, software), topology=topology)
    of = {id(streams.program): streams for streams in used}
    every = []
    for program in programs:
        made = dataclasses.replace(made, pacers=None, coded=wire_shares(program))
        if id(program) in of:
            made = of[id(program)].on(made)
        every.append(made)
    return every


def not_mended(topology: Topology) -> tuple[str, ...]:
    """Return what is left out of an answer where a link loses packets that no stream mends."""
    return (NO_TIMER,) if is_lossy(topology) else ()


def is_lossy(topology: Topology) -> bool:
    """Say whether a link ever loses anything."""
    healthy = topology.loss is not None and bool((topology.loss > 0).any())
    return healthy or any(fault.field in ("loss", "ber") and fault.value > 0 for fault in topology.faults)


def mended(used: Sequence[StreamsInUse], programs: Sequence[Program], topology: Topology) -> Topology:
    """Return the topology without loss on links that only streams use which mend losses themselves."""
    if not is_lossy(topology) or not any(streams.mends.any() for streams in used):
        return topology
    own = np.zeros(topology.n_links, bool)
    others = np.zeros(topology.n_links, bool)
    for streams in used:
        own[streams.links(streams.mends)] = True
        others[streams.links(~streams.mends)] = True
    for program in programs:
        others[outside(program, topology)] = True
    own &= ~others
    loss = None if topology.loss is None else np.where(own, 0.0, topology.loss)
    faults = tuple(each for each in topology.faults if not (each.field == "loss" and own[each.target]))
    return dataclasses.replace(topology, loss=loss, faults=faults)


def outside(program: Program, topology: Topology) -> np.ndarray:
    """Return the links of all moves that are not at aggregating nodes. int64 of shape (links,)."""
    pairs = [np.zeros(0, np.int64)]
    for step in program.steps():
        for block in step.blocks:
            if block.op not in (Op.CONTRIBUTE, Op.COMBINE, Op.EMIT):
                src, dst, _, _ = block.arrays()
                pairs.append(np.unique(src * program.n_nodes + dst))
    every, at = np.unique(np.concatenate(pairs)), places(program)
    _, links = topology.routes(at[every // program.n_nodes], at[every % program.n_nodes])
    return np.unique(links)


class StreamsInUse(StreamMoves):
    """The streams of one program, as resources of a machine; ``late``: the ps that losses add, where they are known."""

    def __init__(self, program: Program, topology: Topology, moves: NodeMoves, late: float | None = None) -> None:
        super().__init__(program, topology, moves)
        self.late = late

    @cached_property
    def tree(self) -> np.ndarray:
        """The tree of each stream: those that a combination joins are one. int64 of shape (streams,)."""
        tree = np.arange(len(self.slots))
        joined = np.flatnonzero((self.giver >= 0) & (self.taker >= 0))
        for one, other in set(zip(self.giver[joined].tolist(), self.taker[joined].tolist(), strict=True)):
            tree[tree == tree[one]] = tree[other]
        return tree

    @cached_property
    def tree_of_row(self) -> np.ndarray:
        """The tree that each row belongs to. int64 of shape (rows,)."""
        of: np.ndarray = self.tree[np.where(self.taker >= 0, self.taker, self.giver)]
        return of

    @cached_property
    def mends(self) -> np.ndarray:
        """Whether the streams mend what the moves of each row lose: all those of the tree. bool of shape (rows,)."""
        without = [LOSS_RULES[stream.loss].owner == "links" for stream in self.program.streams]
        mends: np.ndarray = ~np.isin(self.tree_of_row, self.tree[without])
        return mends

    def links(self, rows: np.ndarray) -> np.ndarray:
        """Return the links that the moves of some rows take. int64 of shape (links,)."""
        _, links = self.topology.routes(self.src[rows], self.dst[rows])
        return np.unique(links)

    # ----------------------------------------------------------------------------------------------------- on a machine
    def on(self, made: Machine) -> Machine:
        """Return the machine with the resources that the streams need of it."""
        times = RoundTrips(self, made)
        front = np.full(len(self.src), -1, np.int64)
        behind = front.copy()
        further: list[list[tuple[int, float]]] = []
        names: list[str] = []
        for column, rows, byte_ps, name in self._resources(made, times):
            column_of = front if column == "front" else behind
            column_of[rows] = made.n + len(names)
            further.append(byte_ps)
            names.append(name)
        if not names:
            return made
        return made.with_resources(further, names, Pacers(self.src, self.dst, self.moves.channel, front, behind))

    def _resources(
        self, made: Machine, times: RoundTrips
    ) -> Iterator[tuple[str, np.ndarray, list[tuple[int, float]], str]]:
        """Yield each further resource: in front of which rows or behind them, its ps per byte from times on, its name."""
        label = self.topology.label
        for number, stream in enumerate(self.program.streams):
            trips = times.trips(number)
            line, byte_ps = self._results(number, times, trips)
            if any(each > line for _, each in byte_ps):
                yield "front", times.results[number], byte_ps, f"the slots of {label(stream.node)}"
            window = stream.window * self.payload[number]
            for rank, trip in trips.items() if window else ():
                rows = times.into[number][self.src[times.into[number]] == rank]
                if trip / window > times.byte_ps[rows].max():
                    yield "front", rows, [(0, trip / window)], f"the window of {label(rank)} at {label(stream.node)}"
        for link, rows in self._ports():
            passes = self.topology.aggregators[int(self.topology.dst[link])].passes
            yield (
                "behind",
                rows,
                [(0, float(made.ps_per_byte[link]) * passes)],
                f"the pipeline behind {made.label(link)}",
            )

    def _ports(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the last link of contributions to nodes that pass packets several times, and the rows over it."""
        many = [node for node, able in self.topology.aggregators.items() if able.passes > 1]
        rows = np.flatnonzero(self.gives & np.isin(self.dst, many))
        if not len(rows):
            return
        starts, links = self.topology.routes(self.src[rows], self.dst[rows])
        last = links[starts[1:] - 1]
        for link in np.unique(last).tolist():
            yield link, rows[last == link]

    def _results(
        self, number: int, times: RoundTrips, trips: dict[int, float]
    ) -> tuple[float, list[tuple[int, float]]]:
        """Return the ps per byte that links alone need for a stream's results, and what they need in all, from times on."""
        emits = times.results[number]
        total = self._result_bytes(emits)
        if not total or not trips or not (self.taker[emits] < 0).any():
            return 0.0, []
        line, trip = times.line(number) / total, max(trips.values())
        most, stream = max(line, times.needed(number, trip)), self.program.streams[number]
        if stream.jobs:
            most = max(most, self._shared(number, times, trip))
        rule = LOSS_RULES[stream.loss]
        if rule.owner == "links":
            return line, [(0, most)]
        if rule.has_timer and not rule.adapts:
            queued = stream.window * self.payload[number] if stream.jobs else self.window_bytes(number)
            self._require_patience(stream, max(trip, most * queued))
        if self.late is not None:
            return line, [(0, most + self.late / total)]
        lost = self._lost(int(self.tree[number]))
        if not lost:
            return line, [(0, most)]
        pool = self._times(number, math.ceil(total / self.payload[number]), line, trip)
        return line, [(at, most + late_ps(pool, share) / total) for at, share in lost]

    def _shared(self, number: int, times: RoundTrips, trip: float) -> float:
        """Return the ps per byte of a stream whose slots other jobs hash into too."""
        stream, size, rows = self.program.streams[number], self.payload[number], times.into[number]
        server = places(self.program)[stream.fallback or 0]
        at_server = times.byte_ps[rows[self.src[rows] == server]]
        packet_ps = float(times.byte_ps[rows].max()) * size
        server_ps = float(at_server.max(initial=0.0)) * size or packet_ps
        pool = HashedPool(
            stream.jobs,
            len(np.unique(self.src[rows])),
            self.slots[number],
            stream.window or self.slots[number],
            packet_ps,
            server_ps,
            2 * trip,  # to the server and back as to a worker
            trip,
        )
        return packet_time_ps(pool) / size

    def _result_bytes(self, emits: np.ndarray) -> int:
        """Return the bytes of results, those of a multicast once."""
        size, copied, channel = self.moves.size_bytes[emits], self.moves.copied[emits], self.moves.channel[emits]
        once = sum(int(size[copied & (channel == each)].max()) for each in np.unique(channel[copied]).tolist())
        return once + int(size[~copied].sum())

    # ------------------------------------------------------------------------------------------------------------- loss
    @cache  # noqa: B019 - of one program on one machine, for as long as it is laid out
    def _lost(self, tree: int) -> tuple[tuple[int, float], ...]:
        """Return the share of packets that some link of a tree loses, from each ps on; nothing where none loses any."""
        return lost_on(self.topology, self._tree_links(tree)[0]) if is_lossy(self.topology) else ()

    @cache  # noqa: B019 - likewise
    def _tree_links(self, tree: int) -> tuple[np.ndarray, int]:
        """Return the links of a tree, int64 of shape (links,), and those between a worker and the root."""
        rows = self.tree_of_row == tree
        giving = rows & self.gives
        lengths = np.diff(self.topology.routes(self.src[giving], self.dst[giving])[0])
        levels = 1 + int((self.giver[giving] >= 0).any())
        return self.links(rows), levels * int(lengths.max(initial=1))

    def _times(self, number: int, packets: int, byte_ps: float, trip: float) -> PoolTimes:
        """Return what the closed form asks: packets of a worker, those of the line, the round trip, and who sends again."""
        stream, rule = self.program.streams[number], LOSS_RULES[self.program.streams[number].loss]
        links, depth = self._tree_links(int(self.tree[number]))
        packet_ps = byte_ps * self.payload[number]
        timeout_ps = stream.timeout_s * PS
        if rule.owner == "transport":
            timeout_ps = self.transport_timeout_ps(number, packet_ps, trip)
        return PoolTimes(
            packets,
            self.slots[number],
            packet_ps,
            trip,
            len(links),
            depth,
            timeout_ps,
            rule.adapts,
            rule.owner == "transport",
        )

    def transport_timeout_ps(self, number: int, packet_ps: float, trip: float) -> float:
        """Return how long a connection waits for progress: its protocol's least, or twice what a whole window takes."""
        return max(spoken(self.topology).rto_s * PS, 2 * (trip + self.slots[number] * packet_ps))

    def _require_patience(self, stream: Stream, least: float) -> None:
        """Raise InfeasibleError where the timer expires before an answer can come: senders would send against themselves."""
        if stream.timeout_s * PS < least:
            raise InfeasibleError(
                f"{self.program.name}: a timer of {stream.timeout_s * 1e6:g} us expires before an answer can come, which takes "
                f"{least / 1e6:.1f} us with all slots in use",
                where=self.topology.label(stream.node),
                remedy="a longer timeout_s, or fewer slots",
            )
