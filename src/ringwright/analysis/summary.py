"""The summary object: everything the reports show, as plain JSON values; schema ``ringwright.summary/1``, additions only."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from ringwright.analysis import logical_operations, pairs
from ringwright.analysis.adders import adders
from ringwright.analysis.bandwidth import bandwidth
from ringwright.analysis.broken_laws import judged
from ringwright.analysis.call_times import operation_times
from ringwright.analysis.coverage import coverage, limits_of
from ringwright.analysis.culprits import culprits
from ringwright.analysis.culprits import verdict as strongest
from ringwright.analysis.document import (
    Calls,
    Conclusions,
    Facts,
    Iteration,
    Judged,
    Judgements,
    Origin,
    Row,
    SizeCount,
    Summary,
    Times,
    Traffic,
)
from ringwright.analysis.expected import cliffs, expected
from ringwright.analysis.exposed.overlap import overlap
from ringwright.analysis.findings import findings, is_log
from ringwright.analysis.first_answer import first_answer
from ringwright.analysis.first_calls import first_calls
from ringwright.analysis.kernels import kernels
from ringwright.analysis.machine.topology import topology
from ringwright.analysis.normal import Normal, normal
from ringwright.analysis.normal import findings as slower_than_most
from ringwright.analysis.notebook_tables import of_summary
from ringwright.analysis.prepared import Prepared, prepared
from ringwright.analysis.provision import provision
from ringwright.analysis.roles import Roles
from ringwright.analysis.steps import steps_us
from ringwright.analysis.timeline.bars import bars
from ringwright.analysis.traffic import of_trace as trace_bursts
from ringwright.analysis.traffic import traffic_over_time
from ringwright.analysis.verdict import verdict
from ringwright.analysis.window import as_large_as, of_late_ranks
from ringwright.ground.notebook import shown
from ringwright.model.run_tables import SIMULATED_JOB

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

SCHEMA = "ringwright.summary/1"
FULL_PAIRS = 1024
TOP_PAIRS = 10_000


def summarise(trace: Trace, *, gap_s: float | None = None) -> Summary:
    """Return what a recording says, as the verb ``summary`` tells it.

    Parameters
    ----------
    trace
        A Trace, of whatever source.
    gap_s
        The longest pause within a burst of a NIC, s; 50 us if left out.

    Returns
    -------
    dict
        Plain JSON values, schema ``ringwright.summary/1``: ``operations`` (a row per operation, its sizes counted),
        ``communicators``, ``timeline``, ``bandwidth``, ``findings``, ``ledger``, ``limits`` ... Units are in the names of the
        keys; what a source does not hold is null or empty, never 0.

    Raises
    ------
    UsageError
        The Trace lacks a table, or the gap is negative.

    Examples
    --------
    >>> import ringwright
    >>> found = ringwright.summary(ringwright.read(ringwright.sample()))
    >>> found["schema"], found["kind"], sorted({row["op"] for row in found["operations"]})
    ('ringwright.summary/1', 'nccl-log', ['all-reduce'])
    """
    given = prepared(trace, gap_s)
    times_ = _times(given)
    with as_large_as(trace, given.near):
        calls, traffic = _calls(given), _traffic(given)
    facts: Facts = {**_origin(trace), **calls, **times_, **traffic}
    judged_: Judged = {**facts, **_judgements(given, facts)}
    whole: Summary = {**judged_, **_conclusions(given, judged_)}
    return shown(whole, of_summary)


def _origin(trace: Trace) -> Origin:
    return {
        "schema": SCHEMA,
        "source": trace.meta.get("source", ""),
        "kind": trace.meta.get("source", ""),
        "inputs": list(trace.meta.get("inputs", [])),
        "nccl_versions": list(trace.meta.get("nccl_versions", [])),
        "library": trace.meta.get("library"),
        "folded": bool(trace.meta.get("folded", False)),
        "asked": trace.meta.get("asked"),
    }


def _calls(given: Prepared) -> Calls:
    trace = given.trace
    return {
        "hosts": given.counted.hosts,
        "ranks_seen": given.counted.seen
        or _ranks_told(given.faults)
        or _ranks_with_events(trace, given.counted.expected),
        "ranks_expected": given.counted.expected,
        "communicators": _sizes(given.communicators),
        "operations": logical_operations.by_operation(given.logical),
        "roles": given.roles.degrees,
        "ledger": _ledger(trace),
        "errors": [_error(row) for row in given.faults[:500]],
        "errors_total": len(given.faults) + int(trace.meta.get("errors_dropped", 0)),
        "iterations": _iterations(given.near),
        "timeline": traffic_over_time.timeline(given.near),
        "concurrency": traffic_over_time.concurrency(given.near),
        "algorithms": pairs.algorithms(trace),
        "by_role": logical_operations.shares(given.logical, "role"),
        "by_phase": logical_operations.shares(given.logical, "phase"),
        "communicator_list": _communicator_list(given.communicators, given.roles, given.logical),
        "ranks": _ranks(given.devices, trace),
    }


def _times(given: Prepared) -> Times:
    trace, has = given.near, given.has
    ras = next((json.loads(claim["value"]) for claim in given.claims if claim["field"] == "ras"), None)
    went_on = has["timed"] or has["measured"] or given.logical.height > 0
    told = verdict(given.faults, ras, given.world, given.host_of, went_on=went_on)
    needs = {name: has[name] for name in ("states", "timed", "metrics")}
    blamed, late, missing = culprits(trace, told, **needs, closer=partial(of_late_ranks, given.trace, trace))
    hidden = overlap(trace) if has["kernels"] else {}
    bursts, unknown = trace_bursts.bursts(trace, given.host_of, given.gap_s)
    return {
        "verdict": strongest(blamed),
        "culprits": blamed,
        "waits": late.get("ranks", []),
        "arrivals": {name: late[name] for name in ("verdict", "reason", "collectives") if name in late} or None,
        "steps_us": {str(rank): steps for rank, steps in steps_us(trace).items()} if has["steps"] else {},
        "kernels": kernels(trace) if has["kernels"] else [],
        "overlap": hidden,
        "exposed_us": hidden.get("exposed_us"),
        "overlapped_us": hidden.get("overlapped_us"),
        "bandwidth": bandwidth(trace) if has["measured"] or has["timed"] else [],
        "bars": bars(trace) if has["timed"] else None,
        "bursts": bursts,
        "bursts_unknown": unknown,
        "not_examined": missing,
        "passed_over": list(trace.meta.get("passed_over", [])),
        "told_limits": list(late.get("limits", trace.meta.get("limits", []))),
    }


def _traffic(given: Prepared) -> Traffic:
    matrix = pairs.matrix(given.trace, given.logical, given.points)
    ordered = sorted(matrix.pairs.items(), key=lambda item: (-item[1], item[0]))
    limit = TOP_PAIRS if (given.counted.expected or 0) > FULL_PAIRS else len(ordered)
    return {
        "size_classes": logical_operations.size_classes(logical_operations.by_operation(given.logical)),
        "pair_bytes": [{"src": a, "dst": b, "bytes": round(amount)} for (a, b), amount in ordered[:limit]],
        "truncated": len(ordered) > limit,
        "host_pair_bytes": pairs.host_pairs(matrix.pairs, given.host_of),
        "nic_bytes": pairs.nic_loads(matrix, given.host_of),
        "pair_ground": {
            "algorithm": ", ".join(sorted(matrix.algorithms)) or "none",
            "ground": "assumed" if matrix.assumed else "read",
            "low_bytes": matrix.low_bytes,
            "high_bytes": max(matrix.high_bytes, matrix.total_bytes),
            "total_bytes": matrix.total_bytes,
            "unplaced_bytes": matrix.unplaced_bytes,
            "conserved": matrix.conserved,
        },
        "topology": topology(given.trace),
        "in_network": adders(given.trace),
    }


def _judgements(given: Prepared, facts: Facts) -> Judgements:
    parts = (facts["operations"], facts["nic_bytes"], facts["host_pair_bytes"], facts["timeline"])
    laws, detail = judged(given.near, given.counted, facts["bandwidth"], given.points)
    return {
        "provision": provision(*parts, len(facts["iterations"]) or None, is_log=is_log(facts)),
        "losses": list(given.trace.meta.get("losses", [])),
        "laws": laws,
        "ledger_detail": detail,
    }


def _conclusions(given: Prepared, seen: Judged) -> Conclusions:
    told = findings(seen, given.claims)
    beside = normal(given.near, seen["bandwidth"]) if seen["bandwidth"] else Normal([], [])
    told += slower_than_most(given.near, beside.rows)
    times = operation_times(given.near) if given.has["timed"] or given.has["measured"] else []
    if given.has["measured"]:
        for rule in (first_calls, expected, cliffs):
            told += rule(given.near, rates=seen["bandwidth"])
    return {
        "answer": first_answer(seen, told, beside.rows, beside.unknown, times),
        "findings": told,
        "warnings": [f"{each['title']}: {each['detail']}" for each in told if each["severity"] == "warning"],
        "normal": beside.rows,
        "normal_unknown": beside.unknown,
        "claims": given.claims,
        "limits": limits_of(seen),
        "coverage": coverage(seen),
    }


def _sizes(comms: list[Row]) -> list[SizeCount]:
    counts = Counter(comm["size"] for comm in comms if comm["size"])
    return [{"size": size, "count": counts[size]} for size in sorted(counts)]


def _ranks_told(faults: list[Row]) -> int:
    """Ranks that watchdogs named, where no device wrote."""
    return len({row["rank"] for row in faults if row["rank"] is not None})


def _ranks_with_events(trace: Trace, world: int | None) -> int:
    """Ranks of which something happened, where no device was written: as our own ranks record themselves.

    All of them where events stand for ranks that are alike.
    """
    import polars as pl

    of_class = pl.col("rank").is_null() & pl.col("rank_class").is_not_null()
    events = trace.scan("events").select(pl.col("rank").drop_nulls().n_unique(), of_class.any().alias("folded"))
    ranks, is_folded = events.collect().row(0)
    return world if is_folded and world is not None else int(ranks)


def _ledger(trace: Trace) -> dict[str, int]:
    import polars as pl

    counts = dict(trace.scan("ledger").group_by("outcome").agg(pl.col("lines").sum()).collect().rows())
    outcomes = {name: int(counts.get(name, 0)) for name in ("understood", "repaired", "refused", "other")}
    return {"lines": sum(outcomes.values()), **outcomes, "missing": int(counts.get("missing", 0))}


def _error(row: Row) -> Row:
    kept = {name: row[name] for name in ("rank", "host", "text", "file", "line", "code", "first")}
    return kept | {"kind": row["op"]}


def _iterations(trace: Trace) -> list[Iteration]:
    import polars as pl

    end = (pl.col("start_s") + pl.col("duration_s")).alias("end_s")
    columns = ("iteration", "rank", "rank_class", "start_s", "duration_s", "source", end)
    steps = trace.scan("events").filter(pl.col("kind") == "step").select(*columns).collect()
    of_ranks = pl.col("rank").is_not_null() | pl.col("rank_class").is_not_null()
    of_a_rank = pl.col("iteration").is_not_null() & of_ranks
    whole = steps.filter(~of_a_rank).select("iteration", "duration_s")
    # An iteration that every rank tells of takes as long as on the slowest.
    of_all = (pl.col("duration_s").max(), pl.col("start_s").min(), pl.col("end_s").max())
    joined = steps.filter(of_a_rank).group_by("iteration").agg(*of_all).sort("iteration")
    # Steps of a simulated job hold all that is theirs and may overlap: from end to end one takes its time.
    if steps["source"].eq(SIMULATED_JOB).any():
        began = pl.coalesce(pl.col("end_s").shift(1), "start_s")
        joined = joined.with_columns((pl.col("end_s") - began).alias("duration_s"))
    joined = joined.select("iteration", "duration_s")
    return [{"iteration": number, "time_s": seconds} for number, seconds in pl.concat([whole, joined]).rows()]


def _communicator_list(comms: list[Row], roles: Roles, logical: pl.DataFrame) -> list[Row]:
    import polars as pl

    grouped = logical.group_by("communicator").agg(pl.col("operations").sum(), pl.col("bytes").sum())
    totals = {number: (count, amount) for number, count, amount in grouped.rows()}
    rows = []
    for comm in comms:
        number = comm["communicator"]
        role, evidence = roles.of.get(number, (None, None))
        count, amount = totals.get(number, (0, 0))
        keep = ("communicator", "comm_id", "size", "members", "ranks_seen", "nnodes", "parent", "ground")
        row = {name: comm[name] for name in keep}
        rows.append(row | {"role": role, "role_evidence": evidence, "operations": count, "bytes": amount})
    return rows


def _ranks(devices: list[Row], trace: Trace) -> list[Row]:
    import polars as pl

    mine = trace.scan("events").filter(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("rank").is_not_null())
    records = dict(mine.group_by("rank").agg(pl.col("records").sum()).collect().rows())
    return [row | {"records": records.get(row["rank"])} for row in devices]
