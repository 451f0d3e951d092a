"""A simulated job as a Trace, so that every report, query and export of a measured job works on it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringwright.calls.rank_placement import device_rows
from ringwright.calls.run_trace import WRITER
from ringwright.costs.gpus import OF_FABRIC
from ringwright.engines.job.arrivals import HELD
from ringwright.engines.job.own_ready import OwnReady
from ringwright.engines.job.run import JobRun
from ringwright.engines.job.step import Instances
from ringwright.ground.trace_tables import Row, conform, rows
from ringwright.ground.units import PS
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.jobs.pricing.event_owners import EventPart, Group, Whose
from ringwright.jobs.pricing.senders import MOST_PLACED, POINT_TO_POINT, Senders
from ringwright.jobs.rows import asked
from ringwright.model.run_tables import SIMULATED_JOB, communicator, communicators
from ringwright.model.workload import PHASES

TIMES = ("enqueue_s", "start_s", "duration_s")
MOST_JOINED = 4096  # edges through one barrier of one class of ranks

if TYPE_CHECKING:
    import polars as pl

    from ringwright.jobs.study import Job, PolicyResult
    from ringwright.model.trace import Trace


def trace(job: Job, result: PolicyResult) -> Trace:
    """Return the run: a compute event per task, a collective per piece, their edges, communicators and claims.

    Each rank has events of its own; of a run of very many, one stands for ``multiplicity`` ranks that are alike. Of a task
    ``enqueue_s`` is when its inputs were there, of an operation when this rank had done what it waited for: who comes first
    waits for the others until ``start_s``, when the bytes moved. A step lasts, on each rank, from its first event to the end of
    its last. Control tasks and barriers take no time and are left out.
    """
    import polars as pl

    run = result.run
    senders = Senders(job, result.workload, run)
    whose, written = Whose(senders), _Written(senders, OwnReady(run))
    for step in senders.steps():
        for row in run.laid.rows:
            if row.kind != "CTRL":
                written.take(row, step, whose.parts(row), is_apart=whose.is_apart)
    events = written.events()
    return WRITER.trace(
        job.workload.mesh.size,
        f"{job.workload.name} on {job.fabric}, policy {result.policy}",
        events=pl.concat([events, _steps(events)]),
        edges=_edges(run, written),
        communicators=_communicators(written.numbers),
        **_lying(senders),
        claims=_claims(job, result),
        asked=asked(job, [result.policy]),
    )


class Made(NamedTuple):
    """So many instances from the first on, and their events from the first on, of a rank; -1: of a class."""

    instance: int
    many: int
    rank: int
    event: int


class _Written:
    """The events of a run as they are taken in: a line for each part of a row, and the times of its instances."""

    def __init__(self, senders: Senders, own: OwnReady) -> None:
        self.senders, self.own = senders, own
        self.numbers: dict[Group, int] = {}
        self.made: list[Made] = []
        self.arriving: list[Made] = []  # messages, by the rank that receives each
        self.lines: list[Row] = []
        self.times: dict[str, list[np.ndarray]] = {name: [] for name in (*TIMES, "sequence", "size_bytes")}
        self.counts: list[int] = []
        self.many = 0

    def take(self, row: Instances, step: int, parts: list[EventPart], *, is_apart: bool) -> None:
        """Take in the events of a row, those of one part after those of another."""
        run = self.senders.run
        where, times, first = run.span(row, step), run.times, self.many
        begin, ready = times.moved[where] / PS, times.ready[where] / PS
        lasted = (times.end[where] - times.moved[where]) / PS
        same = self._task(row) if row.what == "task" else self._operation(row)
        sequence = step * run.laid.per_step + row.first + np.arange(row.count)
        sizes = np.full(row.count, row.size_bytes)
        sizes[-1] = row.last_bytes
        at_ready: dict[int, np.ndarray] = {}
        for part in parts:
            if row.what != "task" and part.of not in at_ready:
                at_ready[part.of] = self.own.ready(row, step, part.of) / PS
            number = None if part.group is None else self.numbers.setdefault(part.group, len(self.numbers))
            whose = {name: getattr(part, name) for name in ("rank", "rank_class", "multiplicity", "records", "peer")}
            self.lines.append({"iteration": step, **same, **whose, "communicator": number})
            values = (at_ready.get(part.of, ready), begin, lasted, sequence, sizes)
            for name, each in zip(self.times, values, strict=True):
                self.times[name].append(each)
            self.counts.append(row.count)
            self.many += row.count
        for at, part in enumerate(parts if is_apart else parts[:1]):
            rank, event = part.rank if is_apart and part.rank is not None else -1, first + at * row.count
            self.made.append(Made(where.start, row.count, rank, event))
            if is_apart and part.receiver is not None:
                self.arriving.append(Made(where.start, row.count, part.receiver, event))

    def _task(self, row: Instances) -> Row:
        phase, op = PHASES.get(row.kind), "hold" if row.name.startswith(f"{HELD} ") else row.kind
        return _of(row) | {"kind": "compute", "op": op, "phase": phase, "stream": "compute", "role": None}

    def _operation(self, row: Instances) -> Row:
        op = self.senders.operations[row.name].op
        kind = "p2p" if op in POINT_TO_POINT else "collective"
        stream = f"{row.role}{f' {row.phase}' if row.phase else ''}"
        return _of(row) | {"kind": kind, "op": op, "phase": self.senders.phase(row), "stream": stream, "role": row.role}

    def events(self) -> pl.DataFrame:
        """Return all rows of ``events`` but those of the steps."""
        import polars as pl

        lines = conform("events", rows("events", self.lines))
        lines = lines.select(name for name in self.lines[0] if name not in self.times) if self.lines else lines
        frame = lines.select(pl.all().gather(np.repeat(np.arange(len(self.counts)), self.counts)))
        frame = frame.with_columns(**{name: np.concatenate(each) for name, each in self.times.items()})
        is_call = pl.col("kind") != "compute"
        alone = [pl.when(is_call).then(pl.col(name)).alias(name) for name in ("sequence", "size_bytes")]
        source = pl.when(is_call).then(pl.lit(SIMULATED_JOB)).otherwise(pl.lit(WRITER.source)).alias("source")
        return WRITER.events(frame.with_columns(*alone, source))


def _of(row: Instances) -> Row:
    return {"task": row.name, "layer": str(row.layer)}


def _steps(events: pl.DataFrame) -> pl.DataFrame:
    """Return when each step lasted on each rank, or class of ranks: from its first event to the end of its last."""
    import polars as pl

    end = (pl.col("start_s") + pl.col("duration_s")).max()
    whose = events.group_by("rank", "rank_class", "iteration", maintain_order=True)
    lasted = whose.agg(pl.col("start_s").min(), end.alias("end_s"), pl.col("multiplicity").max())
    lasted = lasted.with_columns((pl.col("end_s") - pl.col("start_s")).alias("duration_s")).drop("end_s")
    lasted = lasted.sort("iteration", "rank")
    return WRITER.events(lasted, kind="step", records=None, confidence=None, source=SIMULATED_JOB)


def _edges(run: JobRun, written: _Written) -> pl.DataFrame:
    """Return what waits for what, directly or through control and barriers, which are no events.

    It is among the events of one rank, and flows from a message, which is its sender's event, to what waits for it where it
    arrives.
    """
    import polars as pl

    waits = pl.DataFrame(dict(zip(("src", "dst"), _through_control(run), strict=True)))
    waiting = _instances(written.made).rename({"instance": "dst", "event": "dst_event"})
    listed = []
    for kind, made in (("dependency", written.made), ("flow", written.arriving)):
        waited = _instances(made).rename({"instance": "src", "event": "src_event"})
        told = waits.join(waited, on="src").join(waiting, on=["dst", "rank"])
        listed.append(told.select("src_event", "dst_event", kind=pl.lit(kind)))
    return pl.concat(listed).unique(maintain_order=True)


def _instances(made: list[Made]) -> pl.DataFrame:
    """Return a row for each event that was made: its instance and its rank."""
    import polars as pl

    many = [each.many for each in made]
    within = np.arange(sum(many)) - np.repeat(np.cumsum([0, *many])[:-1], many)
    starts = {
        name: np.array([getattr(each, name) for each in made], np.int64) for name in ("instance", "rank", "event")
    }
    columns = {name: np.repeat(each, many) for name, each in starts.items()}
    return pl.DataFrame({name: each + within * (name != "rank") for name, each in columns.items()})


def _through_control(run: JobRun) -> tuple[np.ndarray, np.ndarray]:
    """Return who is waited for and who waits, int64 of shape (edges,), where what is between them takes no time.

    Of very many that one control instance joins, it is the last of those before that is waited for.
    """
    src, dst = run.laid.flat.edges()
    is_control = np.array([band.kind == "CTRL" for band in run.laid.bands], bool)[run.laid.of]
    before, after = is_control[src % run.laid.per_step], is_control[dst % run.laid.per_step]
    kept = [np.stack((src, dst))[:, ~before & ~after]]
    waited: dict[int, list[int]] = defaultdict(list)
    for one, control in zip(src[after].tolist(), dst[after].tolist(), strict=True):
        waited[control].append(one)
    behind: dict[int, list[int]] = defaultdict(list)
    for control, one in zip(src[before & ~after].tolist(), dst[before & ~after].tolist(), strict=True):
        behind[control].append(one)
    for control, waiting in behind.items():
        joined = _before(control, waited, is_control, run)
        if len(joined) * len(waiting) > MOST_JOINED:
            joined = sorted(joined, key=lambda each: int(run.times.end[each]))[-1:]
        kept.append(np.stack((np.repeat(joined, len(waiting)), np.tile(waiting, len(joined)))).astype(np.int64))
    joined_src, joined_dst = np.concatenate(kept, axis=1)
    return joined_src, joined_dst


def _before(control: int, waited: dict[int, list[int]], is_control: np.ndarray, run: JobRun) -> list[int]:
    """Return what a control instance waits for, through others of its kind."""
    stack, seen, gathered = [control], {control}, dict[int, None]()
    while stack:
        for one in waited[stack.pop()]:
            if not is_control[one % run.laid.per_step]:
                gathered[one] = None
            elif one not in seen:
                seen.add(one)
                stack.append(one)
    return list(gathered)


def _lying(senders: Senders) -> dict[str, pl.DataFrame]:
    """Return the table ``topology``, where the job runs on a fabric of not too many ranks."""
    costs, size = senders.job.costs, senders.scheduled.mesh.size
    if not isinstance(costs, FabricCosts) or size > MOST_PLACED:
        return {}
    return {"topology": device_rows(range(size), costs.topology)}


def _communicators(numbers: dict[Group, int]) -> pl.DataFrame:
    rows = []
    for (role, ranks), number in numbers.items():
        told = communicator(ranks, comm_id=f"{role}/{number}", name=role, role=role, number=number)
        rows.append(told | {"role_evidence": "the mesh"})
    return communicators(rows)


def _claims(job: Job, result: PolicyResult) -> pl.DataFrame:
    told = [
        ("engine", f"jobs, {result.run.engine}", "; ".join(job.left_out)),
        ("policy", result.policy, result.workload.policy.label),
    ]
    family, device = job.fabric.partition(":")[0], job.interference.gpu
    if device:
        is_named = family in OF_FABRIC
        told.append(
            ("gpu", device, "of the fabric") if is_named else ("device", device, "assumed: the fabric names none")
        )
    told += [("assumption", text, "") for text in job.assumptions]
    return WRITER.claims(told, assumed="assumption")
