"""A step whose source says who waits for whom (execution traces), and one of which only the calls are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush

from ringwright.workloads.recorded.grid import RecordedMesh
from ringwright.workloads.recorded.lines import ChosenStep
from ringwright.workloads.recorded.plan import OPTIMIZER, CommEvent, Line, Piece, RankStep, RecordedWork

SENDS = ("send", "send-recv")
Waits = tuple[int, int, int]  # event before, event after, how many steps later


def receive(picked: ChosenStep, edges: Iterable[tuple[int, int]], grid: RecordedMesh) -> dict[int, list[Waits]]:
    """Return who waits for whom within each rank; lines take in a receive of each message that only its sender recorded.

    Such a message is known by what waits for it on another rank. A rank receives in the order in which the other one sends. What
    waits in the next step is told as the event of this one that does the same.
    """
    lines = picked.lines
    calls = {call.event: (rank, call) for rank, line in lines.items() for call in line.calls}
    owner = {work.event: rank for rank, line in lines.items() for work in line.works}
    owner |= {event: rank for event, (rank, _) in calls.items()}
    within: dict[int, list[Waits]] = {rank: [] for rank in lines}
    received: dict[tuple[int, int], int] = {}  # (message, who receives it) -> event of the receive
    for src, waiting in edges:
        steps, dst = int(waiting in picked.again), picked.again.get(waiting, waiting)
        here, there = owner.get(src), owner.get(dst)
        if here is None or there is None:
            continue
        if here == there:
            within[there].append((src, dst, steps))
        elif src in calls and calls[src][1].op in SENDS:
            event = received.setdefault((src, there), -2 - len(received))  # no event of the recording has such a number
            within[there].append((event, dst, steps))
    receives: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (src, rank), event in received.items():
        receives[src].append((rank, event))
    for src, (sender, call) in calls.items():
        for rank, event in receives[src]:
            at = grid.index_of(call.communicator, sender)
            lines[rank].calls.append(replace(call, event=event, op="recv", peer=at))
    return within


def _tied(
    made: RankStep, waits: Iterable[Waits], piece: Mapping[int, int], call: Mapping[int, int]
) -> tuple[Mapping[int, list[int]], ...]:
    """Tie pieces to pieces and calls to calls; return the pieces before each call, after it, and after it a step later."""
    before, after, later = (defaultdict[int, list[int]](list) for _ in range(3))
    for src, dst, steps in waits:
        if src in piece and dst in piece:
            (made.later if steps else made.edges).append((piece[src], piece[dst]))
        elif src in call and dst in piece:
            (later if steps else after)[call[src]].append(piece[dst])
        elif src in call and dst in call:
            made.chained.append((call[src], call[dst], steps))
        elif src in piece and dst in call and not steps:
            before[call[dst]].append(piece[src])
    return before, after, later


def plan(line: Line, waits: Iterable[Waits]) -> RankStep:
    """Return one rank's step by its dependencies: streams in the order in which they ran, else that of the file."""
    waits = list(dict.fromkeys(waits))
    edges = [(src, dst) for src, dst, steps in waits if src != dst and not steps]
    works = _in_order(line, edges)
    made = RankStep(line.rank, [Piece(w.duration_s, w.phase, w.stream or "compute", w.name) for w in works])
    if line.is_closed and line.begin_s is not None and line.end_s is not None:
        made.measured_s = line.end_s - line.begin_s
        made.updates_late = any(work.phase == OPTIMIZER and work.start_s >= line.end_s for work in works)
    piece = {work.event: at for at, work in enumerate(works)}
    call = {each.event: at for at, each in enumerate(line.calls)}
    every = [*((src, dst, 0) for src, dst in edges), *(each for each in waits if each[2])]
    before, after, later = _tied(made, every, piece, call)
    for at, each in enumerate(line.calls):
        used = tuple(sorted(after[at]))
        made.sent.append(CommEvent(each, tuple(sorted(before[at])), used, later=tuple(sorted(later[at]))))
    return made


def _in_order(line: Line, edges: Iterable[tuple[int, int]]) -> list[RecordedWork]:
    """Return the works so that none stands before what it waits for, else as they ran; where no time tells, as in the file.

    Cycles keep that order. Of several that began at one moment those that took no time had ended before the other began.
    """
    begun = {call.event: (0.0, False) for call in line.calls} | {work.event: (0.0, False) for work in line.works}
    if any(work.start_s for work in line.works):  # the first may begin at 0
        begun |= {call.event: (call.start_s or 0.0, False) for call in line.calls}
        begun |= {work.event: (work.start_s, work.duration_s > 0) for work in line.works}
    events = set(begun)
    waits = dict.fromkeys(events, 0)
    after: dict[int, list[int]] = defaultdict(list)
    for src, dst in edges:
        if src in events and dst in events:
            waits[dst] += 1
            after[src].append(dst)
    free = [(*begun[event], event) for event, count in waits.items() if not count]
    heapify(free)
    position: dict[int, int] = {}
    while free:
        *_, event = heappop(free)
        position[event] = len(position)
        for each in after[event]:
            waits[each] -= 1
            if not waits[each]:
                heappush(free, (*begun[each], each))
    return sorted(line.works, key=lambda work: (position.get(work.event, len(events)), begun[work.event], work.event))


def bare(line: Line) -> RankStep:
    """Return a step without work: the calls of each communicator one after another."""
    made = RankStep(line.rank)
    last: dict[int, int] = {}
    for at, call in enumerate(line.calls):
        stream = f"group {call.communicator}"
        made.pieces.append(Piece(0.0, call.phase, stream, f"{call.op} {at}"))
        made.sent.append(CommEvent(call, (at,)))
        if call.communicator in last:
            made.sent[last[call.communicator]].consumers = (at,)
        last[call.communicator] = at
    end = len(made.pieces)
    made.pieces.append(Piece(0.0, "", "end", "end"))
    for at in last.values():
        made.sent[at].consumers = (end,)
    return made
