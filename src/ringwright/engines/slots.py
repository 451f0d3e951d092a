"""The slots of streams as resources of the machine: what a node of the network can hold limits how fast its results leave.

A packet keeps its slot for a round trip: from a rank to its node, up the tree and back, with the time of its bytes on every leg.
So a stream's results leave a node at slots * payload / round trip at the most, the least over the node and those above it; where
that is below what the links allow, all results to ranks pass a resource of that rate. What one sender may have under way
(``Stream.window``) limits its contributions likewise. A node that passes packets several times through its pipeline takes in that
part of a port's rate: a resource behind the link.

A timer at the senders makes a loss its own affair: the links of such a stream are not thinner, and it takes
RTO (lambda + sqrt(2 lambda ln s)) longer in all. Lambda = N q / s is how often a slot loses one of its packets: N packets in s
slots, q the share that is lost on any link of the tree; the unluckiest slot decides. Every other loss is a thinner link.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import places
from ringwright.engines.machine import PS, Machine, Pacers, machine
from ringwright.engines.round_trips import RoundTrips, StreamMoves
from ringwright.errors import InfeasibleError
from ringwright.program import Op
from ringwright.software import NO_SOFTWARE
from ringwright.streams import LOSS_RULES
from ringwright.validity.stream_rules import require_streams

if TYPE_CHECKING:
    from ringwright.program import Program
    from ringwright.streams import Stream
    from ringwright.topology import Topology

NO_TIMER = "retransmissions, but of streams with a timer: a lossy link is a link of as much less rate"


def machines(programs: Sequence[Program], topology: Topology, alpha: str = "pipelined") -> list[Machine]:
    """Return the machine as each program uses it, each with the resources of those before it too.

    Raises ProgramError where a program's streams break a rule on this topology.
    """
    used = [_Streams(program, topology, moves) for program in programs if (moves := require_streams(program, topology))]
    # The first program's software decides what a message costs its ends: what is asked about together is one algorithm's.
    software = programs[0].software if programs else NO_SOFTWARE
    made = dataclasses.replace(machine(_mended(used, programs, topology), alpha, software), topology=topology)
    of = {id(streams.program): streams for streams in used}
    every = []
    for program in programs:
        made = dataclasses.replace(made, pacers=None)
        if id(program) in of:
            made = of[id(program)].on(made)
        every.append(made)
    return every


def not_mended(topology: Topology) -> tuple[str, ...]:
    """Return what is left out of an answer where a link loses packets that no stream's timer mends."""
    return (NO_TIMER,) if is_lossy(topology) else ()


def is_lossy(topology: Topology) -> bool:
    """Say whether a link ever loses anything."""
    healthy = topology.loss is not None and bool((topology.loss > 0).any())
    return healthy or any(fault.field in ("loss", "ber") and fault.value > 0 for fault in topology.faults)


def _mended(used: Sequence[_Streams], programs: Sequence[Program], topology: Topology) -> Topology:
    """Return the topology without loss on links that only streams with a timer use."""
    if not is_lossy(topology) or not any(streams.timed.any() for streams in used):
        return topology
    own = np.zeros(topology.n_links, bool)
    others = np.zeros(topology.n_links, bool)
    for streams in used:
        own[streams.links(streams.timed)] = True
        others[streams.links(~streams.timed)] = True
    for program in programs:
        others[_outside(program, topology)] = True
    own &= ~others
    loss = None if topology.loss is None else np.where(own, 0.0, topology.loss)
    faults = tuple(each for each in topology.faults if not (each.field == "loss" and own[each.target]))
    return dataclasses.replace(topology, loss=loss, faults=faults)


def _outside(program: Program, topology: Topology) -> np.ndarray:
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


class _Streams(StreamMoves):
    """The streams of one program, as resources of a machine."""

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
    def timed(self) -> np.ndarray:
        """Whether timers mend what the moves of each row lose: those of all streams of the tree. bool of shape (rows,)."""
        without = [not LOSS_RULES[stream.loss].has_timer for stream in self.program.streams]
        timed: np.ndarray = ~np.isin(self.tree_of_row, self.tree[without])
        return timed

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
        if not LOSS_RULES[stream.loss].has_timer:
            return line, [(0, most)]
        self._require_patience(stream, max(trip, most * self.window_bytes(number)))
        packets = math.ceil(total / self.payload[number])
        return line, [(at, most + self._late(number, packets, lost) / total) for at, lost in self._lost(number)]

    def _result_bytes(self, emits: np.ndarray) -> int:
        """Return the bytes of results, those of a multicast once."""
        size, copied, channel = self.moves.size_bytes[emits], self.moves.copied[emits], self.moves.channel[emits]
        once = sum(int(size[copied & (channel == each)].max()) for each in np.unique(channel[copied]).tolist())
        return once + int(size[~copied].sum())

    # ------------------------------------------------------------------------------------------------------------- loss
    def _lost(self, number: int) -> list[tuple[int, float]]:
        """Return the share of packets that some link of a stream's tree loses, from each ps on."""
        mine = self.links(self.tree_of_row == self.tree[number])
        top = self.topology
        healthy = np.zeros(len(mine)) if top.loss is None else top.loss[mine]
        kept = dict(zip(mine.tolist(), (1.0 - healthy).tolist(), strict=True))
        lost = {0: 1.0 - math.prod(kept.values())}
        for fault in sorted(top.faults, key=lambda each: each.time_s):
            if fault.kind == "link" and fault.field == "loss" and fault.target in kept:
                kept[fault.target] = 1.0 - fault.value
                lost[round(fault.time_s * PS)] = 1.0 - math.prod(kept.values())
        return list(lost.items())

    def _late(self, number: int, packets: int, lost: float) -> float:
        """Return the ps by which timers that expire make a stream longer."""
        slots = min(self.slots[number], packets)  # what holds nothing loses nothing
        often = packets / slots * lost
        return self.program.streams[number].timeout_s * PS * (often + math.sqrt(2 * often * math.log(slots)))

    def _require_patience(self, stream: Stream, least: float) -> None:
        """Raise InfeasibleError where the timer expires before an answer can come: senders would send against themselves."""
        if stream.timeout_s * PS < least:
            raise InfeasibleError(
                f"{self.program.name}: a timer of {stream.timeout_s * 1e6:g} us expires before an answer can come, which takes "
                f"{least / 1e6:.1f} us with all slots in use",
                where=self.topology.label(stream.node),
                remedy="a longer timeout_s, or fewer slots",
            )
