"""Signs of life on stderr: the share done and the time left, only where stderr is a terminal, or with ``-v``; never with ``-q``.

``-v`` into a pipe or a file writes a plain line now and then instead of drawing. Standard output never changes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from pathlib import Path

from ringwright.ground.stepwise import Advance
from ringwright.ground.units import format_size

QUIET, VERBOSE = ("-q", "--quiet"), ("-v", "--verbose")
LINE_SHARE = 0.1  # a plain line for each tenth
COMPRESSED = (".gz", ".zst", ".zip", ".tar", ".tgz", ".bz2", ".xz")


class Loudness(Enum):
    """How much is said on stderr."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


_loudness: ContextVar[Loudness] = ContextVar("loudness", default=Loudness.USUAL)


@contextmanager
def spoken(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Give the arguments without -q and -v, which hold while the body runs; what follows ``--`` is another program's."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    own, others = arguments[:end], arguments[end:]
    loudness = Loudness.VERBOSE if {*VERBOSE} & {*own} else Loudness.USUAL
    before = _loudness.set(Loudness.QUIET if {*QUIET} & {*own} else loudness)
    try:
        yield [*(word for word in own if word not in (*QUIET, *VERBOSE)), *others]
    finally:
        _loudness.reset(before)


def is_drawn() -> bool:
    """Whether something that moves may be drawn on stderr."""
    return _loudness.get() is not Loudness.QUIET and sys.stderr.isatty()


def is_written() -> bool:
    """Whether plain lines are asked for where nothing can be drawn."""
    return _loudness.get() is Loudness.VERBOSE and not sys.stderr.isatty()


@contextmanager
def steps(what: str) -> Iterator[Advance | None]:
    """Give what is called at each step; None where nothing is to be said."""
    if is_written():
        yield _Lines(what)
    elif is_drawn():
        with _bar(what) as advance:
            yield advance
    else:
        yield None


@contextmanager
def read(paths: Sequence[str]) -> Iterator[Callable[[int], None] | None]:
    """Give what counts the bytes read of some inputs; None where nothing is to be said."""
    total = size_of(paths) if is_drawn() or is_written() else 0
    with steps("reading") as advance:
        done = [0]

        def count(size_bytes: int) -> None:
            done[0] += size_bytes
            known = (
                total if done[0] <= total else 0
            )  # read twice, or more than it was: no share is better than a wrong one
            if advance is not None:
                advance(done[0], known, format_size(done[0]) + (f" of {format_size(total)}" if known else ""))

        yield None if advance is None else count


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show that work goes on while the body runs, where nothing can be counted."""
    with steps(what) as advance:
        if advance is not None:
            advance(0, 0, "")
        yield


def size_of(paths: Sequence[str]) -> int:
    """Return the bytes of some files and folders; 0 where it cannot be known before they are read."""
    total = 0
    for path in map(Path, paths):
        files = (
            [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else []
        )
        if not files or any(each.suffix in COMPRESSED for each in files):
            return 0
        total += sum(each.stat().st_size for each in files)
    return total


def left(done: int, of: int, passed_s: float) -> str:
    """Return the share done and the time left at the rate so far, in words; empty where neither is known."""
    if not of:
        return ""
    share = f"{100 * done / of:.0f} %"
    if not done or done >= of:
        return share
    seconds = passed_s * (of - done) / done
    return f"{share}, about {seconds:.0f} s left" if seconds < 120 else f"{share}, about {seconds / 60:.0f} min left"


class _Lines:
    """Plain lines: one for the first step, one for each tenth, one a step where nobody knows how many there are."""

    def __init__(self, what: str) -> None:
        self._what, self._next, self._began_s, self._last = what, 0.0, time.monotonic(), ""

    def __call__(self, done: int, of: int, name: str) -> None:
        if of and done < of and done / of < self._next:
            return
        if of:
            self._next = (int(done / of / LINE_SHARE) + 1) * LINE_SHARE
        share = left(done, of, time.monotonic() - self._began_s)
        line = ": ".join(filter(None, [f"{self._what} {share}".rstrip(), name]))
        if line != self._last:
            print(f"ringwright: {line}", file=sys.stderr)
        self._last = line


@contextmanager
def _bar(what: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    began_s = time.monotonic()
    columns = (
        SpinnerColumn(),
        TextColumn(what),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[name]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None, name="", left="")

        def advance(done: int, of: int, name: str) -> None:
            told = left(done, of, time.monotonic() - began_s)
            shown.update(task, completed=done, total=of or None, name=name, left=told)

        yield advance
