"""In which order the halves of a batch run: by turns, each up to where it needs what an operation brings."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from ringwright.model.workload import Workload
from ringwright.schedulers.decompose._orders import Item, ordered, stretches

BOTH = 2  # what needs both halves goes behind the second


def in_turns(workload: Workload, half: Mapping[str, int]) -> Workload:
    """Return the workload in whose slots the two halves take turns; ``half`` says of which one each task is."""
    turns, orders = HalfTurns(workload), dict[str, list[Item]]()
    for each in workload.classes:
        orders[each.name] = []
        for stretch in stretches(workload, each.name).values():
            orders[each.name] += turns.of(stretch, {item: half[item[0]] for item in stretch if item[0] in half})
    return ordered(workload, orders)


class HalfTurns:
    """Orders of stretches of a line; a stretch that was seen for one micro-batch is known for all."""

    def __init__(self, workload: Workload) -> None:
        self.known: dict[tuple[tuple[str, int], ...], list[int]] = {}
        self.before: dict[str, list[str]] = {}
        for edge in workload.edges:
            if not edge.distance:
                self.before.setdefault(edge.dst, []).append(edge.src)
        self.awaiting: set[str] = set()
        for payload in workload.payloads:
            for name, far in payload.consumers:
                if not far and payload.of == workload.task[name].of:
                    self.before.setdefault(name, []).extend(payload.producers)
                    if not payload.peer:
                        self.awaiting.add(name)

    def of(self, items: Sequence[Item], half: Mapping[Item, int]) -> list[Item]:
        """Return the items of a stretch with those of ``half`` 0 and 1 by turns, each before what needs it."""
        key = tuple((name, half.get((name, batch), BOTH)) for name, batch in items)
        if key not in self.known:
            self.known[key] = list(self._ordered(items, half))
        return [items[at] for at in self.known[key]]

    def _ordered(self, items: Sequence[Item], half: Mapping[Item, int]) -> Iterator[int]:
        position = {item: at for at, item in enumerate(items)}
        needs = [
            {position[each, batch] for each in self.before.get(name, ()) if (each, batch) in position}
            for name, batch in items
        ]
        turn, of = [0, 0], list[tuple[int, int]]()
        for at, item in enumerate(items):
            mine = half.get(item, BOTH)
            if mine == BOTH:
                of.append(max((of[each] for each in needs[at] if each < at), default=(0, -1)))
                of[-1] = (of[-1][0], BOTH) if of[-1][1] >= 0 else (0, -1)
                continue
            turn[mine] += item[0] in self.awaiting and bool(needs[at])
            of.append((turn[mine], mine))
        return _by_turn(of, needs)


def _by_turn(of: Sequence[tuple[int, int]], needs: Sequence[set[int]]) -> Iterator[int]:
    """Yield positions: the lowest turn first, and none before what it needs."""
    missing, users = [len(each) for each in needs], [list[int]() for _ in needs]
    for at, each in enumerate(needs):
        for other in each:
            users[other].append(at)
    ready = [(of[at], at) for at, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    while ready:
        _, at = heapq.heappop(ready)
        yield at
        for user in users[at]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (of[user], user))
