"""The summary object: everything the reports show, as plain JSON values; schema ``ringwright.summary/1``, additions only."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ringwright.analysis import matrix as pairs
from ringwright.analysis import operations as ops
from ringwright.analysis import timeline as times
from ringwright.analysis.bandwidth import bandwidth
from ringwright.analysis.bars import bars
from ringwright.analysis.culprits import culprits
from ringwright.analysis.culprits import verdict as strongest
from ringwright.analysis.expected import cliffs, expected
from ringwright.analysis.findings import findings, is_log
from ringwright.analysis.judged import judged
from ringwright.analysis.kernels import kernels
from ringwright.analysis.overlap import overlap
from ringwright.analysis.provision import provision
from ringwright.analysis.roles import Roles, infer
from ringwright.analysis.steps import steps_us
from ringwright.analysis.topology import topology
from ringwright.analysis.verdict import errors, verdict
from ringwright.laws.ranks import census

if TYPE_CHECKING:
    import polars as pl

    from ringwright.trace import Trace

SCHEMA = "ringwright.summary/1"
FULL_PAIRS = 1024
TOP_PAIRS = 10_000
_ONLY_THE_LOG = [
    "when a collective ran or how long it took: the line is printed when it is enqueued",
    "operations replayed from a CUDA graph: only their capture prints lines",
    "who waited for whom, unless a watchdog or RAS text is in the log",
]


def summarise(trace: Trace) -> dict[str, Any]:
    """Return what a recording says, as the verb ``summary`` tells it.

    Parameters
    ----------
    trace
        A Trace, of whatever source.

    Returns
    -------
    dict
        Plain JSON values, schema ``ringwright.summary/1``: ``operations`` (a row per operation, its sizes counted),
        ``communicators``, ``timeline``, ``bandwidth``, ``findings``, ``ledger``, ``limits`` ... Units are in the names of the
        keys; what a source does not hold is null or empty, never 0.

    Raises
    ------
    UsageError
        The Trace lacks a table.

    Examples
    --------
    >>> import ringwright
    >>> found = ringwright.summary(ringwright.read(ringwright.sample()))
    >>> found["schema"], found["kind"], sorted({row["op"] for row in found["operations"]})
    ('ringwright.summary/1', 'nccl-log', ['all-reduce'])
    """
    import polars as pl

    logical, points = ops.logical(trace), ops.point_to_point(trace)
    claims = trace.table("claims").to_dicts()
    comms = [row | {"members": row["members"] or []} for row in trace.table("communicators").to_dicts()]
    launch = {claim["field"][7:]: int(claim["value"]) for claim in claims if claim["field"].startswith("launch ")}
    world = trace.meta.get("world")
    roles = _with_told(infer([row for row in comms if row["size"]], launch, _ops_of(logical), world), comms)
    logical = logical.with_columns(
        pl.Series("role", [roles.of.get(n, (None,))[0] for n in logical["communicator"]], pl.String)
    )
    devices = pairs.ranks_of(trace)
    host_of = {row["rank"]: row["host"] for row in devices if row["rank"] is not None}
    faults, counted = errors(trace), census(devices, world)
    ras = next((json.loads(claim["value"]) for claim in claims if claim["field"] == "ras"), None)
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "source": trace.meta.get("source", ""),
        "kind": trace.meta.get("source", ""),
        "inputs": list(trace.meta.get("inputs", [])),
        "nccl_versions": list(trace.meta.get("nccl_versions", [])),
        "library": trace.meta.get("library"),
        "folded": bool(trace.meta.get("folded", False)),
        "hosts": counted.hosts,
        "ranks_seen": counted.seen or _ranks_told(faults),
        "ranks_expected": counted.expected,
        "communicators": _sizes(comms),
        "operations": ops.by_operation(logical),
        "roles": roles.degrees,
        "ledger": _ledger(trace),
        "errors": [_error(row) for row in faults[:500]],
        "errors_total": len(faults) + int(trace.meta.get("errors_dropped", 0)),
        "iterations": _iterations(trace),
        "timeline": times.timeline(trace),
        "concurrency": times.concurrency(trace),
        "algorithms": pairs.algorithms(trace),
        "by_role": ops.shares(logical, "role"),
        "by_phase": ops.shares(logical, "phase"),
        "communicator_list": _communicator_list(comms, roles, logical),
        "ranks": _ranks(devices, trace),
    }
    _recorded(result, trace, verdict(faults, ras, world, host_of))
    result["size_classes"] = ops.size_classes(result["operations"])
    _traffic(result, trace, logical, points, host_of)
    result["topology"] = topology(trace)
    steps = len(result["iterations"]) or None
    parts = (result["operations"], result["nic_bytes"], result["host_pair_bytes"], result["timeline"], steps)
    result["provision"] = provision(*parts, is_log=is_log(result))
    losses = result["losses"] = list(trace.meta.get("losses", []))
    result["laws"], result["ledger_detail"] = judged(trace, counted, result["bandwidth"])
    result["findings"] = [*findings(result, claims, losses), *result.pop("measured_findings")]
    result["warnings"] = [
        item["title"] + ": " + item["detail"] for item in result["findings"] if item["severity"] == "warning"
    ]
    result["claims"] = claims
    result["limits"] = _limits(result)
    result["coverage"] = _coverage(result)
    return result


def _recorded(result: dict[str, Any], trace: Trace, told: dict[str, Any] | None) -> None:
    """Add what only recordings with times, states, metrics or measurements tell."""
    import polars as pl

    has = trace.scan("events").select(
        timed=(pl.col("kind").is_in(["collective", "p2p"]) & (pl.col("duration_s") > 0)).any(),
        states=pl.col("state").is_not_null().any() | (pl.col("kind") == "status").any(),
        metrics=(pl.col("kind") == "metric").any(),
        measured=(pl.col("kind") == "measurement").any(),
        kernels=pl.col("kernel").is_not_null().any(),
        steps=((pl.col("kind") == "step") & (pl.col("duration_s") > 0)).any(),
    ).collect().row(0, named=True)  # fmt: skip
    had = {name: bool(value) for name, value in has.items()}
    blamed, late, missing = culprits(trace, told, states=had["states"], timed=had["timed"], metrics=had["metrics"])
    hidden = overlap(trace) if had["kernels"] else {}
    result |= {
        "verdict": strongest(blamed),
        "culprits": blamed,
        "waits": late.get("ranks", []),
        "arrivals": {name: late[name] for name in ("verdict", "reason", "collectives") if name in late} or None,
        "steps_us": {str(rank): steps for rank, steps in steps_us(trace).items()} if had["steps"] else {},
        "kernels": kernels(trace) if had["kernels"] else [],
        "overlap": hidden,
        "exposed_us": hidden.get("exposed_us"),
        "overlapped_us": hidden.get("overlapped_us"),
        "bandwidth": bandwidth(trace) if had["measured"] or had["timed"] else [],
        "bars": bars(trace) if had["timed"] else None,
        "not_examined": missing,
        "passed_over": list(trace.meta.get("passed_over", [])),
        "told_limits": list(trace.meta.get("limits", [])),
        "measured_findings": [*expected(trace), *cliffs(trace)] if had["measured"] else [],
    }


def _with_told(roles: Roles, comms: list[dict[str, Any]]) -> Roles:
    """Return the roles with those that a source itself names."""
    told = {
        row["communicator"]: (row["role"], row["role_evidence"] or "named by the source")
        for row in comms
        if row["role"]
    }
    return replace(roles, of={**roles.of, **told})


def _ops_of(logical: pl.DataFrame) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for number, op in logical.select("communicator", "op").unique().rows():
        if number is not None:
            found[number].add(op)
    return found


def _sizes(comms: list[dict[str, Any]]) -> list[dict[str, int]]:
    counts = Counter(comm["size"] for comm in comms if comm["size"])
    return [{"size": size, "count": counts[size]} for size in sorted(counts)]


def _ranks_told(faults: list[dict[str, Any]]) -> int:
    """Ranks that watchdogs named, where no device wrote."""
    return len({row["rank"] for row in faults if row["rank"] is not None})


def _ledger(trace: Trace) -> dict[str, int]:
    import polars as pl

    counts = dict(trace.scan("ledger").group_by("outcome").agg(pl.col("lines").sum()).collect().rows())
    found = {name: int(counts.get(name, 0)) for name in ("understood", "repaired", "refused", "other")}
    return {"lines": sum(found.values()), **found, "missing": int(counts.get("missing", 0))}


def _error(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: row[name] for name in ("rank", "host", "text", "file", "line", "code", "first")}
    return kept | {"kind": row["op"]}


def _iterations(trace: Trace) -> list[dict[str, Any]]:
    import polars as pl

    steps = trace.scan("events").filter(pl.col("kind") == "step").select("iteration", "rank", "duration_s").collect()
    of_a_rank = pl.col("iteration").is_not_null() & pl.col("rank").is_not_null()
    whole = steps.filter(~of_a_rank).select("iteration", "duration_s")
    # An iteration that every rank tells of takes as long as on the slowest.
    joined = steps.filter(of_a_rank).group_by("iteration").agg(pl.col("duration_s").max()).sort("iteration")
    return [{"iteration": number, "time_s": seconds} for number, seconds in pl.concat([whole, joined]).rows()]


def _communicator_list(comms: list[dict[str, Any]], roles: Roles, logical: pl.DataFrame) -> list[dict[str, Any]]:
    import polars as pl

    grouped = logical.group_by("communicator").agg(pl.col("operations").sum(), pl.col("bytes").sum())
    totals = {number: (count, amount) for number, count, amount in grouped.rows()}
    found = []
    for comm in comms:
        number = comm["communicator"]
        role, evidence = roles.of.get(number, (None, None))
        count, amount = totals.get(number, (0, 0))
        keep = ("communicator", "comm_id", "size", "members", "ranks_seen", "nnodes", "parent", "ground")
        row = {name: comm[name] for name in keep}
        found.append(row | {"role": role, "role_evidence": evidence, "operations": count, "bytes": amount})
    return found


def _ranks(devices: list[dict[str, Any]], trace: Trace) -> list[dict[str, Any]]:
    import polars as pl

    mine = trace.scan("events").filter(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("rank").is_not_null())
    records = dict(mine.group_by("rank").agg(pl.col("records").sum()).collect().rows())
    return [row | {"records": records.get(row["rank"])} for row in devices]


def _traffic(
    result: dict[str, Any], trace: Trace, logical: pl.DataFrame, points: pl.DataFrame, host_of: dict[int, str]
) -> None:
    found = pairs.matrix(trace, logical, points)
    ordered = sorted(found.pairs.items(), key=lambda item: (-item[1], item[0]))
    limit = TOP_PAIRS if (result["ranks_expected"] or 0) > FULL_PAIRS else len(ordered)
    result["pair_bytes"] = [{"src": a, "dst": b, "bytes": round(amount)} for (a, b), amount in ordered[:limit]]
    result["truncated"] = len(ordered) > limit
    result["host_pair_bytes"] = pairs.host_pairs(found.pairs, host_of)
    result["nic_bytes"] = pairs.nic_loads(found, host_of)
    result["pair_ground"] = {
        "algorithm": ", ".join(sorted(found.algorithms)) or "none",
        "ground": "assumed" if found.assumed else "read",
        "low_bytes": found.low_bytes,
        "high_bytes": max(found.high_bytes, found.total_bytes),
        "total_bytes": found.total_bytes,
        "unplaced_bytes": found.unplaced_bytes,
        "conserved": found.conserved,
    }


def _limits(result: dict[str, Any]) -> list[str]:
    limits = list(_ONLY_THE_LOG) if result["source"] == "nccl-log" else []
    if result["timeline"] is None and result["operations"]:
        limits.append(f"bursts and time course: the {'lines' if is_log(result) else 'records'} carry no time")
    if not result["algorithms"] and result["operations"]:
        why = "no TUNING lines" if is_log(result) else "the source does not say"
        limits.append(f"which algorithm ran: {why}; the byte matrix assumes rings")
    limits += result["told_limits"]
    limits += [f"passed over: {text}" for text in result["passed_over"][:5]]
    unsized = [row["op"] for row in result["operations"] if row["unsized"]]
    if unsized:
        limits.append(f"bytes of {', '.join(unsized)}: calls without a size are counted, their bytes are not")
    return [*limits, *result["not_examined"]]


def _coverage(result: dict[str, Any]) -> str:
    expected = result["ranks_expected"]
    ranks = f"{result['ranks_seen']}/{expected if expected is not None else '?'} ranks"
    hosts = f"{result['hosts']} host{'s' if result['hosts'] != 1 else ''}"
    name = (result["library"] or "nccl").upper()
    version = f"{name} {', '.join(result['nccl_versions'])}" if result["nccl_versions"] else f"{name} version unknown"
    ledger = result["ledger"]
    unit = "lines" if is_log(result) else "records"
    counts = f"{ledger['lines']:,} {unit}: {ledger['understood']:,} understood, {ledger['repaired']:,} repaired, "
    where = f"{ranks} on {hosts}" if result["hosts"] else ranks
    gone = ledger["missing"]
    share = gone / (gone + ledger["understood"] + ledger["repaired"]) if gone else 0.0
    lost = f", {gone:,} missing ({share:.1%} by sequence numbers)" if gone else ""
    whole = f"{where} · {version} · {counts}{ledger['refused']:,} refused, {ledger['other']:,} other{lost}"
    return whole if is_log(result) else f"{result['kind']} · {whole}"
