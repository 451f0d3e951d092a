"""What each operation of a recording took by itself, where others were under way beside it.

Operations of a queue run one after another, or by twos (gloo has two threads a group): a call is issued long before it is begun.
Two at once share what carries them, by their bytes: their messages follow each other on the same connections. Which of both it
was is told by the operations: those of a kind take about as long for a byte.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ringwright.workloads.recorded.plan import PAIRS, RankStep, RecordedCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.workloads.recorded.plan import CommEvent

MOST_AT_ONCE = 2


def own_times(plan: RankStep, queue: Callable[[CommEvent], tuple[object, ...]]) -> None:
    """Give each call of a rank the seconds that it took by itself; ``queue`` says of a call behind which others it waits."""
    queues: dict[tuple[object, ...], list[RecordedCall]] = defaultdict(list)
    for each in sorted(plan.sent, key=lambda each: each.call.start_s or 0.0):
        call = each.call
        call.own_s = call.duration_s
        if call.end_s is not None and call.op not in PAIRS:
            queues[queue(each)].append(call)
    for calls in queues.values():
        told = [_shared(calls, at_once) for at_once in range(1, MOST_AT_ONCE + 1)]
        unlike = [_unlike(calls, each) for each in told]
        for call, own_s in zip(calls, told[unlike.index(min(unlike))], strict=True):
            call.own_s = own_s


def _shared(calls: Sequence[RecordedCall], at_once: int) -> list[float]:
    """Return the seconds of calls, in the order of their issue, that begin when fewer than so many before them are under way."""
    moments: list[tuple[float, int]] = []
    latest: list[float] = []
    for at, call in enumerate(calls):
        begin = max(call.start_s or 0.0, latest[0] if len(latest) == at_once else -math.inf)
        end = call.end_s or 0.0
        latest = sorted((*latest, end))[-at_once:]
        if begin < end:
            moments += [(begin, at), (end, at)]
    own = [0.0] * len(calls)
    active: set[int] = set()
    for (now, at), (after, _) in pairwise([*sorted(moments), (math.inf, -1)]):
        active ^= {at}
        whole = sum(calls[each].size_bytes for each in active)
        for each in active:
            own[each] += (after - now) * calls[each].size_bytes / whole
    return own


def _unlike(calls: Sequence[RecordedCall], own: Sequence[float]) -> float:
    """Return by how much operations of a kind differ: the spread of the logarithm of their seconds a byte, byte by byte."""
    by_op: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for call, seconds in zip(calls, own, strict=True):
        if seconds <= 0:
            return math.inf
        by_op[call.op].append((call.size_bytes, math.log(seconds / call.size_bytes)))
    return sum(_spread(each) for each in by_op.values())


def _spread(weighed: Sequence[tuple[int, float]]) -> float:
    whole = sum(weight for weight, _ in weighed)
    mean = sum(weight * value for weight, value in weighed) / whole
    return math.sqrt(sum(weight * (value - mean) ** 2 for weight, value in weighed) / whole)
