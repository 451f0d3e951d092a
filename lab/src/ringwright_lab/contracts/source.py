"""The contract of sources: what every Trace must say, whoever read it, so that no report tells a wrong line with confidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import InputError
from ringwright.model.collective import OPS
from ringwright_lab.contracts.outcome import DECLINED, Outcome, TriedInput, made

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from ringwright.model.trace import Trace

POINT_TO_POINT = ("send", "recv", "send-recv")
WITHOUT_NAME = ("unknown",)  # told as such by every report
GROUNDS = ("read", "inferred", "assumed")
OUTCOMES = ("understood", "repaired", "refused", "other")
CALLS = ("collective", "p2p")
TIMES = ("enqueue_s", "start_s", "duration_s")
Reader = Callable[[Any], Any]
Answer = str | None


def operations(trace: Trace, events: pl.DataFrame) -> Answer:
    """Calls have the operation's name as ``model.collective.OPS`` writes it: all-reduce, not all_reduce or AllReduce."""
    calls = events.filter(events["kind"].is_in(CALLS))
    known = {*OPS, *POINT_TO_POINT, *WITHOUT_NAME}
    strange = [op for op in calls["op"].unique().sort().to_list() if op not in known]
    if not strange:
        return None
    return f"'{strange[0]}' is no operation: write it as {near(str(strange[0]))}"


def near(name: str) -> str:
    """Return the operation that a name of another library means, as far as it can be told."""
    bare = "".join(letter for letter in name.lower() if letter.isalnum()).removeprefix("nccl")
    alike = [op for op in (*OPS, *POINT_TO_POINT) if op.replace("-", "") == bare]
    return f"'{alike[0]}'" if alike else f"one of {', '.join(OPS)}"


def kinds(trace: Trace, events: pl.DataFrame) -> Answer:
    """Every event has a kind."""
    return _none_of(
        events, events["kind"].is_null() | (events["kind"] == ""), "has no kind: collective, p2p, compute, ..."
    )


def counts(trace: Trace, events: pl.DataFrame) -> Answer:
    """A call's row stands for at least one event (``multiplicity``) and for at least one record of the source (``records``)."""
    calls = events["kind"].is_in(CALLS)
    for name in ("multiplicity", "records"):
        why = f"has {name} below 1: reports would count nothing"
        if (problem := _none_of(events, calls & (events[name].is_null() | (events[name] < 1)), why)) is not None:
            return problem
    return None


def clocks(trace: Trace, events: pl.DataFrame) -> Answer:
    """Times are numbers, none lasts less than nothing, and each says which clock it is of."""
    for name in TIMES:
        if (
            problem := _none_of(events, ~events[name].fill_null(0.0).is_finite(), f"has a {name} that is no number")
        ) is not None:
            return problem
    if (problem := _none_of(events, events["duration_s"].fill_null(0.0) < 0, "lasts less than nothing")) is not None:
        return problem
    timed = events["start_s"].is_not_null() | events["enqueue_s"].is_not_null()
    return _none_of(events, timed & (events["clock"].is_null() | (events["clock"] == "")), "has times and no clock")


def sizes(trace: Trace, events: pl.DataFrame) -> Answer:
    """No size, count or rank is below nothing."""
    for name in ("size_bytes", "count", "rank", "nranks", "comm_rank"):
        if (problem := _none_of(events, events[name].fill_null(0) < 0, f"has a {name} below 0")) is not None:
            return problem
    return None


def devices(trace: Trace, events: pl.DataFrame) -> Answer:
    """A rank that makes calls has a row of kind device in ``topology``, so that reports know how many were seen."""
    table = trace.table("topology")
    seen = set(table.filter(table["kind"] == "device")["rank"].drop_nulls().to_list())
    calls = events.filter(events["kind"].is_in(CALLS))
    missing = sorted(set(calls["rank"].drop_nulls().to_list()) - seen)
    return f"rank {missing[0]} has events and no device: call gathered.device(rank, host)" if missing else None


def communicators(trace: Trace, events: pl.DataFrame) -> Answer:
    """Events name communicators that exist, of at least one rank."""
    table = trace.table("communicators")
    strange = sorted(set(events["communicator"].drop_nulls().to_list()) - set(table["communicator"].to_list()))
    if strange:
        return f"communicator {strange[0]} is in the events and not in communicators: call gathered.communicator(...)"
    small = table.filter(table["size"].is_null() | (table["size"] < 1))
    return f"communicator {small['comm_id'][0]} has no ranks" if len(small) else None


def membership(trace: Trace, events: pl.DataFrame) -> Answer:
    """Calls name their rank and their communicator, rows of a benchmark how many ranks; or the Trace says why they cannot.

    The reason stands among ``limits`` of the meta data and begins with what is missing: ``"rank: one process prints"``.
    Without either nobody can tell a bandwidth, nor how many ranks of how many were read.
    """
    calls, rows = events["kind"].is_in(CALLS), events["kind"] == "measurement"
    nobody = events["rank"].is_null() & events["rank_class"].is_null()
    apart = events["communicator"].is_null()
    lacking = {
        "rank": calls & nobody,
        "communicator": calls & apart,
        "nranks": rows & nobody & apart & events["nranks"].is_null(),
    }
    limits = [str(limit) for limit in trace.meta.get("limits") or []]
    for what, broken in lacking.items():
        why = f"names no {what}: add it, or say why not: trace(limits=['{what}: ...'])"
        is_told = any(limit.startswith(f"{what}: ") for limit in limits)
        if not is_told and (problem := _none_of(events, broken, why)) is not None:
            return problem
    return None


def grounds(trace: Trace, events: pl.DataFrame) -> Answer:
    """What is claimed says whether it was read, inferred or assumed, from where, and how sure that is, from 0 to 1."""
    for name in ("claims", "communicators"):
        table = trace.table(name)
        for row in table.iter_rows(named=True):
            what = row.get("field") or row.get("comm_id")
            if row["ground"] not in GROUNDS:
                return f"{name}: '{what}' has the ground '{row['ground']}', not {', '.join(GROUNDS)}"
            if row["confidence"] is None or not 0 <= row["confidence"] <= 1:
                return f"{name}: '{what}' has the confidence {row['confidence']}, not 0 to 1"
            if name == "claims" and not row["source"]:
                return f"claims: '{what}' says not where it is from"
    said = set(events["ground"].drop_nulls().to_list()) - set(GROUNDS)
    if said:
        return f"an event has the ground '{min(said)}', not {', '.join(GROUNDS)}"
    wrong = [each for each in events["confidence"].drop_nulls().to_list() if not 0 <= each <= 1]
    return f"an event has the confidence {wrong[0]}, not 0 to 1" if wrong else None


def ledger(trace: Trace, events: pl.DataFrame) -> Answer:
    """What was read, repaired or refused is counted: at least one line a row, by a known word."""
    table = trace.table("ledger")
    for row in table.iter_rows(named=True):
        if row["outcome"] not in OUTCOMES or (row["lines"] or 0) < 1:
            return f"ledger: {row['lines']} lines '{row['outcome']}', not 1 or more of {', '.join(OUTCOMES)}"
    return (
        None
        if len(table) or not len(events)
        else "the ledger is empty: gathered.note(file, 'understood', what, records) says what was read"
    )


def origin(trace: Trace, events: pl.DataFrame) -> Answer:
    """The Trace says which reader it is from."""
    return None if trace.meta.get("source") else "meta has no 'source': nobody can tell who read it"


def _none_of(events: pl.DataFrame, broken: pl.Series, why: str) -> Answer:
    at = broken.arg_max() if bool(broken.any()) else None
    if at is None:
        return None
    row = events.row(at, named=True)
    return f"event {at} ({row['kind']} {row['op']}) {why}"


CHECKS: dict[str, Callable[[Trace, pl.DataFrame], Answer]] = {
    "kinds": kinds,
    "operations": operations,
    "counts": counts,
    "clocks": clocks,
    "sizes": sizes,
    "devices": devices,
    "communicators": communicators,
    "membership": membership,
    "grounds": grounds,
    "ledger": ledger,
    "origin": origin,
}


def check_trace(trace: Trace, slug: str = "", what: str = "") -> Outcome:
    """Return the outcome of every check on a Trace, whoever made it; ``failures`` of it in a list names what is wrong.

    Parameters
    ----------
    trace
        A Trace.
    slug, what
        Of whom and of what it is, for the lines of ``failures``; usual: the source that its meta names.

    Returns
    -------
    Outcome
        What the contract of sources says of it.

    Examples
    --------
    >>> import ringwright
    >>> from ringwright_lab.testing import check_trace, failures
    >>> failures([check_trace(ringwright.read(ringwright.sample()))])
    []
    """
    outcome = Outcome(TriedInput(slug or str(trace.meta.get("source", "trace")), what))
    events = trace.df
    for name, look in CHECKS.items():
        outcome.run(name, lambda look=look: look(trace, events))  # type: ignore[misc]
    return outcome


def check_source(read: Reader, files: str | Path | Sequence[str | Path]) -> list[Outcome]:
    """Return the outcome of every check on a reader of your own; ``failures`` of them lists what it forgot.

    Checked are the Trace, as by ``check_trace``, that a second reading gives the same one, and that a file that holds nothing
    is refused with an InputError rather than read as an empty Trace.

    Parameters
    ----------
    read
        What the readers of the house are: a callable from a list of ``ringwright.formats.sources.source.Source`` to a Trace.
    files
        Paths of recordings that it understands; they are read together.

    Returns
    -------
    list of Outcome
        One: the files together.

    Examples
    --------
    >>> import ringwright
    >>> from ringwright.formats.sources.nccl_log import read_log
    >>> from ringwright_lab.testing import check_source, failures
    >>> failures(check_source(read_log, ringwright.sample()))
    []
    """
    from ringwright.formats.sources.gate.inputs import find
    from ringwright.model.trace import Trace

    names = [files] if isinstance(files, str) or not isinstance(files, Sequence) else [*files]
    slug, what = _name(read), ", ".join(str(name).rsplit("/", 1)[-1] for name in names)
    trace, why = made(lambda: read(find([str(name) for name in names])))
    if not isinstance(trace, Trace):
        why = why.removeprefix(DECLINED) or f"it returned {type(trace).__name__}, not a Trace"
        return [Outcome(TriedInput(slug, what), failed={"read": why})]
    outcome = check_trace(trace, slug, what)
    outcome.run("rows", lambda: _says_nothing(trace))
    outcome.run("same-again", lambda: _differs(trace, read(find([str(name) for name in names]))))
    outcome.run("nothing", lambda: _of_nothing(read))
    return [outcome]


def _name(read: Reader) -> str:
    return getattr(read, "__name__", "source").removeprefix("read_").replace("_", "-")


def _says_nothing(trace: Trace) -> Answer:
    said = len(trace.df) + len(trace.table("claims"))
    return None if said else "it reads neither event nor claim from a recording that it should understand"


def _differs(one: Trace, two: Trace) -> Answer:
    from ringwright.ground.trace_tables import TABLES

    for name in TABLES:
        if not one.table(name).equals(two.table(name)):
            return f"the table {name} differs from one reading to the next"
    return None


def _of_nothing(read: Reader) -> Answer:
    """A file that holds nothing is refused, or the Trace says what was lost: never a silent nothing."""
    import io

    from ringwright.formats.sources.source import Source

    try:
        trace = read([Source("empty", lambda: io.BytesIO(b""))])
    except InputError:
        return None
    is_told = bool(len(trace.df)) or bool(trace.meta.get("losses")) or bool(len(trace.table("ledger")))
    return None if is_told else "an empty file gives an empty Trace and no word: raise InputError"
