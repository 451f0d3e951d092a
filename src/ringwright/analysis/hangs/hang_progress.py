"""How far each rank got in each group, and at which operation it stands: the facts from which a hang is diagnosed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ringwright.analysis.clocks import MEETING

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

_COLUMNS = (
    "kind",
    "op",
    "rank",
    "communicator",
    "comm_rank",
    "sequence",
    "peer",
    "state",
    "datatype",
    "sent_bytes",
    "received_bytes",
    "size_bytes",
    "enqueue_s",
    "file",
    "line",
    "text",
)


STOPS = "its recording stops without an end"  # of a calls file, which says so of itself
LEAST_AHEAD = 2  # one may complete, or be counted, where a peer did not come


class EventRow(NamedTuple):
    """One operation of one rank, as the columns of ``events`` say it."""

    kind: str
    op: str
    rank: int
    communicator: int
    comm_rank: int | None
    sequence: int
    peer: int | None
    state: str
    datatype: str | None
    sent_bytes: int | None
    received_bytes: int | None
    size_bytes: int | None
    enqueue_s: float | None
    file: str
    line: int | None
    text: str | None

    @property
    def place(self) -> str:
        """Where it stands in the input."""
        return f"{self.file}: record {self.line}"


@dataclass
class Progress:
    """Counters and open operations. Counters are None where unknown; ``open`` is in the order of issue."""

    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    roles: dict[int, str | None] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)  # ranks with a dump
    files: dict[int, str] = field(default_factory=dict)
    enqueued: dict[tuple[int, int], int] = field(default_factory=dict)  # (communicator, rank)
    completed: dict[tuple[int, int], int] = field(default_factory=dict)
    open: dict[int, list[EventRow]] = field(default_factory=lambda: defaultdict(list))
    halves: dict[tuple[int, int, int, str], int] = field(default_factory=dict)  # completed sends and receives, counted
    whole: set[int] = field(default_factory=set)  # ranks whose records begin with the first, so that counts are right
    pointwise: set[int] = field(default_factory=set)  # communicators that carried sends and receives
    mixed: set[int] = field(default_factory=set)  # and collectives too: their counters mean either
    fates: dict[int, str] = field(default_factory=dict)  # how a rank's recording ends, where it says so
    idle_s: float | None = None  # from the last record to the end of the job, where that is known
    failed: bool = False  # calls ended with an error
    most_idle_s: float = 1.0  # a job that is idle for less may be on its way

    def front(self, rank: int) -> EventRow | None:
        """Return the oldest operation that the rank has not completed."""
        calls = self.open.get(rank)
        return calls[0] if calls else None

    def name(self, communicator: int) -> str:
        """Return a group's name."""
        return self.names.get(communicator, str(communicator))


def progress(trace: Trace) -> Progress:
    """Return the progress that a trace with states or status rows shows; empty for any other trace."""
    import polars as pl

    state = Progress()
    for row in trace.table("communicators").to_dicts():
        number = row["communicator"]
        state.members[number] = tuple(rank for rank in row["members"] or () if rank >= 0)
        state.names[number] = row["name"] or row["comm_id"] or str(number)
        state.roles[number] = row["role"]
    events = trace.scan("events").filter(pl.col("rank").is_not_null() & pl.col("communicator").is_not_null())
    calls = events.filter(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("state").is_not_null())
    status = (
        events.filter(pl.col("kind") == "status").select("op", "rank", "communicator", "sequence", "file").collect()
    )
    devices = trace.table("topology").filter(pl.col("kind") == "device")["rank"].drop_nulls().to_list()
    _kinds(state, calls)
    _counters(state, status.to_dicts(), calls)
    _open(state, calls)
    done = calls.filter((pl.col("kind") == "p2p") & (pl.col("state") == "completed"))
    halves = done.group_by("communicator", "rank", "peer", "op").len().drop_nulls().collect()
    state.halves = {(a, b, c, d): count for a, b, c, d, count in halves.rows()}
    firsts = calls.group_by("rank").agg(pl.col("line").min()).collect()
    state.whole = {rank for rank, line in firsts.rows() if line == 0} | _numbered_from_zero(calls)
    if state.open or state.enqueued:
        state.present = {*devices, *state.open, *(rank for _, rank in state.enqueued)}
    _ends(state, trace)
    if STOPS in state.fates.values():
        _without_cut(state, calls)
    return state


def _without_cut(state: Progress, calls: Any) -> None:
    """Leave out ranks whose recordings were cut: others completed collectives that nobody completes without them."""
    import polars as pl

    met = calls.filter(
        pl.col("op").is_in(MEETING) & (pl.col("state") == "completed") & (pl.col("kind") == "collective")
    )
    front = dict(met.group_by("communicator").agg(pl.col("sequence").max()).drop_nulls().collect().rows())
    cut = {
        rank
        for (communicator, rank), sequence in state.enqueued.items()
        if state.fates.get(rank) == STOPS and sequence + LEAST_AHEAD <= front.get(communicator, sequence)
    }
    for rank in cut:
        state.open.pop(rank, None)
    for counters in (state.enqueued, state.completed):
        for key in [key for key in counters if key[1] in cut]:
            del counters[key]


def _numbered_from_zero(calls: Any) -> set[int]:
    """Return the ranks of a calls file from which no call is missing."""
    import polars as pl

    mine = calls.filter(pl.col("source").str.contains("calls") & pl.col("op_count").is_not_null())
    ranks = mine.group_by("rank").agg(
        pl.col("op_count").n_unique().alias("seen"), pl.col("op_count").max().alias("last")
    )
    return {rank for rank, seen, last in ranks.collect().rows() if seen == last + 1}


def _ends(state: Progress, trace: Trace) -> None:
    """How the ranks' recordings end, and how long nothing had been recorded when the job ended, or was looked at."""
    import polars as pl

    events = trace.scan("events")
    mine = events.filter((pl.col("kind") == "status") & (pl.col("op") == "ended") & pl.col("rank").is_not_null())
    for rank, text in mine.select("rank", "text").collect().rows():
        state.fates[rank] = text
    if not state.fates:
        return
    state.failed = events.filter((pl.col("kind") == "error") & (pl.col("op") == "exception")).collect().height > 0
    end_s = pl.max_horizontal(pl.col("enqueue_s"), pl.col("start_s") + pl.col("duration_s").fill_null(0))
    is_death = (pl.col("kind") == "error") & (pl.col("op") == "died")
    death_s = events.filter(is_death).select(pl.col("start_s").min()).collect().item()
    # Counters of the network go on while the job stands; a rank that is ended from outside has done nothing by that.
    last_s, step_s = (
        events.filter((pl.col("kind") != "metric") & ~is_death)
        .select(end_s.max().alias("last"), pl.col("duration_s").filter(pl.col("kind") == "step").median().alias("step"))
        .collect()
        .row(0)
    )
    told = trace.table("claims").filter(pl.col("field").is_in(["job ended at", "job seen at"]))["value"].to_list()
    moments = [int(value) for value in told if value.isdecimal() and len(value) < 20]
    origin_ns = trace.meta.get("origin_ns")
    if moments and origin_ns is not None and last_s is not None:
        seen_s = (max(moments) - int(origin_ns)) / 1e9
        state.idle_s = min(seen_s, seen_s if death_s is None else death_s) - last_s
        state.most_idle_s = max(state.most_idle_s, 2 * (step_s or 0.0))


def _kinds(state: Progress, calls: Any) -> None:
    kinds: dict[int, set[str]] = defaultdict(set)
    for communicator, kind in calls.select("communicator", "kind").unique().collect().rows():
        kinds[communicator].add(kind)
    state.pointwise = {number for number, seen in kinds.items() if "p2p" in seen}
    state.mixed = {number for number, seen in kinds.items() if len(seen) > 1}


def _counters(state: Progress, status: list[dict[str, Any]], calls: Any) -> None:
    """Counters of a group that mixes collectives with sends count either, so there the collectives' own records decide."""
    import polars as pl

    tables = {"last-enqueued": state.enqueued, "last-completed": state.completed}
    for row in status:
        state.files.setdefault(row["rank"], row["file"])
        if row["op"] in tables and row["sequence"] is not None and row["communicator"] not in state.mixed:
            tables[row["op"]][row["communicator"], row["rank"]] = row["sequence"]
    own = calls.filter((pl.col("kind") == "collective") & pl.col("sequence").is_not_null())
    ends = own.group_by("communicator", "rank").agg(
        pl.col("sequence").max().alias("last"),
        pl.col("sequence").filter(pl.col("state") == "completed").max().alias("done"),
    )
    for communicator, rank, last, done in ends.collect().rows():
        key = (communicator, rank)
        if communicator in state.mixed or key not in state.enqueued:
            state.enqueued[key] = last
        state.enqueued[key] = max(state.enqueued[key], last)
        if done is not None:
            state.completed[key] = max(state.completed.get(key, -1), done)


def _open(state: Progress, calls: Any) -> None:
    """An operation is open while neither its state nor its group's counter says that it completed."""
    import polars as pl

    rows = calls.filter((pl.col("state") != "completed") & pl.col("sequence").is_not_null()).select(_COLUMNS)
    for row in rows.collect().rows():
        call = EventRow(*row)
        done = state.completed.get((call.communicator, call.rank))
        if call.kind == "collective" and done is not None and call.sequence <= done:
            continue
        state.open[call.rank].append(call)
        state.files.setdefault(call.rank, call.file)
    for listed in state.open.values():
        listed.sort(key=lambda call: (call.line is None, call.line or 0, call.sequence))
