"""P2's sequences against the definition: a Boolean matrix of chunks and contributions for every single device."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

from ringwright.algorithms.synthesis.p2.language import COLLECTIVES, Hierarchy, Instruction
from ringwright.algorithms.synthesis.p2.search import Sequences

Held = tuple[tuple[frozenset[int], ...], ...]  # of each device: of each chunk the contributions


def groups_of(sizes: tuple[int, ...], instruction: Instruction) -> list[list[int]]:
    """The groups of an instruction, from what its docstring says, device by device."""
    digits = list(itertools.product(*(range(size) for size in sizes)))
    groups: dict[tuple[object, ...], list[int]] = {}
    for device, each in enumerate(digits):
        below = each[instruction.level :]
        if instruction.masters and any(below):
            continue
        groups.setdefault((each[: instruction.above], below), []).append(device)
    return list(groups.values())


def one_group(collective: str, held: list[tuple[frozenset[int], ...]]) -> list[tuple[frozenset[int], ...]] | None:
    """What the members of a group hold afterwards; None where the condition of the collective is not met."""
    rows = [frozenset(chunk for chunk, whose in enumerate(each) if whose) for each in held]
    k, nothing = len(held[0]), (frozenset[int](),) * len(held[0])
    if collective == "broadcast":
        if not rows[0] or any(not mine <= root for each in held[1:] for mine, root in zip(each, held[0], strict=True)):
            return None
        return [held[0]] * len(held)
    if collective == "all-gather":
        whose = {each[chunk] for each, mine in zip(held, rows, strict=True) for chunk in mine}
        if (
            len({len(mine) for mine in rows}) > 1
            or sum(map(len, rows)) != len(frozenset().union(*rows))
            or len(whose) > 1
        ):
            return None
        return [tuple(frozenset().union(*(each[chunk] for each in held)) for chunk in range(k))] * len(held)
    apart = all(
        sum(len(each[chunk]) for each in held) == len(frozenset().union(*(e[chunk] for e in held)))
        for chunk in range(k)
    )
    if len(set(rows)) > 1 or not apart:
        return None
    added = tuple(frozenset().union(*(each[chunk] for each in held)) for chunk in range(k))
    if collective == "all-reduce":
        return [added] * len(held)
    if collective == "reduce":
        return [added, *[nothing] * (len(held) - 1)]
    if len(rows[0]) % len(held):
        return None
    parts = np.array_split(sorted(rows[0]), len(held))
    return [tuple(added[chunk] if chunk in part else frozenset() for chunk in range(k)) for part in parts]


class Definition:
    """All sequences by brute force, over every device."""

    def __init__(self, sizes: tuple[int, ...], op: str) -> None:
        self.sizes, self.k, self.op = sizes, math.prod(sizes), op
        self.instructions = [
            (each, groups_of(sizes, each)) for each in Hierarchy(sizes).instructions if each.collective in COLLECTIVES
        ]
        self.count = cache(self._count)

    def before(self) -> Held:
        every = frozenset(range(self.k))
        rows = {
            "all-gather": lambda at: tuple(every if chunk == at else frozenset() for chunk in range(self.k)),
            "broadcast": lambda at: (every if at == 0 else frozenset(),) * self.k,
        }
        own = rows.get(self.op, lambda at: (frozenset({at}),) * self.k)
        return tuple(own(at) for at in range(self.k))

    def is_done(self, held: Held) -> bool:
        every = frozenset(range(self.k))
        if self.op == "reduce":
            return held[0] == (every,) * self.k
        if self.op == "reduce-scatter":
            owned = [[chunk for chunk, whose in enumerate(each) if whose] for each in held]
            whole = all(whose in (every, frozenset()) for each in held for whose in each)
            return whole and all(len(mine) == 1 for mine in owned) and len(set(map(tuple, owned))) == self.k
        return held == ((every,) * self.k,) * self.k

    def _count(self, held: Held, left: int) -> int:
        if self.is_done(held):
            return 1
        if not left:
            return 0
        total, seen = 0, set()
        for instruction, groups in self.instructions:
            active = tuple(tuple(group) for group in groups if any(any(held[each]) for each in group))
            after = self.after(instruction.collective, active, held)
            if after is None or after == held or (instruction.collective, active) in seen:
                continue
            seen.add((instruction.collective, active))
            total += self.count(after, left - 1)
        return total

    def after(self, collective: str, groups: tuple[tuple[int, ...], ...], held: Held) -> Held | None:
        now = list(held)
        for group in groups:
            made = one_group(collective, [held[each] for each in group])
            if made is None:
                return None
            for each, what in zip(group, made, strict=True):
                now[each] = what
        return tuple(now)


OPS = ("all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("sizes", "length"), [((2,), 5), ((4,), 4), ((2, 2), 5), ((3, 2), 4), ((2, 2, 2), 3)], ids=str)
def test_as_many_sequences_as_by_the_definition(sizes: tuple[int, ...], length: int, op: str) -> None:
    definition = Definition(sizes, op)
    wanted = definition.count(definition.before(), length)
    made = Sequences(Hierarchy(sizes), op, length)
    assert made.count() == wanted
    assert len(set(made.every())) == wanted
    if op == "all-reduce":
        assert wanted > 0
