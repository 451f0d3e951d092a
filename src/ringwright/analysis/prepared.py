"""What several parts of a summary ask of a Trace: asked once, each part is made of this alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.analysis import logical_operations, pairs
from ringwright.analysis.document import Row
from ringwright.analysis.kernels import on_device
from ringwright.analysis.role_phases import with_phases
from ringwright.analysis.roles import Roles, infer
from ringwright.analysis.verdict import errors
from ringwright.analysis.window import as_large_as, window
from ringwright.bounds.laws.ranks import Census, census
from ringwright.ground.trace_tables import CHECKPOINT

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace


@dataclass(frozen=True)
class Prepared:
    """A Trace and what was asked of it."""

    trace: Trace
    near: Trace  # for what compares calls in time: the same, or some of its iterations where there are too many
    logical: pl.DataFrame  # one row per call of a communicator, with its role
    points: pl.DataFrame
    claims: list[Row]
    communicators: list[Row]
    roles: Roles
    devices: list[Row]
    host_of: dict[int, str]
    faults: list[Row]
    counted: Census
    world: int | None
    has: dict[str, bool]  # times, states, metrics, measurements, kernels, steps
    gap_s: float | None


def prepared(trace: Trace, gap_s: float | None) -> Prepared:
    """Ask a Trace; ``gap_s`` is the longest pause within a burst, s."""
    near = window(trace)
    with as_large_as(trace, near):
        return _prepared(trace, near, gap_s)


def _prepared(trace: Trace, near: Trace, gap_s: float | None) -> Prepared:
    import polars as pl

    logical = logical_operations.logical(trace)
    claims = trace.table("claims").to_dicts()
    comms = [row | {"members": row["members"] or []} for row in trace.table("communicators").to_dicts()]
    launch = {claim["field"][7:]: int(claim["value"]) for claim in claims if claim["field"].startswith("launch ")}
    world = trace.meta.get("world")
    is_saved = pl.col("phase").eq(CHECKPOINT).fill_null(value=False)  # it says nothing of what a communicator is for
    ops = _ops_of(logical.filter(~is_saved))
    inferred = infer([row for row in comms if row["size"]], launch, ops, world)
    roles = _with_told(inferred if launch else with_phases(inferred, comms, logical, world), comms)
    named = pl.Series("role", [roles.of.get(n, (None,))[0] for n in logical["communicator"]], pl.String)
    devices = pairs.ranks_of(trace)
    host_of = {row["rank"]: row["host"] for row in devices if row["rank"] is not None}
    return Prepared(
        trace,
        near,
        logical.with_columns(pl.when(is_saved).then(pl.lit(CHECKPOINT)).otherwise(named).alias("role")),
        logical_operations.point_to_point(trace),
        claims,
        comms,
        roles,
        devices,
        host_of,
        errors(trace),
        census(devices, world),
        world,
        _columns_with_values(trace),
        gap_s,
    )


def _columns_with_values(trace: Trace) -> dict[str, bool]:
    """Return what a recording has: times, states, metrics, measurements, kernels, steps."""
    import polars as pl

    has = (
        trace.scan("events")
        .select(
            timed=(pl.col("kind").is_in(["collective", "p2p"]) & (pl.col("duration_s") > 0)).any(),
            states=pl.col("state").is_not_null().any() | (pl.col("kind") == "status").any(),
            metrics=(pl.col("kind") == "metric").any(),
            measured=(pl.col("kind") == "measurement").any(),
            kernels=on_device().any(),
            steps=((pl.col("kind") == "step") & (pl.col("duration_s") > 0)).any(),
        )
        .collect()
        .row(0, named=True)
    )
    return {name: bool(value) for name, value in has.items()}


def _with_told(roles: Roles, comms: list[Row]) -> Roles:
    """Return the roles with those that a source itself names; that a group is all ranks says less than its phases do."""
    told = {
        row["communicator"]: (row["role"], row["role_evidence"] or "named by the source")
        for row in comms
        if row["role"] and not (row["role"] == "world" and row["communicator"] in roles.confidence)
    }
    return replace(roles, of={**roles.of, **told})


def _ops_of(logical: pl.DataFrame) -> dict[int, set[str]]:
    ops: dict[int, set[str]] = defaultdict(set)
    for number, op in logical.select("communicator", "op").unique().rows():
        if number is not None:
            ops[number].add(op)
    return ops
