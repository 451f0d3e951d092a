"""What every verb does first: read the inputs, with a sign of life on stderr when that is a terminal."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ringwright import drafts
from ringwright.cli import STDIN
from ringwright.errors import StrictError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ringwright.analysis.document import Summary
    from ringwright.trace import Trace


def inputs(paths: tuple[str, ...], *, sample: bool = False) -> list[str]:
    """Return the inputs named, or the sample job that ships with the package; raise UsageError for neither or both."""
    if sample and paths:
        raise UsageError("--sample reads the sample alone", remedy="ringwright summary --sample")
    if sample:
        from importlib.resources import files

        return [str(files("ringwright") / "samples" / "job.log.gz")]
    if not paths:
        raise UsageError(
            "no input is named", remedy="ringwright summary --sample, or name a log, a folder or - (stdin)"
        )
    return ["-" if path == STDIN else path for path in paths]


def trace(paths: list[str], *, events: str = "auto") -> Trace:
    """Return the Trace of some inputs; ``events`` as in ``ringwright.read``."""
    from ringwright.sources import read

    with counter("reading") as advance:
        return read(paths, events=events, progress=advance)


def summary(paths: list[str], *, strict: bool = False) -> Summary:
    """Return the summary of some inputs; with ``strict`` raise StrictError when a line was lost."""
    return summarised(trace(paths), paths, strict=strict)


def summarised(source: Trace, paths: list[str], *, strict: bool = False) -> Summary:
    """Return the summary of a trace that was read from ``paths``; ``strict`` as in ``summary``."""
    with busy("summarising"):
        from ringwright.analysis.summary import summarise

        result = summarise(source)
    refused, missing = (result["ledger"].get(name, 0) for name in ("refused", "missing"))
    if strict and (refused or missing or result["losses"]):
        counted = f"{refused} lines were refused" if refused else f"{missing} records are missing"
        lost = counted if refused or missing else result["losses"][0]
        raise StrictError(lost, where=", ".join(paths[:3]), remedy="leave out --strict to have the part that was read")
    return result


@contextmanager
def counter(what: str) -> Iterator[Callable[[int], None] | None]:
    """Give a callable that counts bytes read on stderr, with the rate; None when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    columns = (SpinnerColumn(), TextColumn(what), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda size_bytes: bar.advance(task, size_bytes)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show a spinner on stderr while the body runs, only when stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True, markup=False).status(what):
        yield


@contextmanager
def steps(what: str) -> Iterator[Callable[[str], None] | None]:
    """Give a callable that names the step at hand on stderr, with the time since the first; None when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, number = bar.add_task(what, total=None), itertools.count(1)
        yield lambda name: bar.update(task, description=f"{what}, step {next(number)}: {name}")


@contextmanager
def while_read() -> Iterator[None]:
    """Write a gate's report as long as somebody reads it: a closed pipe does not change the verdict."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except SystemExit as leaving:  # how the library that draws our reports ends a process whose pipe was closed
        if not isinstance(leaving.__context__, BrokenPipeError):
            raise


def told(what: str) -> None:
    """Say on stderr what is going on, only when it is a terminal."""
    if sys.stderr.isatty():
        print(f"ringwright: {what}", file=sys.stderr)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    import json

    json.dump(document, sys.stdout, indent=1, default=str)
    print()


def write_json(target: Path, document: Mapping[str, Any]) -> None:
    """Write one JSON object into a file."""
    import json

    drafts.write(target, json.dumps(document, indent=1, default=str) + "\n")


def command_line() -> str:
    """Return the command that was given, for a page that can be made again."""
    import shlex

    from ringwright.scrub import words

    return shlex.join(words(["ringwright", *sys.argv[1:]]))


def write_page(target: Path, page: str, *, force: bool = False) -> None:
    """Write one HTML page and say so; raise UsageError where it exists and ``force`` was not given."""
    from ringwright.exports.placement import claim_file

    drafts.write(claim_file(target, force=force), page)
    print(f"wrote {target}; open it in a browser")


def write_textfile(source: Trace | None, target: Path) -> None:
    """Put a Prometheus textfile in place of the last one."""
    from ringwright.exports.prometheus import prometheus

    if source is not None:
        prometheus(source, target, force=True)


def raw(paths: list[str]) -> Callable[[], Iterable[bytes]]:
    """Return what yields the bytes of some logs in whole lines, each time it is called anew."""
    from ringwright.sources.inputs import chunks, find

    if "-" in paths:
        raise UsageError("standard input can be read only once", remedy="save it to a file first")

    def pieces() -> Iterator[bytes]:
        for source in find(paths):
            for chunk in chunks(source):
                yield chunk.data if chunk.data.endswith(b"\n") else chunk.data + b"\n"

    return pieces
