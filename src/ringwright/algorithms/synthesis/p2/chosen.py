"""Which sequence a machine does fastest: all are priced by rings and shared links, and the cheapest are simulated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.ring_steps import Rings, rings
from ringwright.algorithms.synthesis.p2.language import Hierarchy, Instruction, State
from ringwright.algorithms.synthesis.p2.search import Sequences

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.p2.search import Sequenced
    from ringwright.model.topology import Topology

ROUNDS = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}


@dataclass
class SequencePrices:
    """Seconds of instructions on a machine: ``devices``, int64 of shape (replicas, k), are all that run the sequence at once.

    A replica's devices are in the order of their digits. An instruction with rings takes 2 or 1 times g-1 steps of a part of
    the data each, a pipeline down or up a chain about the data once; the slowest link counts, all flows that share it.
    """

    hierarchy: Hierarchy
    topology: Topology | None
    devices: np.ndarray
    size_bytes: float
    known: dict[tuple[int, int], Rings] = field(default_factory=dict, repr=False)

    def __call__(self, instruction: Instruction, before: State, after: State) -> float:
        """Return what an instruction takes that comes between two states."""
        members = math.prod(self.hierarchy.sizes[instruction.above : instruction.level])
        active = self.hierarchy.active(instruction, before)
        share = max(
            self.hierarchy.share(held & self.hierarchy.every)
            for state in ((before,) if instruction.collective != "all-gather" else (after,))
            for held, who in state
            if held >= 0 and who & active
        )
        machine = self._rings(instruction, active)
        size = self.size_bytes * share
        rounds = ROUNDS.get(instruction.collective)
        if rounds is None:
            return (members - 1) * machine.alpha_s + size * machine.beta_s
        return rounds * (members - 1) * (machine.alpha_s + size / members * machine.beta_s)

    def _rings(self, instruction: Instruction, active: int) -> Rings:
        key = (instruction.span, active)
        if key not in self.known:
            self.known[key] = rings(self.topology, self._members(instruction, active))
        return self.known[key]

    def _members(self, instruction: Instruction, active: int) -> np.ndarray:
        """Return the devices of every group that is at work, int64 of shape (groups, members)."""
        sizes, count = self.hierarchy.sizes, len(self.devices)
        inside = list(range(instruction.above, instruction.level))
        aside = [at for at in range(len(sizes)) if at not in inside]
        grid = self.devices.reshape(count, *sizes).transpose([0, *(at + 1 for at in aside), *(at + 1 for at in inside)])
        zeros = sum(
            (np.arange(sizes[at]).reshape([-1 if each == at else 1 for each in aside]) == 0).astype(np.int64) << at
            for at in aside
        )
        wanted = np.isin(zeros | instruction.span, [each for each in range(1 << len(sizes)) if active >> each & 1])
        groups = grid.reshape(count, -1, math.prod(sizes[at] for at in inside))
        rows: np.ndarray = groups[:, np.broadcast_to(wanted, [sizes[at] for at in aside]).reshape(-1)]
        return rows.reshape(-1, groups.shape[-1])


def ranked(prices: SequencePrices, op: str, length: int, keep: int) -> list[tuple[float, Sequenced]]:
    """Return the ``keep`` cheapest sequences of at most ``length`` instructions, the single collective always among them."""
    sequences = Sequences(prices.hierarchy, op, length)
    best = sequences.cheapest(prices, keep)
    plain = Sequences(prices.hierarchy, op, 1).cheapest(prices, 1)
    return [*best, *(each for each in plain if each[1] not in [sequence for _, sequence in best])]


def told_sequence(sequence: Sequenced, names: Sequence[str]) -> str:
    """Return a sequence in a line: ``RS(gpu) AR(node) AG(gpu)``."""
    return " ".join(each.spelled(names) for each in sequence)
