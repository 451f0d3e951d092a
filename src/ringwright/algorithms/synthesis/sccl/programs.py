"""Schedules as programs: sends as they are, reductions backwards in time, an all-reduce as one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import is_even
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.sccl.model import RoundsSchedule
    from ringwright.algorithms.synthesis.sccl.question import RoundsQuestion
    from ringwright.model.collective import Collective
    from ringwright.model.program import Layout


@dataclass(frozen=True)
class RoundsMoves:
    """RoundsMoves of one step, in order: kind, sources, targets and chunks (int64 of shape (moves,))."""

    op: Op
    src: np.ndarray
    dst: np.ndarray
    chunk: np.ndarray


def forwards(question: RoundsQuestion, schedule: RoundsSchedule) -> list[RoundsMoves]:
    """Return the moves of each step."""
    return [_moves(question, schedule, step, Op.SEND) for step in range(schedule.asked.steps)]


def backwards(question: RoundsQuestion, schedule: RoundsSchedule) -> list[RoundsMoves]:
    """Return the moves of each step of the reduction that is the schedule turned round in time and direction."""
    return [_moves(question, schedule, step, Op.REDUCE) for step in reversed(range(schedule.asked.steps))]


def _moves(question: RoundsQuestion, schedule: RoundsSchedule, step: int, op: Op) -> RoundsMoves:
    rows = [
        (*question.wires.edges[edge], question.blocks[flow] * schedule.asked.chunks + chunk)
        for at, edge, flow, chunk in schedule.sends
        if at == step
    ]
    rows.sort(key=lambda row: ((row[1] - row[0]) % question.wires.p, row))  # so that no rank is the first target of all
    table = np.array(rows, np.int64).reshape(-1, 3)
    src, dst = (table[:, 0], table[:, 1]) if op is Op.SEND else (table[:, 1], table[:, 0])
    return RoundsMoves(op, src, dst, table[:, 2])


def program_of(collective: Collective, parts: int, steps: Sequence[RoundsMoves], *, in_step: bool = False) -> Program:
    """Return the program that does the moves of each step, the collective's blocks cut into ``parts`` chunks.

    ``in_step``: a rank begins a step when all that it receives in the one before has come, so that no message of a later step
    overtakes one on its link that waits for data.
    """
    layout = cut(collective, parts)
    return Program(
        "sccl", collective, layout, lambda: _steps(steps, in_step), len(steps), _cost(collective, layout, parts, steps)
    )


def _steps(steps: Sequence[RoundsMoves], in_step: bool) -> Iterator[Step]:
    for number, each in enumerate(steps):
        label = "reduce" if each.op is Op.REDUCE else "send"
        blocks = (explicit(each.op, each.src, each.dst, each.chunk),) if len(each.src) else ()
        yield Step(blocks, label, number if in_step else 0)


def _cost(collective: Collective, layout: Layout, parts: int, steps: Sequence[RoundsMoves]) -> Cost:
    """Count what is moved: of each step the largest message is on the critical path."""
    sent, path, reduced, messages = 0, 0, 0, 0
    for each in steps:
        sizes = layout.bytes_of(each.chunk).tolist()
        pairs, adds = Counter[tuple[int, int]](), Counter[int]()
        for src, dst, size in zip(each.src.tolist(), each.dst.tolist(), sizes, strict=True):
            pairs[src, dst] += size
            adds[dst] += size
        sent += sum(sizes)
        messages += bool(sizes)
        path += max(pairs.values(), default=0)
        reduced += max(adds.values(), default=0) if each.op is Op.REDUCE else 0
    return Cost((Term(messages, path),), float(sent), float(reduced), is_even=is_even(collective, parts))
