"""Who waits for whom in a step with times: which work a call carries on from, and which work waited for it.

A call carries on from the last work that was issued before it and had ended when it began. Work waited for a call that ran
while nothing was computed and ended right before it. What no gap shows is taken to be used by the next work after it, and
gradients by the update of the parameters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from ringwright.workloads.recorded.plan import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PAIRS,
    SUMMED,
    CommEvent,
    Line,
    Piece,
    RankStep,
    RecordedCall,
    RecordedWork,
)

EPSILON_S = 1e-6
SLACK_S = 100e-6  # what may pass between the end of a call and the work that waited for it
MODEL_ROLES = ("tp", "sp", "cp", "ep", "pp")
NOTES = (
    "time without work or call is the host's and counts as work",
    "who waits for whom is inferred from the order of issue and from gaps",
)
HOST_NOTE = "computation is what passed on the host between calls"


def plans(lines: Mapping[int, Line], roles: dict[int, str]) -> dict[int, RankStep]:
    """Return the step of each rank as pieces; lines have begin and end, calls have times and are numbered.

    What sums gradients is decided by most ranks, for all of them.
    """
    votes: Counter[tuple[int, int]] = Counter()
    known: Counter[tuple[int, int]] = Counter()
    for line in lines.values():
        mine = _gradients(line, roles)
        votes.update((call.communicator, call.turn) for call in line.calls if call.event in mine)
        known.update((call.communicator, call.turn) for call in line.calls if call.op not in PAIRS)
    made = {}
    for rank, line in lines.items():
        sums = [call for call in line.calls if call.op in SUMMED]
        made[rank] = _plan(
            line, {c.event for c in sums if 2 * votes[c.communicator, c.turn] > known[c.communicator, c.turn]}
        )
    return made


def _plan(line: Line, gradients: set[int]) -> RankStep:
    _without_the_update_before(line, gradients)
    _without_updates_beside(line)
    if not line.works:
        line.works = _host_work(line, gradients)
    else:
        line.works = _with_late_issue(line)
    works = line.works or [RecordedWork(line.begin_s or 0.0, 0.0)]
    made = _Timeline(line, works, gradients).plan()
    _name_phases(made)
    return made


def _without_the_update_before(line: Line, gradients: set[int]) -> None:
    """Take the name of the update from what comes before the gradients: it follows the update of the step before.

    So does the sum of a loss at the end of a training loop, where steps are marked when the optimizer is through.
    """
    sums = [call.issued_s for call in line.calls if call.event in gradients and call.issued_s is not None]
    if not sums:
        return
    for call in line.calls:
        if call.phase == OPTIMIZER and call.issued_s is not None and call.issued_s < min(sums):
            call.phase = ""
    for work in line.works:
        if work.phase == OPTIMIZER and work.start_s < min(sums):
            work.phase = ""


def _without_updates_beside(line: Line) -> None:
    """Leave out updates of single gradients, as schedulers of priorities make them: beside backward, and beside the next step.

    Each begins when its sum is there, and what lies between two of them is no work.
    """
    passes = [work.start_s for work in line.works if work.phase == BACKWARD]
    end_s = line.end_s if line.is_closed and line.end_s is not None else None
    if passes and end_s is not None:
        line.works = [
            work for work in line.works if work.phase != OPTIMIZER or max(passes) <= work.start_s < end_s - EPSILON_S
        ]


def _gradients(line: Line, roles: dict[int, str]) -> set[int]:
    """Return the calls (by event) that sum gradients: in the backward pass, along no axis of the model."""
    events: set[int] = set()
    by_group: dict[int, list[RecordedCall]] = {}
    for call in line.calls:
        if call.op in SUMMED and roles.get(call.communicator, "") not in MODEL_ROLES:
            by_group.setdefault(call.communicator, []).append(call)
    passes = [work for work in line.works if work.phase != OPTIMIZER]  # an update waits for its gradient
    for number, calls in by_group.items():
        inside = [call for call in calls if call.phase in (BACKWARD, "")]
        unnamed = not roles.get(number) or any(not call.phase for call in inside)
        if unnamed and passes and 2 * sum(_blocks(call, passes) for call in inside) > len(inside) > 1:
            continue  # each of them is waited for at once: part of the model
        events |= {call.event for call in inside}
    return events


def _blocks(call: RecordedCall, works: list[RecordedWork]) -> bool:
    """Say whether nothing was computed while a call ran, and something began right after it."""
    if call.end_s is None or call.start_s is None:
        return False
    starts = [work.start_s for work in works]
    after = bisect_right(starts, call.end_s - EPSILON_S)
    before = works[after - 1] if after else None
    idle = before is None or before.start_s + before.duration_s <= call.start_s + EPSILON_S
    return idle and after < len(works) and starts[after] - call.end_s <= SLACK_S


def _with_late_issue(line: Line) -> list[RecordedWork]:
    """Return the works and, as work, the time before a call in which nothing ran: the host was late to issue it.

    From when the host handed it in, it waited for others.
    """
    starts = [work.start_s for work in line.works]
    busy: list[float] = []
    for work in line.works:
        busy.append(max(busy[-1] if busy else work.start_s, work.start_s + work.duration_s))
    late: list[RecordedWork] = []
    over = line.begin_s or starts[0]
    for call in sorted(line.calls, key=lambda call: call.start_s or 0.0):
        start = call.ready_s
        at = bisect_right(starts, start)
        since = max(over, busy[at - 1] if at else over)
        if start - since > EPSILON_S:
            late.append(RecordedWork(since, start - since, None, call.phase, "host"))
        over = max(over, call.end_s or 0.0)
    return sorted([*line.works, *late], key=lambda work: work.start_s)


def _blocked(calls: list[RecordedCall], gradients: set[int], end_s: float) -> list[tuple[float, float]]:
    blocked: list[tuple[float, float]] = []
    sums = [call for call in calls if call.event in gradients]
    for at, call in enumerate(calls):
        following = calls[at + 1].issued_s if at + 1 < len(calls) else end_s
        if call.event not in gradients and call.end_s is not None and (following or 0.0) >= call.end_s - EPSILON_S:
            blocked.append((call.issued_s or 0.0, call.end_s))
    if sums:
        last = max(call.end_s or 0.0 for call in sums)
        blocked.append((sums[-1].issued_s or 0.0, min(last, end_s)))
    return blocked


def _host_work(line: Line, gradients: set[int]) -> list[RecordedWork]:
    """Return the stretches of the host between the calls that it waited for."""
    if line.begin_s is None or line.end_s is None:
        return []
    calls = sorted((call for call in line.calls if call.issued_s is not None), key=lambda call: call.issued_s or 0.0)
    blocked = _blocked(calls, gradients, line.end_s)
    cuts = {line.begin_s, line.end_s, *(call.issued_s or 0.0 for call in calls)}
    cuts |= {moment for pair in blocked for moment in pair}
    points = sorted(cut for cut in cuts if line.begin_s <= cut <= line.end_s)
    return [
        RecordedWork(one, other - one, one, _phase_at(calls, one, gradients), "host")
        for one, other in pairwise(points)
        if not any(begin <= one + EPSILON_S and other <= end + EPSILON_S for begin, end in blocked)
    ]


def _phase_at(calls: list[RecordedCall], moment: float, gradients: set[int]) -> str:
    """Return the phase of host work by the calls around it: up to a call of a phase it is that phase."""
    sums = [call.issued_s or 0.0 for call in calls if call.event in gradients]
    if sums and moment >= sums[-1]:
        return OPTIMIZER
    following = next((call.phase for call in calls if (call.issued_s or 0.0) > moment and call.phase), "")
    return "" if following == BACKWARD and not sums else following


class _Timeline:
    """One rank's works in order of start, and where they are cut."""

    def __init__(self, line: Line, works: list[RecordedWork], gradients: set[int]) -> None:
        self.line, self.works, self.gradients = line, works, gradients
        self.starts = [work.start_s for work in works]
        self.busy: list[float] = []  # until when something has been computed, works up to here
        until = works[0].start_s
        for work in works:
            until = max(until, work.start_s + work.duration_s)
            self.busy.append(until)

    def _firsts(self, cuts: set[int]) -> list[int]:
        cuts |= {at for at in range(1, len(self.works)) if self.works[at].phase != self.works[at - 1].phase}
        return sorted(cut for cut in cuts if cut < len(self.works))

    def plan(self) -> RankStep:
        """Return the pieces and what they exchange."""
        line, end = self.line, self.line.end_s if self.line.end_s is not None else self.busy[-1]
        begin = line.begin_s if line.begin_s is not None else self.starts[0]
        sums = [call for call in line.calls if call.event in self.gradients]
        tail = self._tail(sums)
        made = {call.event: self._maker(call) for call in line.calls}
        used, waited = self._users(sums, tail)
        later = self._later(sums, begin, end)
        cuts = {0, *(at + 1 for at in made.values() if at >= 0), *(at for at in used.values() if at >= 0)}
        firsts = self._firsts({*cuts, *later.values(), *([] if tail is None else [tail])})
        self._arrived(waited)
        piece_of: dict[int | None, int] = {first: at for at, first in enumerate(firsts)}
        plan = RankStep(line.rank, self._pieces(firsts, waited, begin), measured_s=end - begin)
        plan.tail = piece_of.get(tail)
        after = max([self.busy[-1], *(call.end_s or 0.0 for call in line.calls)])
        plan.pieces.append(Piece(max(0.0, end - after), self.works[-1].phase))
        last = len(plan.pieces) - 1
        for call in line.calls:
            maker = bisect_right(firsts, made[call.event]) - 1
            user, is_sum = used.get(call.event, -1), call.event in self.gradients
            waits = not is_sum and (call.op != "send" or user >= 0)
            consumers = (piece_of.get(user, last),) if waits else ()
            earliest = piece_of.get(later.get(call.event, -1), -1)
            plan.sent.append(CommEvent(call, (maker,) if maker >= 0 else (), consumers, is_sum, earliest))
        if sums and plan.tail is None:
            plan.tail = last
        return plan

    def _maker(self, call: RecordedCall) -> int:
        """Return the work that a call carries on from, -1 for the begin of the step."""
        if call.start_s is None:
            return -1
        at = bisect_right(self.busy, call.ready_s + EPSILON_S) - 1
        while at >= 0 and call.enqueue_s is not None and (self.works[at].enqueue_s or 0.0) > call.enqueue_s - 1e-9:
            at -= 1
        return at

    def _later(self, sums: list[RecordedCall], begin: float, end: float) -> dict[int, int]:
        """Return, of sums that ended within the next step, the first forward work of it that can have waited for each.

        Steps are alike: what the next one does so long after its begin, this one did as long after its own.
        """
        if not self.line.is_closed:
            return {}
        forward = [at for at, work in enumerate(self.works) if work.phase == FORWARD]
        later = {}
        for call in sums:
            late_s = (call.end_s or 0.0) - end
            if late_s > SLACK_S and forward:
                since = [self.starts[at] - begin for at in forward]
                later[call.event] = forward[min(bisect_right(since, late_s - SLACK_S), len(forward) - 1)]
        return later

    def _arrived(self, waited: dict[int, float]) -> None:
        """Add the time in which nothing ran up to the end of a sum of the step before: what began then had waited for it."""
        for until in self.line.arriving:
            at = bisect_right(self.starts, until - EPSILON_S)
            if 0 < at < len(self.works) and self.busy[at - 1] < until:
                self._wait(at, until, waited)

    def _tail(self, sums: list[RecordedCall]) -> int | None:
        """Return the first work of the update: in the optimizer's phase, else after the end of the last gradient."""
        if not sums:
            return None
        named = next((at for at, work in enumerate(self.works) if work.phase == OPTIMIZER), None)
        if named is not None:
            return named
        ended = max(call.end_s or 0.0 for call in sums)
        at = bisect_right(self.starts, ended - EPSILON_S)
        return at if at < len(self.works) else None

    def _users(self, sums: list[RecordedCall], tail: int | None) -> tuple[dict[int, int], dict[int, float]]:
        """Return call -> the work that waited for it, and work -> seconds that it waited."""
        used: dict[int, int] = {}
        waited: dict[int, float] = {}
        if tail:
            ended = max(call.end_s or 0.0 for call in sums)
            for at in range(tail, len(self.works)):  # updates of single gradients wait for each
                self._wait(at, ended, waited)
        for call in self.line.calls:
            if call.event in self.gradients or call.end_s is None:
                continue
            at = bisect_right(self.starts, call.end_s - EPSILON_S)
            if at >= len(self.works):
                continue
            idle = at > 0 and self.busy[at - 1] < call.end_s
            gap = self.starts[at] - (self.busy[at - 1] if at else call.end_s)
            late = self.starts[at] - call.end_s
            is_waited = idle and (late <= SLACK_S or late <= gap / 2)
            if is_waited or call.op != "send":  # a sender goes on, unless it is seen to wait
                used[call.event] = at
            if is_waited:
                self._wait(at, call.end_s, waited)
        return used, waited

    def _wait(self, at: int, until: float, waited: dict[int, float]) -> None:
        gap = min(until, self.starts[at]) - self.busy[at - 1]
        if gap > 0:
            waited[at] = max(waited.get(at, 0.0), gap)

    def _pieces(self, firsts: list[int], waited: dict[int, float], begin: float) -> list[Piece]:
        pieces = []
        bounds = [*firsts, len(self.works)]
        for first, beyond in pairwise(bounds):
            before = self.busy[first - 1] if first else min(begin, self.starts[0])
            idle = sum(waited.get(at, 0.0) for at in range(first, beyond))
            work = self.works[first]
            pieces.append(Piece(max(0.0, self.busy[beyond - 1] - before - idle), work.phase, name=work.name))
        return pieces


def _name_phases(plan: RankStep) -> None:
    """Where the source names no phases: a third of the work before the last gradient is forward, the rest backward."""
    sums = [each for each in plan.sent if each.is_gradient]
    if not sums or {FORWARD, BACKWARD} <= {piece.phase for piece in plan.pieces}:
        return
    last = plan.tail if plan.tail is not None else len(plan.pieces)
    third = sum(piece.seconds for piece in plan.pieces[:last]) / 3
    first = min((each.producers[0] for each in sums if each.producers), default=0)
    passed = 0.0
    for at in range(first + 1):
        if passed + plan.pieces[at].seconds > third:
            plan.cut(at, third - passed)
            for piece in plan.pieces[: at + 1]:
                piece.phase = FORWARD
            break
        passed += plan.pieces[at].seconds
        plan.pieces[at].phase = FORWARD
    last = plan.tail if plan.tail is not None else len(plan.pieces)
    for piece in plan.pieces[:last]:
        piece.phase = piece.phase if piece.phase == FORWARD else BACKWARD
    for piece in plan.pieces[last:]:
        piece.phase = OPTIMIZER
