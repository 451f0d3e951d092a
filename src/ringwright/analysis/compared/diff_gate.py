"""Whether two runs differ by more than is allowed: in calls and bytes, in times of calls and steps, in waiting, in exposure."""

from __future__ import annotations

from ringwright.analysis.compared.diff_document import RunDifference, TimedWhole
from ringwright.analysis.compared.diff_times import beyond, ratios
from ringwright.ground.units import format_size


def over(difference: RunDifference, bound: float, *, slower_only: bool = False) -> list[str]:
    """Return a sentence per kind of change beyond ``bound``; empty when the gate passes.

    A time counts where it changed by more than ``bound`` and by more than it varies by itself; a share of time where it
    moved by more than ``bound`` in points; wrong results always. With ``slower_only`` what became faster counts for nothing.
    Two runs with nothing in common that could be compared do not pass.
    """
    wrong = difference["after"]["wrong_results"]
    changes = [f"wrong results: {wrong}" if wrong else ""]
    changes += [_calls(difference, bound), _only_in_one(difference, bound)]
    changes += [_classes(difference, bound, slower_only), _sizes(difference, bound, slower_only)]
    changes += [_whole(row, bound, slower_only) for row in difference["times"]]
    failed = [sentence for sentence in changes if sentence]
    if not failed and not _comparable(difference):
        return ["nothing is in both runs that could be compared"]
    return failed


def _comparable(difference: RunDifference) -> bool:
    calls = all(difference[side]["count"] for side in ("before", "after"))
    return bool(calls or difference["bandwidth"] or difference["times"])


def _calls(difference: RunDifference, bound: float) -> str:
    share = difference["changed_share"]
    return f"{share:.1%} of calls or bytes changed" if share > bound else ""


def _only_in_one(difference: RunDifference, bound: float) -> str:
    """Judge benchmarks and other timed calls that have no partner; calls of a job are in the changed share already."""
    alone = difference["timed_in_one_only"]["before"] + difference["timed_in_one_only"]["after"]
    if difference["before"]["count"] or difference["after"]["count"] or not alone:
        return ""
    share = alone / (alone + len({(row["op"], row["size_bytes"], row["nranks"]) for row in difference["bandwidth"]}))
    return f"{share:.1%} of the timed operations and sizes are in one run only" if share > bound else ""


def _far(ratio: float, share: float, bound: float, slower_only: bool) -> bool:
    return beyond(ratio, share, bound) and (ratio > 1 or not slower_only)


def _size_of(ratio: float) -> float:
    return max(ratio, 1 / ratio)


def _classes(difference: RunDifference, bound: float, slower_only: bool) -> str:
    rows = difference["time_classes"]
    far = [row for row in rows if _far(row["ratio"], row["noise"], bound, slower_only)]
    if not far:
        return ""
    worst = max(far, key=lambda row: _size_of(row["ratio"]))
    where = f"{worst['op']} from {format_size(worst['log2_low_bytes'])} on"
    return f"{len(far)} of {len(rows)} size classes changed, most of all {where}: {_times(worst['ratio'])} the time"


def _sizes(difference: RunDifference, bound: float, slower_only: bool) -> str:
    rows = difference["bandwidth"]
    far = [(_size_of(r), r, row) for row in rows for r in ratios(row) if _far(r, row["noise"], bound, slower_only)]
    if not far:
        return ""
    _, ratio, worst = max(far, key=lambda each: each[0])
    many = len({id(row) for _, _, row in far})
    where = f"{worst['op']} of {format_size(worst['size_bytes'])}"
    return f"{many} of {len(rows)} timed sizes changed, most of all {where}: {_times(ratio)} the time"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _whole(row: TimedWhole, bound: float, slower_only: bool) -> str:
    before, after, ratio, share = row["before_share"], row["after_share"], row["ratio"], row["noise"]
    if before is None or after is None:
        if ratio is None or share is None or not _far(ratio, share, bound, slower_only):
            return ""
        ms = f"{row['before_us'] / 1e3:,.2f} ms before, {row['after_us'] / 1e3:,.2f} ms after"
        name = {"step": "a step", "communication": "communication in a step"}[row["what"]]
        return f"{name} takes {_times(ratio)} the time ({ms})"
    moved = after - before
    if not row["changed"] or abs(moved) <= bound or (moved < 0 and slower_only):
        return ""
    name = {"waiting": "waiting for late ranks", "exposed": "communication not hidden behind compute"}[row["what"]]
    return f"{name}: {before:.1%} before, {after:.1%} after"
