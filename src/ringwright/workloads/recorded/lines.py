"""One steady step of a Trace, rank by rank: its calls, its kernels, when it began and ended."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import InputError, UsageError
from ringwright.model.run_tables import HANDED_IN
from ringwright.model.workload import OPS
from ringwright.workloads.recorded.period import one_step
from ringwright.workloads.recorded.plan import BACKWARD, FORWARD, OPTIMIZER, Line, RecordedCall, RecordedWork

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

COLUMNS = (
    "kind",
    "op",
    "rank",
    "communicator",
    "sequence",
    "iteration",
    "phase",
    "layer",
    "stream",
    "kernel",
    "peer",
    "root",
    "size_bytes",
    "count",
    "element_bytes",
    "datatype",
    "enqueue_s",
    "start_s",
    "duration_s",
    "multiplicity",
    "line",
    "source",
)
STAND_INS = {"gather": "reduce", "scatter": "broadcast", "barrier": "all-reduce", "scan": "reduce", "exscan": "reduce"}
UNRECORDED_RATE = 10e9  # bytes/s: what a call of unknown size is taken to have moved in its time
MOST_EVENTS = 5_000_000
LATEST_S = 1e11  # of a time: beyond it nothing can have been meant


@dataclass
class ChosenStep:
    """The chosen step: lines by rank, what it is called, and what was assumed."""

    lines: dict[int, Line]
    label: str
    assumptions: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    groups: frozenset[int] = frozenset()  # communicators that are described
    again: dict[int, int] = field(
        default_factory=dict
    )  # event of the next step -> the one of this step that does the same


def chosen(trace: Trace, step: int | None = None) -> ChosenStep:
    """Return one step: ``step`` (an iteration), or the steadiest one; InputError where there is nothing to replay."""
    frame = _events(trace)
    if frame.is_empty():
        raise InputError(
            "no call of a collective by a known rank was recorded",
            where="events",
            remedy="record with 'ringwright run', or a profiler with kernels",
        )
    iteration, notes = _iteration(frame, step)
    picked = ChosenStep({}, f"step {iteration}" if iteration is not None else "the whole recording", notes)
    picked.groups = frozenset(trace.table("communicators")["communicator"].drop_nulls().to_list())
    import polars as pl

    inside = frame if iteration is None else frame.filter(pl.col("iteration") == iteration)
    if iteration is None:
        inside = _repeated(inside, trace, picked)
    spans = _spans(frame)
    for row in inside.filter(pl.col("kind").is_in(["collective", "p2p", "compute", "memory"])).iter_rows(named=True):
        line = picked.lines.setdefault(row["rank"], Line(row["rank"]))
        _take(line, row, spans, picked)
    picked.lines = {rank: line for rank, line in sorted(picked.lines.items()) if line.calls}
    if not picked.lines:
        why = "; ".join(picked.left_out) or "the source has none"
        raise InputError(
            f"{picked.label} holds no call that can be replayed", where=why, remedy="choose another step with step=N"
        )
    _ends(frame, picked, iteration)
    if iteration is not None and not trace.scan("edges").head(1).collect().is_empty():
        picked.again = _again(frame, iteration)
    for what, count in sorted(picked.left_out.items()):
        picked.assumptions.append(f"{what}: {count}")
    return picked


def _repeated(frame: pl.DataFrame, trace: Trace, picked: ChosenStep) -> pl.DataFrame:
    """Return one repetition of the calls of a source that has calls only, else all of it."""
    import polars as pl

    calls = frame.filter(pl.col("kind").is_in(["collective", "p2p"]))
    others = frame.filter(pl.col("kind").is_in(["compute", "memory"]))
    repeated = one_step(calls, trace) if others.is_empty() and calls["duration_s"].count() == 0 else None
    if repeated is None:
        picked.assumptions.append("the source marks no steps: the whole recording is one step")
        return frame
    picked.label = repeated[1]
    picked.assumptions.append(f"the calls repeat, and one repetition stands for a step: {repeated[1]}")
    return repeated[0]


def _events(trace: Trace) -> pl.DataFrame:
    """Return what matters, in order of time (then as written), with the number of each event."""
    import polars as pl

    kinds = ["collective", "p2p", "compute", "memory", "step", "phase"]
    numbered = trace.scan("events").select(*COLUMNS).with_row_index("event")
    frame = numbered.filter(pl.col("kind").is_in(kinds) & pl.col("rank").is_not_null()).head(MOST_EVENTS).collect()
    calls = frame.filter(pl.col("kind").is_in(["collective", "p2p"]))
    if calls.is_empty():
        return calls
    start, lasted = pl.col("start_s"), pl.col("duration_s")
    is_timed = start.is_finite() & (start.abs() < LATEST_S) & lasted.is_finite() & lasted.is_between(0, LATEST_S)
    early = pl.col("enqueue_s")
    frame = frame.with_columns(
        pl.when(is_timed | (start.is_null() & lasted.is_between(0, LATEST_S))).then(lasted).alias("duration_s"),
        pl.when(is_timed).then(start).alias("start_s"),
        pl.when(early.is_finite() & (early.abs() < LATEST_S)).then(early).alias("enqueue_s"),
    )
    timed = pl.coalesce("enqueue_s", "start_s")
    return frame.with_columns(timed.alias("at")).sort("rank", "at", "event", nulls_last=True)


def _iteration(frame: pl.DataFrame, step: int | None) -> tuple[int | None, list[str]]:
    """Return the iteration to replay: the asked one, or the one nearest to the median of those that every rank has."""
    whole, steady, times = _steady(frame)
    if step is not None:
        if step not in whole:
            known = f"{whole[0]} to {whole[-1]}" if whole else "none: the source marks no steps"
            raise UsageError(f"step {step} was not recorded on every rank", where="events", remedy=f"steps: {known}")
        return step, []
    if not whole:
        return None, []
    if not times:
        return steady[len(steady) // 2], []
    middle = statistics.median(times.get(each, 0.0) for each in steady)
    best = min(steady, key=lambda each: (abs(times.get(each, 0.0) - middle), each))
    return best, [f"one step stands for all: step {best}, the nearest to the median of {len(steady)}"]


def steady_steps(trace: Trace) -> dict[int, float | None]:
    """Return the steps that every rank has and that issued the usual calls, without the first and the last: step -> seconds.

    Where work was recorded, from its begin to that of the next step's; else as the source says. None: how long it lasted was not
    recorded; nothing where the source marks no steps.
    """
    frame = _events(trace)
    if frame.is_empty():
        return {}
    _, steady, said = _steady(frame)
    worked = _from_work_to_work(frame)
    times = said if worked is None else worked
    return {each: times.get(each) for each in steady}


def _from_work_to_work(frame: pl.DataFrame) -> dict[int, float] | None:
    """Return how long steps lasted from their first work to the next one's, mean of the ranks; None where no work was recorded.

    The work is that of each rank's main stream.
    """
    import polars as pl

    works = frame.filter(pl.col("kind").is_in(["compute", "memory"]) & pl.col("start_s").is_not_null())
    works = works.filter(pl.col("iteration").is_not_null()).with_columns(_stream())
    if works.is_empty():
        return None
    streams = works.group_by("rank", "stream").agg(pl.col("duration_s").sum()).sort("duration_s", "stream")
    main = streams.group_by("rank", maintain_order=True).agg(pl.col("stream").last())
    begun = works.join(main, on=["rank", "stream"]).group_by("rank", "iteration").agg(pl.col("start_s").min())
    lasted = begun.sort("rank", "iteration").with_columns(
        (pl.col("start_s").shift(-1) - pl.col("start_s")).over("rank").alias("lasted"),
        (pl.col("iteration").shift(-1) - pl.col("iteration")).over("rank").alias("further"),
    )
    ranks = frame.filter(pl.col("kind").is_in(["collective", "p2p"]))["rank"].n_unique()
    told = lasted.filter(pl.col("further") == 1).group_by("iteration").agg(pl.col("lasted").mean(), pl.len())
    return dict(told.filter(pl.col("len") == ranks).select("iteration", "lasted").iter_rows())


def _steady(frame: pl.DataFrame) -> tuple[list[int], list[int], dict[int, float]]:
    """Return the steps that every rank has, the steady ones of them, and how long steps lasted, s."""
    import polars as pl

    calls = frame.filter(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("iteration").is_not_null())
    ranks = calls["rank"].n_unique()
    counted = calls.group_by("iteration").agg(pl.col("rank").n_unique().alias("ranks"), pl.len().alias("calls"))
    whole = sorted(counted.filter(pl.col("ranks") == ranks)["iteration"].to_list())
    if not whole:
        return [], [], {}
    lasted = (
        frame.filter((pl.col("kind") == "step") & pl.col("iteration").is_in(whole) & pl.col("duration_s").is_not_null())
        .group_by("iteration")
        .agg(pl.col("duration_s").max())
    )
    count = dict(counted.select("iteration", "calls").iter_rows())
    usual = statistics.mode(sorted(count[each] for each in whole))
    steady = [each for each in whole[1:-1] or whole[1:] or whole if count[each] == usual] or whole
    return whole, steady, dict(lasted.select("iteration", "duration_s").iter_rows())


Spans = dict[int, list[tuple[float, float, str]]]


def _spans(frame: pl.DataFrame) -> Spans:
    """Return rank -> (begin, end, phase) of named stretches of the host that are a part of training."""
    import polars as pl

    spans: Spans = defaultdict(list)
    chosen_ = frame.filter((pl.col("kind") == "phase") & pl.col("start_s").is_not_null())
    for rank, name, start, lasted in chosen_.select("rank", "phase", "start_s", "duration_s").iter_rows():
        part = _part(name)
        if part:
            spans[rank].append((start, start + (lasted or 0.0), part))
    for listed in spans.values():
        listed.sort(key=lambda each: each[1] - each[0], reverse=True)  # the widest stretch says the part
    return spans


def _part(name: str | None) -> str:
    word = (name or "").lower().lstrip("# ")
    return next((part for part in (FORWARD, BACKWARD, OPTIMIZER) if word.startswith(part)), "")


def _phase(row: dict[str, Any], spans: Spans) -> str:
    if _part(row["phase"]):
        return _part(row["phase"])
    moment = row["enqueue_s"] if row["enqueue_s"] is not None else row["start_s"]
    if moment is None:
        return ""
    return next((part for begin, end, part in spans.get(row["rank"], ()) if begin <= moment <= end), "")


def _take(line: Line, row: dict[str, Any], spans: Spans, picked: ChosenStep) -> None:
    phase = _phase(row, spans)
    if row["kind"] in ("compute", "memory"):
        if row["duration_s"] is not None or row["start_s"] is None:  # an integer of microseconds may be 0
            line.works.append(
                RecordedWork(
                    row["start_s"] if row["start_s"] is not None else 0.0,
                    row["duration_s"] or 0.0,
                    row["enqueue_s"],
                    phase,
                    str(row["stream"] or ""),
                    row["event"],
                    str(row["kernel"] or row["op"] or ""),
                )
            )
        return
    call = _call(row, phase, picked)
    if call is not None:
        line.calls.append(call)


def _call(row: dict[str, Any], phase: str, picked: ChosenStep) -> RecordedCall | None:
    op, size, lasted = str(row["op"] or "unknown"), row["size_bytes"], row["duration_s"]
    if op in STAND_INS:
        picked.left_out[f"a {op} is replayed as a {STAND_INS[op]}"] += 1
        size = 4 if op == "barrier" else size
        op = STAND_INS[op]
    if op not in (*OPS, "send", "recv"):
        picked.left_out[f"operations without a counterpart are left out ({op})"] += 1
        return None
    is_sized = size is not None
    if size is None and lasted:
        size = max(1, round(lasted * UNRECORDED_RATE))
        picked.left_out[f"calls of unknown size count the bytes of {UNRECORDED_RATE / 1e9:g} GB/s in their time"] += 1
    if not size or size < 0:
        picked.left_out["calls that carry no bytes, or whose size is not known, are left out"] += 1
        return None
    if row["communicator"] not in picked.groups:
        picked.left_out["calls of an unknown communicator are left out"] += 1
        return None
    width = row["element_bytes"] or 4
    return RecordedCall(
        row["event"],
        op,
        int(size),
        row["communicator"],
        row["enqueue_s"],
        row["start_s"],
        lasted,
        phase,
        str(row["layer"] or ""),
        -1 if row["peer"] is None else row["peer"],
        row["root"] or 0,
        str(row["datatype"] or "float32"),
        int(size // width),
        is_sized=is_sized,
        waits_inside=row["source"] not in HANDED_IN,
    )


def _end_s(line: Line) -> float:
    ends = [work.start_s + work.duration_s for work in line.works]
    return max([*ends, *(call.end_s for call in line.calls if call.end_s is not None)])


def _ends(frame: pl.DataFrame, picked: ChosenStep, iteration: int | None) -> None:
    """Give each line its begin and end: from one step's first kernel to the next one's, or as the host marked steps."""
    import polars as pl

    marks = {
        (rank, at): (start, lasted)
        for rank, at, start, lasted in frame.filter((pl.col("kind") == "step") & pl.col("start_s").is_not_null())
        .select("rank", "iteration", "start_s", "duration_s")
        .iter_rows()
    }
    kernels = frame.filter(pl.col("kind").is_in(["compute", "memory"]) & pl.col("start_s").is_not_null())
    following = kernels.filter(pl.col("iteration") == (iteration or 0) + 1).group_by("rank", _stream())
    first = {(rank, stream): at for rank, stream, at in following.agg(pl.col("start_s").min()).iter_rows()}
    arriving = _reaching(frame, iteration)
    aside = 0
    for rank, line in picked.lines.items():
        stream = _main_stream(line.works) if any(work.start_s for work in line.works) else None
        if stream is not None:
            aside += sum(work.stream != stream for work in line.works)
            line.works = sorted((work for work in line.works if work.stream == stream), key=lambda work: work.start_s)
            line.begin_s = line.works[0].start_s
            closed = first.get((rank, stream)) if iteration is not None else None
            line.end_s, line.is_closed = (_end_s(line), False) if closed is None else (max(closed, line.begin_s), True)
            line.arriving = [each for each in arriving.get(rank, ()) if each > line.begin_s]
        elif iteration is not None and (rank, iteration) in marks and not line.works:
            begin, lasted = marks[rank, iteration]
            after = marks.get((rank, iteration + 1), (None,))[0]
            line.begin_s, line.is_closed = begin, after is not None
            line.end_s = after if after is not None else begin + (lasted or 0.0)
    if aside:
        picked.assumptions.append(
            f"{aside} kernels and copies beside the main stream are left out; its gaps count as work"
        )


def _again(frame: pl.DataFrame, iteration: int) -> dict[int, int]:
    """Return, by the events of the next step, those of a step that do the same; none where the steps are not alike."""
    import polars as pl

    events = frame.filter(pl.col("kind").is_in(["collective", "p2p", "compute", "memory"])).sort("rank", "event")
    mine, after = (events.filter(pl.col("iteration") == each) for each in (iteration, iteration + 1))
    what = ("rank", "kind", "op", "kernel", "stream", "communicator", "size_bytes")
    alike = mine.height == after.height and mine.select(what).equals(after.select(what))
    return dict(zip(after["event"], mine["event"], strict=True)) if alike else {}


def _reaching(frame: pl.DataFrame, iteration: int | None) -> dict[int, list[float]]:
    """Return when the calls of the step before ended, by rank; nothing where steps are not marked."""
    import polars as pl

    if iteration is None:
        return {}
    end = pl.col("start_s") + pl.col("duration_s")
    before = frame.filter((pl.col("kind") == "collective") & (pl.col("iteration") == iteration - 1) & end.is_not_null())
    return {rank: sorted(ends) for rank, ends in before.group_by("rank").agg(end.alias("end")).iter_rows()}


def _stream() -> pl.Expr:
    """Return the stream of an event as works have it."""
    import polars as pl

    return pl.col("stream").fill_null("")


def _main_stream(works: list[RecordedWork]) -> str:
    """Return the stream with the most work."""
    busy: Counter[str] = Counter()
    for work in works:
        busy[work.stream] += round(work.duration_s * 1e9)
    return busy.most_common(1)[0][0]
