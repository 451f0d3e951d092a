"""What searches for programs share: a budget that does nothing but stop them, the model of links, what they say of their find.

Work is counted in units that every machine counts alike (iterations, a solver's own deterministic time, seeds): without a
budget in seconds, or within it, the same question gets the same program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.costs.link_models import ALPHA_OF as ALPHA_OF  # noqa: PLC0414 - who searches takes it from here
from ringwright.ground.errors import InfeasibleError
from ringwright.ground.knobs import Range

if TYPE_CHECKING:
    from ringwright.model.program import Program

SHORTEST_S = 0.001
Budget = Annotated[float, Range(SHORTEST_S, 86_400, "s")]
Pieces = Annotated[int, Range(1, 4096)]
LinkModel = Literal["pipelined", "blocking"]


_person: ContextVar[threading.Event | None] = ContextVar("person", default=None)  # is set when one wants an end
_until: ContextVar[float] = ContextVar("until", default=math.inf)  # of the monotonic clock: when all searches end


class OutOfTimeError(Exception):
    """The seconds of a block of work are over: no refusal, and none of its kind, for who remembers refusals must not keep it."""


@contextlib.contextmanager
def limited(until_s: float) -> Iterator[None]:
    """Let a moment of the monotonic clock end every search of the block as its own deadline does; see ``in_time``."""
    token = _until.set(min(until_s, _until.get()))
    try:
        yield
    finally:
        _until.reset(token)


def in_time() -> None:
    """Raise OutOfTimeError where the seconds of the block are over: what a search found by then is not all that it finds."""
    if time.monotonic() >= _until.get():
        raise OutOfTimeError


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let the first Ctrl-C end every search of the block as a deadline does; the next one interrupts what runs.

    Signals reach the main thread alone: elsewhere nothing changes, nor where they are ignored (in the background).
    """
    before, wanted = signal.getsignal(signal.SIGINT), threading.Event()
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        wanted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, end)
    token = _person.set(wanted)
    try:
        yield
    finally:
        _person.reset(token)
        signal.signal(signal.SIGINT, before)


class Deadline:
    """A budget of seconds, from now on; None never ends but with its block (``limited``).

    ``stopped`` says that it ended a search, or that a person did.
    """

    def __init__(self, budget_s: float | None) -> None:
        self._ends_s = min(_until.get(), math.inf if budget_s is None else time.monotonic() + budget_s)
        self._person = _person.get()
        self.stopped = False

    @property
    def by_person(self) -> bool:
        """Whether a person wants the search to end (see ``stoppable``)."""
        return self._person is not None and self._person.is_set()

    @property
    def left_s(self) -> float:
        """Seconds that are left, 0 at the least, or when a person wants an end; inf without a budget."""
        if self.by_person:
            return 0.0
        return max(0.0, self._ends_s - time.monotonic())

    def passed(self) -> bool:
        """Return whether the search must stop now, and remember that it did."""
        if self.left_s <= 0:
            self.stopped = True
        return self.stopped

    def interrupted(self) -> None:
        """Remember that a person stopped the search (Ctrl-C): it ends with the best that it has."""
        self.stopped = True


def nothing_yet(name: str, program: str) -> InfeasibleError:
    """Return the error of a search that its budget ended before it found anything."""
    return InfeasibleError(
        f"{name} found no {program} within its budget",
        remedy="a larger --budget, or none: the work is bounded without it",
    )


def told(program: Program, **facts: object) -> Program:
    """Return the program with what a search says of it, in ``knobs``: chunks, trees, height, stopped and the like."""
    return dataclasses.replace(program, knobs={**program.knobs, **facts})
