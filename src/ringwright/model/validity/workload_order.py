"""Rules about who waits for whom: cycles, orders that contradict edges, tokens that never come back, ranks out of step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, count, pairwise
from typing import TYPE_CHECKING

from ringwright.model.validity.workload_finding import Finding, doubt
from ringwright.model.workload import turn_of

if TYPE_CHECKING:
    from ringwright.model.workload import Workload

MOST_INSTANCES = 1_000_000
UPDATE = "U"
Instance = tuple[str, int, int]  # task, micro-batch, step
Numbers = tuple[Mapping[str, int], Mapping[str, int], int]  # instances of each task, the number of its first; of a step


def cycles(workload: Workload) -> Iterator[Finding]:
    """Yield a cycle of tasks that wait for each other within a step, through edges and payloads."""
    number: dict[str, int] = defaultdict(count().__next__)
    after: dict[int, list[int]] = defaultdict(list, {number[task.name]: [] for task in workload.tasks})
    for edge in (each for each in workload.edges if each.distance == 0):
        after[number[edge.src]].append(number[edge.dst])
    for payload in workload.payloads:
        users = [number[name] for name, distance in payload.consumers if distance == 0]
        for name in payload.producers if users else ():
            after[number[name]] += users
    names = list(number)
    ring = [names[at] for at in _ring([after[at] for at in range(len(names))])]
    if not ring:
        return
    chain = " waits for ".join(reversed([*ring, ring[0]][:9]))
    carried = {
        (producer, consumer): payload.name
        for payload in workload.payloads
        for consumer, distance in payload.consumers
        for producer in (payload.producers if distance == 0 else ())
    }
    through = [carried[pair] for pair in zip(ring, [*ring[1:], ring[0]], strict=True) if pair in carried]
    of = workload.task[ring[0]].of
    where = f"task {ring[0]}, class {of}" + (f", payload {through[0]}" if through else "")
    yield Finding("cycle", chain, where, "an edge to the next step has an iteration distance of 1")


def orders(workload: Workload) -> Iterator[Finding]:
    """Yield an order of a class that waits for itself: two steps are laid out, with streams in their order."""
    if _is_large(workload):
        what = "so many tasks a step: not looked at whether the order contradicts the edges"
        yield doubt("order", what, workload.name, "check it with fewer micro-batches")
        return
    count = {task.name: workload.micro_batches if task.per == "micro-batch" else 1 for task in workload.tasks}
    base = dict(zip(count, accumulate(count.values(), initial=0), strict=False))
    per_step = sum(count.values())
    after: list[list[int]] = [[] for _ in range(2 * per_step)]
    _waits(workload, (count, base, per_step), after)
    for of in dict.fromkeys(task.of for task in workload.tasks):
        for line in _streams(workload, of).values():
            for one, other in pairwise([step * per_step + base[name] + at for name, at, step in line]):
                after[one].append(other)
    circle = _ring(after)
    if circle:
        nodes = [(name, at, step) for step in (0, 1) for name, many in count.items() for at in range(many)]
        ring = [nodes[each] for each in circle if each < len(nodes)]
        chain = " waits for ".join(f"{name} (micro-batch {at})" for name, at, _ in reversed([*ring, ring[0]][:9]))
        of = workload.task[ring[0][0]].of
        yield Finding("order", f"the order contradicts who waits for whom: {chain}", f"class {of}", "another order")


def _is_large(workload: Workload) -> bool:
    per_step = sum(workload.micro_batches if task.per == "micro-batch" else 1 for task in workload.tasks)
    return 2 * per_step > MOST_INSTANCES


def _waits(workload: Workload, numbers: Numbers, after: list[list[int]]) -> None:
    """Add who waits for whom over two steps, micro-batch by micro-batch where both ends have them."""
    for edge in workload.edges:
        if edge.distance < 2:
            _join(numbers, after, ([edge.src], [edge.dst]), edge.distance, pairwise=True)
    for payload in workload.payloads:
        by_batch = payload.per == "micro-batch" and workload.micro_batches > 1
        for distance in sorted({each for _, each in payload.consumers if each < 2}) if payload.producers else ():
            users = [name for name, each in payload.consumers if each == distance]
            for makers in ([one] for one in payload.producers) if by_batch else [payload.producers]:
                for taking in ([one] for one in users) if by_batch else [users]:
                    _join(numbers, after, (makers, taking), distance, pairwise=by_batch)


def _join(
    numbers: Numbers,
    after: list[list[int]],
    ends: tuple[Sequence[str], Sequence[str]],
    distance: int,
    *,
    pairwise: bool,
) -> None:
    """Let tasks wait for others: all of them for all, or of two micro-batch for micro-batch where both have as many."""
    count, base, per_step = numbers

    def every(names: Sequence[str], step: int) -> list[int]:
        return [step * per_step + base[name] + at for name in names for at in range(count[name])]

    for step in range(2 - distance):
        before, behind = every(ends[0], step), every(ends[1], step + distance)
        if pairwise and len(before) == len(behind):
            for one, other in zip(before, behind, strict=True):
                after[one].append(other)
            continue
        hub = len(after)  # all of the one before all of the other, without every pair
        for at in before:
            after[at].append(hub)
        after.append(behind)


def _streams(workload: Workload, of: str) -> dict[str, list[Instance]]:
    """Return the instances of each stream of a class in the order of two steps; updates come before the next step.

    Without a barrier between the two, or done a step later, they are in no stream's order.
    """
    once = [task for task in workload.tasks if task.of == of and task.kind != "CTRL" and task.per == "step"]
    line = [(name, at) for name, at in workload.line(of) if workload.task[name].kind != "CTRL"]
    left = 1 + max((at for at, (_, batch) in enumerate(line) if batch < 0), default=-1)
    line += [(task.name, 0) for task in once if task.kind != UPDATE]
    updates = [task for task in once if task.kind == UPDATE and not task.lag]
    barrier = workload.policy.boundary in (None, "", "barrier")
    streams: dict[str, list[Instance]] = defaultdict(list)
    for step in (0, 1):
        for at, (name, batch) in enumerate(line):
            if barrier and (step, at) == (1, left):
                for update in updates:
                    streams[update.stream].append((update.name, 0, 0))
            turn, earlier = turn_of(batch, workload.micro_batches)
            if step >= earlier:
                streams[workload.task[name].stream].append((name, turn, step - earlier))
    return streams


def tokens(workload: Workload) -> Iterator[Finding]:
    """Yield tokens that are taken and never given back, or that an order needs before they are given back."""
    held = {each.name: each.capacity for each in workload.resources if each.discipline == "tokens"}
    for of in dict.fromkeys(task.of for task in workload.tasks if task.demands):
        mine = [task for task in workload.tasks if task.of == of]
        for name in dict.fromkeys(name for task in mine for name, _ in task.demands if name in held):
            users = [task for task in mine if any(each == name for each, _ in task.demands)]
            where = f"resource {name}, class {of}"
            net = sum(
                amount * (workload.micro_batches if task.per == "micro-batch" else 1)
                for task in users
                for each, amount in task.demands
                if each == name
            )
            if net > 0:
                taker = next(task for task in users if any(each == name and a > 0 for each, a in task.demands))
                what = f"{net:g} of '{name}' a step are taken and never given back, by {taker.name}"
                yield Finding("tokens", what, where, "a negative demand where they are free again")
            elif len({task.stream for task in users}) == 1 and not _is_large(workload):
                yield from _walk(workload, of, name, held[name])


def _walk(workload: Workload, of: str, name: str, capacity: float) -> Iterator[Finding]:
    """Follow one stream: what it takes must be there, since only what ran before on it can have given it back."""
    level = capacity
    stream = next(
        task.stream for task in workload.tasks if task.of == of and any(each == name for each, _ in task.demands)
    )
    for task_name, at, step in _streams(workload, of).get(stream, []):
        demands = [amount for each, amount in workload.task[task_name].demands if each == name]
        taken = sum(amount for amount in demands if amount > 0)
        if taken > level + 1e-9:
            what = f"{task_name} (micro-batch {at}, step {step}) needs {taken:g} of '{name}', {level:g} are left"
            yield Finding("tokens", what, f"resource {name}, class {of}", "an order that gives back first, or more")
            return
        level -= sum(demands)


def sequences(group: str, issued: Mapping[int, Sequence[str]]) -> list[Finding]:
    """Return where ranks of a group issue other operations than the first of them: rank, position, both operations."""
    findings: list[Finding] = []
    if not issued:
        return findings
    first = min(issued)
    for rank in sorted(issued):
        mine, other = issued[rank], issued[first]
        differing = (at for at, (one, two) in enumerate(zip(mine, other, strict=False)) if one != two)
        at = next(differing, min(len(mine), len(other)) if len(mine) != len(other) else -1)
        if at < 0:
            continue
        one, two = (each[at] if at < len(each) else "nothing" for each in (mine, other))
        what = f"rank {rank} issues {one} as operation {at} of {group}, rank {first} issues {two}"
        remedy = "the ranks of a group must issue the same operations in the same order; choose another step"
        findings.append(Finding("sequence", what, f"rank {rank}, operation {at}", remedy))
    return findings


def _ring(after: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes of a cycle, each waited for by the next one; none where there is no cycle.

    ``after`` are the nodes that wait for each one, as often as they do.
    """
    waits = [0] * len(after)
    for targets in after:
        for target in targets:
            waits[target] += 1
    free = [node for node, count in enumerate(waits) if not count]
    while free:
        for target in after[free.pop()]:
            waits[target] -= 1
            if not waits[target]:
                free.append(target)
    stuck = [node for node, count in enumerate(waits) if count]
    before = {target: node for node in stuck for target in after[node] if waits[target]}
    return _around(stuck[0], before) if stuck else []


def _around(node: int, before: Mapping[int, int]) -> list[int]:
    """Walk back from a stuck node until one comes again; what lies between is the cycle, in the order of waiting."""
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = before[node]
    return path[seen[node] :][::-1]
