"""What of a step needs an operation's result before the next step: it moves where the operation moves."""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.model.workload import Workload


def following(workload: Workload, names: Sequence[str]) -> list[str]:
    """Return who needs, directly or through others of the same step, what these operations bring; they are not among them."""
    readers: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for task in workload.tasks:
        for value, distance in task.reads:
            if not distance:
                readers.setdefault(value, []).append((task.name, task.writes))
    for payload in workload.payloads:
        readers.setdefault(payload.source, []).append((payload.name, (payload.result,)))
    reached, todo = dict.fromkeys(names), [workload.payload[name].result for name in names]
    while todo:
        for name, made in readers.get(todo.pop(), ()):
            if name not in reached:
                reached[name] = None
                todo += made
    return [name for name in reached if name not in names]
