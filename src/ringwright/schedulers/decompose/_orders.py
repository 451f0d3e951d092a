"""Orders of tasks that systems give a step: what a class runs pass by pass, and one rule for the orders of all classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby

from ringwright.graph.algebra import RULES
from ringwright.ground.errors import WorkloadError
from ringwright.model.workload import Workload

Item = tuple[str, int]  # task, micro-batch
Pass = tuple[tuple[str, int], int]  # slot, micro-batch


def stretches(workload: Workload, of: str) -> dict[Pass, list[Item]]:
    """Return what a class runs by slot and micro-batch, in its order; WorkloadError where one is in two pieces."""
    passes: dict[Pass, list[Item]] = {}
    for key, items in groupby(workload.line(of), lambda item: (workload.task[item[0]].slot, item[1])):
        if key in passes:
            what = f"{of} runs {key[0][0]} of micro-batch {key[1]} with others between"
            raise WorkloadError(what, where=of, remedy="one of the two orders alone")
        passes[key] = list(items)
    return passes


def ordered(workload: Workload, orders: Mapping[str, Sequence[Item]]) -> Workload:
    """Return the workload with these orders of its classes."""
    (first, mine), *others = orders.items()
    return RULES["order"](workload, first, tasks=mine, also=dict(others))


def added(before: Workload, after: Workload, name: str) -> str:
    """Return the task that a rule added under this name, or under the first like it that was free; one must be there."""
    most = len(after.tasks) + len(after.payloads) + len(after.values)
    tried: Iterator[str] = chain([name], (f"{name}~{number}" for number in range(1, most + 1)))
    return next(each for each in tried if each in after.task and each not in before.task)
