"""TIC and TAC on a graph of transfers and computations (Hashemi et al., sections 4.1 and 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringwright.ground.units import PS

NEVER = (1 << 63) - 1


@dataclass(frozen=True)
class TransferGraph:
    """Seconds of each transfer and task, the transfers that a task waits for itself, and the tasks before it."""

    transfers: Mapping[str, float]
    tasks: Mapping[str, float]
    needs: Mapping[str, set[str]]
    before: Mapping[str, set[str]]

    def closure(self) -> dict[str, frozenset[str]]:
        """Return every task's transfers, those of the tasks before it included; no task may wait for itself."""
        closed: dict[str, frozenset[str]] = {}
        pending = list(self.tasks)
        while pending:
            task = pending[-1]
            missing = [each for each in self.before[task] if each not in closed]
            if missing:
                pending += missing
                continue
            pending.pop()
            closed[task] = frozenset(self.needs[task]).union(*(closed[each] for each in self.before[task]))
        return closed


class _Waits:
    """Which transfers each task still waits for, as a table: how many, and how long they take together.

    Times are whole picoseconds, so that equal sums are equal.
    """

    def __init__(self, graph: TransferGraph, transfers: Mapping[str, float]) -> None:
        import numpy as np

        column = {name: at for at, name in enumerate(graph.transfers)}
        closure = graph.closure()
        self.missing = np.zeros((len(graph.tasks), len(column)), bool)
        for row, task in enumerate(graph.tasks):
            self.missing[row, [column[name] for name in closure[task]]] = True
        self.time = np.array([round(transfers[name] * PS) for name in graph.transfers], np.int64)
        self.work = np.array([round(seconds * PS) for seconds in graph.tasks.values()], np.int64)
        self.count, self.together = self.missing.sum(axis=1), self.missing @ self.time

    def done(self, transfer: int) -> None:
        """Count a transfer as outstanding no longer."""
        waiting = self.missing[:, transfer].copy()
        self.count[waiting] -= 1
        self.together[waiting] -= self.time[transfer]
        self.missing[:, transfer] = False

    def alone_and_impending(self) -> tuple[list[int], list[int]]:
        """Return, per transfer, the work that it alone holds up, and the least that must come with it (``NEVER``: nothing)."""
        import numpy as np

        alone, several = np.zeros(len(self.time), np.int64), self.count > 1
        np.add.at(alone, np.nonzero(self.missing[self.count == 1])[1], self.work[self.count == 1])
        impending = np.where(self.missing[several], self.together[several, None], NEVER).min(axis=0, initial=NEVER)
        return alone.tolist(), impending.tolist()


def tic(graph: TransferGraph) -> dict[str, int]:
    """Return the urgency of each transfer from the graph alone; equals share a number."""
    waits = _Waits(graph, dict.fromkeys(graph.transfers, 1.0))
    _, impending = waits.alone_and_impending()
    ranks = {value: at for at, value in enumerate(sorted(set(impending)))}
    return {name: ranks[value] for name, value in zip(graph.transfers, impending, strict=True)}


def tac(graph: TransferGraph) -> dict[str, int]:
    """Return the urgency of each transfer from measured times: the least under the pairwise rule goes next."""
    waits, names = _Waits(graph, graph.transfers), list(graph.transfers)
    time, outstanding = waits.time.tolist(), list(range(len(names)))
    ranks: dict[str, int] = {}
    for urgency in range(len(names)):
        alone, impending = waits.alone_and_impending()
        best = outstanding[0]
        held, took = alone[best], time[best]
        for each in outstanding[1:]:
            other, takes = alone[each], time[each]
            first, second = min(takes, held), min(took, other)
            if impending[each] < impending[best] if first == second else first < second:
                best, held, took = each, other, takes
        ranks[names[best]] = urgency
        outstanding.remove(best)
        waits.done(best)
    return ranks
