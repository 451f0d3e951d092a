"""Kinds of executors: one file for each engine, which says how it is spelled and what it needs.

The folder listing is the registry. A file here has::

    WHAT = "all cores of this machine"         # in a few words
    SPELLING = "local:4"                       # one that is accepted as it stands
    def opened(address: str, settings: Mapping[str, str]) -> Engine: ...

and imports its library where it is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ringwright.ground.errors import UsageError

VARIABLE = "RINGWRIGHT_EXECUTOR"
ROUNDS = 32  # calls for each worker, where a call costs more than a small task
_SPELLING = re.compile(r"(?P<kind>[a-z]+)(?P<address>://[^,]*|:[0-9]+(?![^,]))?(?:[:,](?P<settings>.*))?", re.DOTALL)


class Engine(Protocol):
    """Who executes tasks. ``submit`` may raise what ``lost`` names, and so may its futures, where a worker is gone."""

    @property
    def name(self) -> str:
        """How it is spelled."""

    @property
    def workers(self) -> int | None:
        """How many there are; None where nobody knows."""

    @property
    def ahead(self) -> int | None:
        """How many calls it is given at a time; None: all."""

    @property
    def begins_s(self) -> float:
        """How long it takes until a call runs: tasks that are known to be less work than that are done by whoever asks."""

    @property
    def lost(self) -> tuple[type[BaseException], ...]:
        """What says that a worker is gone, and its tasks with it."""

    def together(self, tasks: int) -> int:
        """Return how many tasks travel in one call."""

    def submit(self, function: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Begin a call."""

    def renew(self) -> None:
        """Be ready for tasks again after a worker was lost, or one hangs."""

    def gone(self) -> str:
        """Return why no result will come any more; empty as long as some may."""

    def close(self, *, at_once: bool = False) -> None:
        """Let go of the engine; ``at_once`` ends what runs."""


class TellingFutures:
    """An engine whose futures say by themselves that no result comes."""

    begins_s = 0.0

    def gone(self) -> str:
        """Return nothing."""
        return ""


class WrappedExecutor(TellingFutures):
    """An engine that is an object of ``concurrent.futures.Executor``, and brings back by itself what it lost."""

    lost: tuple[type[BaseException], ...] = ()
    ahead: int | None = None

    def __init__(self, executor: Any, name: str, workers: int | None = None) -> None:
        if not callable(getattr(executor, "submit", None)):
            raise UsageError(f"{name} is no executor: it has no submit", remedy="executor='local'")
        self._executor, self.name, self.workers = executor, name, workers

    def together(self, tasks: int) -> int:
        """Return how many tasks travel in one call."""
        return shared_out(tasks, self.workers)

    def submit(self, function: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Begin a call."""
        begun: Future[Any] = self._executor.submit(function, *given)
        return begun

    def renew(self) -> None:
        """Do nothing: it knows which workers it has."""

    def close(self, *, at_once: bool = False) -> None:
        """Do nothing: it is whose who gave it."""


@dataclass(frozen=True)
class Spelled:
    """An executor as it is spelled: its kind, perhaps an address, and settings."""

    kind: str
    address: str
    settings: Mapping[str, str]
    deadline_s: float | None = None  # after which a task is begun elsewhere

    @property
    def is_alone(self) -> bool:
        """Whether it is this process and no other."""
        return self.kind == "local" and (self.address == "1" or (not self.address and processors() == 1))

    def opened(self) -> Engine:
        """Return the engine."""
        engine: Engine = kinds()[self.kind].opened(self.address, self.settings)
        return engine


def parsed(text: str) -> Spelled:
    """Return the executor that is spelled ``kind``, ``kind:4`` or ``kind://host:port``, then ``:`` or ``,`` and settings."""
    match = _SPELLING.fullmatch(text)
    if match is None or match["kind"] not in kinds():
        raise UsageError(
            f"no executor is spelled '{text}'", remedy=f"one of: {', '.join(kinds())} (ringwright list executors)"
        )
    pairs = [each.partition("=") for each in (match["settings"] or "").split(",") if each]
    if bad := next((name for name, equals, value in pairs if not (name and equals and value)), None):
        raise UsageError(f"'{bad}' of the executor '{text}' says nothing", remedy=kinds()[match["kind"]].SPELLING)
    settings = {name: value for name, _, value in pairs}
    deadline_s = float(whole_number(settings, "deadline", 60)) if "deadline" in settings else None
    settings.pop("deadline", None)
    return Spelled(match["kind"], (match["address"] or "").removeprefix("://").removeprefix(":"), settings, deadline_s)


def not_by_ranks(executor: str | None, why: str) -> None:
    """Raise UsageError for what is no executor, and for ranks of MPI: they work for the process that began with them."""
    if (text := executor or os.environ.get(VARIABLE, "")) and parsed(text).kind == "mpi":
        raise UsageError(f"not by ranks of MPI: {why}", remedy="--executor local; ringwright list executors")


def processors() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def kinds() -> dict[str, ModuleType]:
    """Return the module of each kind by name."""
    stems = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    return {stem: import_module(f"{__name__}.{stem}") for stem in stems}


def whole_number(settings: Mapping[str, str], name: str, usual: int) -> int:
    """Return a whole number of the settings; UsageError for what is none."""
    text = settings.get(name, str(usual))
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise UsageError(f"{name}={text} of an executor is no number above 0", remedy=f"{name}={usual}")
    return int(text)


def shared_out(tasks: int, workers: int | None, rounds: int = ROUNDS) -> int:
    """Return how many tasks travel in one call, so that each worker has ``rounds`` of them: some end early.

    One, where nobody knows how many workers there are.
    """
    return max(1, -(-tasks // (rounds * workers))) if workers else 1


def known(kind: str, settings: Mapping[str, str], *names: str) -> None:
    """Raise UsageError for a setting that a kind does not have."""
    for name in settings:
        if name not in names:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise UsageError(f"the executor {kind} has no setting '{name}': {has}", remedy="ringwright list executors")
