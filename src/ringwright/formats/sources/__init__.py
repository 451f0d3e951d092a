"""Readers: one per input format, each from paths to a Trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.ground.errors import InputError, PluginError, UsageError

if TYPE_CHECKING:
    from ringwright.executors.fan_out import Chosen, FanOut
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

    ReadKind = Callable[[str, list[Source]], Trace]

_KINDS = ("auto", "all", "folded")


def read(
    paths: str | Path | Sequence[str | Path],
    *,
    events: str = "auto",
    progress: Callable[[int], None] | None = None,
    kernel_patterns: str | Path | None = None,
    rank_from: str | None = None,
    executor: Chosen | FanOut = None,
) -> Trace:
    """Return the Trace of recordings of one job, or of a saved capture; several sources become one Trace.

    Parameters
    ----------
    paths
        Files, folders, archives, globs or ``-`` for standard input; what they are is told by their content.
    events
        Of logs: ``all`` keeps one event per record (beyond a million in a temporary folder that lives as long as the Trace),
        ``folded`` keeps weighted rows only, ``auto`` keeps events up to a million records.
    progress
        Called with the bytes of each chunk that was read.
    kernel_patterns
        A file with rules for kernels that communicate, which come before those that are known.
    rank_from
        Where the rank stands in the names of files that do not say it themselves: ``worker-{rank}-*.json``, or a regular
        expression with a group.
    executor
        Who reads many files: a spelling of ``ringwright list executors``, or any object of ``concurrent.futures.Executor``.

    Returns
    -------
    Trace
        Everything that could be read; what was lost is in its ledger and ``meta["losses"]``.

    Raises
    ------
    InputError
        Nothing can be read, or the file of rules cannot.
    UsageError
        ``events`` is none of the three, or ``rank_from`` no pattern, or one that no file's name matches.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.read(ringwright.sample())
    Trace(nccl-log, 16 ranks)
    """
    from ringwright.formats.sources.captures import parted

    if events not in _KINDS:
        raise UsageError(f"events is '{events}'", remedy="use auto, all or folded")
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    named = parted(names)
    parts = [each.open() for each in named.saved.values()]
    if named.sources or not parts:
        from ringwright.formats.sources import ranks
        from ringwright.formats.sources.kineto import catalogue

        with catalogue.patterns(kernel_patterns), ranks.named_by(rank_from):
            parts += _read_files(named.sources, events, progress, executor)
    if len(parts) == 1:
        return parts[0]
    from ringwright.formats.sources.fusion import fuse

    return fuse(parts)


def detected(paths: Sequence[str]) -> tuple[list[str], list[tuple[Source, tuple[str, ...]]]]:
    """Return the saved Traces that some paths name, and every other source with its kinds, none for what is no recording."""
    from ringwright.formats.sources.captures import kinds_of, parted

    named = parted([*paths])
    return [each.name for each in named.saved.values()], [kinds_of(source) for source in named.sources]


def _read_files(
    sources: list[Source], events: str, progress: Callable[[int], None] | None, executor: Chosen | FanOut
) -> list[Trace]:
    """Read each kind of recording with its reader; what is no recording is named, not read."""
    from ringwright.formats.sources.captures import kinds_of

    told = [kinds_of(each) for each in sources]
    if len(told) < 2:
        return read_each(told, lambda kind, sources: _read_kind(kind, sources, events, progress))
    from ringwright.executors.fan_out import fan_out
    from ringwright.formats.sources.parts import apart

    with fan_out(executor) as fan:
        told = apart(told, fan, progress)
        return read_each(told, lambda kind, sources: _read_kind(kind, sources, events, progress))


def read_each(told: list[tuple[Source, tuple[str, ...]]], read_kind: ReadKind) -> list[Trace]:
    """Return a Trace per kind of some sources, each with the kinds that it is of.

    ``read_kind`` reads the sources of one kind. What is no recording is named in ``meta["passed_over"]``; InputError where
    nothing can be read.
    """
    from ringwright.formats.sources.framework_lines import beside

    first: dict[str, list[Source]] = {}
    also: dict[str, list[Source]] = {}
    strange: list[Source] = []
    for source, kinds in told:
        for kinds_of, kind in zip((first, *[also] * len(kinds)), kinds, strict=False):
            kinds_of.setdefault(kind, []).append(source)
        if not kinds:
            strange.append(source)
    unnamed = _unnamed([source for sources in first.values() for source in sources])
    if not first:
        # A log without a line of NCCL is still a log: its reader says what it is not.
        first, strange = {"nccl-log": strange}, []
    passed = [
        *(_plug_in_problems() if strange else ()),
        *(f"{each.name}: no recording that is known" for each in strange),
    ]
    try:
        traces = _understood(first, read_kind, passed)
    except InputError as error:
        if others := _plug_in_problems():
            raise type(error)("; ".join([error.what, *others]), where=error.where, remedy=error.remedy) from error
        raise
    for kind, of_kind in sorted(also.items()):
        try:
            traces = beside(read_kind(kind, of_kind), traces)
        except InputError as error:
            passed.append(f"{of_kind[0].name}: as {kind}: {error.what}")
    damaged = [f"{source.name}: {reason}" for source in strange for reason, _ in source.losses]
    losses = [*traces[0].meta.get("losses", []), *damaged, *unnamed]
    traces[0] = replace(traces[0], meta={**traces[0].meta, "passed_over": passed, "losses": losses})
    return traces


def _unnamed(sources: list[Source]) -> list[str]:
    """Return the files in whose names the pattern given finds no rank; UsageError where it finds none in any."""
    from ringwright.formats.sources.ranks import rank_by_pattern, told_pattern

    # what an archive holds has names of its own
    plain = [each.name for each in sources if not each.name.endswith((".tar", ".tar.gz", ".tgz", ".zip"))]
    missed = [name for name in plain if rank_by_pattern(name) is None] if told_pattern() is not None else []
    if missed and len(missed) == len(sources):
        raise UsageError(
            f"--rank-from finds no rank in {missed[0]}", remedy="quote the pattern: 'worker-{rank}-*.json'"
        )
    return [f"{name}: --rank-from finds no rank in its name" for name in missed]


def _understood(first: dict[str, list[Source]], read_kind: ReadKind, passed: list[str]) -> list[Trace]:
    """Read each kind; one that gives nothing is tried as the next that speaks for it, then passed over, unless all are."""
    from ringwright.formats.sources.detect import further_kinds

    traces: list[Trace] = []
    errors: list[InputError | PluginError] = []
    for kind, of_kind in sorted(first.items()):
        for tried in itertools.chain([kind], further_kinds(of_kind[0], kind) if len(of_kind) == 1 else ()):
            try:
                traces.append(read_kind(tried, of_kind))
                break
            except (InputError, PluginError) as error:
                errors.append(error)
                passed.append(f"{of_kind[0].name}: as {tried}: {error.what}")
    if not traces:
        raise errors[0]
    return traces


def _plug_in_problems() -> list[str]:
    """Return whose plug-ins could not say whether a file is theirs, and why."""
    from ringwright.formats.sources.kinds import problems

    return [error.what for error in problems()]


def _read_kind(kind: str, sources: list[Source], events: str, progress: Callable[[int], None] | None) -> Trace:
    from ringwright.formats.sources.kinds import kinds

    known = kinds()[kind]
    if kind != "nccl-log":
        return known.read(sources, progress=progress)
    from ringwright.formats.sources.nccl_log.fold import ROWS_IN_MEMORY

    limit = 0 if events == "folded" else ROWS_IN_MEMORY
    return known.read(sources, keep_rows=limit, every_row=events == "all", progress=progress)
