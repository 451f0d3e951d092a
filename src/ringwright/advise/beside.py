"""A second process that bounds setups which take long to plan, while the first goes on with the others.

It begins as a copy of this one, so nothing has to be sent to it; what it finds out comes back setup by setup. What it owes
where it dies is bounded here; what it owes where seconds end is not bounded at all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.advise.evaluation import BoundedSetup, Evaluator
    from ringwright.advise.settings import Setup


class BoundsBeside:
    """Bounds of setups by a second process; none where there is one processor, or the system cannot copy a process."""

    def __init__(self, evaluator: Evaluator, setups: Sequence[Setup]) -> None:
        self.evaluator, self._left = evaluator, list(setups)
        self._process: multiprocessing.process.BaseProcess | None = None
        if not setups or _processors() < 2 or "fork" not in multiprocessing.get_all_start_methods():
            return
        context = multiprocessing.get_context("fork")
        self._answers, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(evaluator, self._left, theirs), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads that are copied: none of them is used there
            process.start()
        theirs.close()
        self._process = process

    def answered(self, *, wait_s: float = 0.0) -> Iterator[tuple[Setup, float]]:
        """Yield the bounds that have come since, of the first one waiting up to so many seconds, none without a process."""
        while self._process is not None and self._left:
            try:
                if not self._answers.poll(wait_s):
                    return
                told: BoundedSetup = self._answers.recv()
            except (EOFError, OSError):
                self.close()
                return
            wait_s = 0.0
            self._left.remove(told.setup)
            self.evaluator.learn(told)
            yield told.setup, told.least_s

    @property
    def left(self) -> list[Setup]:
        """The setups that have no answer yet."""
        return list(self._left)

    @property
    def is_working(self) -> bool:
        """Whether answers may still come."""
        return self._process is not None and bool(self._left)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
            self._answers.close()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _answer(evaluator: Evaluator, setups: Sequence[Setup], answers: Connection) -> None:
    """Be the second process: bound one setup after another, until nobody listens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first one ends it
    with contextlib.suppress(BrokenPipeError, OSError):
        for each in setups:
            answers.send(evaluator.tell(each))
