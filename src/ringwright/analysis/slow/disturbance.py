"""What disturbed a job, compared with an undisturbed run of it: a slow rank or link, packet loss, a flapping port, other traffic.

Three kinds of signs, each with its own meaning: how much longer collectives take than in the baseline, operation by operation
(all alike: bandwidth; a few by a second: an outage); who came late (a rank, and then no link is blamed); and what the
hosts' network
counted (carrier changes: a port; retransmissions: loss or queues; bytes that are not the job's: other traffic). Where
signs of two causes are there and neither is clear, or none is, the answer is "cannot tell".

Signatures measured on real ranks: docs/how-to/experiment.md. The thresholds were set on runs that its table does not contain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.analysis.slow.arrivals import SYNCHRONISING, arrivals
from ringwright.analysis.slow.own_time import busy_times, own_times, slowed
from ringwright.analysis.window import window

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

NONE, STRAGGLER, BANDWIDTH, LOSS, FLAP, TRAFFIC, UNKNOWN = (
    "none",
    "straggler",
    "bandwidth",
    "loss",
    "flap",
    "traffic",
    "cannot tell",
)
LONG_S = 1e-3  # collectives shorter than this in the baseline tell more of the host than of the network
SLOWER = 1.15  # of a typical collective, from which on there is something to explain
CLEARLY_SLOWER = 1.5  # a slow host slows all its transfers a little, too
HALVED = 2.0
STEADY = 1.2  # 90th over 10th percentile of the slow-down, below which all iterations are slowed alike
UNCHANGED = 1.08  # of a step
LOST = 2.5  # retransmissions in a thousand segments, beyond those of the baseline
FOREIGN = 0.04  # of the job's own bytes on some host's wire
OUTAGE_S = 0.15
LATE_SHARE = 0.12  # of the time in collectives that is waiting for late ranks, beyond the baseline's


@dataclass(frozen=True)
class Signs:
    """The measured signs. ``ratio``: slow-down of an iteration's communication (10th, 50th, 90th percentile); counters per host.

    Calls in progress at the same time share the wire, so their own times vary; the time in which any call runs is stable.
    """

    ratio: tuple[float, float, float] | None
    collective: float | None  # median slow-down of single collectives
    step_ratio: float | None
    outages: int
    operations: int
    late: tuple[int, ...]
    late_share: float
    carrier: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)  # per thousand segments, beyond the baseline
    foreign: dict[str, float] = field(default_factory=dict)  # share of bytes beyond the baseline
    counted: bool = False
    slowed: tuple[int, ...] = ()  # ranks whose own time grew


def disturbance(trace: Trace, baseline: Trace, *, since: int = 1) -> dict[str, Any]:
    """Return ``kind``, ``ranks``, ``hosts``, ``confidence``, ``evidence``, ``effect`` of what differs from a baseline.

    ``since``: the first iteration that is looked at, where it is known when the disturbance began.
    """
    seen = signs(window(trace), window(baseline), since=since)
    kind, hosts, confidence, evidence = _judge(seen)
    ranks = list(seen.slowed or seen.late) if kind == STRAGGLER else []
    effect = {"collective_ratio": seen.collective, "step_ratio": seen.step_ratio}
    return {
        "kind": kind,
        "ranks": ranks,
        "hosts": hosts,
        "confidence": confidence,
        "evidence": evidence,
        "effect": effect,
    }


def can_be_told(trace: Trace, baseline: Trace) -> bool:
    """Return whether both Traces hold timed collectives of the same sizes, each with its iteration."""
    import polars as pl

    sizes = [
        _transfers(each, 1).select(pl.struct("op", "size_bytes").unique().alias("size")) for each in (trace, baseline)
    ]
    return bool(sizes[0].join(sizes[1], on="size").height)


def signs(trace: Trace, baseline: Trace, *, since: int = 1) -> Signs:
    """Return the signs of a disturbance, from collectives that both jobs did and from the counters of both."""
    import polars as pl

    mine, theirs = _transfers(trace, since), _transfers(baseline, since)
    keys = ["op", "size_bytes", "communicator"]
    usual = theirs.group_by(keys).agg(pl.col("transfer_s").median().alias("usual_s"))
    joined = mine.join(usual, on=keys, how="inner", nulls_equal=True).filter(pl.col("usual_s") > 0)
    long = joined.filter(pl.col("usual_s") >= LONG_S)
    judged = long if long.height else joined
    ratios = judged.select(ratio=pl.col("transfer_s") / pl.col("usual_s"))["ratio"]
    busy, usually = busy_times(trace, since=since), busy_times(baseline, since=since)
    middle = sorted(usually)[len(usually) // 2] if usually else 0.0
    late = arrivals(trace)
    outages = sum(each - middle > OUTAGE_S for each in busy)
    counted = _counters(trace), _counters(baseline)
    return Signs(
        ratio=_quantiles(pl.Series([each / middle for each in busy]) if middle else ratios),
        collective=_median(ratios),
        step_ratio=_step_ratio(trace, baseline, since),
        outages=outages,
        operations=len(busy),
        late=tuple(rank for culprit in late["culprits"] for rank in culprit["ranks"]),
        late_share=_late_share(late) - _late_share(arrivals(baseline)),
        **_differences(*counted, trace, baseline),
        counted=bool(counted[0] and counted[1]),
        slowed=tuple(slowed(own_times(trace, since=since), own_times(baseline, since=since), _step_s(baseline, since))),
    )


def _transfers(trace: Trace, since: int) -> pl.DataFrame:
    """Return each collective's transfer: the shortest duration of its ranks, which holds no waiting for a late one."""
    import polars as pl

    mine = trace.scan("events").filter(
        (pl.col("kind") == "collective")
        & pl.col("op").is_in([*SYNCHRONISING, "broadcast"])
        & pl.col("duration_s").is_not_null()
        & pl.col("iteration").is_not_null()
        & (pl.col("iteration") >= since)
    )
    keys = ["op", "size_bytes", "communicator", "sequence"]
    return mine.group_by(keys).agg(pl.col("duration_s").min().alias("transfer_s")).collect()


def _quantiles(ratios: pl.Series) -> tuple[float, float, float] | None:
    if not len(ratios):
        return None
    low, mid, high = (float(ratios.quantile(q, "linear") or 0.0) for q in (0.1, 0.5, 0.9))
    return low, mid, high


def _median(values: pl.Series) -> float | None:
    middle = values.median()
    return float(middle) if isinstance(middle, int | float) else None


def _step_ratio(trace: Trace, baseline: Trace, since: int) -> float | None:
    mine, theirs = _step_s(trace, since), _step_s(baseline, since)
    return mine / theirs if mine and theirs else None


def _step_s(trace: Trace, since: int) -> float | None:
    import polars as pl

    steps = trace.scan("events").filter((pl.col("kind") == "step") & (pl.col("iteration") >= since))
    slowest = steps.group_by("iteration").agg(pl.col("duration_s").max()).collect()["duration_s"]
    times: list[float] = slowest.to_list()
    return sum(times) / len(times) if times else None


def _late_share(late: dict[str, Any]) -> float:
    waited, moved = (sum(float(row[what]) for row in late["ranks"]) for what in ("wait_us", "transfer_us"))
    return waited / max(1e-9, waited + moved)


def _counters(trace: Trace) -> dict[str, dict[str, float]]:
    """Return host -> counter -> increase over the job."""
    import polars as pl

    rows = trace.scan("events").filter((pl.col("kind") == "metric") & (pl.col("source") == "network"))
    sums = rows.group_by("host", "op").agg(pl.col("value").sum()).collect()
    counters: dict[str, dict[str, float]] = {}
    for host, op, value in sums.iter_rows():
        counters.setdefault(host or "?", {})[op] = value
    return counters


def _differences(
    mine: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]], trace: Trace, baseline: Trace
) -> dict[str, dict[str, float]]:
    """Return what each host counted beyond the baseline: carrier changes, lost segments, bytes that are not the job's."""
    bytes_here, bytes_there = _job_bytes(trace), _job_bytes(baseline)
    differences: dict[str, dict[str, float]] = {"carrier": {}, "lost": {}, "foreign": {}}
    for host, counts in mine.items():
        usual = theirs.get(host, {})
        differences["carrier"][host] = counts.get("carrier_changes", 0.0) - usual.get("carrier_changes", 0.0)
        differences["lost"][host] = _lost(counts) - _lost(usual)
        for direction in ("tx_bytes", "rx_bytes"):
            if usual.get(direction) and bytes_here and bytes_there:
                more = counts.get(direction, 0.0) / bytes_here / (usual[direction] / bytes_there) - 1
                differences["foreign"][host] = max(more, differences["foreign"].get(host, 0.0))
    return differences


def _lost(counts: dict[str, float]) -> float:
    return 1000.0 * counts.get("tcp.RetransSegs", 0.0) / max(1.0, counts.get("tcp.OutSegs", 0.0))


def _job_bytes(trace: Trace) -> float:
    import polars as pl

    mine = trace.scan("events").filter(pl.col("kind").is_in(["collective", "p2p"]))
    return float(mine.select(pl.col("size_bytes").sum()).collect().item() or 0)


def _judge(seen: Signs) -> tuple[str, list[str], float, list[str]]:
    """Return kind, hosts, confidence and evidence; the order of the rules is that of how little else could make the sign."""
    if seen.ratio is None:
        return UNKNOWN, [], 0.0, ["no collective of both jobs has times"]
    low, typical, high = seen.ratio
    steps = f", steps {seen.step_ratio:.2f} times" if seen.step_ratio else ""
    told = [
        f"an iteration communicates {typical:.2f} times as long as in the baseline ({low:.2f} to {high:.2f}){steps}"
    ]
    flapped = [host for host, changes in seen.carrier.items() if changes >= 2]
    if flapped:
        counts = ", ".join(f"{host} {seen.carrier[host]:.0f}" for host in flapped)
        return FLAP, flapped, 0.95, [*told, f"carrier changes: {counts}"]
    if seen.late and seen.late_share >= LATE_SHARE:
        who = ", ".join(map(str, seen.late))
        evidence = f"{seen.late_share:.0%} more of the time in collectives is waiting, most for rank {who}"
        return STRAGGLER, [], 0.9, [*told, evidence]
    if seen.slowed:
        evidence = f"rank {', '.join(map(str, seen.slowed))} computes longer between its calls; the others do not"
        return STRAGGLER, [], 0.8, [*told, evidence]
    foreign = _most(seen.foreign, FOREIGN)
    if foreign:
        evidence = ", ".join(f"{host} {seen.foreign[host]:.0%}" for host in foreign)
        return TRAFFIC, foreign, 0.8, [*told, f"bytes on the wire beyond the job's own: {evidence}"]
    return _by_transfers(seen, told)


def _by_transfers(seen: Signs, told: list[str]) -> tuple[str, list[str], float, list[str]]:
    """Tell loss, less bandwidth and an outage apart, where no port, rank or other traffic explains the delay."""
    low, typical, high = seen.ratio or (1.0, 1.0, 1.0)
    lost = _most(seen.lost, LOST)
    is_steady = high / max(low, 1e-9) < STEADY
    # A port that is too slow overflows the queue of the one host that sends to it; loss hits both directions, and unevenly.
    if is_steady and low >= (HALVED if lost else CLEARLY_SLOWER) and len(lost) < 2:
        evidence = f"all are slowed alike, as by a link at {1 / typical:.0%} of its rate"
        return BANDWIDTH, [], 0.9, [*told, evidence]
    if lost and low >= HALVED:
        told.append(
            "slowed alike by half or more, and segments are lost on several hosts: a slower link, or heavy loss"
        )
        return UNKNOWN, [], 0.0, told
    if lost:
        evidence = ", ".join(f"{host} {seen.lost[host]:.1f}" for host in lost)
        return LOSS, lost, 0.8, [*told, f"retransmissions per thousand segments beyond the baseline: {evidence}"]
    is_late = bool(seen.late) and seen.late_share > LATE_SHARE / 3
    if typical < SLOWER and not seen.outages and not is_late and (seen.step_ratio or 1.0) < UNCHANGED:
        return NONE, [], 0.8, told
    return UNKNOWN, [], 0.0, _unexplained(seen, told, is_late=is_late)


def _unexplained(seen: Signs, told: list[str], *, is_late: bool) -> list[str]:
    if seen.outages:
        told.append(
            f"{seen.outages} of {seen.operations} iterations communicate {OUTAGE_S * 1e3:.0f} ms longer or more"
        )
    if is_late:
        told.append(f"rank {', '.join(map(str, seen.late))} comes late, but little waiting follows from it")
    why = (
        "no counter explains it"
        if seen.counted
        else "without network counters loss, an outage and other traffic look alike"
    )
    return [*told, why]


def _most(of: dict[str, float], least: float) -> list[str]:
    """Return the hosts above a threshold, the highest first, without those far below it."""
    above = {host: value for host, value in of.items() if value >= least}
    top = max(above.values(), default=0.0)
    return [host for host, value in sorted(above.items(), key=lambda each: -each[1]) if value >= top / 3]
