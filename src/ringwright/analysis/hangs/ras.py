"""Who holds a job up by NCCL's RAS client: processes that are dead or do not answer, ranks that launched fewer operations.

RAS lists the smaller set of ranks, ahead or behind; the other one follows by subtraction, and the lag is computed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ringwright.analysis.hangs.hang_mismatch import say_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.analysis.document import Culprit, Row

DEAD = "DEAD"
SURE_DEAD, SILENT, BEHIND, ONE_BEHIND, UNLISTED = 0.9, 0.6, 0.8, 0.4, 0.3
ENDED = "ABORT"


def _accused(kind: str, ranks: list[int], hosts: list[str], confidence: float, evidence: list[str]) -> Culprit:
    """Return a culprit of kind ``ras-dead`` or ``hang-ras``; the first line of its evidence says it whole."""
    return {"kind": kind, "ranks": ranks, "hosts": hosts, "confidence": confidence, "evidence": evidence}


def of_ras(ras: Row | None, world: int | None) -> Culprit | None:
    """Return what the RAS client's text accuses; None where it names nobody and nothing that is wrong."""
    if not ras:
        return None
    return _gone(ras) or _behind(ras, world_of(ras) or world) or _aborted(ras)


def world_of(ras: Row | None) -> int | None:
    """Return the ranks of the largest communicator that RAS counts; None where it printed no table."""
    return max((row["size"] for row in (ras or {}).get("groups", [])), default=None)


def _gone(ras: Row) -> Culprit | None:
    processes, ranks = ras.get("processes", []), sorted(set(ras.get("ranks", [])))
    if not processes and not ranks:
        return None
    dead = [each for each in processes if each[0] == DEAD]
    named = dead or processes
    who = say_ranks(ranks) if ranks else f"{len(named)} process{'es' * (len(named) > 1)}"
    where = ", ".join(f"process {pid} on {node}, GPU {gpu}" for _, pid, node, gpu in named[:4])
    what = "dead: RAS has not reached it for 60 s" if dead else "missing: RAS gets no answer from it"
    evidence = [f"{who} {'are' if len(ranks) > 1 else 'is'} {what}" + (f" ({where})" if where else "")]
    evidence += [_row(row) for row in ras.get("groups", [])[:4]]
    hosts = list(dict.fromkeys(node for _, _, node, _ in named))
    return _accused("ras-dead" if dead else "hang-ras", ranks, hosts, SURE_DEAD if dead else SILENT, evidence)


def _row(row: Row) -> str:
    return f"a communicator of {row['size']} ranks: data of {row['ranks']}, {row['status']}, {row['errors']}"


def _behind(ras: Row, world: int | None) -> Culprit | None:
    counts = ras.get("counts", [])
    if len({op for _, op in counts}) < 2:
        return None
    behind = min(range(len(counts)), key=lambda index: counts[index][1])
    lag = max(op for _, op in counts) - counts[behind][1]
    listed: dict[int, set[int]] = defaultdict(set)
    for index, rank, _ in ras.get("listed", []):
        listed[index].add(rank)
    ranks = _of_set(behind, counts, listed, world)
    op = ras.get("op", "operation")
    what = f"{lag} {op}{'s' * (lag > 1)} behind the others"
    if lag == 1:
        what += " (ask again: RAS may have come between the two)"
    tally = [f"{number} rank{'s' * (number > 1)} launched up to {op} {at}" for number, at in counts]
    tally[-1] += f" ({ras.get('place', '')})"
    if not ranks:
        why = [f"cannot tell who: {'; '.join(tally)}", f"the slowest set is {lag} behind"]
        return _accused("hang-ras", [], [], UNLISTED, why)
    evidence = [f"{say_ranks(ranks)} {'are' if len(ranks) > 1 else 'is'} {what}", *tally]
    return _accused("hang-ras", ranks, [], ONE_BEHIND if lag == 1 else BEHIND, evidence)


def _of_set(
    behind: int, counts: Sequence[tuple[int, int]], listed: dict[int, set[int]], world: int | None
) -> list[int]:
    """Return the ranks of a set: those listed, or all but those of the other sets; none where neither is whole."""
    if len(listed[behind]) == counts[behind][0]:
        return sorted(listed[behind])
    others = set().union(*(ranks for index, ranks in listed.items() if index != behind))
    is_whole = world is not None and len(others) + counts[behind][0] == world
    return sorted(set(range(world or 0)) - others) if is_whole else sorted(listed[behind])


def _aborted(ras: Row) -> Culprit | None:
    """A communicator that was aborted, by the table or by ranks whose statuses differ."""
    rows = [row for row in ras.get("groups", []) if row["status"] == ENDED]
    told = [(number, status) for number, status in ras.get("statuses", []) if status == ENDED]
    if not rows and not told:
        return None
    ranks = sum(row["ranks"] for row in rows) or sum(number for number, _ in told)
    return _accused(
        "ras-dead", [], [], UNLISTED, [f"{ranks} ranks have aborted their communicator: cannot tell who began it"]
    )
