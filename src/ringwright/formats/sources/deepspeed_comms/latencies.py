"""Whether printed latencies add up within a log name, as they do from DeepSpeed 0.18.3 on, and what each call took then.

``Timer.elapsed(reset=False)`` returned the last interval until 0.18.0, and returns the sum of all intervals of that name since.
Every call is waited for, so none can last longer than the time since the line before: lines show it themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from ringwright.formats.sources.deepspeed_comms.grammar import PrintedCall

ADDED_SINCE = (0, 18, 3)
_STAMPS_MS = 2.0  # two stamps of whole milliseconds, and the printing between them
_MOST_GAP_MS = 1e9


def adds_up(release: str) -> bool | None:
    """Return whether a release adds latencies up, None where it is not known."""
    return tuple(map(int, release.split("."))) >= ADDED_SINCE if release else None


def added_up(calls: Sequence[PrintedCall], release: str) -> bool | None:
    """Return whether a file's latencies add up; None where neither its lines nor its release tell.

    They do where no name's time ever falls, and one at least is longer than the time that there was.
    """
    last: dict[str, float] = {}
    for call in calls:
        if call.time_ms < last.get(call.name, 0.0):
            return False
        last[call.name] = call.time_ms
    return True if too_long(calls) else adds_up(release)


def too_long(calls: Sequence[PrintedCall]) -> set[int]:
    """Return the lines whose call would have begun before the line before it was printed."""
    lines = set()
    for before, call in pairwise(calls):
        if before.stamp_s is None or call.stamp_s is None:
            continue
        gap_ms = (call.stamp_s - before.stamp_s) * 1e3
        if 0 <= gap_ms < _MOST_GAP_MS and call.time_ms > gap_ms + _STAMPS_MS:
            lines.add(call.line)
    return lines


def single(calls: Sequence[PrintedCall]) -> dict[int, float]:
    """Return line -> ms of each call alone, where the printed ones add up within a name."""
    before: dict[str, float] = defaultdict(float)
    alone = {}
    for call in calls:
        alone[call.line] = max(call.time_ms - before[call.name], 0.0)
        before[call.name] = call.time_ms
    return alone
