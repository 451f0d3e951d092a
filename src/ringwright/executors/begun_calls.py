"""What is in flight: the tasks of a run, those that have begun, and those to be begun again one by one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any

from ringwright.executors.content import name_of
from ringwright.executors.inventory import inventory
from ringwright.executors.kinds import Engine
from ringwright.executors.worker import Terms, answer, unpacked
from ringwright.ground.errors import InfeasibleError

LOOK_S = 2.0  # after which one looks whether the engine is still there


@dataclass
class TaskRun:
    """The tasks of one ``map``, and which of them have a result."""

    function: Callable[..., Any]
    given: Sequence[tuple[Any, ...]]
    is_kept: bool = True
    done: set[int] = field(default_factory=set)
    tries: dict[int, int] = field(default_factory=dict)

    @property
    def left(self) -> list[int]:
        """The tasks without a result."""
        return [index for index in range(len(self.given)) if index not in self.done]

    @cached_property
    def names(self) -> list[str]:
        """The names of the tasks, which say what this release is asked; none where one is given what is no data."""
        version, seen = "".join(inventory().values()), dict[int, bytes]()
        try:
            return [name_of(self.function, each, version, seen=seen) for each in self.given]
        except TypeError:
            return []

    def taken(self, index: int, result: bytes) -> tuple[int, Any]:
        """Note that a task is done; return its number and its result as the function says it returns it, wherever it was made."""
        self.done.add(index)
        return index, unpacked(self.function, result)


class BegunCalls:
    """Calls that were begun, each with the indexes of its tasks and the moment."""

    def __init__(self, engine: Engine, run: TaskRun, terms: Terms) -> None:
        self.engine, self.run, self._terms = engine, run, terms
        self.calls: dict[Future[Any], tuple[list[int], float]] = {}
        self.suspects: deque[int] = deque()  # each to be begun alone
        self._ended: SimpleQueue[Future[Any]] = SimpleQueue()
        self._waiting = deque(self._calls_of(run.left))

    def goes_on(self) -> bool:
        """Begin what waits, as much as the engine takes; say whether anything runs."""
        while self._waiting and (self.engine.ahead is None or len(self.calls) < self.engine.ahead):
            self.submit(self._waiting.popleft())
        if not self.calls and self.suspects:
            self.submit([self.suspects.popleft()])
        return bool(self.calls)

    def _calls_of(self, indexes: list[int]) -> list[list[int]]:
        size = self.engine.together(len(indexes))
        return [indexes[at : at + size] for at in range(0, len(indexes), size)]

    def submit_all(self, indexes: list[int]) -> None:
        """Begin tasks at once, in as many calls as their number makes."""
        for call in self._calls_of(indexes):
            self.submit(call)

    def submit(self, indexes: list[int]) -> None:
        """Begin a call of some tasks; by an engine that has just lost its workers, once more."""
        tasks = [(index, tuple(self.run.given[index])) for index in indexes]
        try:
            future = self._submitted(tasks)
        except self.engine.lost:
            self.engine.renew()
            future = self._submitted(tasks, is_last=True)
        self.calls[future] = (indexes, time.monotonic())
        future.add_done_callback(self._ended.put)

    def _submitted(self, tasks: list[tuple[int, tuple[Any, ...]]], *, is_last: bool = False) -> Future[Any]:
        try:
            return self.engine.submit(answer, self._terms, self.run.function, tasks)
        except self.engine.lost as error:
            raise (self._gone(error) if is_last else error) from None
        except (OSError, RuntimeError) as error:
            raise self._gone(error) from error

    def _gone(self, error: BaseException) -> InfeasibleError:
        """Return what is said of an engine that takes no tasks any more."""
        done, of = len(self.run.done), len(self.run.given)
        return InfeasibleError(
            f"it takes no more tasks: {str(error) or type(error).__name__}",
            where=self.engine.name,
            remedy=f"{done} of {of} results are kept: the same command goes on there, with this executor or another",
        )

    def done(self, deadline_s: float | None) -> list[tuple[Future[Any], list[int]]]:
        """Return the calls that have ended, after waiting for one."""
        ended: list[Future[Any]] = []
        try:
            ended.append(self._ended.get(timeout=LOOK_S if deadline_s is None else min(LOOK_S, deadline_s / 4)))
            while True:
                ended.append(self._ended.get_nowait())
        except Empty:
            if not ended and (why := self.engine.gone()):
                raise self._gone(RuntimeError(why)) from None
        return [(future, self.calls.pop(future)[0]) for future in ended if future in self.calls]

    def late(self, deadline_s: float | None) -> list[tuple[list[int], str]]:
        """Take back the calls that have run for too long for as many tasks."""
        if deadline_s is None:
            return []
        now = time.monotonic()
        running = [
            future
            for future, (indexes, since) in self.calls.items()
            if now - since > deadline_s * len(indexes) and not future.done()
        ]
        late = []
        for future in running:
            indexes, _ = self.calls.pop(future)
            if not future.cancel():  # one that waited for its turn only is no loss
                late.append((indexes, f"it took longer than {deadline_s:g} s"))
            else:
                self.submit(indexes)
        return late
