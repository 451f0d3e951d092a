"""Follow data through the steps as fingerprints, and see where they go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.hashing import following
from ringwright.model.program import ADDING, Op
from ringwright.model.validity.rules import Violation

if TYPE_CHECKING:
    from ringwright.model.program import Block, Program, Step

_AT_AGGREGATORS = {Op.CONTRIBUTE: "dst", Op.COMBINE: "both", Op.EMIT: "src"}


class ProgramFollower:
    """Follow fingerprints through the steps."""

    def __init__(self, program: Program, most: int) -> None:
        self.program, self.most = program, most
        self.slots = program.layout.slots
        self.value = np.zeros(program.n_nodes * self.slots, np.uint64)
        self.there = np.zeros(program.n_nodes * self.slots, bool)
        self.violations: list[Violation] = []
        self.sent = self.moved = 0
        self.last_write = np.full(program.n_nodes * self.slots, -1, np.int32)

    def follow(self) -> list[Violation]:
        """Return what is broken."""
        if self._is_short():
            return self.violations
        for rank in range(self.program.p):
            slots, chunks = placed(self.program, rank, after=False)
            self.value[rank * self.slots + slots] = self._contribution(rank, chunks)
            self.there[rank * self.slots + slots] = True
        number = -1
        for number, step in enumerate(self.program.steps()):
            self._step(step, number)
            if len(self.violations) >= self.most:
                return self.violations
        self._results()
        if number + 1 != self.program.n_steps:
            self._add("steps", f"{number + 1} steps, declared {self.program.n_steps}")
        cost = self.program.cost
        slack = 0.5 if cost.is_even else self.program.collective.unit_bytes * self.moved + 0.5
        if not self.violations and abs(self.sent - cost.sent_bytes) > slack:
            self._add("cost", f"{self.sent} B sent, declared {cost.sent_bytes:.0f} B")
        return self.violations

    def _is_short(self) -> bool:
        """Say whether input or result of a rank lies in slots that the layout does not have; then nothing can be followed."""
        for rank in range(self.program.p):
            for after in (False, True):
                slots, _ = placed(self.program, rank, after=after)
                last = int(slots.max(initial=0))
                if not 0 <= int(slots.min(initial=0)) <= last < self.slots:
                    what = "result" if after else "input"
                    self._add("range", f"its {what} reaches slot {last}, the layout has {self.slots}", rank=rank)
                    return True
        return False

    def _contribution(self, rank: int, chunks: np.ndarray) -> np.ndarray:
        """Return the fingerprints of a rank's data: of the chunk alone, where nothing is reduced."""
        who = rank if self.program.collective.reduces else 0
        return following(chunks.astype(np.uint64) * np.uint64(0x1_0000_0001) + np.uint64(who))

    def _wanted(self, chunks: np.ndarray) -> Iterator[np.ndarray]:
        """Yield, rank after rank, the fingerprints of what it must hold."""
        collective = self.program.collective
        if not collective.reduces:
            yield from [self._contribution(0, chunks)] * collective.p
            return
        total, added = np.zeros(len(chunks), np.uint64), 0
        for rank in range(collective.p):
            for other in collective.contributors(rank)[added:]:
                total = total + self._contribution(other, chunks)
                added = other + 1
            yield total

    def _add(self, rule: str, message: str, rank: int = -1, step: int = -1, chunk: int = -1) -> None:
        self.violations.append(Violation(rule, message, rank, step, chunk))

    def _step(self, step: Step, number: int) -> None:
        writes, values, adds, sent_out = [], [], [], []
        for block in step.blocks:
            legal = self._shape(block, number)
            if legal is None:
                return
            src, dst, chunk, to = legal
            read = src * self.slots + chunk
            for at in np.flatnonzero(~self.there[read])[:1]:
                self._add("undefined", "reads what is not there", int(src[at]), number, int(chunk[at]))
            if block.op is Op.REDUCE:
                sums = dst * self.slots + to
                for at in np.flatnonzero(~self.there[sums])[:1]:
                    self._add("undefined", "adds to what is not there", int(dst[at]), number, int(to[at]))
            if block.op is not Op.COPY:
                away = chunk[src != dst]
                self.sent += int(self.program.layout.bytes_of(away).sum())
                self.moved += len(away)
            writes.append(dst * self.slots + to)
            values.append(self.value[read])
            if block.op is Op.EMIT:
                sent_out.append(read)
            adds.append(np.full(len(src), block.op in ADDING))
        for read in sent_out:  # a switch's slots are free again once they are sent out
            self.value[read], self.there[read] = 0, False
        if writes:
            self._write(np.concatenate(writes), np.concatenate(values), np.concatenate(adds), number)

    def _write(self, slot: np.ndarray, values: np.ndarray, adds: np.ndarray, number: int) -> None:
        sets = slot[~adds]
        unique, counts = np.unique(sets, return_counts=True)
        clash = np.concatenate((unique[counts > 1], np.intersect1d(unique, slot[adds])))
        for at in clash[:1]:
            self._add("conflict", "written twice in one step", int(at // self.slots), number, int(at % self.slots))
        self.value[sets] = values[~adds]
        np.add.at(self.value, slot[adds], values[adds])
        self.there[slot] = True
        self.last_write[slot] = number

    def _shape(self, block: Block, number: int) -> tuple[np.ndarray, ...] | None:
        """Return the unfolded moves of a block, or None where one of them is impossible."""
        src, dst, chunk, to = unfold(block)
        nodes = self.program.n_nodes
        for name, values, limit in (
            ("rank", src, nodes),
            ("rank", dst, nodes),
            ("chunk", chunk, self.slots),
            ("chunk", to, self.slots),
        ):
            wrong = np.flatnonzero((values < 0) | (values >= limit))
            if len(wrong):
                at = int(wrong[0])
                self._add("range", f"{name} {values[at]} of {limit}", int(src[at]), number, int(chunk[at]))
                return None
        misplaced = {Op.COPY: src != dst, Op.REDUCE: np.zeros(0, bool)}.get(block.op, src == dst)
        wrong = np.flatnonzero(misplaced)
        if len(wrong):
            at = int(wrong[0])
            self._add("self", f"{block.op.name.lower()} to rank {dst[at]}", int(src[at]), number, int(chunk[at]))
            return None
        ends = _AT_AGGREGATORS.get(block.op)
        places = {"dst": dst, "src": src, "both": np.minimum(src, dst)}[ends] if ends else np.zeros(0, np.int64)
        wrong = np.flatnonzero(places < self.program.p) if ends else np.zeros(0, np.int64)
        if len(wrong):
            at = int(wrong[0])
            self._add("aggregator", f"{block.op.name.lower()} at a rank", int(src[at]), number, int(chunk[at]))
            return None
        return src, dst, chunk, to

    def _results(self) -> None:
        wanted = self._wanted(np.arange(self.program.layout.n_chunks))
        for rank, every in enumerate(wanted):
            slots, chunks = placed(self.program, rank, after=True)
            at = rank * self.slots + slots
            wrong = np.flatnonzero(~self.there[at] | (self.value[at] != every[chunks]))
            for bad in wrong[: max(self.most - len(self.violations), 0)]:
                what = "never arrives" if not self.there[at[bad]] else "is not what it should be"
                step = int(self.last_write[at[bad]])
                self._add("result", f"chunk {chunks[bad]} {what}", rank, step, int(chunks[bad]))


def unfold(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return src, dst, slot and target slot of every single slot moved. Each is int64 of shape (count * span,)."""
    src, dst, chunk, to = block.arrays()
    if block.span == 1:
        return src, dst, chunk, to
    further = np.arange(block.span)
    chunk, to = ((start[:, None] + further).reshape(-1) for start in (chunk, to))
    return np.repeat(src, block.span), np.repeat(dst, block.span), chunk, to


def placed(program: Program, rank: int, *, after: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the slots and chunks that a rank holds before, or must hold after.

    Both int64 of shape (slots that count,).
    """
    layout, collective = program.layout, program.collective
    given = layout.after if after else layout.before
    if given is not None:
        return given[rank]
    blocks = np.asarray(collective.final(rank) if after else collective.initial(rank), np.int64)
    chunks = (blocks[:, None] * layout.parts + np.arange(layout.parts)).reshape(-1)
    return chunks, chunks
