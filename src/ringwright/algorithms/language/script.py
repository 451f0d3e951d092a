"""A script: chunks that move between the buffers of ranks, written down in ordinary Python, one line after the other.

What a line does is done before what the next line does, as far as anybody can tell: the compiler keeps the order of all
that touches the same chunk. A reference to a chunk that was overwritten since is refused with the line that uses it and
the line that overwrote it, so that a script has no data races.
"""

from __future__ import annotations

import operator
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.ground.errors import ProgramError, UsageError
from ringwright.model.threadblocks.buffers import ARRANGED, sides

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, FrameType

    from ringwright.model.collective import Collective

INPUT, OUTPUT = "input", "output"
GIVEN, NOTHING = -1, -2  # who wrote a chunk: it was there before, or nobody
NONE = -1  # no hint
MOST_CHUNKS = 1 << 20  # of a buffer
WIDTH = 13  # numbers an operation: what, both ends, count, hints, line
_NUMBER = {INPUT: 0, OUTPUT: 1}
_OWN_MEMORY = ("all-to-all", "send-recv")  # in place, what arrives would overwrite what is not sent yet


class ChunkScript:
    """What is written so far. ``ranks`` and ``chunks`` are there to be used in it.

    Parameters
    ----------
    collective
        What the script must do: it says what each rank's input holds before and its output afterwards.
    chunks
        Into how many equal chunks the longer of input and output is cut (of a send-recv: each vector). None: the ranks; for
        broadcast, reduce, send-recv and prefix sums 1.
    in_place
        Whether input and output share memory. None: yes, save where what arrives would overwrite what is not sent yet.
    """

    def __init__(self, collective: Collective, *, chunks: int | None = None, in_place: bool | None = None) -> None:
        op, p = collective.op, collective.p
        if op not in ARRANGED or collective.counts is not None:
            what = "blocks of unequal counts" if op in ARRANGED else f"a {op}"
            raise UsageError(f"a script cannot do {what}", remedy=f"one of: {', '.join(ARRANGED)}, cut evenly")
        whole = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
        self.chunks = (p if op in whole else 1) if chunks is None else chunks
        if not 1 <= self.chunks <= MOST_CHUNKS or (op in whole[1:] and self.chunks % p):
            each = f"a multiple of {p}" if op in whole[1:] else "1 or more"
            raise UsageError(
                f"{self.chunks} chunks of a {op} over {p} ranks", remedy=f"{each}, at most {MOST_CHUNKS:,}"
            )
        self.in_place = (op not in _OWN_MEMORY) if in_place is None else in_place
        if self.in_place and op in _OWN_MEMORY:
            raise UsageError(f"a {op} in place would overwrite what is not sent yet", remedy="in_place=False")
        self.collective, self.ranks = collective, p
        self.log = array("q")  # WIDTH numbers an operation
        self.names: list[dict[str, int]] = [dict(_NUMBER) for _ in range(p)]
        self._files: dict[CodeType, int] = {}
        self._sides = sides(op, self.chunks, p)
        self.writers = [self._before(rank) for rank in range(p)]  # of each rank: buffer -> chunk -> operation

    def __repr__(self) -> str:
        return f"ChunkScript({self.collective.label}, {self.chunks:,} chunks, {len(self):,} operations)"

    def __len__(self) -> int:
        return len(self.log) // WIDTH

    def chunk(self, rank: int, buffer: str = INPUT, index: int = 0, count: int = 1) -> Reference:
        """Return a reference to ``count`` chunks of a rank's buffer: ``input``, ``output`` or a scratch buffer by any name.

        Raises ProgramError where there are no such chunks, or nothing is in them yet.
        """
        number, index = self._address(rank, buffer, index, count, sys._getframe(1))
        if NOTHING in self._held(rank, number, index, count):
            raise self._error(f"rank {rank} has nothing in {buffer} from chunk {index} on", sys._getframe(1))
        return Reference(self, rank, number, index, count, len(self.log) // WIDTH - 1)

    def _before(self, rank: int) -> list[list[int]]:
        """Return the two buffers that a rank begins with; in place the one that aliases the other has no chunks of its own."""
        op, (given, wanted) = self.collective.op, self._sides
        source = GIVEN if op != "broadcast" or rank == self.collective.root else NOTHING
        if not self.in_place:
            return [[source] * given, [NOTHING] * wanted]
        if op != "all-gather":
            return [[source] * given, []]
        return [[], [GIVEN if at // given == rank else NOTHING for at in range(wanted)]]

    def _address(self, rank: int, buffer: str, index: int, count: int, frame: FrameType) -> tuple[int, int]:
        """Return the buffer's number and the index there, aliases resolved."""
        try:
            rank, index, count = map(operator.index, (rank, index, count))
        except TypeError:
            what = f"rank {rank!r}, chunk {index!r} and count {count!r} must be whole numbers"
            raise self._error(what, frame, "// divides whole numbers") from None
        if not isinstance(buffer, str):
            raise self._error(f"{buffer!r} is no name of a buffer", frame, "input, output, or any other word")
        if not 0 <= rank < self.ranks:
            raise self._error(f"there is no rank {rank} among {self.ranks}", frame, f"0 to {self.ranks - 1}")
        if index + count > MOST_CHUNKS:
            raise self._error(f"{buffer} cannot have more than {MOST_CHUNKS:,} chunks", frame)
        number = _NUMBER.get(buffer)
        if count < 1 or index < 0:
            raise self._error(f"{count} chunks from {index} on are none", frame)
        if number is None:
            return self._scratch(rank, buffer), index
        if index + count > self._sides[number]:
            ends = f"{index} to {index + count - 1}"
            raise self._error(f"{buffer} has {self._sides[number]} chunks, not {ends}", frame)
        if self.in_place:
            op = self.collective.op
            if op == "all-gather":
                return 1, index + (rank * self._sides[0] if number == 0 else 0)
            return 0, index + (rank * self._sides[1] if number == 1 and op == "reduce-scatter" else 0)
        return number, index

    def _scratch(self, rank: int, name: str) -> int:
        """Return the number of a scratch buffer, which begins to be where it is first named."""
        names = self.names[rank]
        if name not in names:
            names[name] = len(names)
            self.writers[rank].append([])
        return names[name]

    def _held(self, rank: int, number: int, index: int, count: int) -> Sequence[int]:
        """Return who wrote each of these chunks; a scratch buffer that is not so long yet has nothing there."""
        held = self.writers[rank][number][index : index + count]
        return held if len(held) == count else [*held, NOTHING]

    def _require_reference(self, other: object, frame: FrameType) -> None:
        """Raise ProgramError where something is no reference."""
        if not isinstance(other, Reference):
            raise self._error(f"{other!r} is no reference to chunks", frame, "chunk(...)")

    def _require_fresh(self, ref: Reference, frame: FrameType) -> None:
        """Raise ProgramError where a chunk was overwritten after the reference to it was made."""
        latest = max(self._held(ref.rank, ref.number, ref.index, ref.count))
        if latest > ref.stamp:
            raise self._error(
                f"{ref} was overwritten at {self.line(latest)}", frame, "take a new reference: chunk(...)"
            )

    def _move(
        self, adds: int, src: Reference, target: tuple[int, int, int], hints: tuple[int, int, int], frame: FrameType
    ) -> Reference:
        """Write down that ``src`` goes to (rank, buffer number, index); return a reference to what is there then."""
        rank, number, index = target
        count, at = src.count, len(self.log) // WIDTH
        if (rank, number) == (src.rank, src.number) and 0 < abs(index - src.index) < count:
            what = f"{src} and chunks {index} to {index + count - 1} of the same buffer overlap"
            raise self._error(what, frame, "one chunk at a time, or by way of a scratch buffer")
        held = self.writers[rank][number]
        if len(held) < index + count:
            held.extend([NOTHING] * (index + count - len(held)))
        held[index : index + count] = (at,) * count
        code = frame.f_code
        file = self._files.get(code)
        if file is None:
            file = self._files[code] = len(self._files)
        self.log.extend(
            (adds, src.rank, src.number, src.index, rank, number, index, count, *hints, file, frame.f_lineno)
        )
        return Reference(self, rank, number, index, count, at)

    def line(self, operation: int) -> str:
        """Return the line of the script that wrote an operation, as ``file:line``."""
        file, number = self.log[operation * WIDTH + WIDTH - 2 : operation * WIDTH + WIDTH]
        return f"{Path(list(self._files)[file].co_filename).name}:{number}"

    def _error(self, what: str, frame: FrameType, remedy: str = "") -> ProgramError:
        where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        return ProgramError(what, where=where, remedy=remedy)


class Reference:
    """``count`` chunks of one buffer of one rank, as they are now. Made by ``ChunkScript.chunk`` and by what moves chunks."""

    __slots__ = ("count", "index", "number", "rank", "script", "stamp")

    def __init__(self, script: ChunkScript, rank: int, number: int, index: int, count: int, stamp: int) -> None:
        self.script, self.rank, self.number = script, rank, number
        self.index, self.count, self.stamp = index, count, stamp

    def __repr__(self) -> str:
        chunks = f"chunk {self.index}" if self.count == 1 else f"chunks {self.index} to {self.index + self.count - 1}"
        return f"{chunks} of {self.buffer} at rank {self.rank}"

    @property
    def buffer(self) -> str:
        """The name of the buffer; in place, of the one that the other is an alias of."""
        return list(self.script.names[self.rank])[self.number]

    def copy(
        self,
        rank: int,
        buffer: str = OUTPUT,
        index: int | None = None,
        *,
        channel: int = NONE,
        send_tb: int = NONE,
        recv_tb: int = NONE,
    ) -> Reference:
        """Copy these chunks to a rank's buffer, from ``index`` on (None: behind what a scratch buffer holds).

        ``channel`` is the channel that carries them, ``send_tb`` and ``recv_tb`` number the thread blocks that send and receive;
        what is not said is for the compiler to choose. A copy within a rank is done by ``send_tb``.
        """
        script, frame = self.script, sys._getframe(1)
        script._require_fresh(self, frame)
        if index is None:
            if buffer in _NUMBER:
                raise script._error(f"a copy to {buffer} must say to which chunk", frame, "index=...")
            index = len(script.writers[rank][script._scratch(rank, buffer)]) if 0 <= rank < script.ranks else 0
        number, index = script._address(rank, buffer, index, self.count, frame)
        return script._move(0, self, (rank, number, index), _hints(channel, send_tb, recv_tb), frame)

    def reduce(self, other: Reference, *, channel: int = NONE, send_tb: int = NONE, recv_tb: int = NONE) -> Reference:
        """Add ``other`` to these chunks, here; return what is here then."""
        script, frame = self.script, sys._getframe(1)
        script._require_reference(other, frame)
        script._require_fresh(self, frame)
        script._require_fresh(other, frame)
        if other.count != self.count or other.script is not script:
            raise script._error(f"{other} cannot be added to {self}", frame, "as many chunks, of the same script")
        if not script.collective.reduces:
            raise script._error(f"a {script.collective.op} adds nothing up", frame)
        target = self.rank, self.number, self.index
        return script._move(1, other, target, _hints(channel, send_tb, recv_tb), frame)

    def split(self, parts: int) -> list[Reference]:
        """Return references to ``parts`` equal parts of these chunks."""
        if parts < 1 or self.count % parts:
            raise self.script._error(f"{self} cannot be split into {parts} equal parts", sys._getframe(1))
        each = self.count // parts
        return [self._part(self.index + part * each, each, self.stamp) for part in range(parts)]

    def group(self, other: Reference) -> Reference:
        """Return one reference to these chunks and those of ``other``, which must come right behind or before them."""
        script, frame = self.script, sys._getframe(1)
        script._require_reference(other, frame)
        script._require_fresh(self, frame)
        script._require_fresh(other, frame)
        low, high = (self, other) if self.index <= other.index else (other, self)
        together = (low.script, low.rank, low.number, low.index + low.count)
        if together != (high.script, high.rank, high.number, high.index):
            raise script._error(f"{low} and {high} do not follow each other", frame)
        return self._part(low.index, low.count + high.count, max(low.stamp, high.stamp))

    def _part(self, index: int, count: int, stamp: int) -> Reference:
        return Reference(self.script, self.rank, self.number, index, count, stamp)


def _hints(channel: int, send_tb: int, recv_tb: int) -> tuple[int, int, int]:
    """Return the hints; who names thread blocks and no channel means channel 0."""
    if channel < 0 and (send_tb >= 0 or recv_tb >= 0):
        channel = 0
    return channel, send_tb, recv_tb
