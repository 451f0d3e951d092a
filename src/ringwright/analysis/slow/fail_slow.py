"""Networks that fail slowly: when a series of times changed for good, and which rank, NIC, host or path is slow.

Times change over the life of a job; a change that stays is found by change-point detection (PELT on the logarithm, so that
a factor counts the same everywhere). Where the slowdown sits is read from the matrix of pairs: a row that is high is a
sender, a column a receiver, a single cell a path (C4, arXiv 2406.04594); all ranks of a NIC or of a host are that NIC or host.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ringwright.analysis import remedies
from ringwright.analysis.document import Culprit
from ringwright.analysis.series import Series, series
from ringwright.analysis.slow.slow_cells import Cell, Slow, explained
from ringwright.ground.errors import MissingExtraError

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

LEAST_FACTOR = 1.3
LEAST_RUN = 8  # samples on either side of a change
LEAST_STEPS = 3  # steps on either side of a change
MOST_SAMPLES = 5_000  # longer series are taken as medians of equal runs

Floats = npt.NDArray[np.float64]


class ChangePoint(NamedTuple):
    """A lasting change: the first sample after it, the medians on either side, their ratio after / before."""

    at: int
    before: float
    after: float

    @property
    def factor(self) -> float:
        """How many times longer, or shorter, after the change."""
        return self.after / self.before


def change_points(values: Sequence[float] | Floats, *, least_factor: float = LEAST_FACTOR) -> list[ChangePoint]:
    """Return where the level of positive ``values`` changes by ``least_factor`` or more, up or down, and stays.

    The penalty follows the noise (median absolute difference of neighbours), so that noise alone yields nothing. Raises
    MissingExtraError without the library for change points.
    """
    try:
        import ruptures
    except ImportError as error:
        raise MissingExtraError("change-point detection needs ruptures", extra="diagnosis") from error
    series = np.asarray(values, dtype=np.float64)
    series, run = _shortened(series[np.isfinite(series) & (series > 0)])
    if len(series) < 2 * LEAST_RUN:
        return []
    logs = np.log(series)
    sigma = max(float(np.median(np.abs(np.diff(logs)))) / (0.6745 * math.sqrt(2)), 1e-3)
    penalty = 4.0 * sigma**2 * math.log(len(logs))
    search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_RUN).fit(logs.reshape(-1, 1))
    ends = search.predict(pen=max(penalty, 1e-9))
    return _lasting(series, [0, *ends], least_factor, run)


def _shortened(series: Floats) -> tuple[Floats, int]:
    run = -(-len(series) // MOST_SAMPLES)
    if run <= 1:
        return series, 1
    whole = series[: len(series) // run * run].reshape(-1, run)
    return np.median(whole, axis=1), run


def _lasting(series: Floats, ends: list[int], least_factor: float, run: int) -> list[ChangePoint]:
    """Merge neighbouring segments that differ by less than the factor, then return the changes between the rest."""
    segments = [(start, end) for start, end in pairwise(ends) if end > start]
    merged = segments[:1]
    for start, end in segments[1:]:
        before = float(np.median(series[slice(*merged[-1])]))
        after = float(np.median(series[start:end]))
        if max(after / before, before / after) < least_factor:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    medians = [float(np.median(series[start:end])) for start, end in merged]
    return [ChangePoint(merged[i][0] * run, medians[i - 1], medians[i]) for i in range(1, len(merged))]


def fail_slow(trace: Trace, *, least_factor: float = LEAST_FACTOR) -> list[Culprit]:
    """Return culprits of a network that became or is slow, the most certain first; none where nothing stands out.

    Collectives: the series of :mod:`ringwright.analysis.series`. Sends and receives: the matrix of pairs, each cell
    against the median pair of its size.
    """
    slowed = _slow_pairs(trace) + [
        culprit
        for each in series(trace)
        for culprit in _slowed(
            each, change_points(each.time_s, least_factor=least_factor), least_factor, remedies.pairs(trace.meta)
        )
    ]
    return sorted(slowed, key=lambda culprit: -culprit["confidence"])


def _slowed(series: Series, changes: list[ChangePoint], least_factor: float, command: str) -> list[Culprit]:
    slower = [
        change
        for number, change in enumerate(changes)
        if change.factor > 1
        and _lasts(series, change)
        and all(later.after >= least_factor * change.before for later in changes[number:])  # else it was a spell
    ]
    if not slower:
        return []
    worst = max(slower, key=lambda change: change.factor)
    samples = len(series.time_s)
    levels = f"{worst.before * 1e6:.1f} us, then {worst.after * 1e6:.1f} us ({worst.factor:.2f}x)"
    evidence = [
        f"{series.name}: {levels} from sample {worst.at} of {samples} on",
        f"the series begins at {series.where}",
        "cannot tell who: all members of a collective share its time",
    ]
    return [_culprit([], [], "fail-slow", 0.3, evidence, command)]


def _lasts(series: Series, change: ChangePoint) -> bool:
    """Whether steps lie on both sides: what changes inside one step, or between two, is no change for good."""
    before, after = set(series.step[: change.at]), set(series.step[change.at :])
    return min(len(before), len(after)) >= LEAST_STEPS


def pair_slowdown(trace: Trace) -> tuple[dict[Cell, float], dict[int, str], dict[int, str]]:
    """Return the slowdown of each known pair by global rank (sends, receives), hosts and NICs of ranks.

    A cell is the median over the pair's transfers of time over the median time of that size among all pairs that, as it
    does, stay in one host or do not.
    """
    import polars as pl

    timed = trace.scan("events").filter(
        pl.col("op").is_in(["send", "recv"]) & (pl.col("duration_s") > 0) & pl.col("peer").is_not_null()
    )
    members = dict(trace.table("communicators").select("communicator", "members").rows())
    frame = timed.select("op", "rank", "peer", "communicator", "size_bytes", "duration_s").collect()
    frame = _globally(frame, members)
    devices = trace.table("topology")
    hosts = {row["rank"]: row["host"] for row in devices.to_dicts() if row["rank"] is not None and row["host"]}
    ends = (pl.col(name).replace_strict(hosts, default=None, return_dtype=pl.String) for name in ("src", "dst"))
    frame = frame.with_columns(pl.Expr.__eq__(*ends).fill_null(value=False).alias("inside"))
    kinds = ["size_bytes", "inside"]
    typical = frame.group_by(kinds).agg(pl.col("duration_s").median().alias("typical"))
    cells = (
        frame.join(typical, on=kinds)
        .group_by("src", "dst")
        .agg((pl.col("duration_s") / pl.col("typical")).median().alias("slowdown"))
    )
    slowdowns = {(src, dst): slowdown for src, dst, slowdown in cells.rows()}
    nics = {
        row["rank"]: f"{row['host']} {row['nic']}"
        for row in devices.to_dicts()
        if row["rank"] is not None and row["nic"]
    }
    return slowdowns, hosts, nics


def _globally(frame: pl.DataFrame, members: dict[int, list[int]]) -> pl.DataFrame:
    """Replace the peer's rank in its communicator by its global rank; one row per direction src to dst."""
    import polars as pl

    src, dst, kept = [], [], []
    for index, (op, rank, peer, number) in enumerate(frame.select("op", "rank", "peer", "communicator").rows()):
        ranks = members.get(number) or []
        other = ranks[peer] if 0 <= peer < len(ranks) else peer if not ranks else -1
        if rank is None or other < 0 or other == rank:
            continue
        src.append(rank if op == "send" else other)
        dst.append(other if op == "send" else rank)
        kept.append(index)
    return frame[kept].with_columns(pl.Series("src", src, pl.Int32), pl.Series("dst", dst, pl.Int32))


def slow_parts(trace: Trace) -> tuple[list[Slow], list[Slow]]:
    """Return what explains slow pairs between hosts, and what explains those inside one, the largest first."""
    slowdowns, hosts, nics = pair_slowdown(trace)
    # Links inside a host and the network between hosts fail apart: each is looked at without the other.
    inside = {(a, b): factor for (a, b), factor in slowdowns.items() if a in hosts and hosts[a] == hosts.get(b)}
    between = {pair: factor for pair, factor in slowdowns.items() if pair not in inside}
    return explained(between, hosts, nics), explained(inside, hosts, nics)


def _slow_pairs(trace: Trace) -> list[Culprit]:
    culprits = []
    for slow in itertools.chain(*slow_parts(trace)):
        ranks, confidence = list(slow.ranks), round(slow.confidence, 2)
        evidence = [slow.says, f"{slow.cells} of {slow.known} pairs are slow, by {slow.factor:.2f}x in the median"]
        command = remedies.pairs(trace.meta)
        culprits.append(
            _culprit(
                ranks,
                [slow.name] if slow.kind.startswith("host") else [],
                f"slow-{slow.kind}",
                confidence,
                evidence,
                command,
            )
        )
    return culprits


def _culprit(
    ranks: list[int], hosts: list[str], kind: str, confidence: float, evidence: list[str], command: str
) -> Culprit:
    return {
        "ranks": ranks,
        "hosts": hosts,
        "kind": kind,
        "confidence": confidence,
        "evidence": evidence,
        "command": command,
    }
