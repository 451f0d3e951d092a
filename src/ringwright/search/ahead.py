"""Searches and rivals asked about ahead of their turn, by whoever works: the study goes on as if each were done in its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ringwright.bounds.lower_bounds import Bound, lowest
from ringwright.engines.choose import simulate
from ringwright.ground.errors import InfeasibleError, ProgramError, UsageError
from ringwright.search import program_cache
from ringwright.search.question import FoundProgram, SynthesisSpec, searched
from ringwright.search.rivals import rival_us

if TYPE_CHECKING:
    from ringwright.algorithms.searching import Deadline
    from ringwright.executors.fan_out import FanOut
    from ringwright.model.collective import Collective

NEAR = 0.01  # time over bound, less one, at which the usual methods leave it at that
_REFUSALS = (InfeasibleError, UsageError, ProgramError)


class SearchedAhead(msgspec.Struct):
    """What a method found: the ``program`` as it is kept, None where it cannot be or where the method ``refused``."""

    method: str
    program: bytes | None = None
    seconds: float = 0.0
    verified: bool | None = None
    was_kept: bool = False
    time_s: float = 0.0
    engine: str = ""
    refused: tuple[str, str, str, str] | None = None  # kind of error, what, where, next


class RivalTime(msgspec.Struct):
    """What another algorithm takes (us), or why it has no time."""

    time_us: float | None
    declined: str


def search_ahead(
    question: SynthesisSpec, methods: tuple[str, ...], size_bytes: int, ends_near: bool
) -> list[SearchedAhead]:
    """Return what methods find for a size, one after the other, until one comes near the bound where that is enough: a task."""
    told: list[SearchedAhead] = []
    for method in methods:
        try:
            one = searched(question, method, size_bytes)
            run = simulate(one.program, question.topology, alpha=question.alpha)
            near = ends_near and is_near(question, one.program.collective, run.time_s)
        except _REFUSALS as error:
            kind = next(each.__name__ for each in _REFUSALS if isinstance(error, each))
            told.append(SearchedAhead(method, refused=(kind, error.what, error.where, error.remedy)))
            continue
        program = one.packed or program_cache.packed(one.program)
        told.append(SearchedAhead(method, program, one.seconds, one.verified, one.was_kept, run.time_s, run.engine))
        if near:
            break
    return told


def is_near(question: SynthesisSpec, collective: Collective, time_s: float) -> bool:
    """Whether a time is as near its bound as the usual methods go."""
    return gap_of(time_s, lowest(collective, question.topology, alpha=question.alpha)) <= NEAR


def gap_of(time_s: float, bound: Bound) -> float:
    """Return time over bound, less one; 0 for a bound of 0."""
    return time_s / bound.time_s - 1 if bound.time_s else 0.0


def rival_ahead(question: SynthesisSpec, slug: str, size_bytes: int) -> RivalTime:
    """Return what another algorithm takes: a task."""
    return RivalTime(*rival_us(question, question.collective(size_bytes), slug))


class Ahead:
    """What was asked about ahead of its turn; what was not is done when it is."""

    def __init__(self, fan: FanOut, person: Deadline) -> None:
        self._fan, self._person = fan, person
        self._searched: dict[tuple[int, str, int], SearchedAhead] = {}
        self._rivals: dict[tuple[str, int], RivalTime] = {}

    def search(
        self,
        asked: Sequence[tuple[SynthesisSpec, tuple[str, ...], int, bool]],
        tell: Callable[[int, int, str], None] | None,
    ) -> None:
        """Do what ``search_ahead`` is asked; where one process works, or one search is asked for, each has its turn."""
        if self._fan.is_alone or len(asked) < 2:
            return
        came = self._fan.stream(
            search_ahead, asked, title=lambda _, of, *__: of[0], progress=tell, until=self._person.passed
        )
        for index, answers in came:
            question, _, size, _ = asked[index]
            self._searched |= {(id(question.topology), each.method, size): each for each in answers}

    def time(self, question: SynthesisSpec, pairs: Sequence[tuple[str, int]]) -> None:
        """Time other algorithms at sizes."""
        if self._fan.is_alone or len(pairs) < 2:
            return
        given = [(question, slug, size) for slug, size in pairs]
        for index, time in self._fan.stream(rival_ahead, given, until=self._person.passed):
            self._rivals[pairs[index]] = time

    def has(self, question: SynthesisSpec, method: str, size_bytes: int) -> bool:
        """Whether a method has been asked for a size ahead of its turn."""
        return (id(question.topology), method, size_bytes) in self._searched

    def program_of(self, question: SynthesisSpec, method: str, size_bytes: int) -> FoundProgram:
        """Return what a method finds for a size; its error where it refuses."""
        known = self._searched.get((id(question.topology), method, size_bytes))
        if known is not None and known.refused is not None:
            kind, what, where, remedy = known.refused
            raise next(each for each in _REFUSALS if each.__name__ == kind)(what, where=where, remedy=remedy)
        if known is not None and known.program is not None:
            program = program_cache.unpacked(known.program, question.collective(size_bytes), at_once=False)
            if program is not None:
                about = (known.seconds, known.verified, known.was_kept, known.program, known.time_s, known.engine)
                return FoundProgram(method, program, *about)
        return searched(question, method, size_bytes)

    def rival(self, question: SynthesisSpec, slug: str, size_bytes: int) -> tuple[float | None, str]:
        """Return what another algorithm takes (us), or why it has no time."""
        known = self._rivals.get((slug, size_bytes))
        if known is None:
            return rival_us(question, question.collective(size_bytes), slug)
        return known.time_us, known.declined
