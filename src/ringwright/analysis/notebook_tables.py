"""What a notebook shows of a summary and of a difference: the answer first, then what it rests on."""

from __future__ import annotations

from ringwright.analysis.answer_document import FirstAnswer
from ringwright.analysis.compared.diff_document import RunDifference, TimedWhole
from ringwright.analysis.document import Summary
from ringwright.ground.notebook import Seen, card, table
from ringwright.ground.units import format_size

MOST_SIZES = 10


def of_summary(summary: Summary) -> Seen:
    """Return the answer, the coverage, operations, what is normal for such systems, and findings."""
    verdict = summary["verdict"]
    parts = [
        card("", {"coverage": summary["coverage"], **_figures(summary["answer"])}),
        card("", {"not all was read": "; ".join(summary["losses"][:3])}) if summary["losses"] else "",
        card("", {"verdict": verdict["kind"], "ranks": _listed(verdict["ranks"])}) if verdict else "",
        _operations(summary),
        _normal(summary),
        table("findings", ("", "what", "why"), [(f["severity"], f["title"], f["detail"]) for f in summary["findings"]])
        if summary["findings"]
        else "",
    ]
    return summary["answer"]["sentence"] if summary["answer"] else summary["coverage"], parts


def of_difference(difference: RunDifference) -> Seen:
    """Return the answer, both runs, times, the sizes that changed most, and what disturbed the later run."""
    rows = [_whole(row) for row in difference["times"]]
    changed = sorted((row for row in difference["bandwidth"] if row["changed"]), key=lambda row: -abs(row["ratio"] - 1))
    rows += [
        (
            f"{row['op']} of {format_size(row['size_bytes'])}",
            f"{row['before_us']:,.6g} us",
            f"{row['after_us']:,.6g} us",
            "yes",
        )
        for row in changed[:MOST_SIZES]
    ]
    disturbance = difference.get("disturbance")
    parts = [
        card("", {side: difference[side]["coverage"] for side in ("before", "after")}),
        table("times", ("", "before", "after", "changed"), rows) if rows else "",
        table(
            "calls",
            ("", "what", "calls before", "after"),
            [(c["kind"], c["key"], c["before_count"], c["after_count"]) for c in difference["changes"][:MOST_SIZES]],
        )
        if difference["changes"]
        else "",
        card("", {"disturbed by": disturbance["kind"], "evidence": "; ".join(disturbance["evidence"])})
        if disturbance
        else "",
        card("", {"note": "; ".join(difference["notes"])}) if difference["notes"] else "",
    ]
    return difference["answer"]["sentence"], parts


def _figures(answer: FirstAnswer | None) -> dict[str, object]:
    return {} if answer is None else {each["name"]: each["value"] for each in answer["figures"]}


def _operations(summary: Summary) -> str:
    rows = [
        (row["op"], row["count"], "" if row["bytes"] is None else format_size(row["bytes"]))
        for row in summary["operations"]
    ]
    return table("operations", ("op", "calls", "bytes"), rows) if rows else ""


def _normal(summary: Summary) -> str:
    """Return measured bandwidths beside what such systems reach."""
    rows = [
        (
            *(row["op"], format_size(row["size_bytes"])),
            *(f"{row[name]:,.4g}" for name in ("busbw_gbs", "p05", "p50", "p95")),
            f"{row['percentile']:.0f} %",
        )
        for row in sorted(summary["normal"], key=lambda row: -row["size_bytes"])[:MOST_SIZES]
    ]
    head = ("op", "size", "busbw GB/s", "5 %", "50 %", "95 %", "slower systems")
    return table("beside what such systems reach", head, rows) if rows else ""


def _whole(row: TimedWhole) -> tuple[str, str, str, str]:
    before, after = row["before_share"], row["after_share"]
    if before is not None and after is not None:
        shown = f"{before:.1%}", f"{after:.1%}"
    else:
        shown = f"{row['before_us'] / 1e3:,.6g} ms", f"{row['after_us'] / 1e3:,.6g} ms"
    return row["what"], *shown, "yes" if row["changed"] else ""


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:32])) or "unknown"
