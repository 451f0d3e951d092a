"""How much longer the same calls took: per operation and size, per class of sizes, per step, in waiting and in exposure.

Two times differ where their ratio is beyond what they vary by themselves (``noise``), and by more than two in a hundred.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from ringwright.analysis import noise
from ringwright.analysis.compared.diff_document import TimedAlone, TimedClass, TimedSize, TimedWhole
from ringwright.analysis.document import Row, Summary

BEYOND = 4.0  # standard deviations
NOTABLE = 0.02  # smaller changes are never called a change
NOTABLE_POINTS = 0.05  # the same for a share of time
_BASE = ("kind", "op", "size_bytes", "nranks", "task")
_LABELS = ("algorithm", "protocol", "datatype")
Entries = list[Row]


def bandwidth(before: Summary, after: Summary) -> tuple[list[TimedSize], TimedAlone]:
    """Return a row per timed call that both runs have, by operation and size, and how many only one of them has."""
    sides = [_grouped(side.get("bandwidth") or []) for side in (before, after)]
    pairs = noise.Pairs(before.get("bandwidth") or [], after.get("bandwidth") or [])
    rows: list[TimedSize] = []
    for key in sides[0]:
        if key in sides[1]:
            rows += [_row(key, old, new, pairs) for old, new in _labelled(sides[0][key], sides[1][key])]
    alone: TimedAlone = {
        "before": len(sides[0].keys() - sides[1].keys()),
        "after": len(sides[1].keys() - sides[0].keys()),
    }
    return sorted(
        _joined(rows), key=lambda row: (row["kind"], row["op"] or "", row["size_bytes"], row["nranks"] or 0)
    ), alone


def _joined(rows: list[TimedSize]) -> list[TimedSize]:
    """Return one row per call: what was measured in place stands in the row of the same call out of place."""
    inside = {_call(row): row for row in rows if row["task"] == "in-place"}
    joined: list[TimedSize] = []
    for row in rows:
        partner = inside.pop(_call(row), None) if row["task"] == "out-of-place" else None
        if partner is not None:
            joined.append(
                {
                    **row,
                    "inplace_before_us": partner["before_us"],
                    "inplace_after_us": partner["after_us"],
                    "inplace_ratio": partner["ratio"],
                    "changed": row["changed"] or partner["changed"],
                }
            )
        elif row["task"] != "in-place":
            joined.append(row)
    return [*joined, *inside.values()]


def _call(row: TimedSize) -> tuple[object, ...]:
    labels = (row["algorithm"], row["protocol"], row["datatype"])
    return (row["kind"], row["op"], row["size_bytes"], row["nranks"], *labels)


def ratios(row: TimedSize) -> list[float]:
    """Return how much longer a row's call took, out of place and in place where both were measured."""
    return [row["ratio"]] + ([row["inplace_ratio"]] if row["inplace_ratio"] is not None else [])


def _grouped(entries: Entries) -> dict[tuple[Any, ...], Entries]:
    groups: dict[tuple[Any, ...], Entries] = {}
    for entry in entries:
        if (entry.get("time_us") or 0) > 0:
            groups.setdefault(tuple(entry.get(name) for name in _BASE), []).append(entry)
    return groups


def _labelled(old: Entries, new: Entries) -> list[tuple[Entries, Entries]]:
    """Return what is compared with what: apart by algorithm, protocol and type where both runs have the same several."""
    labels = [{tuple(entry.get(name) for name in _LABELS) for entry in side} for side in (old, new)]
    if labels[0] != labels[1] or len(labels[0]) == 1:
        return [(old, new)]
    return [(_with(old, label), _with(new, label)) for label in sorted(labels[0], key=str)]


def _with(entries: Entries, label: tuple[Any, ...]) -> Entries:
    return [entry for entry in entries if tuple(entry.get(name) for name in _LABELS) == label]


def _row(key: tuple[Any, ...], old: Entries, new: Entries, pairs: noise.Pairs) -> TimedSize:
    kind, op, size, nranks, task = key
    before, after = _mean(old, "time_us"), _mean(new, "time_us")
    one, other = (_noise(side, op, size, pairs) for side in (old, new))
    ratio = after / before
    share = math.hypot(one.share, other.share)
    return {
        "op": op,
        "size_bytes": size,
        "before_us": round(before, 3),
        "after_us": round(after, 3),
        "ratio": round(ratio, 4),
        "before_busbw_gbs": _rate(old),
        "after_busbw_gbs": _rate(new),
        "kind": kind,
        "task": task,
        "nranks": nranks,
        "before_samples": sum(e.get("samples") or 1 for e in old),
        "after_samples": sum(e.get("samples") or 1 for e in new),
        "noise": round(share, 5),
        "noise_from": one.source if one.source == other.source else f"{one.source}; {other.source}",
        "changed": beyond(ratio, share),
        "inplace_before_us": None,
        "inplace_after_us": None,
        "inplace_ratio": None,
        "algorithm": _alike("algorithm", old, new),
        "protocol": _alike("protocol", old, new),
        "datatype": _alike("datatype", old, new),
    }


def _alike(label: str, old: Entries, new: Entries) -> str | None:
    """Return the algorithm, protocol or type of a row, None where its calls differ in it."""
    values: set[str | None] = {entry.get(label) for entry in (*old, *new)}
    return values.pop() if len(values) == 1 else None


def beyond(ratio: float, share: float, bound: float = NOTABLE) -> bool:
    """Say whether a ratio is further from one than ``bound`` and than its noise ``share`` explains."""
    away = abs(math.log(ratio))
    return away > math.log1p(bound) and away > BEYOND * share


def _mean(entries: Entries, name: str) -> float:
    """Return the mean over groups, weighted by their calls."""
    weights = [entry.get("samples") or 1 for entry in entries]
    return math.fsum(e[name] * w for e, w in zip(entries, weights, strict=True)) / sum(weights)


def _rate(entries: Entries) -> float | None:
    known = [entry for entry in entries if entry.get("busbw_gbs") is not None]
    return round(_mean(known, "busbw_gbs"), 4) if known else None


def _noise(entries: Entries, op: str, size: int, pairs: noise.Pairs) -> noise.Noise:
    """Return the noise of the time of one side: of repeated calls, of repeated rows, of pairs nearby, or the assumed one."""
    repeated = [(e["spread"], e.get("samples") or 1) for e in entries if e.get("spread") is not None]
    if repeated:
        worst = max(noise.of_median(share, many) for share, many in repeated)
        return noise.Noise(max(noise.LEAST, worst), "repeated calls")
    rows = noise.spread([entry["time_us"] for entry in entries])
    if rows is not None:
        return noise.Noise(noise.of_median(rows, len(entries)), "repeated rows")
    return pairs.near(op, size) or noise.UNKNOWN


def classes(rows: list[TimedSize]) -> list[TimedClass]:
    """Return one entry per operation and power of two of the size: the geometric mean ratio of its rows, and its noise."""
    by_class: dict[tuple[str, str, int], list[TimedSize]] = {}
    for row in rows:
        size = row["size_bytes"]
        low = 1 << (size.bit_length() - 1) if size > 0 else 0
        by_class.setdefault((row["kind"], row["op"] or "", low), []).append(row)
    return [_class(kind, op, low, members) for (kind, op, low), members in sorted(by_class.items())]


def _class(kind: str, op: str, low: int, rows: list[TimedSize]) -> TimedClass:
    logs = [(math.log(ratio), row["noise"]) for row in rows for ratio in ratios(row)]
    ratio = math.exp(math.fsum(away for away, _ in logs) / len(logs))
    share = math.sqrt(math.fsum(each**2 for _, each in logs)) / len(logs)
    return {
        "kind": kind,
        "op": op,
        "log2_low_bytes": low,
        "log2_high_bytes": max(2 * low, 1),
        "rows": len(rows),
        "ratio": round(ratio, 4),
        "noise": round(share, 5),
        "changed": beyond(ratio, share),
    }


# ------------------------------------------------------------------------------------------------- steps and shares
def times(before: Summary, after: Summary) -> list[TimedWhole]:
    """Return what both runs tell of whole steps, of waiting and of exposed communication; a run without them adds nothing."""
    rows = [
        _steps(before, after),
        _communication(before, after),
        _share("waiting", before, after),
        _share("exposed", before, after),
    ]
    return [row for row in rows if row is not None]


def _steps(before: Summary, after: Summary) -> TimedWhole | None:
    lasted = [
        [i["time_s"] * 1e6 for i in side.get("iterations") or [] if (i.get("time_s") or 0) > 0]
        for side in (before, after)
    ]
    if not all(lasted):
        return None
    old, new = (median(each) for each in lasted)
    spreads = [noise.spread(each) for each in lasted]
    known = None not in spreads
    parts = [
        noise.of_median(s, len(each)) if s is not None else noise.ASSUMED
        for s, each in zip(spreads, lasted, strict=True)
    ]
    share = max(noise.LEAST, math.hypot(*parts))
    return {
        "what": "step",
        "before_us": round(old, 3),
        "after_us": round(new, 3),
        "ratio": round(new / old, 4),
        "before_share": None,
        "after_share": None,
        "before_samples": len(lasted[0]),
        "after_samples": len(lasted[1]),
        "noise": round(share, 5),
        "noise_from": "repeated steps" if known else noise.UNKNOWN.source,
        "changed": beyond(new / old, share),
    }


def _communication(before: Summary, after: Summary) -> TimedWhole | None:
    """Return how long the kernels of a rank communicated per step, waiting included; sizes need not be known for it."""
    old, new = _communicated(before), _communicated(after)
    if old is None or new is None:
        return None
    share = math.hypot(noise.ASSUMED, noise.ASSUMED)
    return {
        "what": "communication",
        "before_us": round(old, 3),
        "after_us": round(new, 3),
        "ratio": round(new / old, 4),
        "before_share": None,
        "after_share": None,
        "before_samples": None,
        "after_samples": None,
        "noise": round(share, 5),
        "noise_from": noise.UNKNOWN.source,
        "changed": beyond(new / old, share),
    }


def _communicated(summary: Summary) -> float | None:
    overlap = summary.get("overlap") or {}
    cells = len(overlap.get("ranks") or []) * len(summary.get("iterations") or [])
    total = math.fsum(row.get("comm_us") or 0 for row in overlap.get("ranks") or [])
    return total / cells if cells and total > 0 else None


def _share(what: str, before: Summary, after: Summary) -> TimedWhole | None:
    """Return how much of the time in collectives was waiting, or was not hidden behind compute."""
    measure = waiting if what == "waiting" else exposed
    was, now = measure(before), measure(after)
    if was is None or now is None:
        return None
    (old_us, old), (new_us, new) = was, now
    return {
        "what": what,
        "before_us": round(old_us, 3),
        "after_us": round(new_us, 3),
        "ratio": round(new_us / old_us, 4) if old_us > 0 else None,
        "before_share": round(old, 5),
        "after_share": round(new, 5),
        "before_samples": None,
        "after_samples": None,
        "noise": None,
        "noise_from": "judged by its share of the time in collectives",
        "changed": abs(new - old) > NOTABLE_POINTS,
    }


def waiting(summary: Summary) -> tuple[float, float] | None:
    """Return microseconds waited for late ranks, and their share of the time in collectives; None where nothing tells."""
    rows = summary.get("waits") or []
    waited = math.fsum(row.get("wait_us") or 0 for row in rows)
    spent = waited + math.fsum(row.get("transfer_us") or 0 for row in rows)
    return (waited, waited / spent) if spent > 0 else None


def exposed(summary: Summary) -> tuple[float, float] | None:
    """Return microseconds of communication not hidden behind compute, and their share of it; None where nothing tells."""
    overlap = summary.get("overlap") or {}
    total, bare = overlap.get("comm_us"), overlap.get("exposed_us")
    return (bare, bare / total) if total and bare is not None else None
