"""A step whose source says who waits for whom (execution traces), and one of which only the calls are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from ringwright.workloads.recorded.plan import CommEvent, Line, Piece, RankStep, RecordedWork


def plan(line: Line, edges: Iterable[tuple[int, int]]) -> RankStep:
    """Return one rank's step by its dependencies (event before, event after): streams in the order of the file."""
    edges = [(src, dst) for src, dst in dict.fromkeys(edges) if src != dst]
    works = _in_order(line, edges)
    made = RankStep(line.rank, [Piece(w.duration_s, w.phase, w.stream or "compute", w.name) for w in works])
    piece = {work.event: at for at, work in enumerate(works)}
    call = {each.event: at for at, each in enumerate(line.calls)}
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    for src, dst in edges:
        if src in piece and dst in piece:
            made.edges.append((piece[src], piece[dst]))
        elif src in piece and dst in call:
            before[call[dst]].append(piece[src])
        elif src in call and dst in piece:
            after[call[src]].append(piece[dst])
        elif src in call and dst in call:
            made.chained.append((call[src], call[dst]))
    for at, each in enumerate(line.calls):
        made.sent.append(CommEvent(each, tuple(sorted(before[at])), tuple(sorted(after[at]))))
    return made


def _in_order(line: Line, edges: Iterable[tuple[int, int]]) -> list[RecordedWork]:
    """Return the works so that none stands before what it waits for, else as in the file; cycles keep the file's order."""
    events = {work.event for work in line.works} | {call.event for call in line.calls}
    waits = dict.fromkeys(events, 0)
    after: dict[int, list[int]] = defaultdict(list)
    for src, dst in edges:
        if src in events and dst in events:
            waits[dst] += 1
            after[src].append(dst)
    free = [event for event, count in waits.items() if not count]
    heapify(free)
    position: dict[int, int] = {}
    while free:
        event = heappop(free)
        position[event] = len(position)
        for each in after[event]:
            waits[each] -= 1
            if not waits[each]:
                heappush(free, each)
    return sorted(line.works, key=lambda work: (position.get(work.event, len(events)), work.event))


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
