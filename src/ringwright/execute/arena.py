"""The memory of one node while it runs a Plan: bytes, seen as elements where they are added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.execute.arithmetic import STORED, combiner, element

if TYPE_CHECKING:
    from ringwright.execute.plan import Extent
    from ringwright.model.collective import Collective

Action = Callable[[], object]


class Arena:
    """``raw`` is uint8; ``combine`` adds elements as stored. What others put in place of it works on a GPU's memory."""

    def __init__(self, raw: Any, collective: Collective) -> None:
        self.raw = raw
        self.kind = np.dtype(STORED[element(collective)])
        self.combine = combiner(element(collective), collective.reduce_op)

    def bytes(self, at: int, size: int) -> Any:
        """Return these bytes themselves, no copy."""
        return self.raw[at : at + size]

    def elements(self, at: int, size: int) -> Any:
        """Return these bytes as elements, no copy."""
        return self.bytes(at, size).view(self.kind)

    def scratch(self, size: int) -> Any:
        """Return memory of this kind for messages on their way."""
        return np.zeros(max(size, 1), np.uint8)

    def write(self, at: int, values: np.ndarray) -> None:
        """Fill bytes from ordinary memory."""
        self.raw[at : at + len(values)] = values

    def read(self, at: int, size: int) -> np.ndarray:
        """Return a copy of these bytes in ordinary memory. uint8 of shape (size,)."""
        copied: np.ndarray = self.raw[at : at + size].copy()
        return copied

    def settle(self) -> None:
        """Return when all that was asked is done; here nothing is ever late."""

    def put(self, at: int, source: Any, *, adds: bool) -> Action:
        """Return what writes ``source`` (uint8, read when called) to ``at``, or adds it there."""
        if adds:
            combine, mine, theirs = self.combine, self.elements(at, len(source)), source.view(self.kind)
            return lambda: combine(mine, theirs)
        return self.copy(self.bytes(at, len(source)), source)

    def copy(self, target: Any, source: Any) -> Action:
        """Return what copies one into the other, both uint8."""
        copy = np.copyto
        return lambda: copy(target, source)

    def put_runs(self, runs: Sequence[Extent], source: Any, *, there: bool) -> list[Action]:
        """Return what puts every run where it belongs, from where it lies at the peer or else from scratch, run after run."""
        actions, begin = [], 0
        for run in runs:
            at = run.there if there else begin
            actions.append(self.put(run.at, source[at : at + run.size], adds=run.adds))
            begin += run.size
        return actions

    def gather(self, runs: Sequence[Extent], scratch: Any, source: Any, *, there: bool) -> list[Action]:
        """Return what copies every run into scratch, run after run."""
        actions: list[Action] = []
        begin = 0
        for run in runs:
            at = run.there if there else run.at
            actions.append(self.copy(scratch[begin : begin + run.size], source[at : at + run.size]))
            begin += run.size
        return actions


def together(actions: Sequence[Action]) -> Action:
    """Return one action that does all of them in order."""
    if len(actions) == 1:
        return actions[0]
    each = tuple(actions)

    def every() -> None:
        for action in each:
            action()

    return every


def nothing() -> None:
    """Do nothing: what is left of a local move or message without bytes."""


def local_moves(arena: Arena, runs: Sequence[Extent], *, kept: bool) -> tuple[Action, Action]:
    """Return (KEEP, LOCAL) of a local move; unless ``kept``, LOCAL reads its source directly."""
    if not kept:
        return nothing, together(arena.put_runs(runs, arena.raw, there=True))
    scratch = arena.scratch(sum(run.size for run in runs))
    keep = together(arena.gather(runs, scratch, arena.raw, there=True))
    return keep, together(arena.put_runs(runs, scratch, there=False))


def ordinary(size: int, collective: Collective) -> Arena:
    """Return an arena in this process's own memory."""
    return Arena(np.zeros(max(size, 1), np.uint8), collective)
