"""Rules of what a program declares about its streams: in itself, and against what the nodes of a machine can do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import ProgramError
from ringwright.model.codecs.formats import codecs
from ringwright.model.program import ADDING, Op
from ringwright.model.streams import LOSS_RULES, granted, leased_bytes, payload_bytes
from ringwright.model.validity.node_moves import NodeMoves, RowsByEnd, node_moves
from ringwright.model.validity.rules import Violation

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.streams import Stream
    from ringwright.model.topology import Capability, Topology


def require_streams(program: Program, topology: Topology) -> NodeMoves | None:
    """Return the moves at aggregating nodes, None where there are no such nodes; raise ProgramError for the first broken rule."""
    if not program.aggregators and not program.streams:
        return None
    moves = node_moves(program)
    violations = check_streams(program, topology, moves)
    if violations:
        more = f" and {len(violations) - 1} more" if len(violations) > 1 else ""
        first = violations[0]
        raise ProgramError(
            f"{program.name} is not legal: {first.rule}: {first.message}{more}",
            where=topology.name,
            remedy="another machine (--fabric, --topology), or an algorithm that adds at the ranks: --algorithm ring",
        )
    return moves


def check_streams(
    program: Program, topology: Topology | None = None, moves: NodeMoves | None = None
) -> list[Violation]:
    """Return the broken rules of streams; without a machine those alone that a program breaks by itself."""
    if not program.aggregators and not program.streams:
        return []
    every = _Streams(program, topology, node_moves(program) if moves is None else moves)
    return [*every.owners(), *every.declared(), *every.room(), *every.able()]


@dataclass(frozen=True)
class _Streams:
    program: Program
    topology: Topology | None
    moves: NodeMoves

    def owners(self) -> Iterator[Violation]:
        """Yield moves that belong to no stream or to two, and streams at nodes where the program has none."""
        for stream in self.program.streams:
            if stream.node not in self._numbers:
                yield Violation(
                    "stream", f"a stream at {self._name(stream.node)}, which is no aggregator of the program"
                )
        for node, channel in np.unique(self.moves.places[:, :2], axis=0).tolist():
            at = self._node(node)
            owners = sum(each.takes(channel) for each in self._here.get(at, ()))
            if owners != 1:
                how = f"{owners} streams take them" if owners else "no stream is declared for them"
                yield Violation("stream", f"moves at {self._name(at)} on channel {channel}: {how}", rank=node)

    def declared(self) -> Iterator[Violation]:
        """Yield what no machine could make right."""
        for stream in self.program.streams:
            at = self._name(stream.node)
            if stream.payload_bytes < 0:
                yield Violation("payload", f"packets of {stream.payload_bytes} B at {at}")
            if stream.slots < 0 or not 0 <= stream.window <= (stream.slots or stream.window):
                what = f"a window of {stream.window} packets" if stream.window else "a stream"
                yield Violation("slots", f"{what} in {stream.slots} slots at {at}")
            if stream.jobs < 0 or (stream.jobs and (stream.fallback is None or not stream.slots)):
                lacks = "needs slots, and a node that finishes what finds none"
                yield Violation("slots", f"a pool of {stream.jobs} jobs at {at} {lacks}")
            yield from self._codec(stream, at)
            yield from self._loss(stream, at)

    def _codec(self, stream: Stream, at: str) -> Iterator[Violation]:
        codec, collective = codecs().get(stream.codec), self.program.collective
        if codec is None:
            known = ", ".join(codecs())
            yield Violation("codec", f"'{stream.codec}' at {at} is no number format that is known: {known}")
        elif collective.reduces and codec.carries and collective.dtype not in codec.carries:
            yield Violation("codec", f"{stream.codec} at {at} carries no {collective.dtype}")
        elif collective.reduces and self._op not in codec.ops:
            yield Violation("codec", f"numbers in {stream.codec} at {at} have no {self._op}")

    def _loss(self, stream: Stream, at: str) -> Iterator[Violation]:
        rule = LOSS_RULES.get(stream.loss)
        if rule is None:
            yield Violation("loss", f"'{stream.loss}' at {at} is no loss rule that is known: {', '.join(LOSS_RULES)}")
            return
        if stream.versions < rule.versions:
            yield Violation("loss", f"{stream.loss} at {at} needs {rule.versions} versions, not {stream.versions}")
        if (stream.timeout_s > 0) != rule.has_timer or not 0 <= stream.timeout_s < float("inf"):
            needs = "needs a timer" if rule.has_timer else "has no timer"
            yield Violation("loss", f"{stream.loss} at {at} {needs}, not one of {stream.timeout_s:g} s")
        if (stream.fallback is not None) != rule.has_fallback:
            needs = "needs a node that finishes the rest" if rule.has_fallback else "has no fallback"
            yield Violation("loss", f"{stream.loss} at {at} {needs}")
        elif stream.fallback is not None and not self._is_other(stream.fallback, stream.node):
            yield Violation("loss", f"the fallback of {at}, node {stream.fallback}, is no other node of the program")

    def room(self) -> Iterator[Violation]:
        """Yield streams whose moves use more places of the node than it has slots."""
        for stream, slots in self._granted():
            places = self.moves.places
            used = len(np.unique(places[self._of(self._placed, places[:, 1], stream), 2]))
            if slots is not None and used > slots > 0:
                at = self._name(stream.node)
                yield Violation(
                    "slots", f"moves use {used} places at {at}, its stream has {slots} slot{'s' * (slots > 1)}"
                )

    def able(self) -> Iterator[Violation]:
        """Yield what the nodes of the machine cannot do."""
        if self.topology is None:
            return
        for node, here in self._here.items():
            can, at = self.topology.aggregators.get(node), self._name(node)
            if can is None:
                yield Violation("capability", f"{at} of {self.topology.name} adds nothing")
                continue
            yield from self._memory(here, can, at)
            if len(here) > can.concurrency:
                what = f"{at} serves {can.concurrency} streams at a time, these are {len(here)}"
                yield Violation("concurrency", _by(what, can))
            for stream in here:
                yield from self._stream(stream, can, at)

    def _memory(self, here: list[Stream], can: Capability, at: str) -> Iterator[Violation]:
        needed = sum(leased_bytes(each, can) for each in here)
        if needed > can.memory_bytes:
            what = f"the slots of {_count(here)} at {at} take {needed:,} B, it has {can.memory_bytes:,} B"
            yield Violation("memory", _by(what, can))
        elif not all(granted(here, can)):
            what = f"{at} has {can.memory_bytes:,} B, in which {_count(here)} would have no slot"
            yield Violation("memory", _by(what, can))

    def _stream(self, stream: Stream, can: Capability, at: str) -> Iterator[Violation]:
        collective, codec = self.program.collective, codecs().get(stream.codec)
        size = payload_bytes(stream, can)
        if not 0 < size <= can.payload_bytes:
            yield Violation("payload", _by(f"packets of {size} B, {at} takes {can.payload_bytes} B", can))
        if codec is not None and stream.codec not in can.codecs:
            yield Violation("codec", _by(f"{at} adds no numbers in {stream.codec}", can))
        if collective.reduces:
            added = (codec.added_as if codec else "") or collective.dtype
            if self._op not in can.ops:
                yield Violation("capability", _by(f"{at} does not add by {self._op}", can))
            if added not in can.dtypes:
                yield Violation("capability", _by(f"{at} does not add {added}", can))
            if can.order == "arrival" and not collective.commutative:
                what = f"{at} adds as contributions arrive, and the operation does not commute"
                yield Violation("order", _by(what, can))
        yield from self._ports(stream, can, at)

    def _ports(self, stream: Stream, can: Capability, at: str) -> Iterator[Violation]:
        moves = self.moves
        into = self._of(self._into, moves.channel, stream)
        givers = len(np.unique(moves.src[into[np.isin(moves.op[into], [int(op) for op in ADDING])]]))
        if givers > can.fanin_max:
            what = f"{at} adds at most {can.fanin_max} contributions, not {givers}"
            yield Violation("capability", _by(what, can))
        out = self._of(self._out, moves.channel, stream)
        if ((moves.op[out] == Op.EMIT) & moves.copied[out]).any() and not can.multicast:
            yield Violation("capability", _by(f"{at} has no multicast", can))

    # ------------------------------------------------------------------------------------------------------ look-ups
    @property
    def _op(self) -> str:
        """The operation that nodes do: an average is a sum that the ranks divide."""
        op = self.program.collective.reduce_op
        return "sum" if op == "avg" else op

    def _granted(self) -> Iterator[tuple[Stream, int | None]]:
        """Yield each stream of a known node and its slots; None where only a machine says how many."""
        for node, here in self._here.items():
            can = None if self.topology is None else self.topology.aggregators.get(node)
            slots = [each.slots or None for each in here] if can is None else granted(here, can)
            yield from zip(here, slots, strict=True)

    @cached_property
    def _here(self) -> dict[int, list[Stream]]:
        """The streams of each topology node."""
        here: dict[int, list[Stream]] = {}
        for stream in self.program.streams:
            here.setdefault(stream.node, []).append(stream)
        return here

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """The program node that each aggregating topology node is."""
        return {node: self.program.p + at for at, node in enumerate(self.program.aggregators)}

    @cached_property
    def _placed(self) -> RowsByEnd:
        return RowsByEnd.of(self.moves.places[:, 0])

    @cached_property
    def _into(self) -> RowsByEnd:
        return RowsByEnd.of(self.moves.dst)

    @cached_property
    def _out(self) -> RowsByEnd:
        return RowsByEnd.of(self.moves.src)

    def _of(self, ends: RowsByEnd, channel: np.ndarray, stream: Stream) -> np.ndarray:
        """Return which of these ends, whose channels are given, are the stream's. Row numbers, int64 of shape (rows,)."""
        if stream.node not in self._numbers:
            return np.zeros(0, np.int64)
        rows = ends.rows(self._numbers[stream.node])
        return rows[np.isin(channel[rows], stream.channels)] if stream.channels else rows

    def _node(self, number: int) -> int:
        return self.program.aggregators[number - self.program.p]

    def _is_other(self, number: int, node: int) -> bool:
        """Say whether the program has that node, and it is not this topology node."""
        if not 0 <= number < self.program.n_nodes:
            return False
        return number < self.program.p or self._node(number) != node

    def _name(self, node: int) -> str:
        return f"node {node}" if self.topology is None or node >= self.topology.n_nodes else self.topology.label(node)


def _count(streams: list[Stream]) -> str:
    return f"{len(streams)} streams" if len(streams) > 1 else "one stream"


def _by(what: str, can: Capability) -> str:
    """Return what is wrong with the source of the figure that says so."""
    return f"{what} ({can.provenance})" if can.provenance else what
