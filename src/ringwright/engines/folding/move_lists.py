"""Move lists: who sends to whom, the same in many blocks of a program, and which slots each block moves.

A pipeline through switches repeats a handful of lists (all GPUs to the head of their node, heads to their leaf, ...) for each
of its segments. What depends on the ends alone, such as routes and classes, is found once per list.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.ground.errors import DeclinedError
from ringwright.model.program import ADDING, Affine, Op

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.program import Block, Program

MOST_REMEMBERED = 4096  # arrays whose numbers are looked up by identity
MOST_SHAPES = 1 << 22  # slots of blocks whose kinds are looked up by their numbers


@dataclass(frozen=True)
class SlotPattern:
    """Slots of a block's moves: ``values[kind]`` at each move, where ``kinds`` numbers what is equal within the block."""

    kind: int  # of ``MoveLists.kinds``; 0: the same slot in all moves
    values: np.ndarray


@dataclass(frozen=True)
class MoveRow:
    """One block: its step, its index there, its loop, and its slots at the sources and at the targets."""

    step: int
    index: int
    loop: int
    chunk: SlotPattern
    to: SlotPattern


@dataclass
class MoveList:
    """Moves between the same nodes, in every block of ``rows``."""

    block: Block  # the first of them
    src: np.ndarray  # nodes of the program, of each move
    dst: np.ndarray
    rows: list[MoveRow] = field(default_factory=list)

    @property
    def adds(self) -> bool:
        """Whether the target adds what comes."""
        return self.block.op in ADDING

    @property
    def channel(self) -> int:
        """Channel of the messages; copies within a rank have channels of their own."""
        return self.block.channel if self.block.op is not Op.COPY else -1 - self.block.channel


class MoveLists:
    """All lists of a program. ``kinds`` holds, for each slot pattern, which moves of a block have equal slots."""

    def __init__(self, program: Program) -> None:
        self.lists: list[MoveList] = []
        self.kinds: list[np.ndarray | None] = [None]
        self._kind_of: dict[bytes, int] = {}
        self._shapes: dict[bytes, tuple[int, np.ndarray]] = {}  # of slots, counted from the first one on
        self._list_of: dict[object, int] = {}
        self._arrays: dict[int, tuple[np.ndarray, int]] = {}
        self._ends: dict[bytes, int] = {}
        apart: set[tuple[int, ...]] = set()
        for number, step in enumerate(program.steps()):
            used = [self._add(block, number, index, step.loop) for index, block in enumerate(step.blocks)]
            if tuple(used) not in apart:
                self._require_apart(used, number)
                apart.add(tuple(used))

    def at(self, pattern: SlotPattern, moves: np.ndarray) -> np.ndarray:
        """Return the slots of some moves. int64 of shape (moves,)."""
        kinds = self.kinds[pattern.kind]
        return pattern.values.repeat(len(moves)) if kinds is None else pattern.values[kinds[moves]]

    def _add(self, block: Block, step: int, index: int, loop: int) -> int:
        ends = (self._number(block.src, block.shape), self._number(block.dst, block.shape))
        key = (block.op, block.channel, block.span, block.multicast, *ends)
        number = self._list_of.setdefault(key, len(self.lists))
        if number == len(self.lists):
            self.lists.append(MoveList(block, *block.arrays()[:2]))
        if block.count:
            chunk = self._pattern(block.chunk, block.shape)
            to = chunk if block.to is None else self._pattern(block.to, block.shape)
            self.lists[number].rows.append(MoveRow(step, index, loop, chunk, to))
        return number

    def _number(self, ends: Affine | np.ndarray, shape: tuple[int, ...]) -> object:
        """Return what is equal for equal ends."""
        if isinstance(ends, Affine):
            return ends, shape
        known = self._arrays.get(id(ends))
        if known is None:
            if len(self._arrays) >= MOST_REMEMBERED:
                self._arrays.clear()
            # The array is kept with its number: as long as it is, no other has its identity.
            known = self._arrays[id(ends)] = ends, self._ends.setdefault(ends.tobytes(), len(self._ends))
        return known[1]

    def _pattern(self, field: Affine | np.ndarray, shape: tuple[int, ...]) -> SlotPattern:
        import numpy as np

        if isinstance(field, Affine) and not field.digits:
            return SlotPattern(0, np.array([field.base]))
        slots = field.values(shape) if isinstance(field, Affine) else field
        from_first = slots - slots[0]
        told = from_first.tobytes()
        if told not in self._shapes:
            if len(self._shapes) * len(slots) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[told] = self._kind(from_first)
        kind, values = self._shapes[told]
        return SlotPattern(kind, values + slots[0])

    def _kind(self, slots: np.ndarray) -> tuple[int, np.ndarray]:
        """Return which moves have equal slots, as a number of ``kinds``, and the slot of each kind of move."""
        import numpy as np

        values, kinds = np.unique(slots, return_inverse=True)
        if len(values) == 1:
            return 0, values
        known = self._kind_of.setdefault(kinds.tobytes(), len(self.kinds))
        if known == len(self.kinds):
            self.kinds.append(kinds)
        return known, values

    def _require_apart(self, used: list[int], step: int) -> None:
        """Raise DeclinedError where two blocks of a step put moves into one message, or into one multicast."""
        import numpy as np

        channels: dict[int, list[MoveList]] = defaultdict(list)
        for number in used:
            channels[self.lists[number].channel].append(self.lists[number])
        for together in channels.values():
            many = [each for each in together if each.block.multicast]
            pairs = [np.unique(_pairs(each.src, each.dst)) for each in together]
            sources = [np.unique(each.src) for each in many]
            for keys in (pairs, sources):
                if len(keys) > 1 and len(np.unique(np.concatenate(keys))) < sum(map(len, keys)):
                    raise DeclinedError(f"blocks of step {step} share messages")


def _pairs(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (src << 32) | dst
    return keys
