"""A simulated job as a Trace, so that every report, query and export of a measured job works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.engines.job.run import JobRun
from ringwright.engines.job.step import PS, Instances
from ringwright.studies.jobs.rows import asked
from ringwright.studies.jobs.senders import POINT_TO_POINT, Senders
from ringwright.studies.traced import WRITER, device_rows
from ringwright.trace_tables import Row, conform
from ringwright.traced import communicator, communicators
from ringwright.workload import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from ringwright.rewrites import Operation
    from ringwright.studies.jobs.study import Job, PolicyResult
    from ringwright.trace import Trace


def trace(job: Job, result: PolicyResult) -> Trace:
    """Return the run: a compute event per task, a collective per piece, their edges, communicators and claims.

    Each event stands for ``multiplicity`` ranks; ``enqueue_s`` is when it was ready, ``start_s`` when its bytes moved or its
    work began. Control tasks and barriers take no time and are left out.
    """
    import polars as pl

    run = result.run
    senders = Senders(job, result.workload, run)
    steps = senders.steps()
    members = _communicators(run)
    frames: list[pl.DataFrame] = []
    made: list[tuple[int, int, int, int]] = []  # (first instance, how many, rank or -1, first event)
    written = 0
    for step in steps:
        for row in run.laid.rows:
            if row.kind == "CTRL":
                continue
            parts = _events(senders, row, step, members)
            for whose, number in _owners(run, row, len(parts)):
                made.append((run.span(row, step).start, row.count, whose, written + number * row.count))
            written += row.count * len(parts)
            frames += parts
    frames.append(_steps(run, steps))
    return WRITER.trace(
        job.workload.mesh.size,
        f"{job.workload.name} on {job.fabric}, policy {result.policy}",
        events=pl.concat(frames),
        edges=_edges(run, made),
        communicators=_table(senders, members),
        **_hosts(senders),
        claims=_claims(job, result),
        asked=asked(job, [result.policy]),
    )


def _communicators(run: JobRun) -> dict[tuple[str, tuple[int, ...]], int]:
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}
    for row in run.laid.rows:
        if row.what == "operation":
            numbers.setdefault((row.role, row.rank_classes), len(numbers))
    return numbers


def _events(
    senders: Senders, row: Instances, step: int, members: dict[tuple[str, tuple[int, ...]], int]
) -> list[pl.DataFrame]:
    """Return the events of a row: one frame, or, of an operation, one for each class of ranks that sends."""
    import polars as pl

    run, job = senders.run, senders.job
    where, rank_classes, times = run.span(row, step), run.laid.rank_classes, run.times
    taking = list(dict.fromkeys(row.rank_classes))
    ranks = sum(rank_classes.counts[rank_class] for rank_class in taking)
    same: dict[str, Any] = {
        "task": row.name,
        "rank": rank_classes.ranks[taking[0]] if ranks == 1 else None,
        "rank_class": rank_classes.of[taking[0]],
        "multiplicity": ranks,
        "records": ranks,
        "iteration": step,
        "layer": str(row.layer),
    }
    columns: dict[str, Any] = {
        "enqueue_s": times.ready[where] / PS,
        "start_s": times.moved[where] / PS,
        "duration_s": (times.end[where] - times.moved[where]) / PS,
    }
    if row.what == "task":
        same |= {"kind": "compute", "op": row.kind, "phase": PHASES.get(row.kind), "stream": "compute"}
        return [WRITER.events(columns, **same)]
    operation = senders.operations[row.name]
    sizes = np.full(row.count, row.size_bytes)
    sizes[-1] = row.last_bytes
    kind = "p2p" if operation.op in POINT_TO_POINT else "collective"
    same |= {"kind": kind, "op": operation.op, "role": row.role, "communicator": members[row.role, row.rank_classes]}
    same |= {"stream": f"{row.role}{f' {row.phase}' if row.phase else ''}", "phase": senders.phase(row)}
    columns |= {"size_bytes": sizes, "sequence": step * run.laid.per_step + row.first + np.arange(row.count)}
    if all(count == 1 for count in rank_classes.counts) and operation.op != "send-recv":
        each: list[Row] = [{"rank": rank_classes.ranks[one], "multiplicity": 1, "records": 1} for one in taking]
    else:  # of a class one event a group, however many ranks of it the group has
        groups = _groups(job, run, row, operation)
        sending = senders.sending(row)
        each = [{"multiplicity": groups, **_whose(senders, one)} for one in sending]
        each[0] |= {"records": ranks} if len(sending) == 1 else {}
    frame = pl.DataFrame(columns)
    return [WRITER.events(frame, **{**same, **one}) for one in each]


def _whose(senders: Senders, rank_class: int) -> Row:
    """Return whose an event of a class is, and how many records it stands for."""
    rank_classes = senders.run.laid.rank_classes
    count = rank_classes.counts[rank_class]
    rank = rank_classes.ranks[rank_class] if count == 1 else None
    return {"rank": rank, "rank_class": senders.names[rank_class], "records": count}


def _groups(job: Job, run: JobRun, row: Instances, operation: Operation) -> int:
    """Return how many groups of ranks, or pairs, the row stands for."""
    rank_classes, mesh = run.laid.rank_classes, job.workload.mesh
    if operation.op == "send-recv":
        return rank_classes.counts[row.rank_classes[0]]
    ranks = sum(rank_classes.counts[rank_class] for rank_class in dict.fromkeys(row.rank_classes))
    if operation.payloads[0].joint:
        return max(1, ranks // len(row.rank_classes))
    return max(1, ranks // mesh.extent(operation.axes))


def _steps(run: JobRun, steps: Iterable[int]) -> pl.DataFrame:
    """Return when each step lasted, from the end of one backward pass to the end of the next."""
    import polars as pl

    marks = [run.finished(step) / PS for step in range(run.laid.steps)]
    begins = [marks[step - 1] if step else 0.0 for step in steps]
    lasted = [marks[step] - begin for step, begin in zip(steps, begins, strict=True)]
    same = WRITER.events(
        {"iteration": list(steps), "start_s": begins, "duration_s": lasted},
        kind="step",
        multiplicity=None,
        records=None,
        confidence=None,
    )
    rank_classes = run.laid.rank_classes
    if any(count > 1 for count in rank_classes.counts):
        return same
    ranks = pl.DataFrame({"rank": pl.Series(rank_classes.ranks, dtype=pl.Int32)})
    return conform("events", same.drop("rank").join(ranks, how="cross"))


def _owners(run: JobRun, row: Instances, parts: int) -> list[tuple[int, int]]:
    """Return whose the events of a row are: (rank, which of its parts); rank -1 where ranks were folded."""
    rank_classes = run.laid.rank_classes
    if any(count > 1 for count in rank_classes.counts):
        return [(-1, 0)]
    taking = list(dict.fromkeys(row.rank_classes))
    return [(rank_classes.ranks[rank_class], at if parts > 1 else 0) for at, rank_class in enumerate(taking)]


def _edges(run: JobRun, made: list[tuple[int, int, int, int]]) -> pl.DataFrame:
    """Return what waits for what among the events of one rank; waits through a barrier are left out."""
    import polars as pl

    flat = run.laid.flat
    columns = [np.concatenate([np.arange(each[at], each[at] + each[1]) for each in made]) for at in (0, 3)]
    ranks = np.repeat([each[2] for each in made], [each[1] for each in made])
    events = pl.DataFrame({"instance": columns[0], "rank": ranks, "event": columns[1]})
    waits = pl.DataFrame(dict(zip(("src", "dst"), flat.edges(), strict=True)))
    return (
        waits.join(events.rename({"instance": "src", "event": "src_event"}), on="src")
        .join(events.rename({"instance": "dst", "event": "dst_event"}), on=["dst", "rank"])
        .select("src_event", "dst_event", kind=pl.lit("dependency"))
        .unique(maintain_order=True)
    )


def _hosts(senders: Senders) -> dict[str, pl.DataFrame]:
    """Return the table ``topology``, where the fabric tells which hosts the ranks are on."""
    if senders.topology is None:
        return {}
    return {"topology": device_rows(range(senders.scheduled.mesh.size), senders.topology)}


def _table(senders: Senders, members: dict[tuple[str, tuple[int, ...]], int]) -> pl.DataFrame:
    groups: dict[int, tuple[int, ...]] = {}
    for row in senders.run.laid.rows:
        if row.what == "operation":
            groups.setdefault(members[row.role, row.rank_classes], senders.members(row))
    rows = []
    for (role, _), number in members.items():
        group = groups[number]
        told = communicator(group, comm_id=f"{role}/{number}", name=role, role=role, number=number)
        rows.append(told | {"role_evidence": "the mesh"})
    return communicators(rows)


def _claims(job: Job, result: PolicyResult) -> pl.DataFrame:
    rows = [
        ("engine", f"jobs, {result.run.engine}", "; ".join(job.left_out)),
        ("policy", result.policy, result.workload.policy.label),
    ]
    rows += [("assumption", text, "") for text in job.assumptions]
    return WRITER.claims(rows, assumed="assumption")
