"""In a worker: some tasks, one after the other, each with its answer as bytes or its error, and the processor time it took."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec

from ringwright.executors.inventory import differences, inventory, lacking
from ringwright.ground.errors import InputError, OutputError, RingwrightError, UsageError

# An engine that runs several tasks in one process waits: what readers and engines set is a process's.
_ONE = threading.Lock()


class Terms(NamedTuple):
    """What must be as it is where it is asked: the inventory there, and paths that are there."""

    inventory: Mapping[str, str]
    paths: tuple[str, ...] = ()


class TaskAnswer(NamedTuple):
    """The answer of one task, by its number: ``packed`` is MessagePack, None where ``error`` was raised."""

    number: int
    packed: bytes | None
    error: Exception | None
    cpu_s: float


class WorkerAnswers(NamedTuple):
    """What a worker says to some tasks; ``refused`` says why it takes none of them."""

    worker: str
    answers: list[TaskAnswer]
    refused: str = ""


_works: ContextVar[bool] = ContextVar("works", default=False)


def is_at_work() -> bool:
    """Whether this is a task: what it asks is not shared out again, or its own workers would wait for it."""
    return _works.get()


@contextmanager
def _at_work() -> Iterator[None]:
    token = _works.set(True)
    try:
        yield
    finally:
        _works.reset(token)


def answer(
    terms: Terms, function: Callable[..., object], tasks: Sequence[tuple[int, tuple[Any, ...]]]
) -> WorkerAnswers:
    """Return the answers of a function to tasks, each its number and what the function is given."""
    me = f"{socket.gethostname()}:{os.getpid()}"
    with _ONE, _at_work():
        if apart := differences(terms.inventory, inventory()):
            return WorkerAnswers(me, [], f"the worker {me} has {apart}")
        if missing := lacking(terms.paths):
            return WorkerAnswers(me, [], f"the worker {me} does not see {', '.join(missing[:3])}")
        return WorkerAnswers(me, [_answered(index, function, given) for index, given in tasks])


def packed(value: object) -> bytes:
    """Return a result as it travels."""
    return msgspec.msgpack.encode(value)


def unpacked(function: Callable[..., object], result: bytes) -> Any:
    """Return a result of a function as what the function says it returns."""
    return msgspec.msgpack.decode(result, type=_returned(function))


@cache
def _returned(function: Callable[..., object]) -> Any:
    return get_type_hints(function).get("return", Any)


def _answered(index: int, function: Callable[..., object], given: tuple[Any, ...]) -> TaskAnswer:
    clock = time.process_time if threading.current_thread() is threading.main_thread() else time.thread_time
    began_s = clock()
    try:
        return TaskAnswer(index, packed(function(*given)), None, clock() - began_s)
    except RingwrightError as error:
        return TaskAnswer(index, None, error, clock() - began_s)
    except OSError as error:
        told = OutputError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) else InputError
        what = f"the worker {socket.gethostname()} cannot go on: {error.strerror or error}"
        where = str(error.filename or "")
        return TaskAnswer(
            index, None, told(what, where=where, remedy="free its disk, or leave it out"), clock() - began_s
        )
    except Exception:  # noqa: BLE001 - whatever it is, its own class may not be known where it is asked
        return TaskAnswer(index, None, RuntimeError(traceback.format_exc()), clock() - began_s)


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the one who asks: it ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def refusal(why: str) -> UsageError:
    """Return the error of a worker that takes no task."""
    return UsageError(why, remedy="the same release and the same files on every worker, or --executor local")
