"""What the devices executed: events of a device's streams, or of the host's threads that stand for devices (JAX on the CPU).

Streams say kernel and HLO operation; an event of a thread says the operation, its program, the run, and the device it stands for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.formats.sources.wire import WireError
from ringwright.formats.sources.xplane.space import MOST_PS, PS_PER_NS, unpacked
from ringwright.native import events
from ringwright.native.twin_events import text_at

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from ringwright.formats.sources.xplane.space import TraceLine, Xplane
    from ringwright.native.twin_events import XlaEventColumns

DEVICE = re.compile(r"/device:(?P<kind>[A-Za-z_]+):(?P<number>\d{1,6})")
HOST = "/host:CPU"
TEXTS = ("hlo_op", "hlo_module", "memcpy_details")
WHOLE = ("program_id", "run_id", "device_ordinal", "step_num", "global_device_id")
# Lines of a device that repeat its streams from another side: modules, steps, the framework's names.
_DERIVED = re.compile(r"XLA Modules|Steps|Framework|Source|XLA TraceMe|Launch Stats|Name Scope", re.IGNORECASE)
_OPERATIONS = re.compile(r"XLA Ops", re.IGNORECASE)
_UNIX_NS = 10**17  # a line that begins later counts from 1970, not from the start of the session
MOST_NUMBER = (1 << 31) - 1


@dataclass(slots=True)
class Mark:
    """A step of the training, or the launch of a run, on the host; times in picoseconds from the start of the session."""

    name: str
    start_ps: int
    duration_ps: int
    number: int


@dataclass
class HostMarks:
    """What the host says of steps and launches, and of the global numbers of its devices."""

    steps: list[Mark] = field(default_factory=list)
    launches: list[Mark] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)

    def iterations(self) -> dict[int, int]:
        """Return run -> step: the step in which a run was launched."""
        steps = sorted(self.steps, key=lambda step: step.start_ps)
        runs: dict[int, int] = {}
        at = 0
        for launch in sorted(self.launches, key=lambda launch: launch.start_ps):
            while at < len(steps) and steps[at].start_ps + steps[at].duration_ps <= launch.start_ps:
                at += 1
            if at < len(steps) and steps[at].start_ps <= launch.start_ps:
                runs[launch.number] = steps[at].number
        return runs


def origin_ns(planes: list[Xplane]) -> int:
    """Return when the session began where lines count from 1970: the earliest of them; 0 where they count from the session."""
    starts = [line.start_ns for xplane in planes for line in xplane.lines if line.start_ns > _UNIX_NS]
    return min(starts, default=0)


def session_ns(planes: list[Xplane]) -> int | None:
    """Return the wall clock of the session's start in nanoseconds from 1970, None where no plane tells it."""
    if origin_ns(planes):
        return origin_ns(planes)
    said = (xplane.own_stats().get("profile_start_time") for xplane in planes if xplane.name == "Task Environment")
    return next((value for value in said if isinstance(value, int) and _UNIX_NS < value < 1 << 62), None)


def on_host(xplane: Xplane, origin: int) -> pl.DataFrame:
    """Return the events of a host's threads that are operations, steps or launches.

    Columns: name (its number), shown, start_ps, duration_ps, stream (none: threads serve any device), and a column for each of
    ``TEXTS`` and ``WHOLE``. Raises WireError where no event can be read.
    """
    if not {"hlo_op", *WHOLE} & set(xplane.stat_names.values()):
        return _frame(xplane, [], origin)
    import polars as pl

    frame = _frame(xplane, xplane.lines, origin)
    is_told = [pl.col(name).is_not_null() for name in ("hlo_op", "step_num", "run_id", "global_device_id")]
    return frame.filter(pl.any_horizontal(is_told)).with_columns(pl.lit(None, dtype=pl.String).alias("stream"))


def on_device(xplane: Xplane, origin: int) -> pl.DataFrame:
    """Return what the streams of a device executed, or its line of operations where it has no streams; columns as on a host."""
    import polars as pl

    streams = [line for line in xplane.lines if not _DERIVED.search(line.name) and not _OPERATIONS.search(line.name)]
    lines = streams or [line for line in xplane.lines if _OPERATIONS.search(line.name)]
    frame = _frame(xplane, lines, origin)
    if streams:
        return frame
    # a line of operations names them as the program does, or by their whole text
    operation = pl.col("shown").str.strip_prefix("%").str.split(" ").list.first()
    return frame.with_columns(pl.coalesce("hlo_op", operation).alias("hlo_op"))


def marks(frame: pl.DataFrame, into: HostMarks) -> None:
    """Note the steps and launches among a host's events."""
    import polars as pl

    timed = ["shown", "start_ps", "duration_ps"]
    for name, start, duration, number in (
        frame.filter(pl.col("step_num").is_not_null()).select(*timed, "step_num").rows()
    ):
        into.steps.append(Mark(name, start, duration, number))
    is_launch = pl.col("run_id").is_not_null() & pl.col("hlo_op").is_null() & pl.col("shown").str.contains("Execute")
    for name, start, duration, number in frame.filter(is_launch).select(*timed, "run_id").rows():
        into.launches.append(Mark(name, start, duration, number))
    said = frame["global_device_id"].drop_nulls().unique().to_list()
    into.devices |= {device for device in said if 0 <= device <= MOST_NUMBER}


def operations(frame: pl.DataFrame) -> pl.DataFrame:
    """Return those of a host's events that are operations of a program, with their device."""
    import polars as pl

    device = pl.col("device_ordinal")
    device = pl.when((device >= 0) & (device <= MOST_NUMBER)).then(device)
    return frame.filter(pl.col("hlo_op").is_not_null()).with_columns(device.alias("device"))


def _frame(xplane: Xplane, lines: list[TraceLine], origin: int) -> pl.DataFrame:
    """Return the events of some lines; WireError behind the last whole one where a line is broken."""
    import polars as pl

    kinds = pl.Schema({"name": pl.Int64, "start_ps": pl.Int64, "duration_ps": pl.Int64, "stream": pl.String})
    kinds.update(dict.fromkeys(TEXTS, pl.String()) | dict.fromkeys(WHOLE, pl.Int64()))
    wanted = [key for key, name in xplane.stat_names.items() if name in (*TEXTS, *WHOLE)]
    parts = [pl.DataFrame(schema=kinds)]
    for line in lines:
        read = events(line.message, wanted)
        if not read["is_whole"]:
            xplane.damage.append(f"the line {line.name[:60] or line.number} breaks off")
        start = line.start_ns - origin if line.start_ns > _UNIX_NS else line.start_ns
        if not -MOST_PS < start * PS_PER_NS < MOST_PS:
            raise WireError(f"the line {line.name[:60]} begins at {line.start_ns} ns")
        parts.append(_line(xplane, line, read, wanted, start * PS_PER_NS).select([*kinds]).cast(kinds))
    frame = pl.concat(parts)
    return _shared(xplane, frame)


def _line(xplane: Xplane, line: TraceLine, read: XlaEventColumns, wanted: list[int], base_ps: int) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    is_timed = (read["is_count"] == 0) & (read["duration_ps"] >= 0) & (read["duration_ps"] < MOST_PS)
    is_timed &= (read["start_ps"] > -MOST_PS) & (read["start_ps"] < MOST_PS)
    rows = np.flatnonzero(is_timed)
    width = len(wanted)
    value, form = read["value"], read["form"]
    if width:
        value, form = value.reshape(-1, width)[rows], form.reshape(-1, width)[rows]
    columns: dict[str, pl.Series] = {
        "name": pl.Series(read["name"][rows]),
        "start_ps": pl.Series(read["start_ps"][rows] + base_ps),
        "duration_ps": pl.Series(read["duration_ps"][rows]),
        "stream": pl.Series([line.name[:200]], dtype=pl.String).new_from_index(0, len(rows)),
    }
    for at, key in enumerate(wanted):
        name = xplane.stat_names[key]
        if name in columns:
            continue
        if name in TEXTS:
            columns[name] = _texts(xplane, line, value[:, at], form[:, at])
        else:
            whole = np.isin(form[:, at], (3, 4))
            columns[name] = pl.Series(np.where(whole, value[:, at], 0)).set(pl.Series(~whole), None)
    for name in (*TEXTS, *WHOLE):
        columns.setdefault(name, pl.Series([None], dtype=pl.Null).new_from_index(0, len(rows)))
    return pl.DataFrame(columns)


def _texts(xplane: Xplane, line: TraceLine, value: np.ndarray, form: np.ndarray) -> pl.Series:
    """Return a column of text from the numbers of names, or from text that stands in the events themselves."""
    import numpy as np
    import polars as pl

    named = np.unique(value[form == 7]).tolist()
    column = pl.Series(np.where(form == 7, value, -1)).replace_strict(
        named, [xplane.stat_names.get(key) for key in named], default=None, return_dtype=pl.String
    )
    own = np.flatnonzero((form == 5) | (form == 8))
    if not len(own):
        return column
    texts = [text_at(line.message, int(value[row])) for row in own]
    said = [
        unpacked(text) if form[row] == 8 else text.decode("utf-8", "replace")
        for row, text in zip(own, texts, strict=True)
    ]
    return column.scatter(own, said)


def _shared(xplane: Xplane, frame: pl.DataFrame) -> pl.DataFrame:
    """Add the name of each event, and the values that stand with its name and not with itself."""
    import polars as pl

    used = frame["name"].unique().to_list()
    names = {key: xplane.names[key] for key in used if key in xplane.names}
    told = {key: xplane.stats(held.stats) for key, held in names.items()}
    table = {
        "name": [*names],
        "kernel": [held.name[:4096] for held in names.values()],
        "shown": [(held.shown or held.name)[:4096] for held in names.values()],
    }
    kinds = pl.Schema({"name": pl.Int64, "kernel": pl.String, "shown": pl.String})
    for name in (*TEXTS, *WHOLE):
        kind: type = str if name in TEXTS else int
        table[f"{name}_shared"] = [
            value if isinstance(value := held.get(name), kind) else None for held in told.values()
        ]
        kinds[f"{name}_shared"] = pl.String() if kind is str else pl.Int64()
    joined = frame.join(pl.DataFrame(table, schema=kinds, strict=False), on="name", how="inner", maintain_order="left")
    own = [pl.coalesce(name, f"{name}_shared").alias(name) for name in (*TEXTS, *WHOLE)]
    return joined.with_columns(own).drop(f"{name}_shared" for name in (*TEXTS, *WHOLE))
