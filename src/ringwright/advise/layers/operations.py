"""Who does an operation of a job: the operations that matter, and what they take alone by another system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.advise.settings import OPERATION, Setup
from ringwright.algorithms.searching import OutOfTimeError
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.jobs.explained.exposed_operations import exposed_operations
from ringwright.jobs.recorded_job import Changed
from ringwright.jobs.switch_gains import ALONE, fabric_costs
from ringwright.model.stages import seconds

if TYPE_CHECKING:
    from ringwright.advise.settings import Setting
    from ringwright.advise.situation import Situation
    from ringwright.jobs.study import PolicyResult

LEAST = 0.01  # of a step that an operation is on the wire, to be asked about
MOST = 3  # operations
MOST_SYSTEMS = 5  # of an operation
GAIN = 0.97  # of what the operation takes today, above which a system is not worth a try
LATE, LONGER = "seconds ended before it was made", "a longer --budget"


@dataclass(frozen=True)
class MainOperation:
    """An operation of a step: the size and the ranks on which most of its time is spent; ``alone_s`` of one by today's system."""

    op: str
    role: str
    size_bytes: int
    ranks: tuple[int, ...]
    sent_s: float
    alone_s: float


@dataclass
class LeftOut:
    """What a space leaves out: what is ``refused``, why, and what to do; and what came too ``late`` to be made."""

    refused: list[tuple[str, str, str]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TimedSetting:
    """A setting, and what its operation takes alone with it, in seconds."""

    operation: MainOperation
    setting: Setting
    taken_s: float


def main_operations(result: PolicyResult) -> list[MainOperation]:
    """Return the operations that are on the wire for a hundredth of a step or more, the longest first, one a kind."""
    by_op: dict[str, list[MainOperation]] = defaultdict(list)
    for key, mine in exposed_operations(result).items():
        if key.op not in ALONE:
            sent_s = mine.alone_s * mine.count
            by_op[key.op].append(MainOperation(key.op, key.role, key.size_bytes, mine.group, sent_s, mine.alone_s))
    kept = [
        max(listed, key=lambda each: each.sent_s)
        for listed in by_op.values()
        if sum(each.sent_s for each in listed) >= LEAST * result.step_s
    ]
    return sorted(kept, key=lambda each: -each.sent_s)[:MOST]


def on_known_machine(situation: Situation) -> None:
    """Raise UsageError where who does an operation makes no difference that could be told."""
    if situation.topology is None:
        raise UsageError(
            "the machine is not known, so that nothing tells what another algorithm takes",
            remedy="--fabric dgx-h100:2, or what it ran on (list fabrics)",
        )


def alone_s(situation: Situation, setting: Setting, operation: MainOperation, most_s: float) -> float | None:
    """Return what the operation takes alone with a setting.

    None where that is more than ``most_s``, and where its system leaves it to the library or declines.
    """
    try:
        job = situation.job(Setup((setting,)))
        on, asked = fabric_costs(job), (operation.op, operation.size_bytes, operation.ranks)
        # What was measured changes as the engines say: so much is what is told of the machine.
        today_s = seconds(job.costs.before, *asked) if isinstance(job.costs, Changed) else operation.alone_s
        if on is None or on.least_s(*asked) * operation.alone_s > most_s * today_s:
            return None
        taken = seconds(job.costs, *asked, operation.role)
    except RingwrightError:
        return None
    declines = on.refusal(operation.op, operation.ranks) is not None
    return None if declines or taken > most_s else taken


def timed(
    situation: Situation, asked: Iterable[tuple[MainOperation, Setting]], left: LeftOut, times: float = GAIN
) -> list[TimedSetting]:
    """Return the settings by which an operation takes so many ``times`` of what it takes today, or less."""
    within = []
    for operation, setting in asked:
        try:
            taken_s = alone_s(situation, setting, operation, times * operation.alone_s)
        except OutOfTimeError:
            left.late.append(setting.what)
            continue
        if taken_s is not None:
            within.append(TimedSetting(operation, setting, taken_s))
    return within


def quickest(operations: Iterable[MainOperation], within: Iterable[TimedSetting], most: int) -> list[Setting]:
    """Return so many settings of each operation, the quickest first."""
    ordered = sorted(within, key=lambda each: (each.taken_s, each.setting.spelling))
    return [each.setting for mine in operations for each in [one for one in ordered if one.operation is mine][:most]]


def slot_of(operation: MainOperation) -> str:
    """Return the slot that says who does an operation."""
    return f"{OPERATION}{operation.op}"
