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
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import places, routes
from ringwright.engines.machine import PS, Machine, Pacers, machine
from ringwright.errors import InfeasibleError
from ringwright.program import ADDING, Op
from ringwright.streams import LOSS_RULES, granted, payload_bytes
from ringwright.validity.stream_rules import require_streams

if TYPE_CHECKING:
    from ringwright.program import Program
    from ringwright.streams import Stream
    from ringwright.topology import Topology
    from ringwright.validity.node_moves import NodeMoves

NO_TIMER = "retransmissions, but of streams with a timer: a lossy link is a link of as much less rate"


def machines(programs: Sequence[Program], topology: Topology, alpha: str = "pipelined") -> list[Machine]:
    """Return the machine as each program uses it, each with the resources of those before it too.

    Raises ProgramError where a program's streams break a rule on this topology.
    """
    used = [_Streams(program, topology, moves) for program in programs if (moves := require_streams(program, topology))]
    made = dataclasses.replace(machine(_mended(used, programs, topology), alpha), topology=topology)
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
    return healthy or any(fault.field == "loss" and fault.value > 0 for fault in topology.faults)


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


@dataclass(frozen=True)
class _Leg:
    """What a way costs: ps before the first byte has come, and ps per byte of its slowest resource."""

    latency: int
    byte_ps: float

    def packet(self, size_bytes: int) -> float:
        return self.latency + size_bytes * self.byte_ps


class _Streams:
    """The streams of one program on a machine; rows are those of ``moves``."""

    def __init__(self, program: Program, topology: Topology, moves: NodeMoves) -> None:
        self.program, self.topology, self.moves = program, topology, moves
        at = places(program)
        self.src, self.dst = at[moves.src], at[moves.dst]
        self.gives = np.isin(moves.op, [int(op) for op in ADDING])
        self.giver = self._stream_of(moves.src)  # number of the stream at the source, -1 at a rank
        self.taker = self._stream_of(moves.dst)
        self.slots = self._slots()

    def _stream_of(self, node: np.ndarray) -> np.ndarray:
        """Return the stream that takes each row's channel at a program node, -1 at ranks. int64 of shape (rows,)."""
        of = np.full(len(node), -1, np.int64)
        for number, stream in enumerate(self.program.streams):
            here = node == self.program.p + self.program.aggregators.index(stream.node)
            of[here & np.isin(self.moves.channel, stream.channels or self.moves.channel)] = number
        return of

    def _slots(self) -> list[int]:
        slots = [0] * len(self.program.streams)
        for node in dict.fromkeys(stream.node for stream in self.program.streams):
            here = [number for number, stream in enumerate(self.program.streams) if stream.node == node]
            given = granted([self.program.streams[number] for number in here], self.topology.aggregators[node])
            for number, count in zip(here, given, strict=True):
                slots[number] = count
        return slots

    @cached_property
    def tree(self) -> np.ndarray:
        """The tree of each stream: those that a combination joins are one. int64 of shape (streams,)."""
        tree = np.arange(len(self.slots))
        for one, other in zip(self.giver.tolist(), self.taker.tolist(), strict=True):
            if one >= 0 and other >= 0:
                tree[tree == tree[one]] = tree[other]
        return tree

    @cached_property
    def tree_of_row(self) -> np.ndarray:
        of: np.ndarray = self.tree[np.where(self.taker >= 0, self.taker, self.giver)]
        return of

    @cached_property
    def timed(self) -> np.ndarray:
        """Whether a timer mends what the moves of each row lose. bool of shape (rows,)."""
        timers = [LOSS_RULES[stream.loss].has_timer for stream in self.program.streams]
        every = [all(timers[other] for other in np.flatnonzero(self.tree == tree)) for tree in self.tree.tolist()]
        of = np.where(self.taker >= 0, self.taker, self.giver)
        timed: np.ndarray = np.array(every, bool)[of]
        return timed

    def links(self, rows: np.ndarray) -> np.ndarray:
        """Return the links that the moves of some rows take. int64 of shape (links,)."""
        _, links = self.topology.routes(self.src[rows], self.dst[rows])
        return np.unique(links)

    # ----------------------------------------------------------------------------------------------------- on a machine
    def on(self, made: Machine) -> Machine:
        """Return the machine with the resources that the streams need of it."""
        legs, ports = self._legs(made), self._ports(made)
        front = np.full(len(self.src), -1, np.int64)
        behind = front.copy()
        rates: list[list[tuple[int, float]]] = []
        names: list[str] = []

        def add(rows: np.ndarray, column: np.ndarray, byte_ps: list[tuple[int, float]], name: str) -> None:
            column[rows] = made.n + len(names)
            rates.append(byte_ps)
            names.append(name)

        for number, stream in enumerate(self.program.streams):
            label = self.topology.label(stream.node)
            rows, byte_ps, line = self._results(number, legs)
            if any(each > line for _, each in byte_ps):
                add(rows, front, byte_ps, f"the slots of {label}")
            for rows, limit in self._windows(number, legs):
                add(
                    rows, front, [(0, limit)], f"the window of {self.topology.label(int(self.src[rows[0]]))} at {label}"
                )
        for link, rows in ports:
            passes = self.topology.aggregators[int(self.topology.dst[link])].passes
            add(rows, behind, [(0, float(made.ps_per_byte[link]) * passes)], f"the pipeline behind {made.label(link)}")
        if not names:
            return made
        return made.with_resources(rates, names, Pacers(self.src, self.dst, self.moves.channel, front, behind))

    def _legs(self, made: Machine) -> list[_Leg]:
        """Return what the way of each row costs, adding included."""
        starts, hops = routes(made, self.src, self.dst, self.gives)
        legs = []
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            hops_here = hops[begin:end][~made.sends[hops[begin:end]]]
            slowest = float(made.ps_per_byte[hops_here].max(initial=0.0))
            legs.append(_Leg(int(made.latency[hops_here].sum()), slowest))
        return legs

    def _ports(self, made: Machine) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the last link of contributions to nodes that pass packets several times, and the rows over it."""
        many = [node for node, able in self.topology.aggregators.items() if able.passes > 1]
        rows = np.flatnonzero(self.gives & np.isin(self.dst, many))
        if not len(rows):
            return
        starts, links = made.topology.routes(self.src[rows], self.dst[rows])
        last = links[starts[1:] - 1]
        for link in np.unique(last).tolist():
            yield link, rows[last == link]

    def _results(self, number: int, legs: list[_Leg]) -> tuple[np.ndarray, list[tuple[int, float]], float]:
        """Return the rows of a stream's results, the ps per byte of them from times on, and what their links take alone."""
        emits = np.flatnonzero((self.giver == number) & ~self.gives)
        total = self._result_bytes(emits)
        trips = [trip for _, trip in self._trips(number, legs)]
        if not total or not trips or not (self.taker[emits] < 0).any():
            return emits, [], 0.0
        line = self._line(number, legs) / total
        most = max(line, self._above(number, max(trips), legs))
        stream = self.program.streams[number]
        if not LOSS_RULES[stream.loss].has_timer:
            return emits, [(0, most)], line
        self._require_patience(stream, max(trips), most * self._window(number))
        packets = math.ceil(total / self._payload(number))
        late = [(at, self._late(number, packets, lost)) for at, lost in self._lost(number)]
        return emits, [(at, most + ps / total) for at, ps in late], line

    def _result_bytes(self, emits: np.ndarray) -> int:
        """Return the bytes of results, those of a multicast once."""
        size, copied, channel = self.moves.size_bytes[emits], self.moves.copied[emits], self.moves.channel[emits]
        once = sum(int(size[copied & (channel == each)].max()) for each in np.unique(channel[copied]).tolist())
        return once + int(size[~copied].sum())

    def _line(self, number: int, legs: list[_Leg]) -> float:
        """Return the ps that links need for what the busiest giver gives to a stream, or the busiest taker takes."""
        busy: dict[tuple[int, bool], float] = {}
        for row in np.flatnonzero((self.taker == number) | (self.giver == number)).tolist():
            into = bool(self.taker[row] == number)
            end = int(self.src[row] if into else self.dst[row])
            busy[end, into] = busy.get((end, into), 0.0) + float(self.moves.size_bytes[row]) * legs[row].byte_ps
        return max(busy.values())

    def _payload(self, number: int) -> int:
        stream = self.program.streams[number]
        return payload_bytes(stream, self.topology.aggregators[stream.node])

    def _window(self, number: int) -> int:
        """Return the bytes in all slots of a stream."""
        return self.slots[number] * self._payload(number)

    def _trips(self, number: int, legs: list[_Leg]) -> Iterator[tuple[int, float]]:
        """Yield each row in which a rank gives to a stream, and the ps of a packet's round trip."""
        size = self._payload(number)
        for row in np.flatnonzero((self.taker == number) & (self.giver < 0)).tolist():
            back = self._back(number, int(self.src[row]), legs, size)
            yield row, legs[row].packet(size) + self._above_node(number, legs, size, ()) + back

    def _back(self, number: int, giver: int, legs: list[_Leg], size: int) -> float:
        """Return the ps of a packet from a stream's node to one that gave to it, or to the farthest where that gets nothing."""
        emits = np.flatnonzero((self.giver == number) & ~self.gives)
        own = emits[self.dst[emits] == giver]
        return max((legs[row].packet(size) for row in (own if len(own) else emits).tolist()), default=0.0)

    def _above_node(self, number: int, legs: list[_Leg], size: int, seen: tuple[int, ...]) -> float:
        """Return the ps of a packet from a stream's node up to the root and back to it."""
        longest = 0.0
        for row, parent in self._parents(number, seen):
            further = self._above_node(parent, legs, size, (*seen, number))
            back = self._back(parent, int(self.src[row]), legs, size)
            longest = max(longest, legs[row].packet(size) + further + back)
        return longest

    def _above(self, number: int, trip: float, legs: list[_Leg], seen: tuple[int, ...] = ()) -> float:
        """Return the most ps per byte that slots of a stream or of one above it need for packets of this round trip."""
        most = trip / self._window(number)
        for row, parent in self._parents(number, seen):
            size = self._payload(parent)
            further = self._above_node(parent, legs, size, (*seen, number))
            own = legs[row].packet(size) + further + self._back(parent, int(self.src[row]), legs, size)
            most = max(most, self._above(parent, own, legs, (*seen, number)))
        return most

    def _parents(self, number: int, seen: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yield each row in which a stream's node gives to another one, and the stream there."""
        for row in np.flatnonzero((self.giver == number) & self.gives).tolist():
            parent = int(self.taker[row])
            if parent not in (*seen, number):
                yield row, parent

    def _windows(self, number: int, legs: list[_Leg]) -> Iterator[tuple[np.ndarray, float]]:
        """Yield the rows of each rank whose window is narrower than its links, and the ps per byte of them."""
        window = self.program.streams[number].window * self._payload(number)
        trips: dict[int, float] = {}
        for row, trip in self._trips(number, legs) if window else ():
            trips[int(self.src[row])] = max(trip, trips.get(int(self.src[row]), 0.0))
        for rank, trip in trips.items():
            rows = np.flatnonzero((self.taker == number) & (self.src == rank))
            if trip / window > max(legs[row].byte_ps for row in rows.tolist()):
                yield rows, trip / window

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
        slots = self.slots[number]
        often = packets / slots * lost
        return self.program.streams[number].timeout_s * PS * (often + math.sqrt(2 * often * math.log(slots)))

    def _require_patience(self, stream: Stream, trip: float, queue: float) -> None:
        """Raise InfeasibleError where the timer expires before an answer can come: senders would send against themselves."""
        least = max(trip, queue)
        if stream.timeout_s * PS < least:
            raise InfeasibleError(
                f"{self.program.name}: a timer of {stream.timeout_s * 1e6:g} us expires before an answer can come, which takes "
                f"{least / 1e6:.1f} us with all slots in use",
                where=self.topology.label(stream.node),
                remedy="a longer timeout_s, or fewer slots",
            )
