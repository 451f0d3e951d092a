"""Who arrived late at collectives, and who waited: blame by arrival, not by the longest kernel.

A synchronising collective ends on all ranks together, hence the rank that arrives last has the SHORTEST kernel. Of each
collective seen on at least two ranks, the shortest duration is taken as transfer and what a rank spent beyond it as
wait; the wait of all is charged to the last rank. That needs no common clock. Not judged: broadcasts, reductions to a
root, sends and receives, whose ranks may leave before others arrive.

With a dozen steps or more the verdict rests on each rank's own time, step by step (``stragglers``): who is late, from which step
on, or in which share of the steps; with fewer, on who was last over all of them.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.analysis.document import Culprit, Row
from ringwright.analysis.hangs.hang_mismatch import say_ranks
from ringwright.analysis.slow.lateness import FEWEST_STEPS, Lateness, from_handing_in, lateness
from ringwright.analysis.slow.slow_work import slow_work
from ringwright.analysis.slow.stragglers import LEAST, NOBODY, HeldUp, at_least, held_up
from ringwright.analysis.slow.stragglers_said import culprit as said_of
from ringwright.model.run_tables import SIMULATED_JOB

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

SYNCHRONISING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier")
WAIT_SHARE = 0.1  # of the time in collectives that must be waiting before anyone is accused
WARMED = 16  # operations of a group, from which on one of them can be spared: the first
FEWEST = 5  # collectives with a clear last rank
CHANCE = 0.02  # of being last that often, had all ranks the same chance
_EVIDENCE = 3


@dataclass(frozen=True)
class MeasuredArrivals:
    """One collective whose ranks were all measured: seconds after the first of them at which each came, by rank."""

    op: str
    communicator: int
    sequence: int
    offsets_s: tuple[float, ...]


def measured(trace: Trace, ranks: int) -> list[MeasuredArrivals]:
    """Return when the ranks came to each synchronising collective of exactly so many, all of them measured.

    All end together, so that who took the longest came first, and a rank came as much later as it took less.
    """
    matched = _matched(trace)
    if matched.is_empty():
        return []
    told = []
    for frame in matched.sort("rank").partition_by("communicator", "sequence", "op", maintain_order=True):
        took, head = frame["us"].to_list(), frame.row(0, named=True)
        if len(took) == ranks == (head["nranks"] or ranks):
            offsets = tuple((max(took) - each) * 1e-6 for each in took)
            told.append(MeasuredArrivals(head["op"], head["communicator"], head["sequence"], offsets))
    return told


def arrivals(trace: Trace) -> dict[str, Any]:
    """Return ``ranks`` (rank, wait_us, transfer_us, calls, last_count, caused_us), ``culprits`` and a ``verdict`` with reason.

    ``verdict`` is "straggler", "none" (balanced, or too little waiting to matter) or "cannot tell".
    """
    matched = _matched(trace)
    answer: dict[str, Any] = {"ranks": [], "culprits": [], "collectives": 0, "verdict": "cannot tell", "reason": ""}
    if matched.is_empty():
        return answer | {"reason": "no collective with a measured time on two or more ranks"}
    judged = _judge(matched)
    ranks = _table(_by_the_clock(judged))
    groups = judged.select("communicator", "sequence").n_unique()
    answer |= {"ranks": ranks, "collectives": groups, "wait_us": _sum(ranks, "wait_us")}
    verdict, reason, culprits = _by_work(trace, judged) or _by_steps(trace, judged) or _verdict(judged, _table(judged))
    return answer | {"verdict": verdict, "reason": reason, "culprits": culprits}


def _by_work(trace: Trace, judged: pl.DataFrame) -> tuple[str, str, list[Culprit]] | None:
    """Return the verdict by the work of few steps; None with steps enough for their lateness, or where no work was recorded.

    Of a simulated job all work is known, which explains all waiting: nobody else is late, in however many steps.
    """
    is_simulated = judged["source"].eq_missing(SIMULATED_JOB).all()
    if judged["iteration"].drop_nulls().n_unique() >= FEWEST_STEPS and not is_simulated:
        return None
    told = slow_work(trace)
    if is_simulated:
        return told or ("cannot tell", "no rank does the same as another, or ranks that are alike stand together", [])
    return told if told is not None and told[2] else None


def _by_steps(trace: Trace, judged: pl.DataFrame) -> tuple[str, str, list[Culprit]] | None:
    """Return the verdict by steps, None where there are too few of them."""
    seen = lateness(trace, judged)
    if seen is None:
        return None
    stragglers = held_up(seen)
    if stragglers is NOBODY or not _is_waited(judged, seen, stragglers):
        return "none", "no rank holds up others by more than ranks differ of themselves", []
    one = said_of(seen, stragglers, min(judged["confidence"].fill_null(1.0).to_list()))
    one["evidence"] += _worst(judged, one["ranks"], [seen.labels[step] for step in stragglers.steps])
    return ("straggler" if one["ranks"] else "cannot tell"), one["evidence"][0], [one]


def _is_waited(judged: pl.DataFrame, seen: Lateness, stragglers: HeldUp) -> bool:
    """Whether others waited in the steps held up: a tenth of their time in collectives at least, or a twentieth of the steps."""
    import polars as pl

    step = pl.col("iteration") if seen.unit == "step" else pl.col("sequence")
    there = judged.filter(step.is_in([seen.labels[index] for index in stragglers.steps]))
    waited, others = float(there["wait"].sum()), len(seen.ranks) - len(stragglers.rows)
    of_steps = waited / max(1, others * len(stragglers.steps)) / seen.step_us
    return waited >= WAIT_SHARE * float(there["us"].sum()) or of_steps >= LEAST


def _sum(rows: list[Row], name: str) -> float:
    return round(math.fsum(row[name] for row in rows), 3)


def _matched(trace: Trace) -> pl.DataFrame:
    """Collectives measured on two or more ranks, one row per rank: a rank's second row of one operation is left out."""
    import polars as pl

    mine = (pl.col("kind") == "collective") & pl.col("op").is_in(SYNCHRONISING) & pl.col("duration_s").is_not_null()
    mine &= pl.col("rank").is_not_null() & pl.col("sequence").is_not_null() & pl.col("communicator").is_not_null()
    columns = (
        "communicator",
        "sequence",
        "op",
        "rank",
        "iteration",
        "size_bytes",
        "start_s",
        "duration_s",
        "nranks",
        "file",
        "line",
        "confidence",
        "source",
    )
    frame = _with_waits(trace.scan("events").filter(mine)).select(*columns).collect()
    frame = frame.unique(["communicator", "sequence", "op", "rank"], keep="first", maintain_order=True)
    # A group's first operation makes its connections: who is late there says nothing of the job.
    first = pl.col("sequence").min().over("communicator")
    several = pl.col("sequence").n_unique().over("communicator") >= WARMED
    frame = frame.filter(~(several & (first == 0) & (pl.col("sequence") == first)))
    keys = ["communicator", "sequence", "op"]
    return (
        frame.filter(pl.len().over(keys) > 1).with_columns((pl.col("duration_s") * 1e6).alias("us")).drop("duration_s")
    )


def _with_waits(calls: pl.LazyFrame) -> pl.LazyFrame:
    """Return the calls with the waiting for other ranks in their time, and without that for earlier calls of a simulated job.

    A rank waits for the others first: only when all are there does a call wait for those before it.
    """
    import polars as pl

    queued = (pl.col("start_s") - pl.col("enqueue_s")).min().over("communicator", "sequence", "op")
    is_simulated = pl.col("source") == SIMULATED_JOB
    calls = from_handing_in(calls.with_columns(pl.when(is_simulated).then(queued).otherwise(0.0).alias("queued")))
    return calls.with_columns(pl.col("duration_s") - pl.col("queued").fill_null(0.0))


def _judge(frame: pl.DataFrame) -> pl.DataFrame:
    """Add per row the transfer, the wait, who was last and how much waiting the collective holds in all."""
    import polars as pl

    keys = ["communicator", "sequence", "op"]
    least = pl.col("us").min().over(keys)
    added = frame.with_columns(least.alias("transfer"), (pl.col("us") - least).alias("wait"))
    total = pl.col("wait").sum().over(keys)
    second = pl.col("us").bottom_k(2).max().over(keys)
    added = added.with_columns(
        total.alias("total_wait"),
        pl.len().over(keys).alias("members"),
        ((pl.col("wait") == 0) & (second > least)).alias("is_last"),
    )
    # last beyond doubt: others waited for more than a tenth of their time, and a microsecond
    clear = pl.col("is_last") & (pl.col("total_wait") > 0.1 * pl.col("us").sum().over(keys)) & (second - least > 1.0)
    return added.with_columns(clear.alias("is_clear"))


def _by_the_clock(judged: pl.DataFrame) -> pl.DataFrame:
    """Keep of each wait the part in which its rank waits for no earlier call: calls under way at the same time wait together."""
    import polars as pl

    until = pl.col("start_s") + pl.col("wait") * 1e-6
    before = until.cum_max().shift(1).over("rank")
    alone = (until - pl.max_horizontal("start_s", before)) * 1e6  # the first of a rank has none before it
    ordered = judged.sort("rank", "start_s", maintain_order=True)
    kept = ordered.with_columns(pl.coalesce(alone, "wait").clip(0.0, pl.col("wait")).alias("wait"))
    return kept.with_columns(pl.col("wait").sum().over("communicator", "sequence", "op").alias("total_wait"))


def _table(judged: pl.DataFrame) -> list[Row]:
    import polars as pl

    grouped = judged.group_by("rank").agg(
        pl.col("wait").sum().alias("wait_us"),
        pl.col("transfer").sum().alias("transfer_us"),
        pl.col("is_last").sum().alias("last_count"),
        pl.col("is_clear").sum().alias("clear_count"),
        pl.col("total_wait").filter(pl.col("is_last")).sum().alias("caused_us"),
        pl.len().alias("calls"),
    )
    rows = grouped.sort("rank").to_dicts()
    for row in rows:
        for name in ("wait_us", "transfer_us", "caused_us"):
            row[name] = round(row[name], 3)
    return rows


@dataclass(frozen=True)
class _Suspects:
    ranks: list[int]
    share: float
    times: int
    trials: int
    chance: float


def _verdict(judged: pl.DataFrame, ranks: list[Row]) -> tuple[str, str, list[Culprit]]:
    waited = _sum(ranks, "wait_us")
    spent = waited + _sum(ranks, "transfer_us")
    if waited < WAIT_SHARE * spent:
        return (
            "none",
            f"waiting is {waited / spent if spent else 0:.1%} of the time in collectives: nobody is accused",
            [],
        )
    clear = sum(row["clear_count"] for row in ranks)
    if clear < FEWEST:
        return "cannot tell", f"only {clear} collectives have a clear last rank; {FEWEST} are needed", []
    suspects = _suspects(ranks, clear)
    if suspects is None:
        return "none", "ranks take turns in being last: no rank stands out", []
    steady, steps = _steady(judged, suspects.ranks)
    if steps >= 3 and steady < 0.6:
        reason = f"{say_ranks(suspects.ranks)} causes most waiting, but in {steady:.0%} of {steps} steps only"
        return "cannot tell", reason, []
    ground = min(judged["confidence"].fill_null(1.0).to_list())
    confidence = min(0.95, 0.5 + 0.3 * suspects.share + 0.05 * min(steps, 3)) * max(ground, 0.6)
    caveat = " (one step only: it may be chance or the start of the profile)" if steps < 2 else ""
    reason = f"{say_ranks(suspects.ranks)} arrives last and causes {suspects.share:.0%} of all waiting{caveat}"
    chance = f"chance {suspects.chance:.1g} were all alike"
    times = f"last in {suspects.times} of {suspects.trials} collectives with a clear last rank ({chance})"
    culprit: Culprit = {
        "ranks": suspects.ranks,
        "kind": "straggler",
        "confidence": round(confidence - (0.1 if steps < 2 else 0.0), 2),
        "evidence": [reason, times, *_worst(judged, suspects.ranks)],
        "hosts": [],
    }
    return "straggler", reason, [culprit]


def of_any(sets: int, chance: float) -> float:
    """Return the chance, at most, that one of some sets shows what each shows by that chance; a float need not hold how many."""
    if sets.bit_length() < sys.float_info.max_exp:
        return min(1.0, sets * chance)
    return math.exp(min(0.0, math.log(sets) + math.log(chance))) if chance else 0.0


def _suspects(ranks: list[Row], trials: int) -> _Suspects | None:
    """Return the ranks, at most a quarter, that each cause far more waiting than their part, and together most of it.

    They must also be last more often than chance explains.
    """
    total = _sum(ranks, "caused_us")
    order = sorted(ranks, key=lambda row: (-row["caused_us"], row["rank"]))
    everyone = len(ranks)
    each = sum(row["caused_us"] > 2 * total / everyone or everyone < 4 for row in ranks)  # the first of the order
    for size in range(min(max(1, everyone // 4), each), 0, -1):
        chosen = order[:size]
        share = _sum(chosen, "caused_us") / total if total else 0.0
        if share < 0.5 + 0.5 * size / everyone:
            continue
        times = sum(row["clear_count"] for row in chosen)
        chance = of_any(math.comb(everyone, size), at_least(times, trials, size / everyone))
        if chance <= CHANCE:
            return _Suspects(sorted(row["rank"] for row in chosen), share, times, trials, chance)
    return None


def _steady(judged: pl.DataFrame, ranks: list[int]) -> tuple[float, int]:
    """Return in which part of the steps these ranks caused most of the waiting, and how many steps there are."""
    import polars as pl

    mine = judged.filter(pl.col("is_last") & pl.col("iteration").is_not_null())
    steps = mine.group_by("iteration").agg(
        pl.col("total_wait").filter(pl.col("rank").is_in(ranks)).sum().alias("theirs"),
        pl.col("total_wait").sum().alias("all"),
    )
    if steps.is_empty():
        return 1.0, 0
    return int((steps["theirs"] >= 0.5 * steps["all"]).sum()) / steps.height, steps.height


def _worst(judged: pl.DataFrame, ranks: list[int], steps: list[int] | None = None) -> list[str]:
    """Say of the costliest collectives, of all or of ``steps``, what each side measured, with file and event."""
    import polars as pl

    said = []
    mine = judged.filter(pl.col("is_last") & pl.col("rank").is_in(ranks))
    if steps is not None and mine["iteration"].null_count() == 0:
        mine = mine.filter(pl.col("iteration").is_in(steps))
    for row in mine.sort("total_wait", "sequence", descending=[True, False]).head(_EVIDENCE).to_dicts():
        same = [pl.col(name) == row[name] for name in ("communicator", "sequence", "op")]
        others = judged.filter(*same, pl.col("rank") != row["rank"])["us"].to_list()
        low, high = min(others), max(others)
        source = f"{row['file']} event {row['line']}: " if row["file"] is not None else ""
        said.append(
            f"{source}{row['op']} {row['sequence']} took rank {row['rank']} {row['us']:,.0f} us, "
            f"the others {low:,.0f} to {high:,.0f} us"
        )
    return said
