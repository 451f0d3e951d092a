"""What a sequence of collectives over the levels of a hierarchy means, and when each may be done.

A device is a digit for each level, outermost first; a chunk of the data and a contribution to it are named alike, so that the
k chunks and k contributions of k devices make the Boolean matrix of what a device holds. From what the reductions here start
with, such a matrix is always: the chunks that have the device's own digits at the levels ``scattered``, each with the
contributions that have its own digits at the levels not ``reduced``. Devices differ only by which of their digits are zero (a
root, a master of its group), so one of each such class stands for all. Levels are bits, and so are zero digits.

An instruction that does not meet its condition leads nowhere: nothing is ever added twice, and nothing partial is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

EMPTY = -1
# What is held, ``scattered | reduced << levels`` or EMPTY, and the classes that hold it as bits, in rising order. A class is
# numbered by the bits of its zero digits.
State = tuple[tuple[int, int], ...]
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast")
SHORT = dict(zip(COLLECTIVES, ("AR", "RS", "AG", "R", "B"), strict=True))


@dataclass(frozen=True)
class Instruction:
    """One collective in groups of the devices that differ only at the levels ``above`` < level <= ``level``, numbered from 1.

    ``level`` the last one and ``above`` e: inside each group below e. Else in parallel: those at one position of the groups
    below ``level``; where only ``masters`` do it, the first of each such group.
    """

    level: int
    above: int
    masters: bool
    collective: str

    @property
    def span(self) -> int:
        """The levels at which members differ, as bits."""
        return (1 << self.level) - (1 << self.above)

    def spelled(self, names: Sequence[str]) -> str:
        """Return it in a few letters: ``RS(gpu)``, ``AR(node)``, ``AR(node of masters)``."""
        named = "*".join(names[self.above : self.level])
        return f"{SHORT[self.collective]}({named}{' of masters' if self.masters else ''})"


@dataclass(frozen=True)
class Hierarchy:
    """The sizes of the levels, outermost first, each above 1."""

    sizes: tuple[int, ...]

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return len(self.sizes)

    @cached_property
    def every(self) -> int:
        """All levels, as bits."""
        return (1 << self.levels) - 1

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions; masters only where that is not every device."""
        return tuple(
            Instruction(level, above, masters, collective)
            for masters in (False, True)
            for level in range(1, self.levels + masters * -1 + 1)
            for above in range(level)
            for collective in COLLECTIVES
        )

    def share(self, scattered: int) -> float:
        """Return the part of the data that a device holds which has its own digits at these levels."""
        part = 1.0
        for level, size in enumerate(self.sizes):
            if scattered >> level & 1:
                part /= size
        return part

    # ---------------------------------------------------------------------------------------------------- first and last
    def before(self, op: str) -> State:
        """Return what devices hold before a collective; the root is the device whose digits are all zero."""
        if op == "all-gather":
            return ((self.complete | self.every, self.classes),)
        if op == "broadcast":
            root = 1 << self.every
            return ((EMPTY, self.classes & ~root), (self.complete, root))
        return ((0, self.classes),)

    def is_done(self, op: str, state: State) -> bool:
        """Return whether every device that the collective gives something holds it."""
        if op == "reduce":
            return any(held == self.complete and who >> self.every & 1 for held, who in state)
        return state == ((self.complete | self.every if op == "reduce-scatter" else self.complete, self.classes),)

    @cached_property
    def complete(self) -> int:
        """All chunks with all contributions."""
        return self.every << self.levels

    @cached_property
    def classes(self) -> int:
        """All classes, as bits."""
        return (1 << (self.every + 1)) - 1

    # ------------------------------------------------------------------------------------------------------------- meaning
    def after(self, instruction: Instruction, state: State) -> State | None:
        """Return what devices hold after an instruction; None where it may not be done, or does nothing."""
        taking_part = self.taking_part(instruction)
        step = self._broadcast if instruction.collective == "broadcast" else self._in_groups
        changes = step(instruction, [(held, who & taking_part) for held, who in state if who & taking_part])
        if changes is None:
            return None
        after = {held: who & ~taking_part for held, who in state}
        for held, who in changes:
            after[held] = after.get(held, 0) | who
        made = tuple(sorted((held, who) for held, who in after.items() if who))
        return None if made == state else made

    def candidates(self, state: State) -> Iterator[Instruction]:
        """Yield the instructions that what is held does not forbid at once; ``after`` decides."""
        bits = (1 << len(self.instructions)) - 1
        for held, who in state:
            if held != EMPTY:
                aside = sum(which for part, which in self._by_part if not who & part)
                bits &= self._permitted(held) | aside
            if who >> self.every & 1:  # the device without any other digit is a root of every broadcast
                bits &= self._given_by(held)
        while bits:
            lowest = bits & -bits
            yield self.instructions[lowest.bit_length() - 1]
            bits -= lowest

    @cached_property
    def _by_part(self) -> tuple[tuple[int, int], ...]:
        """The instructions, as bits, by the classes that take part."""
        parts: dict[int, int] = {}
        for at, each in enumerate(self.instructions):
            part = self.taking_part(each)
            parts[part] = parts.get(part, 0) | 1 << at
        return tuple(parts.items())

    def _permitted(self, held: int) -> int:
        """Return the instructions that who holds this may do, as bits."""
        if held not in self._known_permitted:
            self._known_permitted[held] = sum(
                1 << at for at, each in enumerate(self.instructions) if self._becomes(each, held) is not None
            )
        return self._known_permitted[held]

    def _given_by(self, held: int) -> int:
        """Return all instructions but those broadcasts whose roots may not hold this, as bits."""
        if held not in self._known_given:
            self._known_given[held] = sum(
                1 << at
                for at, each in enumerate(self.instructions)
                if each.collective != "broadcast" or self._may_give(each.span, held)
            )
        return self._known_given[held]

    def _may_give(self, span: int, held: int) -> bool:
        """Return whether a root may hand this on: nothing in it hangs on digits in which the members differ."""
        return held != EMPTY and not held & span and held >> self.levels & span == span

    @cached_property
    def _known_permitted(self) -> dict[int, int]:
        return {}

    @cached_property
    def _known_given(self) -> dict[int, int]:
        return {}

    def taking_part(self, instruction: Instruction) -> int:
        """Return the classes of the devices that an instruction is for, as bits."""
        return self._with_zeros[self.every >> instruction.level << instruction.level if instruction.masters else 0]

    def active(self, instruction: Instruction, state: State) -> int:
        """Return the classes of those roots of an instruction's groups that hold something, as bits."""
        empty = state[0][1] if state[0][0] == EMPTY else 0
        return self.taking_part(instruction) & self._with_zeros[instruction.span] & ~empty

    def _in_groups(self, instruction: Instruction, state: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
        """All members of a group hold the same, or all nothing."""
        changes = []
        for held, who in state:
            if self._spread(who, instruction.span) != who:
                return None
            becomes = held if held == EMPTY else self._becomes(instruction, held)
            if becomes is None:
                return None
            if instruction.collective == "reduce":
                roots = who & self._with_zeros[instruction.span]
                changes += [(becomes, roots), (EMPTY, who & ~roots)]
            else:
                changes.append((becomes, who))
        return changes

    def _becomes(self, instruction: Instruction, held: int) -> int | None:
        """Return what is held after it by the root, or by all; None where all members may not hold this."""
        span, collective = instruction.span, instruction.collective
        scattered, reduced = held & span, held >> self.levels & span
        if collective == "broadcast":
            return held
        if collective == "all-gather":  # chunks apart; contributions are the same, for what is scattered is reduced too
            return held & ~span if scattered == span else None
        if scattered or reduced:  # the same chunks, with contributions apart
            return None
        return held | span << self.levels | (span if collective == "reduce-scatter" else 0)

    def _broadcast(self, instruction: Instruction, state: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
        """The others of a group hold nothing, or part of what its root holds."""
        span = instruction.span
        changes = []
        for held, who in state:
            given = self._spread(who & self._with_zeros[span], span)
            inside = [other for other, theirs in state if theirs & given and other != held]
            if held == EMPTY and inside:
                return None
            if held != EMPTY and given:
                scattered, reduced = held & self.every, held >> self.levels
                if not self._may_give(span, held):
                    return None
                if any(each != EMPTY and (scattered & ~each or each >> self.levels & ~reduced) for each in inside):
                    return None
            changes.append((held, given))
        return changes

    @cached_property
    def _with_zeros(self) -> tuple[int, ...]:
        """Of each set of levels, the classes whose digits are zero there, as bits."""
        return tuple(
            sum(1 << zeros for zeros in range(self.every + 1) if zeros & bits == bits) for bits in range(self.every + 1)
        )

    def _spread(self, who: int, span: int) -> int:
        """Return the classes of all members of the groups in which one of ``who`` is, as bits."""
        for level in range(self.levels):
            if span >> level & 1:
                zero = self._with_zeros[1 << level]
                who |= (who & zero) >> (1 << level) | (who & ~zero) << (1 << level)
        return who

    # -------------------------------------------------------------------------------------------------- what is at least left
    @cached_property
    def runs(self) -> tuple[int, ...]:
        """Of each set of levels, how many runs of neighbours it falls into: an instruction is about one."""
        return tuple((bits & ~(bits << 1)).bit_count() for bits in range(self.every + 1))

    def least_left(self, op: str, state: State) -> int:
        """Return a number of instructions without which nothing becomes of a state that is not done."""
        if op in ("reduce", "reduce-scatter"):
            return 1
        needs = (
            self.runs[self.every & ~(held >> self.levels)] + self.runs[held & self.every]
            for held, _ in state
            if held != EMPTY
        )
        return min(needs, default=len(self.runs)) + (len(state) > 1)
