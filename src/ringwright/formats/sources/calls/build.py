"""One process's calls to rows of ``events``, by column."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from ringwright.formats.sources.c10d import POINTWISE, sizes
from ringwright.formats.sources.calls.file import CallsFile, RecordedGroup, read_file
from ringwright.ground.trace_tables import CHECKPOINT, OUTSIDE, Row, conformed, fitted, rows, schema

if TYPE_CHECKING:
    from ringwright.formats.sources.reader_rows import Gathered
    from ringwright.formats.sources.source import Source

KIND = "calls"
ENDED = "ended"  # op of the status row that says how a process ended
_MEASURED = ("gloo", "mpi", "ucc")
_ROLES = ("world", "dp", "tp", "pp", "ep", "cp", "sp", "fsdp", "embedding", CHECKPOINT)
_WORLDS = ("default_pg", "MPI_COMM_WORLD")
MOST_EXAMPLES = 20
_ROWS = frozenset(
    "kind op communicator comm_rank nranks sequence count thread element_bytes size_bytes sent_bytes received_bytes phase layer"
    " tokens iteration state line op_count datatype reduce_op root peer".split()
)
_STRANGE = "a call of a group that was not described"
_I32, _I64 = 2**31 - 1, 2**63 - 1


def read_process(source: Source, progress: Callable[[int], None] | None = None) -> CallsFile:
    """Return what a calls file holds, its calls as rows."""
    process = read_file(source, progress)
    prepare(process)
    return process


@dataclass(frozen=True)
class PlacedProcess:
    """What a job decides of a process's rows: ``number`` by when it came, ``shift_ns`` to the job's origin, the communicators."""

    number: int
    rank: int | None
    host: str | None
    pid: int | None
    name: str  # of the file
    shift_ns: int
    communicators: dict[int, int]  # by its own numbers
    others: list[Row]  # rows that are neither calls nor steps


def placed(gathered: Gathered, number: int, process: CallsFile, life: int, origin_ns: int) -> PlacedProcess:
    """Return what the job decides of a process; its groups, its device and what was refused go to ``gathered``."""
    host, shift_ns = str(process.head.get("host", "")) or None, process.offset_ns - origin_ns
    gathered.device(process.rank, host, process.head.get("pid"), process.head.get("local_rank"))
    if process.head.get("library"):
        gathered.release(str(process.head["library"]))
    for line in process.strange:
        gathered.note(process.name, "refused", _STRANGE, at=line)
    gathered.note(process.name, "refused", _STRANGE, max(0, process.strangers - len(process.strange)))
    communicators = {
        own: _communicator(gathered, process, life, group) for own, group in _own_groups(process) if own in process.used
    }
    about = (process.rank, host, process.head.get("pid"), process.name)
    return PlacedProcess(number, *about, shift_ns, communicators, _others(process, shift_ns))


def frame_of(processes: Sequence[PlacedProcess], calls: pl.LazyFrame | None, *, by_communicator: bool) -> pl.LazyFrame:
    """Return the events of processes; ``calls`` are their rows, each with the ``process`` it is of.

    In the order in which the processes stand, or ``by_communicator``. What is the same for all rows of a process comes last: it
    need not be sorted.
    """
    told = [(at.number, row) for at in processes for row in at.others]
    listed = rows("events", [row for _, row in told])
    others = listed.select(
        pl.Series("process", [number for number, _ in told], pl.Int32),
        *(column for column in listed if column.null_count() < len(column)),
    ).lazy()
    whole = others if calls is None else pl.concat([_of_job(processes, calls), others], how="diagonal")
    turn = pl.col("process").replace_strict(
        [at.number for at in processes], range(len(processes)), return_dtype=pl.Int32
    )
    whole = whole.sort("communicator" if by_communicator and calls is not None else turn, maintain_order=True)
    same = {"source": KIND, "ground": "read", "multiplicity": 1, "records": 1, "confidence": 1.0}
    whole = whole.join(_about(processes).lazy(), on="process", how="left", maintain_order="left")
    return conformed("events", whole.with_columns(pl.lit(value).alias(name) for name, value in same.items()))


def _about(processes: Sequence[PlacedProcess]) -> pl.DataFrame:
    """Return what is the same for all rows of a process."""
    columns = {
        "process": [at.number for at in processes],
        "rank": [at.rank for at in processes],
        "host": [at.host for at in processes],
        "pid": [at.pid for at in processes],
        "file": [at.name for at in processes],
        "clock": [f"host:{at.host}" for at in processes],
    }
    kinds = schema("events")
    return fitted(columns, {"process": pl.Int32} | {name: kinds[name] for name in columns if name != "process"})


def _of_job(processes: Sequence[PlacedProcess], calls: pl.LazyFrame) -> pl.LazyFrame:
    """Return rows of calls with the job's communicators, and in seconds from its origin."""
    pairs = [(at.number, own, number) for at in processes for own, number in at.communicators.items()]
    kinds = {"process": pl.Int32, "communicator": pl.Int32, "number": pl.Int32}
    numbers = pl.LazyFrame(pairs, schema=kinds, orient="row")
    shifts = pl.LazyFrame(
        {"process": [at.number for at in processes], "shift_ns": [at.shift_ns for at in processes]},
        schema={"process": pl.Int32, "shift_ns": pl.Int64},
    )
    joined = calls.join(numbers, on=["process", "communicator"], how="left", maintain_order="left")
    joined = joined.join(shifts, on="process", how="left", maintain_order="left")
    begin = (pl.col("at_ns") + pl.col("shift_ns")) / 1e9
    return joined.with_columns(
        pl.col("number").alias("communicator"),
        pl.when(pl.col("kind") != "step").then(begin).alias("enqueue_s"),
        pl.when(pl.col("took_ns").is_not_null()).then(begin).alias("start_s"),
        (pl.col("took_ns") / 1e9).alias("duration_s"),
    ).drop("at_ns", "took_ns", "number", "shift_ns")


def _others(process: CallsFile, shift_ns: int) -> list[Row]:
    """Return the rows that are neither calls nor steps: errors, and how the process ended."""
    told: list[Row] = [
        {"kind": "error", "op": "exception", "start_s": (at_ns + shift_ns) / 1e9, "text": text, "line": line}
        for _, at_ns, text, line in process.errors
    ]
    return [*told, *_end(process, shift_ns)]


def _end(process: CallsFile, shift_ns: int) -> list[Row]:
    """Return the status row that says how the process ended, after the error that ended it where it did so out of order."""
    died = process.died
    if died is None or (died.how == "exit" and died.code == 0):
        how = f"ended in order ({process.ended})" if process.ended else "its recording stops without an end"
        left = died.says if died is not None else how
        return [{"kind": "status", "op": ENDED, "text": left}]
    row = {
        "kind": "error",
        "op": "died",
        "start_s": (died.at_ns + shift_ns) / 1e9,
        "text": died.says,
        "line": died.line,
    }
    return [
        row | {"code": died.code, "task": json.dumps({"how": died.how})},
        {"kind": "status", "op": ENDED, "text": died.says},
    ]


def prepare(process: CallsFile) -> None:
    """Turn calls and steps of a process into rows that lack only what other processes decide: origin of times, communicators.

    ``communicator`` is a number of the process's own until then, ``at_ns`` and ``took_ns`` are times by its clock.
    """
    tables = [table for table in (_calls(process), _steps(process)) if table is not None]
    if tables:
        told = pl.concat(tables, how="diagonal")
        kinds = {name: kind for name, kind in schema("events").items() if name in _ROWS} | {
            "at_ns": pl.Int64,
            "took_ns": pl.Int64,
        }
        process.rows = told.select(
            (pl.col(name) if name in told.columns else pl.lit(None)).cast(kind).alias(name)
            for name, kind in kinds.items()
        )
        process.height = process.rows.height
    process.calls, process.ends, process.steps = [], [], []


def _calls(process: CallsFile) -> pl.DataFrame | None:
    if not process.calls:
        return None
    calls = pl.concat(process.calls)
    process.first_ns = calls["at_ns"][0]
    is_strange = ~pl.col("group").is_in(list(process.groups))
    lines = calls.filter(is_strange)["line"]
    process.strange, process.strangers = lines.head(MOST_EXAMPLES).to_list(), len(lines)
    calls = _turned(calls)
    groups = _groups(process, set(calls["group"].unique().to_list()))
    if groups is None:
        return None
    with_groups = _with_ends(process, calls.join(groups, on="group", how="inner", maintain_order="left"))
    made = _selected(_sized(_numbered(_with_context(process, with_groups))))
    process.used = made["communicator"].unique().to_list()
    return made


def _steps(process: CallsFile) -> pl.DataFrame | None:
    if not process.steps:
        return None
    process.first_step_ns = process.steps[0].begin_ns
    kinds = {"iteration": pl.Int64, "at_ns": pl.Int64, "took_ns": pl.Int64}
    told = [(step.iteration, step.begin_ns, max(0, step.end_ns - step.begin_ns)) for step in process.steps]
    return pl.DataFrame(told, schema=kinds, orient="row").with_columns(kind=pl.lit("step"), op=pl.lit("step"))


def _selected(sized: pl.DataFrame) -> pl.DataFrame:
    end = pl.col("end_ns") - pl.col("at_ns")
    is_over = pl.col("end_ns").is_not_null() & (end >= 0)
    return sized.select(
        "kind",
        "op",
        "communicator",
        "comm_rank",
        "nranks",
        "sequence",
        "count",
        "thread",
        "element_bytes",
        "size_bytes",
        "sent_bytes",
        "received_bytes",
        "phase",
        "layer",
        "tokens",
        "iteration",
        "state",
        "line",
        "at_ns",
        pl.col("number").alias("op_count"),
        pl.col("datatype").replace("", None),
        pl.col("reduction").replace("", None).alias("reduce_op"),
        pl.col("root", "peer").cast(pl.Int32, strict=False),
        pl.when(is_over).then(end).alias("took_ns"),
    )


def _turned(calls: pl.DataFrame) -> pl.DataFrame:
    """Give each call its kind, and say from which number on calls are missing, so that counting them goes wrong."""
    numbers = calls["number"].unique().sort()
    expected = pl.int_range(pl.len(), dtype=pl.Int64)
    gap = numbers.to_frame().filter(pl.col("number") != expected)["number"]
    is_pair = pl.col("op").is_in(list(POINTWISE))
    return calls.with_columns(
        pl.col("op", "datatype", "reduction").str.slice(0, 500),
        pl.when(is_pair).then(pl.lit("p2p")).otherwise(pl.lit("collective")).alias("kind"),
        (pl.col("number") >= gap[0] if gap.len() else pl.lit(value=False)).alias("is_uncertain"),
    )


def _own_groups(process: CallsFile) -> list[tuple[int, RecordedGroup]]:
    """Return the groups of a process, each with a number of its own: the same for lines that describe one group."""
    numbers: dict[str, int] = {}
    return [(numbers.setdefault(_named(group), len(numbers)), group) for group in process.groups.values()]


def _groups(process: CallsFile, used: set[int]) -> pl.DataFrame | None:
    """Return a row per group with a call: its number here, this rank's place in it, and whether the host sees calls end."""
    own = zip(process.groups, _own_groups(process), strict=True)
    rows = [
        (number, communicator, group.mine, min(group.size, _I32), group.backend in _MEASURED)
        for number, (communicator, group) in own
        if number in used
    ]
    kinds = {
        "group": pl.Int64,
        "communicator": pl.Int32,
        "comm_rank": pl.Int64,
        "nranks": pl.Int32,
        "is_measured": pl.Boolean,
    }
    table = pl.DataFrame(rows, schema=kinds, orient="row") if rows else None
    return table.with_columns(pl.col("comm_rank").cast(pl.Int32, strict=False)) if table is not None else None


def _named(group: RecordedGroup) -> str:
    """Return what tells a group from others: its name and its members."""
    return f"{group.name}@{_listed(group.members)}"


@lru_cache(maxsize=4096)
def _listed(members: tuple[int, ...]) -> str:
    listed = ",".join(map(str, members[:4]))
    if len(members) > 4:
        listed += f"..{len(members)}:{zlib.crc32(','.join(map(str, members)).encode()):08x}"
    return listed or "?"


def _communicator(gathered: Gathered, process: CallsFile, life: int, group: RecordedGroup) -> int:
    comm_id = _named(group) + (f"#{life}" if life else "")
    role = _role(group)
    number = gathered.communicator(
        comm_id,
        name=f"{group.name} {group.description}".strip(),
        size=min(group.size, _I32),
        members=group.members,
        role=role,
        role_evidence=f"its description is {group.description}" if role else None,
    )
    for row in (gathered.comms.get(comm_id),):
        if row is not None:
            row["ranks"].add(process.rank)
    return number


def _role(group: RecordedGroup) -> str | None:
    """Return the role that a group's description names: default_pg, mesh_tp, fsdp, ..."""
    if group.description in _WORLDS:
        return "world"
    word = group.description.lower().removeprefix("mesh_").partition("_")[0]
    return word if word in _ROLES else None


def _with_ends(process: CallsFile, calls: pl.DataFrame) -> pl.DataFrame:
    """Add when calls ended, what a receive got from whom, and their state: null where the host cannot know."""
    names = ("number", "end_ns", "got", "sender")
    ends = pl.concat(process.ends) if process.ends else pl.DataFrame(schema=dict.fromkeys(names, pl.Int64))
    failed = [call for call, _, _, _ in process.errors if call is not None]
    joined = calls.join(ends.unique("number", keep="first"), on="number", how="left", maintain_order="left")
    over = pl.col("end_ns").is_not_null() | (pl.lit(bool(process.ended)) & ~pl.col("number").is_in(failed))
    state = pl.when(over).then(pl.lit("completed")).otherwise(pl.lit("started"))
    return joined.with_columns(
        pl.when("is_measured").then(state).alias("state"),
        pl.coalesce("sent", "received").alias("buffer"),
        pl.coalesce("got", "received").alias("received"),
        pl.coalesce("sender", "peer").alias("peer"),
    )


def _with_context(process: CallsFile, calls: pl.DataFrame) -> pl.DataFrame:
    """Add phase, layer, tokens, and the iteration: the one after the last that had ended."""
    kinds = {"context": pl.Int64, "phase": pl.String, "layer": pl.String, "tokens": pl.Int64}
    known = pl.DataFrame([(number, *what) for number, what in process.contexts.items()], schema=kinds, orient="row")
    joined = calls.join(known, on="context", how="left", maintain_order="left")
    is_told = pl.col("phase").is_not_null() & ~pl.col("phase").is_in(list(OUTSIDE))
    steps = pl.DataFrame(
        {
            "line": pl.Series([0, *(step.line for step in process.steps)], dtype=pl.Int64),
            "iteration": pl.Series([0, *(step.iteration + 1 for step in process.steps)], dtype=pl.Int64),
        }
    ).set_sorted("line")
    counted = joined.sort("line").join_asof(steps, on="line", strategy="backward")
    return counted.with_columns(
        pl.col("phase", "layer").replace("", None), pl.when(is_told).then(pl.col("iteration")).alias("iteration")
    )


def _numbered(calls: pl.DataFrame) -> pl.DataFrame:
    """Add which operation of its group a call is: as the writer counted, else as they come while none is missing.

    Sends and receives are counted per peer and direction.
    """
    counted = pl.int_range(pl.len(), dtype=pl.Int64).over("communicator", "kind")
    own = pl.when("is_uncertain").then(None).otherwise(counted)
    paired = pl.int_range(pl.len(), dtype=pl.Int64).over("communicator", "op", "peer")
    is_pair = pl.col("kind") == "p2p"
    return calls.with_columns(pl.when(is_pair).then(paired).otherwise(pl.col("turn").fill_null(own)).alias("sequence"))


def _sized(calls: pl.DataFrame) -> pl.DataFrame:
    """Add the size columns, worked out once per kind of call."""
    keys = ["op", "sent", "received", "nranks"]
    kinds = calls.select(keys).unique()
    rows = []
    for op, sent, received, nranks in kinds.iter_rows():
        size = sizes(op, sent, received, nranks)
        rows.append(
            [value if value is None or abs(value) <= _I64 else None for value in (size.size, size.sent, size.received)]
        )
    names = ("size_bytes", "sent_bytes", "received_bytes")
    columns = {name: pl.Series([row[column] for row in rows], dtype=pl.Int64) for column, name in enumerate(names)}
    joined = calls.join(kinds.with_columns(**columns), on=keys, how="left", nulls_equal=True, maintain_order="left")
    buffer = pl.col("buffer")  # of which ``count`` are the elements, however few came
    whole = (pl.col("count") > 0) & (buffer > 0) & (buffer % pl.col("count") == 0)
    element = pl.when(whole).then(buffer // pl.col("count")).cast(pl.Int32, strict=False)
    return joined.with_columns(element.alias("element_bytes"))
