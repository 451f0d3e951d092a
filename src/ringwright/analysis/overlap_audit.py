"""Why nothing overlaps: each exposed communication kernel is asked what the next compute kernel waited for.

Reasons, in the order in which they are tried. *same-stream*: the next compute kernel is queued behind it. *bucket*: one
reduction holds most of the step's bytes and comes last. *strict-order*: the host launched the next compute kernel only
after a synchronising call that ended with the communication. *late-launch*: the host launched it late without one.
*dependency*: it was launched in time, behind a stream wait, and began at once after the communication. *connections*:
it was launched in time, nothing waits, yet launch order was kept everywhere (CUDA_DEVICE_MAX_CONNECTIONS=1, or one
hardware queue). Anything else is *cannot tell*.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.analysis import remedies
from ringwright.analysis.intervals import covered, union

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

LOOKED_AT = 3000  # exposed operations per rank, the longest
EVIDENCE = 5
SHARE = 0.2  # of an operation that must be exposed
AT_ONCE_US = 20.0
CHAIN_US = 100.0
TOLERANCE_US = 2.0  # older traces hold whole microseconds
_ADVICE = {
    "same-stream": "issue the collective on a stream of its own (async_op=True, or a side stream)",
    "bucket": "cut the reduction into buckets that start during the backward pass (DDP bucket_cap_mb, FSDP prefetch)",
    "strict-order": "remove the synchronising call, or move it behind work that does not need the result",
    "late-launch": "the host is behind: fewer, larger launches, or CUDA graphs",
    "dependency": "the consumer follows at once: split the operation, or move independent work between",
    "connections": "compare with CUDA_DEVICE_MAX_CONNECTIONS unset",
    "cannot tell": "record the same steps with the CUDA runtime and synchronisation events switched on",
}


@dataclass
class _Case:
    """One exposed operation and what was found."""

    reason: str
    confidence: float
    exposed_us: float
    evidence: dict[str, Any]


@dataclass
class _Rank:
    """The arrays of one rank, in microseconds; compute kernels in order of start, calls that wait in order of start."""

    rank: int | None
    comm: pl.DataFrame
    exposed: np.ndarray
    compute: dict[str, Any]
    waits: dict[str, Any]
    streams: set[str] = field(default_factory=set)
    keeps_order: bool = False
    talk: tuple[Any, Any] = ((), ())  # when communication went on, gaps up to CHAIN_US closed

    def reach(self, moment: float) -> float:
        """Return until when communication went on from a moment."""
        import numpy as np

        index = int(np.searchsorted(self.talk[0], moment, side="right")) - 1
        return max(moment, float(self.talk[1][index]) - CHAIN_US) if index >= 0 else moment


def audit(talk: pl.DataFrame, compute: pl.DataFrame, syncs: pl.DataFrame) -> list[dict[str, Any]]:
    """Return reasons with exposed time, count, confidence, evidence, advice and the next command; the costliest first.

    ``detail`` says all in one sentence; each piece of evidence has its own ``text``, file and event.

    ``talk``, ``compute`` and ``syncs``: kernels that communicate, that compute, and calls that wait, of all ranks.
    ``exposed_us`` here adds up operations, so two exposed at once count twice.
    """
    import polars as pl

    cases: dict[str, list[_Case]] = defaultdict(list)
    for (rank, *_), part in talk.partition_by("rank", as_dict=True).items():
        mine = pl.col("rank").eq_missing(rank)
        for case in _cases(_arrange(rank, part, compute.filter(mine), syncs.filter(mine))):
            cases[case.reason].append(case)
    total = sum(case.exposed_us for matching in cases.values() for case in matching)
    rows = [_reason(reason, matching, total) for reason, matching in cases.items()]
    return sorted(rows, key=lambda row: (-row["exposed_us"], row["reason"]))


def _reason(reason: str, matching: list[_Case], total: float) -> dict[str, Any]:
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


def _command(first: dict[str, Any]) -> str:
    rank = "is null" if first["rank"] is None else f"= {first['rank']}"
    start, end = first["start_s"] - 0.0005, first["start_s"] + first["duration_us"] * 1e-6 + 0.0005
    columns = "kind, op, kernel, stream, enqueue_s, start_s, duration_s, line"
    where = f"rank {rank} and start_s between {start:.6f} and {end:.6f}"
    return f'ringwright query "select {columns} from events where {where} order by start_s" {remedies.inputs([first["file"]])}'


def _arrange(rank: int | None, comm: pl.DataFrame, compute: pl.DataFrame, waits: pl.DataFrame) -> _Rank:
    import numpy as np

    comm, compute, waits = (frame.sort("start_s") for frame in (comm, compute, waits))
    starts = compute["start_s"].to_numpy() * 1e6
    spans = union(starts, starts + compute["duration_s"].to_numpy() * 1e6)
    begin = comm["start_s"].to_numpy() * 1e6
    lasted = comm["duration_s"].to_numpy() * 1e6
    began = waits["start_s"].to_numpy() * 1e6
    made = _Rank(
        rank,
        comm,
        lasted - covered(spans, begin, begin + lasted),
        {
            "start": starts,
            "enqueue": compute["enqueue_s"].fill_null(float("nan")).to_numpy() * 1e6,
            "stream": compute["stream"].to_list(),
            "line": compute["line"].to_list(),
        },
        {
            "start": began,
            "end": began + waits["duration_s"].to_numpy() * 1e6,
            "op": np.array(waits["op"].to_list(), object),
            "line": waits["line"].to_list(),
        },
        set(compute["stream"].drop_nulls().to_list()),
    )
    made.talk = union(begin, begin + lasted + CHAIN_US)
    made.keeps_order = _keeps_order(made)
    return made


def _keeps_order(rank: _Rank) -> bool:
    """Whether kernels launched behind a waiting communication kernel never overtook it, though they often could have."""
    import numpy as np

    enqueue, start = rank.compute["enqueue"], rank.compute["start"]
    order = np.argsort(enqueue, kind="stable")
    enqueue, start = enqueue[order], start[order]
    chances = 0
    for called, began in rank.comm.select("enqueue_s", "start_s").head(LOOKED_AT).rows():
        if called is None or (began - called) * 1e6 < AT_ONCE_US:
            continue
        first, last = np.searchsorted(enqueue, [called * 1e6, began * 1e6 - AT_ONCE_US / 2])
        if last > first:
            if start[first : min(last, first + 32)].min() < began * 1e6 - TOLERANCE_US:
                return False
            chances += 1
    return chances >= 10


def _cases(rank: _Rank) -> list[_Case]:
    import numpy as np

    if rank.comm.is_empty():
        return []
    lasted = rank.comm["duration_s"].to_numpy() * 1e6
    chosen = np.flatnonzero((rank.exposed >= SHARE * lasted) & (rank.exposed > TOLERANCE_US))
    chosen = chosen[np.argsort(-rank.exposed[chosen], kind="stable")][:LOOKED_AT]
    buckets = _buckets(rank.comm)
    rows = rank.comm.rows(named=True)
    return [_case(rank, rows[n], float(rank.exposed[n]), is_bucket=n in buckets) for n in chosen.tolist()]


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


def _case(rank: _Rank, row: dict[str, Any], exposed: float, *, is_bucket: bool) -> _Case:
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


def _by_launch(
    rank: _Rank, evidence: dict[str, Any], exposed: float, times: tuple[float, float, float, float]
) -> _Case:
    """Judge by when the host launched the next compute kernel, and what it waited for before."""
    import numpy as np

    begin, end, called, launched = times
    evidence["next_launch_us"] = round(launched - begin, 3)  # counted from the start of the communication
    waits = rank.waits
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
    if between.any() and gap <= 5 * AT_ONCE_US:
        evidence["wait_event"] = waits["line"][int(np.flatnonzero(between)[-1])]
        return _told(evidence, "dependency", 0.8, exposed, "launched in time behind a stream wait; began when it ended")
    if rank.keeps_order:
        return _told(
            evidence, "connections", 0.5, exposed, "launched in time, no wait between; launch order kept everywhere"
        )
    if launched >= called and gap <= AT_ONCE_US:
        return _told(
            evidence, "dependency", 0.5, exposed, "launched in time; began at once when it ended, no wait recorded"
        )
    return _told(
        evidence, "cannot tell", 0.0, exposed, "launched in time, began later, and nothing recorded explains it"
    )


def _told(evidence: dict[str, Any], reason: str, confidence: float, exposed: float, text: str) -> _Case:
    return _Case(reason, confidence, exposed, evidence | {"text": text})
