"""The Program: how one collective is done, as steps of moves over chunks, never one object per move.

Ranks are numbered 0..p-1 in the order of the collective's group; aggregating nodes follow as p, p+1, ... A *chunk* is a
part of a block of the collective; a *slot* is a place for a chunk at a node (slot i of the first ``n_chunks`` is the place of
chunk i; further slots are scratch). All moves of a step read before any of them writes. Moves of a step with the same
source, target and channel travel as one message. What waits for what follows from the data: a move waits for the earlier
steps that wrote what it reads, or read or wrote what it writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from ringwright.ground.notebook import card, line
from ringwright.ground.units import format_size
from ringwright.model.collective import Collective, split
from ringwright.model.software import NO_SOFTWARE, Software

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.streams import Stream

MOST_KEPT, MOST_MADE = 1 << 15, 1 << 20  # moves of a program whose steps are kept, some 1 MB, and of one made whole
Digit = tuple[int, int, int, int]  # slope, offset, modulus, weight


class Op(IntEnum):
    """What a move does to its target slot; the last four happen at aggregating nodes."""

    SEND = 0  # target := source
    REDUCE = 1  # target := target + source
    COPY = 2  # as SEND, within one node
    CONTRIBUTE = 3  # as REDUCE, into an aggregating node (its first contribution sets the slot)
    COMBINE = 4  # one aggregating node's partial result into another's
    EMIT = 5  # an aggregating node's result to a member, its parent, or a multicast set; the slot is free afterwards
    DELIVER = 6  # the result into the rank's own buffer


ADDING = (Op.REDUCE, Op.CONTRIBUTE, Op.COMBINE)


@dataclass(frozen=True, slots=True)
class Affine:
    """Numbers that follow a pattern over a range of several axes, one digit per axis.

    value(i, j, ...) = base + sum over axes of weight * ((slope * i + offset) mod modulus).
    """

    digits: tuple[Digit, ...]
    base: int = 0

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return all values, int64 of length prod(shape), the last axis running fastest."""
        import numpy as np

        if not self.digits:
            return np.full(math.prod(shape), self.base, np.int64)
        if len(self.digits) == len(shape) == 1:
            slope, offset, modulus, weight = self.digits[0]
            return (np.arange(shape[0], dtype=np.int64) * slope + offset) % modulus * weight + self.base
        total = np.full(shape, self.base, np.int64)
        for axis, (slope, offset, modulus, weight) in enumerate(self.digits):
            line = weight * ((slope * np.arange(shape[axis], dtype=np.int64) + offset) % modulus)
            total += line.reshape(-1, *[1] * (len(shape) - axis - 1))
        return total.reshape(-1)

    def scaled(self, factor: int, offset: int = 0) -> Affine:
        """Return ``factor * value + offset``."""
        digits = tuple((slope, shift, modulus, weight * factor) for slope, shift, modulus, weight in self.digits)
        return Affine(digits, self.base * factor + offset)

    def over(self, axes: int, *further: Digit) -> Affine:
        """Return the same numbers over a range with ``further`` axes behind the first ``axes``."""
        blank = ((0, 0, 1, 0),) * (axes - len(self.digits))
        return Affine((*self.digits, *blank, *further), self.base)


def turn(p: int, by: int = 0, weight: int = 1) -> Affine:
    """Return (i + by) mod p, times ``weight``: each rank's neighbour at a distance, or its rank (by=0)."""
    return Affine(((1, by % p, p, weight),))


def constant(value: int) -> Affine:
    """Return the same number for every move of a block."""
    return Affine((), value)


@dataclass(frozen=True, slots=True)
class Block:
    """Moves of one kind: src, dst and slots over a range; ``span`` consecutive slots go with each.

    ``chunk`` is the slot at the source, ``to`` the slot at the target (the same, where None). ``shape`` is the range; explicit
    arrays have the length of its product. With ``multicast`` all moves from one source slot are one packet stream that
    the network copies.
    """

    op: Op
    shape: tuple[int, ...]
    src: Affine | np.ndarray
    dst: Affine | np.ndarray
    chunk: Affine | np.ndarray
    to: Affine | np.ndarray | None = None
    span: int = 1
    channel: int = 0
    multicast: bool = False

    def __repr__(self) -> str:
        how = "by a pattern" if self.is_affine else "listed"
        each = f" of {self.span} slots" if self.span > 1 else ""
        return f"Block({self.count:,} x {self.op.name}{each}, {how}, channel {self.channel})"

    @property
    def count(self) -> int:
        """Moves in the block."""
        return math.prod(self.shape)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return src, dst, chunk and to of every move, int64 each of length ``count``."""
        src, dst, chunk = (_values(index, self.shape) for index in (self.src, self.dst, self.chunk))
        return src, dst, chunk, chunk if self.to is None else _values(self.to, self.shape)

    @property
    def is_affine(self) -> bool:
        """Whether every field follows a pattern."""
        return all(isinstance(index, Affine | None) for index in (self.src, self.dst, self.chunk, self.to))


def _values(index: Affine | np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return index.values(shape) if isinstance(index, Affine) else index


def explicit(
    op: Op, src: object, dst: object, chunk: object, to: object = None, *, span: int = 1, channel: int = 0
) -> Block:
    """Return a block of listed moves; numbers are spread over the length of the longest list."""
    import numpy as np

    fields = [np.asarray(field, np.int64) for field in (src, dst, chunk, chunk if to is None else to)]
    if len({field.shape for field in fields}) > 1 or fields[0].ndim != 1:
        fields = list(np.broadcast_arrays(*[np.atleast_1d(field) for field in fields]))
    lists = [np.ascontiguousarray(field) for field in fields]
    return Block(op, (len(lists[0]),), lists[0], lists[1], lists[2], None if to is None else lists[3], span, channel)


@dataclass(frozen=True, slots=True)
class Step:
    """Moves that may all happen at once; ``label`` names the phase for pictures.

    Loops are in rising order. A rank's channel begins a later ``loop`` only when all that it receives in the one before has
    come: the thread that does one loop after the other can do no other.
    """

    blocks: tuple[Block, ...]
    label: str = ""
    loop: int = 0

    @property
    def count(self) -> int:
        """Moves in the step."""
        return sum(block.count for block in self.blocks)


@dataclass(frozen=True)
class Layout:
    """How blocks are cut into chunks, and which slots each node has.

    Chunk c is part ``c % parts`` of block ``c // parts`` and has ``chunk_bytes[c % len(chunk_bytes)]`` bytes. Slot s has the
    size of chunk ``template[s]``, or of chunk ``s % n_chunks``. ``before`` and ``after`` (imported programs) give per rank the
    slots and the chunks in them; else chunk c lies in slot c.
    """

    n_chunks: int
    chunk_bytes: np.ndarray
    parts: int = 1
    n_slots: int = 0
    template: np.ndarray | None = None
    before: tuple[tuple[np.ndarray, np.ndarray], ...] | None = None
    after: tuple[tuple[np.ndarray, np.ndarray], ...] | None = None

    def __repr__(self) -> str:
        some = "all" if len(self.chunk_bytes) == 1 else "the first"
        size = f", {some} of {format_size(int(self.chunk_bytes[0]))}" if len(self.chunk_bytes) else ""
        return f"Layout({self.n_chunks:,} chunks{size}, {self.slots:,} slots a node)"

    @property
    def slots(self) -> int:
        """Slots per node."""
        return max(self.n_slots, self.n_chunks)

    def bytes_of(self, slots: np.ndarray) -> np.ndarray:
        """Return the bytes of each slot, int64. Of the shape of ``slots``."""
        chunks = slots % max(self.n_chunks, 1) if self.template is None else self.template[slots]
        sizes: np.ndarray = self.chunk_bytes[chunks % len(self.chunk_bytes)]
        return sizes

    def message_bytes(self, slots: np.ndarray, span: int) -> np.ndarray:
        """Return the bytes of ``span`` consecutive slots from each of ``slots`` on.

        int64 of the shape of ``slots``.
        """
        import numpy as np

        if span == 1:
            return self.bytes_of(slots)
        ends = np.concatenate(([0], np.cumsum(self.bytes_of(np.arange(self.slots)))))
        sizes: np.ndarray = ends[slots + span] - ends[slots]
        return sizes


def cut(collective: Collective, parts: int = 1, *, copies: int = 1, shares: np.ndarray | None = None) -> Layout:
    """Return the layout that cuts every block into ``parts`` equal chunks (``shares``: bytes of each chunk instead).

    ``copies`` is how many whole sets of slots each node has; all but the first are scratch.
    """
    import numpy as np

    blocks = collective.block_bytes
    if shares is None:
        pieces = (
            [split(int(size), parts, collective.unit_bytes) for size in _few(blocks)] if parts > 1 else [_few(blocks)]
        )
        sizes = np.concatenate(pieces)
    else:
        sizes = np.asarray(shares, np.int64)
    n_chunks = collective.n_blocks * parts
    return Layout(n_chunks, sizes, parts, n_chunks * copies)


def _few(blocks: np.ndarray) -> np.ndarray:
    """Return one block where all are equal, else all."""
    return blocks[:1] if len(blocks) > 1 and bool((blocks == blocks[0]).all()) else blocks


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the critical path: ``messages`` one after the other, ``size_bytes`` over one link of ``level`` in all."""

    messages: float
    size_bytes: float
    level: str = ""  # a link class, or empty: any


@dataclass(frozen=True, slots=True)
class Cost:
    """What a program declares of itself: its critical path, all bytes that ranks send, and bytes reduced on the path.

    Where ``is_even`` is false the figures are those of an even cut, and each moved chunk may be one element off. Where ``hides``
    is true, phases of some levels are hidden behind those of another: the path holds only where each level is a network of its
    own.
    """

    terms: tuple[Term, ...]
    sent_bytes: float
    reduced_bytes: float = 0.0
    is_even: bool = True
    hides: bool = False

    @property
    def messages(self) -> float:
        """Messages on the critical path, all levels."""
        return sum(term.messages for term in self.terms)

    @property
    def path_bytes(self) -> float:
        """Bytes on the critical path, all levels."""
        return sum(term.size_bytes for term in self.terms)


class Declared(Protocol):
    """A declared order, as far as those need it who only time its messages (the rest of it: ``threadblocks.Schedule``)."""

    def edges(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return (before, after, joins): which message waits for which; joins are numbered behind the messages.

        Both arrays are int64 of shape (edges,).
        """
        ...


@dataclass(frozen=True)
class Program:
    """One collective, done one way. ``steps()`` makes the steps anew at each call, but of a small program.

    Parameters
    ----------
    name
        What to call it.
    collective
        What it does.
    layout
        How its data are cut into chunks: ``program.cut(collective, parts)``.
    make_steps
        A callable that yields the steps, each a set of blocks of moves that may all happen at once.
    n_steps
        How many steps there are.
    cost
        What it declares of itself: messages in a row, bytes on the critical path, bytes sent in all.
    aggregators, streams
        Nodes of the network that add, and how they are used.
    schedule
        A declared order, thread block by thread block; None: the order follows from the data.
    protocol, channels, software, knobs
        What a library chose, and what its software costs.

    Examples
    --------
    Every rank sends its block to the next one, so that after p-1 steps all have all (a ring, written by hand):

    >>> import ringwright
    >>> from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, turn
    >>> box = ringwright.fabric("switch:4")
    >>> gather = ringwright.Collective("all-gather", range(4), 1 << 20)
    >>> def steps():
    ...     for k in range(3):
    ...         yield Step((Block(Op.SEND, (4,), src=turn(4), dst=turn(4, 1), chunk=turn(4, -k)),))
    >>> cost = Cost((Term(messages=3, size_bytes=3 * 2**18),), sent_bytes=3 * 2**20)
    >>> ring = Program("my-ring", gather, cut(gather), steps, 3, cost)
    >>> ringwright.verify(ring)
    Verified(my-ring: legal)
    >>> ringwright.simulate(ring, box).time_s == ringwright.simulate(gather, box, algorithm="ring").time_s
    True
    """

    name: str
    collective: Collective
    layout: Layout
    make_steps: Callable[[], Iterable[Step]] = field(repr=False)
    n_steps: int
    cost: Cost
    aggregators: tuple[int, ...] = ()  # topology nodes behind p, p+1, ...
    streams: tuple[Stream, ...] = ()
    schedule: Declared | None = field(default=None, repr=False)  # declared order; None: order follows from the data
    protocol: str = ""
    channels: int = 1
    software: Software = NO_SOFTWARE
    knobs: Mapping[str, object] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order; those of a program of few moves are kept, for engines ask for them several times."""
        kept: list[Step] | None = self.__dict__.get("_kept")
        return self._made() if kept is None else iter(kept)

    def _made(self) -> Iterator[Step]:
        kept: list[Step] | None = []
        room = MOST_KEPT
        for step in self.make_steps():
            if kept is not None:
                kept.append(step)
                room -= 1 + sum(1 if block.is_affine else block.count for block in step.blocks)
                kept = kept if room >= 0 else None
            yield step
        if kept is not None:
            object.__setattr__(self, "_kept", kept)

    def made(self) -> Program:
        """Return the program with its steps made and kept, which engines ask for several times; itself where they are many."""
        steps, moves = [], 0
        for step in self.steps():
            steps.append(step)
            moves += sum(block.count for block in step.blocks)
            if moves > MOST_MADE:
                return self
        return replace(self, make_steps=lambda: steps)

    def __repr__(self) -> str:
        order = ", in a declared order" if self.schedule is not None else ""
        return line(f"Program({self.name}: {self.collective.label}, {self.n_steps:,} steps{order})")

    def _repr_html_(self) -> str:
        facts = {
            "collective": self.collective.label,
            "steps": self.n_steps,
            "chunks": self.layout.n_chunks,
            "sent in all": format_size(self.cost.sent_bytes),
            "messages in a row": f"{self.cost.messages:,.6g}",
            "protocol": self.protocol,
            "channels": self.channels,
            "aggregating nodes": len(self.aggregators) or None,
            "order": "declared" if self.schedule is not None else "follows from the data",
            "knobs": ", ".join(f"{name}={value}" for name, value in self.knobs.items()),
        }
        return card(f"Program: {self.name}", facts)

    @property
    def p(self) -> int:
        """Ranks."""
        return self.collective.p

    @property
    def n_nodes(self) -> int:
        """Ranks and aggregating nodes."""
        return self.collective.p + len(self.aggregators)


def nothing(name: str, collective: Collective, **knobs: object) -> Program:
    """Return the program of a group of one: no step, no cost."""
    return Program(name, collective, cut(collective), tuple, 0, Cost((), 0.0), knobs=knobs)
