"""Fan out: a function over many arguments, on whoever executes; lost and hanging tasks are begun again, and the order is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from ringwright.executors.begun_calls import BegunCalls, TaskRun
from ringwright.executors.inventory import inventory
from ringwright.executors.kept_results import KeptResults
from ringwright.executors.kinds import VARIABLE, Engine, WrappedExecutor, parsed
from ringwright.executors.worker import Terms, WorkerAnswers, is_at_work, packed, refusal
from ringwright.ground.errors import LostTaskError
from ringwright.ground.stepwise import Advance

HERE_S = 1.0  # work done here before others are asked, unless they are named: to begin processes takes about as long
WORTH_S = 3.0  # what must be left then, at the pace so far
KEPT_S = 0.05  # of work from which a result is worth a file
MOST_TRIES = 4  # of a task whose workers are lost, or that hangs

R = TypeVar("R")
Chosen = str | Executor | None


class ExecutorAccount(TypedDict):
    """Who worked for an answer: the same answer by another executor differs in this and in nothing else."""

    name: str
    workers: int | None
    tasks: int
    retried: int
    resumed: int
    cpu_s: float


@dataclass
class WorkAccount:
    """Who worked: how they are spelled, how many, the tasks they did, those begun again, and the processor time of all (s)."""

    name: str
    workers: int | None = 1
    tasks: int = 0
    retried: int = 0
    resumed: int = 0
    cpu_s: float = 0.0

    def document(self) -> ExecutorAccount:
        """Return it as ``executor`` of an answer."""
        return cast(ExecutorAccount, {**asdict(self), "cpu_s": round(self.cpu_s, 3)})


@contextmanager
def fan_out(executor: Chosen | FanOut = None) -> Iterator[FanOut]:
    """Give what maps functions over arguments, by ``executor``: a spelling, or any object of ``concurrent.futures.Executor``.

    One that is open already is given on, and stays open.

    Without one ``RINGWRIGHT_EXECUTOR`` says it, else all cores of this machine. Raises UsageError for what is none, and
    MissingExtraError for one whose library is not installed.
    """
    if isinstance(executor, FanOut):
        yield executor
        return
    fan = FanOut(executor)
    try:
        yield fan
    except BaseException:
        fan.close(at_once=True)
        raise
    fan.close()


class FanOut:
    """An executor, begun when the first long work comes; ``account`` says who did what."""

    def __init__(self, executor: Chosen = None) -> None:
        self._engine: Engine | None = None
        self._kept, self._earlier_s = KeptResults(), 0.0
        self._spent: dict[Callable[..., Any], tuple[int, float]] = {}  # tasks done, and their processor time (s)
        self.account = WorkAccount("local:1")
        if executor is None or isinstance(executor, str):
            text = executor or ("local:1" if is_at_work() else os.environ.get(VARIABLE, ""))
            self._is_usual, spelled = not text, parsed(text or "local")
            self._is_alone, self._open, self._deadline_s = spelled.is_alone, spelled.opened, spelled.deadline_s
        else:
            workers = getattr(executor, "_max_workers", None)
            foreign = partial(WrappedExecutor, executor, type(executor).__name__, workers)
            self._is_usual, self._is_alone, self._open, self._deadline_s = False, False, foreign, None

    @property
    def is_alone(self) -> bool:
        """Whether this process works, and no other."""
        return self._is_alone

    def beside(self) -> str:
        """Return a file: beside it workers that see it leave what is too large to travel; empty where there is none."""
        return "" if is_at_work() else self._kept.beside()

    def owns(self, path: Path) -> None:
        """Take over what a worker left there: it is kept and removed as results are."""
        self._kept.owns(path)

    @property
    def kept(self) -> int:
        """How many results the same question would take over if this run ended now."""
        return len(self._kept)

    def map(
        self,
        function: Callable[..., R],
        given: Sequence[tuple[Any, ...]],
        *,
        title: Callable[..., str] | None = None,
        progress: Advance | None = None,
        each: Callable[[int, R], None] | None = None,
        deadline_s: float | None = None,
        paths: Sequence[str] = (),
    ) -> list[R]:
        """Return a function's results, in the order of what it is given.

        Parameters
        ----------
        function
            One that a worker can import; its results are plain data, or of the type that it declares.
        given
            The arguments of each call: plain data, data classes, paths, arrays.
        title
            What a person reads of a call, of its arguments.
        progress
            Told of each call that is done.
        each
            Called with the number of a call and its result when it comes, in whatever order.
        deadline_s
            How long a call may take before it is begun elsewhere.
        paths
            What every worker must see.

        Raises
        ------
        RingwrightError
            What the first call, by order, raised; UsageError where a worker is of another release or lacks a path;
            InfeasibleError where a call was lost or hung too often.
        """
        results: dict[int, R] = {}
        stream = self.stream(function, given, title=title, progress=progress, deadline_s=deadline_s, paths=paths)
        for index, result in stream:
            results[index] = result
            if each is not None:
                each(index, result)
        return [results[index] for index in range(len(given))]

    def stream(
        self,
        function: Callable[..., R],
        given: Sequence[tuple[Any, ...]],
        *,
        title: Callable[..., str] | None = None,
        progress: Advance | None = None,
        deadline_s: float | None = None,
        paths: Sequence[str] = (),
        until: Callable[[], bool] | None = None,
        is_kept: bool = True,
    ) -> Iterator[tuple[int, R]]:
        """Yield the number of each call and its result as they come, in whatever order; the rest as of ``map``.

        ``until`` is asked again and again whether it is enough: what has not come by then is left. Results that stand for what
        does not outlive the run are not kept: ``is_kept``.
        """
        run = TaskRun(function, given, is_kept)
        self.account.tasks += len(given)
        for index, result in self._kept.of(run.names) if is_kept and self._kept.is_any else ():
            self.account.resumed += 1
            yield run.taken(index, result)
        shown = _Shown(run, title, progress)
        for each in chain(self._here(run, shown), self._elsewhere(run, shown, paths, deadline_s, until)):
            yield each
            if until is not None and until():
                break
        shown.end()

    def _here(self, run: TaskRun, shown: _Shown) -> Iterator[tuple[int, Any]]:
        """Do what is not worth another process, or all of it where there is none."""
        passed_s, left = 0.0, run.left
        for done, index in enumerate(left):
            if not self._stays_here(run, passed_s, done):
                break
            shown.next(index)
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            result = packed(run.function(*run.given[index]))
            self._count(run, time.process_time() - began_cpu_s)
            took_s = time.monotonic() - began_s
            passed_s, self._earlier_s = passed_s + took_s, self._earlier_s + took_s
            self._keep(run, index, result, took_s)
            yield run.taken(index, result)

    def _stays_here(self, run: TaskRun, passed_s: float, done: int) -> bool:
        left = len(run.given) - len(run.done)
        if self._engine is not None:
            tasks, cpu_s = self._spent.get(run.function, (0, 0.0))
            return bool(tasks) and cpu_s / tasks * left < self._engine.begins_s
        if self._is_alone:
            return True
        # What has asked often, a little each time, will ask as much again.
        is_worth = self._earlier_s > WORTH_S or (passed_s >= HERE_S and passed_s / done * left >= WORTH_S)
        return self._is_usual and (left < 2 or not is_worth)

    def _elsewhere(
        self,
        run: TaskRun,
        shown: _Shown,
        paths: Sequence[str],
        deadline_s: float | None,
        until: Callable[[], bool] | None,
    ) -> Iterator[tuple[int, Any]]:
        """Let the engine do what is left."""
        if not run.left:
            return
        if self._engine is None:
            self._engine = self._open()
        engine = self._engine
        self.account.name, self.account.workers = engine.name, engine.workers
        deadline_s = deadline_s or self._deadline_s
        begun = BegunCalls(engine, run, Terms(inventory(), tuple(paths)))
        failed: dict[int, Exception] = {}
        while begun.goes_on():
            lost = begun.late(deadline_s)
            for future, indexes in begun.done(deadline_s):
                try:
                    said: WorkerAnswers = future.result()
                except engine.lost as error:
                    lost += [(indexes, str(error) or type(error).__name__)]
                    continue
                if said.refused:
                    raise refusal(said.refused)
                yield from self._taken(run, said, failed)
                shown.done(len(run.done) + len(failed))
            if until is not None and until():
                engine.close(at_once=True)
                return
            self._again(begun, lost)
        if failed:
            raise failed[min(failed)]

    def _taken(self, run: TaskRun, said: WorkerAnswers, failed: dict[int, Exception]) -> Iterator[tuple[int, Any]]:
        """Yield the answers of one call, each once."""
        for each in said.answers:
            if each.number in run.done or each.number in failed:
                continue
            self._count(run, each.cpu_s)
            if each.packed is None:
                failed[each.number] = each.error or RuntimeError("an answer without a result")
            else:
                self._keep(run, each.number, each.packed, each.cpu_s)
                yield run.taken(each.number, each.packed)

    def _count(self, run: TaskRun, cpu_s: float) -> None:
        """Count what a task took."""
        tasks, before_s = self._spent.get(run.function, (0, 0.0))
        self._spent[run.function] = tasks + 1, before_s + cpu_s
        self.account.cpu_s += cpu_s

    def _keep(self, run: TaskRun, index: int, result: bytes, took_s: float) -> None:
        """Keep a result for who asks the same again after this run was cut short, where it is worth a file."""
        if run.is_kept and took_s >= KEPT_S and len(run.given) > 1 and run.names and not is_at_work():
            self._kept.keep(run.names[index], result)

    def _again(self, begun: BegunCalls, lost: list[tuple[list[int], str]]) -> None:
        """Begin lost tasks again, in smaller calls; one that is lost again alone, when no other runs that it might end too."""
        if not lost:
            return
        begun.engine.renew()
        run, once = begun.run, list[int]()
        for index, why in ((index, why) for indexes, why in lost for index in indexes if index not in run.done):
            run.tries[index] = run.tries.get(index, 1) + 1
            if run.tries[index] > MOST_TRIES:
                raise LostTaskError(
                    f"task {index + 1} of {len(run.given)} was begun {MOST_TRIES} times and came to no end: {why}",
                    where=begun.engine.name,
                    remedy="the same with --executor local:1 shows what it does",
                    number=index,
                )
            self.account.retried += 1
            (begun.suspects if run.tries[index] > 2 else once).append(index)
        begun.submit_all(once)

    def close(self, *, at_once: bool = False) -> None:
        """Let go of the engine; what was done is kept where it ends ``at_once``, in the middle of a run."""
        if self._engine is not None:
            self._engine.close(at_once=at_once)
            self._engine = None
        if not at_once:
            self._kept.forget()

    def leave(self) -> None:
        """Let go of the engine; what was done is kept for who asks the same again."""
        self.close(at_once=True)
        self._kept = KeptResults()


class _Shown:
    """Progress of a run, over all workers."""

    def __init__(self, run: TaskRun, title: Callable[..., str] | None, progress: Advance | None) -> None:
        self._run, self._title, self._progress = run, title, progress

    def _say(self, done: int, name: str) -> None:
        if self._progress is not None:
            self._progress(done, len(self._run.given), name)

    def next(self, index: int) -> None:
        """Say which task begins here."""
        given = self._run.given[index]
        self._say(len(self._run.done), self._title(*given) if self._title else str(given[0]) if given else "")

    def done(self, done: int) -> None:
        """Say how many are done."""
        self._say(done, "")

    def end(self) -> None:
        """Say that all are."""
        self._say(len(self._run.given), "")
