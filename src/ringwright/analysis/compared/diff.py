"""What changed between two summaries: calls and bytes, ranked by the bytes that the change is worth, and times."""

from __future__ import annotations

from typing import Any

from ringwright.analysis.compared import diff_times
from ringwright.analysis.compared.diff_answer import diff_answer
from ringwright.analysis.compared.diff_document import CountChange, RunCounts, RunDifference, TimedAlone, TimedSize
from ringwright.analysis.document import Summary
from ringwright.bounds.laws import wrong_results

SCHEMA = "ringwright.diff/1"
RECUT = 0.05  # by which an operation's bytes a step may differ and still be the same gradients, cut otherwise
Tally = dict[tuple[Any, ...], tuple[int, int]]  # key -> (count, bytes)


def diff(before: Summary, after: Summary) -> RunDifference:
    """Return what changed from one summary to the other.

    ``changes``: one entry per changed key of a ``kind`` (operation, size, communicator, algorithm, host-pair) with
    counts and bytes before and after, most changed bytes first. ``changed_share``: changed bytes or calls over (op,
    size), whichever share is larger, relative to the larger run; 0 means equal, 1 means nothing in common.

    ``bandwidth``: one row per operation and size that both runs have timed, with ``ratio`` = after / before, its ``noise``
    and whether it ``changed`` beyond that; ``time_classes`` the same per power of two of the size; ``times``: steps, waiting
    and exposed communication; ``timed_in_one_only``: how many operations and sizes have a partner in the other run missing.
    """
    changes: list[CountChange] = []
    for kind, tally in (
        ("operation", _operations),
        ("size", _sizes),
        ("communicator", _communicators),
        ("algorithm", _algorithms),
    ):
        changes += _changes(kind, tally(before), tally(after))
    pairs, notes = _host_pairs(before, after)
    changes += pairs
    rows, alone = diff_times.bandwidth(before, after)
    changes.sort(key=lambda c: (-abs(c["delta_bytes"]), -abs(c["delta_count"]), c["kind"], c["key"]))
    share = _changed_share(_sizes(before), _sizes(after))
    times = diff_times.times(before, after)
    return {
        "schema": SCHEMA,
        "answer": diff_answer(_side(after), times, rows, changes, share, is_other_job=_is_other_job(before, after)),
        "before": _side(before),
        "after": _side(after),
        "changed_share": share,
        "changes": changes,
        "bandwidth": rows,
        "time_classes": diff_times.classes(rows),
        "times": times,
        "timed_in_one_only": alone,
        "notes": notes + _ground_notes(before, after) + _time_notes(rows, alone),
    }


def _side(summary: Summary) -> RunCounts:
    operations = summary.get("operations") or []
    return {
        "inputs": summary.get("inputs") or [],
        "coverage": summary.get("coverage") or "",
        "nccl_versions": summary.get("nccl_versions") or [],
        "hosts": summary.get("hosts"),
        "ranks_seen": summary.get("ranks_seen"),
        "count": sum(o.get("count") or 0 for o in operations),
        "bytes": sum(o.get("bytes") or 0 for o in operations),
        "wrong_results": _wrong(summary),
    }


def _wrong(summary: Summary) -> str:
    told = wrong_results(summary.get("laws") or [])
    return "" if told is None else str(told["example"])


def _operations(summary: Summary) -> Tally:
    return _sum(((o["op"],), o.get("count"), o.get("bytes")) for o in summary.get("operations") or [])


def _sizes(summary: Summary) -> Tally:
    return _sum(
        ((o["op"], e["size_bytes"]), e["count"], e["size_bytes"] * e["count"])
        for o in summary.get("operations") or []
        for e in o.get("size_histogram") or []
        if e["size_bytes"] is not None
    )


def _is_other_job(before: Summary, after: Summary) -> bool:
    """Say whether both runs have calls of known sizes, or timed sizes, and share neither an operation and size nor its bytes.

    An operation that moves the same bytes a step in other pieces is the same job with other buckets.
    """
    one, two = (
        {*_sizes(side), *((row["op"], row["size_bytes"]) for row in side.get("bandwidth") or [])}
        for side in (before, after)
    )
    if not one or not two or one & two:
        return False
    moved = [
        {op: size / max(1, len(side.get("iterations") or [])) for (op,), (_, size) in _operations(side).items() if size}
        for side in (before, after)
    ]
    return not any(abs(moved[1][op] / moved[0][op] - 1) <= RECUT for op in moved[0].keys() & moved[1].keys())


def _communicators(summary: Summary) -> Tally:
    listed = summary.get("communicator_list")
    if listed:
        return _sum(((f"{c.get('size')} ranks", c.get("role") or "unknown"), 1, c.get("bytes")) for c in listed)
    return _sum(((f"{c['size']} ranks",), c["count"], 0) for c in summary.get("communicators") or [])


def _algorithms(summary: Summary) -> Tally:
    return _sum(
        (
            (row["op"], row.get("size_bytes"), row.get("algorithm"), row.get("protocol"), row.get("channels")),
            row.get("count"),
            (row.get("size_bytes") or 0) * (row.get("count") or 0),
        )
        for row in summary.get("algorithms") or []
    )


def _sum(items: Any) -> Tally:
    total: Tally = {}
    for key, count, size_bytes in items:
        had = total.get(key, (0, 0))
        total[key] = (had[0] + int(count or 0), had[1] + int(size_bytes or 0))
    return total


def _changes(kind: str, before: Tally, after: Tally) -> list[CountChange]:
    changes: list[CountChange] = []
    for key in {**before, **after}:
        old, new = before.get(key, (0, 0)), after.get(key, (0, 0))
        if old == new:
            continue
        changes.append(
            {
                "kind": kind,
                "key": " ".join("-" if part is None else str(part) for part in key),
                "op": key[0] if kind in ("operation", "size", "algorithm") else None,
                "size_bytes": key[1] if kind in ("size", "algorithm") else None,
                "change": "added" if old == (0, 0) else "removed" if new == (0, 0) else "changed",
                "before_count": old[0],
                "after_count": new[0],
                "before_bytes": old[1],
                "after_bytes": new[1],
                "delta_count": new[0] - old[0],
                "delta_bytes": new[1] - old[1],
            }
        )
    return changes


def _host_pairs(before: Summary, after: Summary) -> tuple[list[CountChange], list[str]]:
    """Compare host pairs where the two runs share hosts; two runs on other machines differ in every name."""
    tallies = [
        _sum(((row["src"], row["dst"]), 0, row["bytes"]) for row in side.get("host_pair_bytes") or [])
        for side in (before, after)
    ]
    names = [{name for key in tally for name in key} for tally in tallies]
    if not names[0] or not names[1]:
        return [], []
    if not names[0] & names[1]:
        return [], ["the runs share no host name: host pairs are not compared"]
    notes = (
        []
        if names[0] == names[1]
        else [f"{len(names[0] & names[1])} of {len(names[0] | names[1])} hosts are in both runs"]
    )
    return _changes("host-pair", *tallies), notes


def _ground_notes(before: Summary, after: Summary) -> list[str]:
    """Say where the two inputs differ in what they can show."""
    notes = []
    for side, name in ((before, "first"), (after, "second")):
        if wrong := _wrong(side):
            notes.append(f"the {name} input holds wrong results, which are not compared: {wrong}")
        if side.get("losses"):
            notes.append(f"the {name} input was not read whole: its counts are lower bounds")
        if not side.get("operations") and not side.get("bandwidth"):
            notes.append(f"the {name} input holds no operation")
    for key, what in (("nccl_versions", "versions of the library"), ("ranks_seen", "ranks seen"), ("hosts", "hosts")):
        if before.get(key) != after.get(key):
            notes.append(f"{what}: {_plain(before.get(key))} before, {_plain(after.get(key))} after")
    return notes


def _time_notes(rows: list[TimedSize], alone: TimedAlone) -> list[str]:
    notes = []
    if any("assumed" in row["noise_from"] for row in rows):
        notes.append("some times were measured once: that they vary by 3 % by themselves is assumed")
    for side, count, other in (("before", alone["before"], "after"), ("after", alone["after"], "before")):
        if count:
            notes.append(f"{count} timed operations and sizes are only in the run {side}, none of them {other}")
    if not rows:
        notes.append("no operation and size is timed in both runs: no time of a size is compared")
    return notes


def _plain(value: object) -> str:
    return ", ".join(str(v) for v in value) or "none" if isinstance(value, list) else str(value)


def _changed_share(before: Tally, after: Tally) -> float:
    """Return the larger of the changed share of calls and of bytes, 0 to 1."""
    shares = []
    for slot in (0, 1):
        moved = sum(abs(after.get(k, (0, 0))[slot] - before.get(k, (0, 0))[slot]) for k in {**before, **after})
        whole = sum(max(before.get(k, (0, 0))[slot], after.get(k, (0, 0))[slot]) for k in {**before, **after})
        shares.append(moved / whole if whole else 0.0)
    return max(shares)
