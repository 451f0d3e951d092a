"""What every verb about recordings does first: find and read the inputs; and how each verb prints its answer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ringwright.cli import STDIN, options, progress
from ringwright.ground import drafts
from ringwright.ground.errors import EXIT_GOOD, StrictError, UsageError
from ringwright.ground.stores import shown

if TYPE_CHECKING:
    from pathlib import Path

    from ringwright.analysis.document import Summary
    from ringwright.executors.fan_out import Chosen, FanOut
    from ringwright.model.trace import Trace


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


def two_inputs(before: str | None, after: str | None, *, sample: bool) -> list[list[str]]:
    """Return the inputs of two runs; with ``sample`` the sample job stands where none is named."""
    named = [path for path in (before, after) if path is not None]
    if sample and len(named) == 2:
        raise UsageError("--sample is one of the two runs", remedy=f"ringwright diff --sample {shlex.quote(named[0])}")
    if not sample and len(named) < 2:
        raise UsageError("two runs are compared", remedy="ringwright diff BEFORE AFTER, or ringwright diff --sample")
    return [inputs((path,)) if path is not None else inputs((), sample=True) for path in (before, after)]


def recording(path: str | None, *, sample: bool) -> str | None:
    """Return the recording that is asked about: the one named, the sample, or None; raise UsageError for both."""
    if not sample:
        return path
    return inputs(() if path is None else (path,), sample=True)[0]


def trace(paths: list[str], *, events: str = "auto", executor: Chosen | FanOut = None) -> Trace:
    """Return the Trace of some inputs; ``events`` and ``executor`` as in ``ringwright.read``."""
    from ringwright.formats.sources import read

    with progress.read(paths) as advance:
        return read(paths, events=events, progress=advance, executor=executor)


def summary(
    paths: list[str], *, strict: bool = False, gap: str | None = None, executor: Chosen | FanOut = None
) -> Summary:
    """Return the summary of some inputs; with ``strict`` raise StrictError when a line was lost; ``gap`` as in options."""
    gap_s = options.gap_seconds(gap)
    return summarised(trace(paths, executor=executor), paths, strict=strict, gap_s=gap_s)


def summarised(source: Trace, paths: list[str], *, strict: bool = False, gap_s: float | None = None) -> Summary:
    """Return the summary of a trace that was read from ``paths``; ``strict`` as in ``summary``, the gap of bursts in s."""
    with progress.busy("summarising"):
        from ringwright.analysis.summary import summarise

        result = summarise(source, gap_s=gap_s)
    refused, missing = (result["ledger"].get(name, 0) for name in ("refused", "missing"))
    if strict and (refused or missing or result["losses"]):
        counted = f"{refused} lines were refused" if refused else f"{missing} records are missing"
        lost = counted if refused or missing else result["losses"][0]
        raise StrictError(
            lost, where=", ".join(map(shown, paths[:3])), remedy="leave out --strict to have the part that was read"
        )
    return result


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


def save_run(trace: Trace, target: Path, *, force: bool) -> None:
    """Save a simulated run, with the command that asked for it."""
    replace(trace, meta=_with_command(trace.meta)).save(target, force=force)


def _with_command(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an answer whose ``asked`` holds the command too, as it can be typed again."""
    asked = document.get("asked")
    return document if asked is None else {**document, "asked": {"command": command_line(), **asked}}


def print_json(document: Any) -> None:
    """Print one JSON document; of an object that says in ``asked`` what was asked, with the command."""
    import json

    json.dump(_with_command(document) if isinstance(document, Mapping) else document, sys.stdout, indent=1, default=str)
    print()


def write_json(target: Path, document: Mapping[str, Any]) -> None:
    """Write one JSON object into a file."""
    import json

    drafts.write(target, json.dumps(document, indent=1, default=str) + "\n")


def command_line() -> str:
    """Return the command that was given, for a page that can be made again."""
    from ringwright.ground.scrub import words

    return shlex.join(words(["ringwright", *map(shown, sys.argv[1:])]))


def write_page(target: Path, page: str, *, force: bool = False) -> None:
    """Write one HTML page and say so; raise UsageError where it exists and ``force`` was not given."""
    from ringwright.formats.exports.placement import claim_file

    drafts.write(claim_file(target, force=force), page)
    print(f"wrote {target}; open it in a browser")


def write_dashboard(target: Path, *, force: bool = False) -> int:
    """Write the dashboard for Grafana and say so; raise UsageError where the file exists and ``force`` was not given."""
    from ringwright.formats.exports.grafana import dashboard
    from ringwright.formats.exports.placement import claim_file

    drafts.write(claim_file(target, force=force), dashboard())
    print(f"wrote {target}; import it in Grafana, over the metrics of ringwright live --textfile or --otlp")
    return EXIT_GOOD


def raw(paths: list[str]) -> Callable[[], Iterable[bytes]]:
    """Return what yields the bytes of some logs in whole lines, each time it is called anew."""
    from ringwright.formats.sources.gate.inputs import chunks, find

    if "-" in paths:
        raise UsageError("standard input can be read only once", remedy="save it to a file first")

    def pieces() -> Iterator[bytes]:
        for source in find(paths):
            for chunk in chunks(source):
                yield chunk.data if chunk.data.endswith(b"\n") else chunk.data + b"\n"

    return pieces
