"""Why nothing overlaps: each exposed communication kernel is asked what the next compute kernel waited for.

Reasons, in the order in which they are tried. *same-stream*: it is on a stream that computes, or the next compute kernel is
queued behind it. *bucket*: one reduction holds most of the step's bytes and comes last. *strict-order*: the host launched the
next compute kernel only after a synchronising call that ended with the communication. *late-launch*: the host launched it
late without one. *connections*: it was launched in time, computation waits for nothing, yet launch order was kept everywhere
(CUDA_DEVICE_MAX_CONNECTIONS=1, or one hardware queue). *dependency*: it was launched in time, behind a stream wait, and began
at once after the communication. Anything else is *cannot tell*. ``overlap_account`` adds what follows from groups and fusions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ringwright.analysis import remedies
from ringwright.analysis.timeline.rank_timeline import AT_ONCE_US, LOOKED_AT, TOLERANCE_US, RankTimeline, arranged

if TYPE_CHECKING:
    import polars as pl

    from ringwright.ground.trace_tables import Row

EVIDENCE = 5
SHARE = 0.2  # of an operation that must be exposed
_ADVICE = {
    "same-stream": "issue the collective on a stream of its own (async_op=True, or a side stream)",
    "bucket": "cut the reduction into buckets that start during the backward pass (DDP bucket_cap_mb, FSDP prefetch)",
    "strict-order": "remove the synchronising call, or move it behind work that does not need the result",
    "late-launch": "the host is behind: fewer, larger launches, or CUDA graphs",
    "dependency": "the consumer follows at once: split the operation, or move independent work between",
    "fusion-not-matched": "make the fused operation match here too",
    "same-communicator": "give one of the two a communicator of its own, or launch the one that is waited for first",
    "connections": "compare with CUDA_DEVICE_MAX_CONNECTIONS unset",
    "cannot tell": "record the same steps with the CUDA runtime and synchronisation events switched on",
}


@dataclass
class Case:
    """One exposed operation and why, as far as kernels and calls tell; ``row`` is the operation as the trace holds it."""

    reason: str
    confidence: float
    exposed_us: float
    evidence: Row
    row: Row = field(default_factory=dict)


def cases(talk: pl.DataFrame, compute: pl.DataFrame, syncs: pl.DataFrame) -> list[Case]:
    """Return the exposed operations of all ranks with their reasons, at most ``LOOKED_AT`` a rank.

    ``talk``, ``compute`` and ``syncs``: kernels that communicate, that compute, and calls that wait, of all ranks.
    """
    import polars as pl

    made = []
    for (rank, *_), part in talk.partition_by("rank", as_dict=True).items():
        mine = pl.col("rank").eq_missing(rank)
        made += _cases(arranged(rank, part, compute.filter(mine), syncs.filter(mine)))
    return made


def audit(exposed: list[Case]) -> list[Row]:
    """Return reasons with exposed time, count, confidence, evidence, advice and the next command; the costliest first.

    ``detail`` says all in one sentence; each piece of evidence has its own ``text``, file and event.
    ``exposed_us`` here adds up operations, so two exposed at once count twice.
    """
    by_reason: dict[str, list[Case]] = defaultdict(list)
    for case in exposed:
        by_reason[case.reason].append(case)
    total = sum(case.exposed_us for case in exposed)
    rows = [_reason(reason, matching, total) for reason, matching in by_reason.items()]
    return sorted(rows, key=lambda row: (-row["exposed_us"], row["reason"]))


def _reason(reason: str, matching: list[Case], total: float) -> Row:
    exposed = sum(case.exposed_us for case in matching)
    worst = sorted(matching, key=lambda case: -case.exposed_us)[:EVIDENCE]
    weighted = sum(case.confidence * case.exposed_us for case in matching) / exposed if exposed else 0.0
    first = worst[0].evidence
    return {
        "reason": reason,
        "detail": f"{exposed:,.0f} us, {exposed / total if total else 0:.0%} of the exposed, in {len(matching)} operations; "
        f"the costliest: {first['text']}; {_ADVICE[reason]}",
        "exposed_us": round(exposed, 3),
        "share": round(exposed / total, 4) if total else 0.0,
        "count": len(matching),
        "confidence": round(weighted, 2),
        "evidence": [case.evidence for case in worst],
        "advice": _ADVICE[reason],
        "command": _command(first),
    }


def _command(first: Row) -> str:
    rank = "is null" if first["rank"] is None else f"= {first['rank']}"
    start, end = first["start_s"] - 0.0005, first["start_s"] + first["duration_us"] * 1e-6 + 0.0005
    columns = "kind, op, kernel, stream, enqueue_s, start_s, duration_s, line"
    where = f"rank {rank} and start_s between {start:.6f} and {end:.6f}"
    return f'ringwright query "select {columns} from events where {where} order by start_s" {remedies.inputs([first["file"]])}'


def _cases(rank: RankTimeline) -> list[Case]:
    import numpy as np

    if rank.comm.is_empty():
        return []
    lasted = rank.comm["duration_s"].to_numpy() * 1e6
    chosen = np.flatnonzero((rank.exposed >= SHARE * lasted) & (rank.exposed > TOLERANCE_US))
    chosen = chosen[np.argsort(-rank.exposed[chosen], kind="stable")][:LOOKED_AT]
    buckets = _buckets(rank.comm)
    rows = rank.comm.rows(named=True)
    made = [(n, _case(rank, rows[n], float(rank.exposed[n]), is_bucket=n in buckets)) for n in chosen.tolist()]
    return [replace(case, row=rows[n]) for n, case in made]


def _buckets(comm: pl.DataFrame) -> set[int]:
    """Rows that hold at least half of a step's reduced bytes (or time, where bytes are unknown) and end the step."""
    import polars as pl

    reducing = pl.col("op").is_in(["all-reduce", "reduce-scatter"])
    weight = pl.when(pl.col("size_bytes").is_null().any()).then(pl.col("duration_s")).otherwise(pl.col("size_bytes"))
    keyed = comm.with_row_index("row").with_columns(
        (pl.col("row") == pl.col("row").max().over("iteration")).alias("last")
    )
    mine = keyed.filter(reducing & pl.col("iteration").is_not_null()).with_columns(
        weight.cast(pl.Float64).alias("weight")
    )
    whole = mine.with_columns(pl.col("weight").sum().over("iteration").alias("whole"))
    return set(whole.filter(pl.col("last") & (pl.col("weight") >= 0.5 * pl.col("whole")))["row"].to_list())


def _case(rank: RankTimeline, row: Row, exposed: float, *, is_bucket: bool) -> Case:
    import numpy as np

    begin, lasted = row["start_s"] * 1e6, row["duration_s"] * 1e6
    end = begin + lasted
    evidence = {
        "rank": rank.rank,
        "file": row["file"],
        "event": row["line"],
        "op": row["op"],
        "stream": row["stream"],
        "start_s": row["start_s"],
        "duration_us": round(lasted, 3),
        "exposed_us": round(exposed, 3),
    }
    after = int(np.searchsorted(rank.compute["start"], end - TOLERANCE_US))
    has_next = after < len(rank.compute["start"])
    if row["stream"] is not None and row["stream"] in rank.main:
        return _told(evidence, "same-stream", 0.95, exposed, "it is on the stream that computes")
    if has_next:
        evidence |= {"next_event": rank.compute["line"][after], "next_stream": rank.compute["stream"][after]}
        evidence["gap_us"] = round(float(rank.compute["start"][after]) - end, 3)
        if row["stream"] is not None and rank.compute["stream"][after] == row["stream"]:
            return _told(evidence, "same-stream", 0.95, exposed, "the next compute kernel is on the same stream")
    if is_bucket:
        confidence, what = (0.6, "bytes") if row["size_bytes"] is not None else (0.4, "time (bytes are unknown)")
        return _told(
            evidence, "bucket", confidence, exposed, f"half or more of the step's reduced {what}, last of the step"
        )
    if not has_next:
        return _told(evidence, "cannot tell", 0.0, exposed, "no compute kernel follows in the trace")
    launched = float(rank.compute["enqueue"][after])
    called = row["enqueue_s"] * 1e6 if row["enqueue_s"] is not None else begin
    if np.isnan(launched):
        return _told(
            evidence, "cannot tell", 0.0, exposed, "when the next compute kernel was launched is not in the trace"
        )
    return _by_launch(rank, evidence, exposed, (begin, end, called, launched))


def _by_launch(rank: RankTimeline, evidence: Row, exposed: float, times: tuple[float, float, float, float]) -> Case:
    """Judge by when the host launched the next compute kernel, and what it waited for before."""
    import numpy as np

    begin, end, called, launched = times
    evidence["next_launch_us"] = round(launched - begin, 3)  # counted from the start of the communication
    near = np.searchsorted(rank.waits["start"], [called - TOLERANCE_US, max(end, launched) + 2 * TOLERANCE_US])
    waits = {name: column[near[0] : near[1]] for name, column in rank.waits.items()}  # no other can have held it up
    is_host = waits["op"] != "stream-wait" if len(waits["start"]) else np.zeros(0, bool)
    if launched > begin + 0.5 * (end - begin):
        held = is_host & (waits["start"] < end) & (waits["end"] > begin) & (waits["start"] >= called - TOLERANCE_US)
        held &= (waits["end"] >= end - TOLERANCE_US) & (waits["end"] <= launched + TOLERANCE_US)
        if held.any():
            number = int(np.flatnonzero(held)[-1])
            evidence["wait_event"] = waits["line"][number]
            return _told(
                evidence, "strict-order", 0.9, exposed, f"the host waited ({waits['op'][number]}) until it ended"
            )
        when = f"{launched - begin:,.0f} us into it" if launched < end else f"{launched - end:,.0f} us after it ended"
        return _told(evidence, "late-launch", 0.6, exposed, f"the next compute kernel was launched only {when}")
    gap = evidence["gap_us"] - (float(rank.reach(end)) - end)  # other communication may follow before
    between = ~is_host & (waits["start"] >= called) & (waits["start"] <= launched + TOLERANCE_US)
    if rank.keeps_order and not (between & ~waits["own"]).any():
        return _told(
            evidence, "connections", 0.5, exposed, "launched in time, no wait between; launch order kept everywhere"
        )
    if between.any() and gap <= 5 * AT_ONCE_US:
        evidence["wait_event"] = waits["line"][int(np.flatnonzero(between)[-1])]
        return _told(evidence, "dependency", 0.8, exposed, "launched in time behind a stream wait; began when it ended")
    if launched >= called and gap <= AT_ONCE_US:
        return _told(
            evidence, "dependency", 0.5, exposed, "launched in time; began at once when it ended, no wait recorded"
        )
    return _told(
        evidence, "cannot tell", 0.0, exposed, "launched in time, began later, and nothing recorded explains it"
    )


def _told(evidence: Row, reason: str, confidence: float, exposed: float, text: str) -> Case:
    return Case(reason, confidence, exposed, evidence | {"text": text})
