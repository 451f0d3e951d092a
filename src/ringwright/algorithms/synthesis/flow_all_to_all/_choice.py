"""Into how many pieces, how many of them a message, in which order: the run of the shortest time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.algorithms.declared_order import in_order
from ringwright.engines.choose import simulate
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.flow_all_to_all._question import Question
    from ringwright.algorithms.synthesis.flow_all_to_all._rounds import SentMessages
    from ringwright.model.program import Program

PIECES, MERGES = (1, 2, 4, 8, 16), (1, 8, 64, 4096)
WORK = 150_000  # chunks over arcs of all runs together, at the least one run
MOST_MOVES = 2_000_000
MOST_DECLARED = 150_000  # moves of a program whose order is declared
FINALISTS = 2
CLOSE = 5e-4  # over the optimum of the flow: near enough to stop


@dataclass(frozen=True)
class ChosenRun:
    """One run and what it was asked for; ``makespan`` in ps."""

    pieces: int
    merge: int
    farthest: bool
    makespan: int
    sent: SentMessages


def best(question: Question, chunks: int | None, merge: int | None, deadline: Deadline) -> tuple[ChosenRun, Program]:
    """Return the best run and its program, in the order of its data or a declared one."""
    made: list[ChosenRun] = []
    work, least_ps = 0, question.least_s * PS * (1 + CLOSE)
    try:
        for pieces, joined, farthest in _settings(question, chunks, merge):
            work += question.steps_of_chunks * pieces
            if made and (work > WORK or deadline.passed() or _is_idle(made, pieces)):
                break
            sent = question.run(pieces, joined, farthest=farthest)
            made.append(ChosenRun(pieces, joined, farthest, sent.makespan, sent))
            if sent.makespan <= least_ps:
                break
    except KeyboardInterrupt:
        deadline.interrupted()
        if not made:
            raise
    made.sort(key=lambda each: (each.makespan, each.pieces, each.merge, each.farthest))
    return _shortest(question, made[:FINALISTS])


def _is_idle(made: list[ChosenRun], pieces: int) -> bool:
    """Whether the next larger number of pieces is begun though the last one brought nothing."""
    if made[-1].pieces == pieces:
        return False
    last = min(each.makespan for each in made if each.pieces == made[-1].pieces)
    return any(each.makespan <= last * (1 + CLOSE) for each in made if each.pieces < made[-1].pieces)


def _settings(question: Question, chunks: int | None, merge: int | None) -> Iterator[tuple[int, int, bool]]:
    for pieces in (chunks,) if chunks else PIECES:
        if question.moves * pieces > MOST_MOVES:
            if pieces == 1 or chunks:
                raise DeclinedError(
                    f"the exchange is {question.moves * pieces:,} moves, more than {MOST_MOVES:,}",
                    where=f"{question.collective.p:,} ranks in {pieces} chunks",
                    remedy="fewer chunks or ranks, or --algorithm pairwise",
                )
            return
        if pieces > 1 and not chunks and pieces > question.most_pieces:
            return
        for joined in (merge,) if merge else MERGES:
            for farthest in (True, False) if question.moves * pieces <= MOST_DECLARED else (False,):
                yield pieces, joined, farthest


def _shortest(question: Question, made: list[ChosenRun]) -> tuple[ChosenRun, Program]:
    """Return the run that the engine needs least time for."""
    known: list[tuple[int, ChosenRun, Program]] = []
    for each in made:
        free, times = question.program(each)
        if question.moves * each.pieces > MOST_DECLARED:
            return each, free
        for program in (free, in_order(free, question.machine, *times)):
            took = simulate(program, question.topology, alpha=question.alpha).time_ps
            known.append((took, each, program))
            if took <= each.makespan:
                return each, program
    least = min(known, key=lambda each: each[0])
    return least[1], least[2]
