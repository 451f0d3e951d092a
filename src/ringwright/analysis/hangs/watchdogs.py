"""Who hung a job, by what watchdogs print: the operation that each rank waits in, and how far each got in its group.

Two signals count per group: who enqueued least, who completed least; they accuse only a minority. That ranks wait for the same
operation is said only where every report has the same group, number and operation; where groups are not named, numbers of one
rank and of another may be of two groups, so they are listed, and a rank that is behind is a suspect at most.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ringwright.analysis.hangs.hang_mismatch import say_ranks

if TYPE_CHECKING:
    from ringwright.analysis.document import Row

SUSPECT = 0.3  # of one that is behind, where nobody says that it is the same group
SILENT, SILENT_BY_SIZE = 0.7, 0.4  # of those that said nothing: out of the ranks that were launched, or that sizes tell
MOST_SILENT = 0.25  # of the ranks: more that said nothing is a log that was not collected
UNNAMED = "groups not named"


class WatchdogReport(NamedTuple):
    """The operation in which a rank's watchdog gave up; ``group`` is empty where no line names it."""

    group: str
    sequence: int
    op: str
    numel: str


class WorksDone(NamedTuple):
    """How far a rank got in a group by its own counters: work numbers, None where not told."""

    at: int | None
    enqueued: int | None
    completed: int | None


@dataclass(frozen=True)
class WatchdogReports:
    """What watchdogs said: ``waiting`` where each rank stands, ``progress`` by rank and group, ``silent`` who said nothing.

    ``expected`` is the number of ranks that should have reported, None where neither the launch nor the sizes of the operation
    tell it; ``rows`` are the lines it rests on.
    """

    waiting: dict[int, WatchdogReport]
    progress: dict[tuple[int, str], WorksDone]
    silent: list[int]
    expected: int | None
    by_size: bool
    rows: list[Row]


class Accused(NamedTuple):
    """Whom reports accuse, of what, how sure that is, and why."""

    ranks: tuple[int, ...]
    kind: str
    confidence: float
    why: list[str]


def watchdog_reports(errors: list[Row], world: int | None) -> WatchdogReports | None:
    """Return what the watchdogs among error rows said; None where none spoke. ``world``: the number of ranks, where known."""
    told = [row for row in errors if row["op"] == "progress"]
    progress = {(row["rank"], row["data"].get("pg", "")): _progress(row["data"]) for row in reversed(told)}
    first: dict[int, Row] = {}
    for row in errors:
        if row["op"] == "watchdog" and row["rank"] is not None:
            first.setdefault(row["rank"], row)
    if not first and not progress:
        return None
    waiting = {rank: _report(rank, row["data"], progress) for rank, row in first.items()}
    for row in errors:
        if row["op"] == "watchdog" and row["rank"] in waiting:
            waiting[row["rank"]] = _older(waiting[row["rank"]], _report(row["rank"], row["data"], progress))
    spoke = {*waiting, *(rank for rank, _ in progress)}
    expected = world or _group_size(waiting, spoke)
    silent = sorted(set(range(expected or 0)) - spoke)
    rows = list(first.values()) or told
    return WatchdogReports(waiting, progress, silent, expected, not world, rows)


def _report(rank: int, data: Row, progress: dict[tuple[int, str], WorksDone]) -> WatchdogReport:
    sequence = int(data["seq"])
    # A group's GUID is the same on all ranks; its bare number is one of each rank and names nothing to the others.
    groups = {group for (who, group), said in progress.items() if who == rank and said.at == sequence}
    groups = {data["pg"]} if data.get("pg") else {group for group in groups if not group.isdecimal()}
    group = groups.pop() if len(groups) == 1 else ""
    return WatchdogReport(group, sequence, data["op"], f"{data['nin']}/{data['nout']}")


def _progress(data: Row) -> WorksDone:
    return WorksDone(data.get("at"), data.get("enqueued"), data.get("completed"))


def _older(one: WatchdogReport, other: WatchdogReport) -> WatchdogReport:
    """Return the earlier of two reports of a rank where only their numbers differ: that is where it stands; else the first."""
    return min(one, other) if one._replace(sequence=0) == other._replace(sequence=0) else one


def _group_size(waiting: dict[int, WatchdogReport], spoke: set[int]) -> int | None:
    """Return the number of ranks that the operation's two sizes tell, where all reports tell one and no rank is beyond it."""
    sizes = {_ratio(report.numel) for report in waiting.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if size is not None and max(spoke, default=0) < size else None


def _ratio(numel: str) -> int | None:
    """Return how many times the smaller side of an all-gather or reduce-scatter fits the larger; None where it does not."""
    sides = [int(side) if side.isdecimal() else 0 for side in numel.split("/")]
    low, high = min(sides), max(sides)
    return high // low if low and high > low and high % low == 0 else None


def accuse(hung: WatchdogReports) -> Accused:
    """Return whom the reports accuse; nobody, with what they say, where they point at no minority."""
    behind = _minority(hung.progress, "enqueued") | _minority(hung.progress, "completed")
    return (
        _desynchronised(hung)
        or _mismatched(hung)
        or _behind(hung, behind)
        or _silent(hung)
        or (Accused(tuple(sorted(behind)), "hang", 0.5, []) if behind else None)
        or _suspect(hung)
        or Accused((), "hang", 0.0, [_told(hung)])
    )


def _desynchronised(hung: WatchdogReports) -> Accused | None:
    kinds = {(report.op, report.numel) for report in hung.waiting.values()}
    if len(kinds) < 2 or len(_numbers(hung)) < 2:
        return None
    return Accused((), "hang-desynchronised", 0.0, [f"cannot tell who began it: {_listed(hung)}"])


def _mismatched(hung: WatchdogReports) -> Accused | None:
    """One number, and another operation or size: of one group unless groups are named and differ."""
    seen = Counter(hung.waiting.values())
    if len({report.group for report in seen}) > 1 or len(_numbers(hung)) > 1 or len(seen) < 2:
        return None
    odd = [rank for rank, report in hung.waiting.items() if report != seen.most_common(1)[0][0]]
    if len(odd) * 2 < len(hung.waiting):
        why = ["same sequence, another operation or size on a minority"]
        return Accused(tuple(sorted(odd)), "hang-mismatch", 0.8, why)
    return Accused((), "hang-mismatch", 0.0, ["cannot tell: no majority does the same operation"])


def _behind(hung: WatchdogReports, behind: set[int]) -> Accused | None:
    if not behind or (hung.silent and not hung.by_size):
        return None
    return Accused(tuple(sorted(behind)), "hang", 0.8, ["enqueued or completed less than the rest of their group"])


def _silent(hung: WatchdogReports) -> Accused | None:
    """Ranks of which no watchdog spoke, where all the others wait in one operation."""
    spoke = list(hung.waiting)
    # Reports in the order of the ranks may have been cut off at either end: those beyond say nothing either way.
    is_in_order = len(spoke) > 2 and spoke == sorted(spoke)
    silent = [rank for rank in hung.silent if not is_in_order or spoke[0] < rank < spoke[-1]]
    few = silent and hung.expected and len(hung.silent) <= MOST_SILENT * hung.expected
    if not few or len(set(hung.waiting.values())) != 1:
        return None
    why = ["all others wait in the same operation"]
    if hung.by_size:
        why.append(f"that there are {hung.expected} ranks is told by the sizes of the operation alone")
    return Accused(tuple(silent), "hang", SILENT_BY_SIZE if hung.by_size else SILENT, why)


def _suspect(hung: WatchdogReports) -> Accused | None:
    """One operation under several numbers: the few with the lowest are behind, if all are of one group."""
    lowest = min(_numbers(hung), default=0)
    ranks = tuple(sorted(rank for rank, report in hung.waiting.items() if report.sequence == lowest))
    if len(_numbers(hung)) < 2 or len(ranks) * 2 >= len(hung.waiting) or len(_groups(hung)) > 1:
        return None
    sure = SUSPECT if "" in _groups(hung) else 2 * SUSPECT
    return Accused(ranks, "hang", sure, [f"{say_ranks(list(ranks))} behind: {_listed(hung)}"])


def _told(hung: WatchdogReports) -> str:
    """Say in which operations the ranks wait that reported, and how many of how many those are."""
    spoke = sorted({*hung.waiting, *(rank for rank, _ in hung.progress)})
    who = f"rank {spoke[0]} alone" if len(spoke) == 1 else f"{len(spoke)} ranks"
    of = (
        f"of {hung.expected}{' by the sizes of the operation' * hung.by_size}"
        if hung.expected
        else "of an unknown number"
    )
    said = f"cannot tell: {who} ({of}) reported"
    if not hung.waiting:
        return f"{said} how far they got, and no minority of a group is behind"
    if len(set(hung.waiting.values())) > 1:
        return f"cannot tell who is behind: {who} ({of}) reported {_listed(hung)}"
    if len(spoke) == hung.expected and "" not in _groups(hung):
        return f"cannot tell: all {len(spoke)} ranks wait for the same operation, {_listed(hung)}"
    alone = f", {'each ' * (len(spoke) > 1)}waiting in " if len(hung.waiting) == len(spoke) else ", those that wait in "
    return f"{said}{alone}{_listed(hung)}{_queued(hung)}"


def _queued(hung: WatchdogReports) -> str:
    """Say how many works a rank that speaks alone has enqueued behind the one it waits in, where its counters tell."""
    ahead = [
        done.enqueued - report.sequence
        for rank, report in hung.waiting.items()
        for (who, _), done in hung.progress.items()
        if who == rank and done.at == report.sequence and done.enqueued is not None
    ]
    return f", {ahead[0]:,} more enqueued behind it" if len(ahead) == 1 and ahead[0] > 0 else ""


def _listed(hung: WatchdogReports) -> str:
    """Return each operation and number with the ranks that wait in it, and whether groups are named."""
    by: dict[WatchdogReport, list[int]] = defaultdict(list)
    for rank, report in sorted(hung.waiting.items()):
        by[report].append(rank)
    of = [
        f"{report.op} {report.sequence}{f' of group {report.group}' if report.group else ''} on {say_ranks(ranks)}"
        for report, ranks in by.items()
    ]
    return "; ".join(of) + (f" ({UNNAMED})" if "" in _groups(hung) else "")


def _numbers(hung: WatchdogReports) -> set[int]:
    return {report.sequence for report in hung.waiting.values()}


def _groups(hung: WatchdogReports) -> set[str]:
    return {report.group for report in hung.waiting.values()}


def _minority(progress: dict[tuple[int, str], WorksDone], counter: str) -> set[int]:
    """Return the ranks with the lowest counter of their group where they are a strict minority of it."""
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for (rank, group), data in progress.items():
        if (reached := getattr(data, counter)) is not None:
            groups[group][rank] = reached
    minority: set[int] = set()
    for values in groups.values():
        lowest = {rank for rank, value in values.items() if value == min(values.values())}
        if len(lowest) * 2 < len(values):
            minority |= lowest
    return minority
