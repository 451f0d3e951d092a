"""Follow data contribution by contribution, to say which one is missing, counted twice or out of order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.model.program import ADDING, Op
from ringwright.model.validity.follow import placed, unfold
from ringwright.model.validity.rules import Violation

if TYPE_CHECKING:
    from ringwright.model.program import Program, Step

MOST_TRACED = 4_000_000


def trace(program: Program, most: int) -> list[Violation]:
    """Return violations that name the contribution that is missing, counted twice or out of order."""
    if sum(step.count for step in program.steps()) > MOST_TRACED:
        return []
    held: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
    for rank in range(program.p):
        slots, chunks = placed(program, rank, after=False)
        held |= {(rank, int(slot)): Counter({(rank, int(chunk)): 1}) for slot, chunk in zip(slots, chunks, strict=True)}
    violations: list[Violation] = []
    for number, step in enumerate(program.steps()):
        violations += _trace_step(program, held, step, number)
        if len(violations) >= most:
            return violations
    return violations + list(_missing(program, held))


def _trace_step(
    program: Program, held: dict[tuple[int, int], Counter[tuple[int, int]]], step: Step, number: int
) -> Iterator[Violation]:
    arriving, sent_out = [], []
    for block in step.blocks:
        for src, dst, chunk, to in zip(*(column.tolist() for column in unfold(block)), strict=True):
            if (src, chunk) in held:
                arriving.append(((dst, to), block.op in ADDING, held[src, chunk]))
                if block.op is Op.EMIT:
                    sent_out.append((src, chunk))
    for emptied in sent_out:
        held.pop(emptied, None)
    for (rank, slot), adds, values in arriving:
        present = held.get((rank, slot)) if adds else None
        if present is None:
            held[rank, slot] = values
            continue
        twice = next(iter((present & values).elements()), None)
        if twice is not None:
            yield Violation("double", f"rank {twice[0]}'s chunk {twice[1]} counted twice", rank, number, twice[1])
        elif not program.collective.commutative and not _adjacent(present, values):
            yield Violation("order", "combines ranks that are not neighbours", rank, number, slot)
        held[rank, slot] = present + values


def _adjacent(left: Counter[tuple[int, int]], right: Counter[tuple[int, int]]) -> bool:
    ours, theirs = {rank for rank, _ in left}, {rank for rank, _ in right}
    return max(ours) + 1 == min(theirs) or max(theirs) + 1 == min(ours)


def _missing(program: Program, held: dict[tuple[int, int], Counter[tuple[int, int]]]) -> Iterator[Violation]:
    for rank in range(program.p):
        for slot, chunk in zip(*(column.tolist() for column in placed(program, rank, after=True)), strict=True):
            have = held.get((rank, slot), Counter())
            wanted = program.collective.contributors(rank)
            lacking = [other for other in wanted if not have[other, chunk]]
            strange = sorted({other for other, _ in have} - set(wanted)) if program.collective.reduces else []
            foreign = sorted({contribution for _, contribution in have} - {chunk})
            if lacking:
                message = f"chunk {chunk} lacks the contribution of rank {', '.join(map(str, lacking[:5]))}"
                yield Violation("result", message, rank, -1, chunk)
            elif strange:
                message = f"chunk {chunk} has the contribution of rank {', '.join(map(str, strange[:5]))}"
                yield Violation("result", message, rank, -1, chunk)
            elif foreign:
                yield Violation("result", f"chunk {chunk} is mixed with chunk {foreign[0]}", rank, -1, chunk)
