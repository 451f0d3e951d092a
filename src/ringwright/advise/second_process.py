"""A second process that bounds setups which take long to plan: it and the first take turns until all are taken.

It begins as a copy of this one, so nothing has to be sent to it but whose turn it is: a pipe holds a number for each setup, and
whoever reads it bounds that one. What it finds out comes back setup by setup. What it owes where it dies is bounded here; what
it owes where seconds end is not bounded at all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from ringwright.executors.kinds import processors

if TYPE_CHECKING:
    from ringwright.advise.evaluation import BoundedSetup, Evaluator
    from ringwright.advise.settings import Setup

MOST_TURNS, TURN_BYTES = 2048, 2  # a pipe holds 4096 bytes at the least


class BoundsBeside:
    """Setups that are bounded in turns; by this process alone where ``alone``, and where the system cannot copy a process."""

    def __init__(self, evaluator: Evaluator, setups: Sequence[Setup], *, alone: bool = False) -> None:
        self.evaluator, self._left = evaluator, dict(enumerate(setups))
        self._process: multiprocessing.process.BaseProcess | None = None
        if alone or not setups or processors() < 2 or "fork" not in multiprocessing.get_all_start_methods():
            return
        self._turns = _numbers(min(len(setups), MOST_TURNS))
        context = multiprocessing.get_context("fork")
        self._answers, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(evaluator, list(setups), self._turns, theirs), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads that are copied: none of them is used there
            process.start()
        theirs.close()
        self._process = process

    def taken(self) -> Iterator[Setup]:
        """Yield the setups whose turn comes here, until all are taken; all of them without a process."""
        while self._process is not None and (at := _next(self._turns)) is not None:
            yield self._left.pop(at)
        if self._process is None:
            yield from self.left

    def answered(self, *, wait_s: float = 0.0) -> Iterator[tuple[Setup, float]]:
        """Yield the bounds that have come since, of the first one waiting up to so many seconds, none without a process."""
        while self._process is not None and self._left:
            try:
                if not self._answers.poll(wait_s):
                    return
                at, told = self._answers.recv()
            except (EOFError, OSError):
                self.close()
                return
            wait_s = 0.0
            self._left.pop(at)
            self.evaluator.learn(told)
            yield told.setup, told.least_s

    @property
    def left(self) -> list[Setup]:
        """The setups that have no answer yet, and were not taken here."""
        return list(self._left.values())

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
            os.close(self._turns)


def _numbers(count: int) -> int:
    """Return the end of a pipe that so many numbers are read from, each by one reader."""
    turns, theirs = os.pipe()
    os.write(theirs, np.arange(count, dtype=np.uint16).tobytes())
    os.close(theirs)
    return turns


def _next(turns: int) -> int | None:
    """Return the next number; None where all were read."""
    read = os.read(turns, TURN_BYTES)
    return int(np.frombuffer(read, np.uint16)[0]) if read else None


def _answer(evaluator: Evaluator, setups: Sequence[Setup], turns: int, answers: Connection) -> None:
    """Be the second process: bound the setups whose turn comes here, until all are taken or nobody listens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first one ends it
    told: SimpleQueue[tuple[int, BoundedSetup] | None] = SimpleQueue()
    # A plan is more than a pipe holds, and the first process reads between two bounds of its own: nobody waits for that.
    sender = threading.Thread(target=_send, args=(told, answers), daemon=True)
    sender.start()
    while sender.is_alive() and (at := _next(turns)) is not None:
        told.put((at, evaluator.tell(setups[at])))
    told.put(None)
    sender.join()


def _send(told: SimpleQueue[tuple[int, BoundedSetup] | None], answers: Connection) -> None:
    with contextlib.suppress(BrokenPipeError, OSError):
        while (answer := told.get()) is not None:
            answers.send(answer)
