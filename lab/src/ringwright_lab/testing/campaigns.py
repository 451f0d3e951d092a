"""Campaigns: one check over many draws, by whoever works; what is done is kept until the end, however often it stops."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ringwright.executors.fan_out import FanOut, fan_out

R = TypeVar("R")
INTERRUPTED, AGAIN = 130, "the same command goes on there"


def add_executor(parser: ArgumentParser) -> None:
    """Add the option that says who works."""
    parser.add_argument(
        "--executor", help="who works: local:N (usual: all cores), dask://HOST:8786, ray, slurm:partition=P, mpi"
    )


@contextmanager
def resumable(executor: str | None) -> Iterator[FanOut]:
    """Give what maps the checks of a campaign; where it is interrupted, say how many results are kept, and end with 130."""
    try:
        with fan_out(executor) as fan:
            yield fan
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; {fan.kept} results are kept: {AGAIN}\n")
        sys.exit(INTERRUPTED)


def drawn(
    executor: str | None,
    function: Callable[..., R],
    given: Sequence[tuple[Any, ...]],
    tell: Callable[[R], None] | None = None,
) -> list[R]:
    """Return a check's results, in the order of what it is given; ``tell`` gets each as it comes."""
    with resumable(executor) as fan:
        return fan.map(function, given, each=None if tell is None else lambda _, result: tell(result))


def within(
    fan: FanOut, function: Callable[..., R], given: Sequence[tuple[Any, ...]], seconds: float
) -> Iterator[tuple[int, R]]:
    """Yield the numbers and results that come within so many seconds; what is left goes on where this ended."""
    end_s, done = time.monotonic() + seconds, 0
    for number, result in fan.stream(function, given, until=lambda: time.monotonic() > end_s):
        done += 1
        yield number, result
    if done < len(given):
        sys.stderr.write(f"time is over; {fan.kept} results are kept: {AGAIN}\n")
        fan.leave()


def scripted(
    executor: str | None,
    script: Path,
    function: Callable[..., R],
    given: Sequence[tuple[Any, ...]],
    tell: Callable[[R], None] | None = None,
) -> list[R]:
    """Return the same of a function of a script; its results are what JSON has, tuples among them are lists."""
    script = script.resolve()
    return drawn(executor, of_script, [(script, function.__name__, each) for each in given], tell)


@cache
def _loaded(script: Path) -> ModuleType:
    if str(script.parent) not in sys.path:
        sys.path.append(str(script.parent))
    name = f"script_{script.name.replace('-', '_').replace('.', '_')}"
    loader = SourceFileLoader(name, str(script))
    module = sys.modules[name] = module_from_spec(spec_from_loader(name, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def of_script(script: Path, function: str, given: tuple[Any, ...]) -> Any:
    """Return what a function of a script, which every worker must see, says to what it is given: a task."""
    return getattr(_loaded(script), function)(*given)
