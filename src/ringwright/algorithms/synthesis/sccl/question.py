"""What is asked: which chunks go where, on which wires; reductions as the question turned round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ringwright.algorithms.synthesis.sccl._automorphisms import Permutation, free_group, limit_orbits
from ringwright.bounds.round_limits import UnitLinks
from ringwright.bounds.rounds import Flow, RoundsBound, rounds_bound, steps_bound

if TYPE_CHECKING:
    from ringwright.model.collective import Collective

TURNED = {"reduce-scatter": "all-gather", "reduce": "broadcast"}
ROOTED = ("broadcast", "gather", "scatter")


@dataclass(frozen=True)
class RoundsQuestion:
    """Flows over wires: a chunk of each flow, or several. ``blocks`` are the blocks of the collective that flows carry."""

    wires: UnitLinks
    flows: tuple[Flow, ...]
    blocks: tuple[int, ...]
    is_rooted: bool = False

    @cached_property
    def generators(self) -> tuple[Permutation, ...]:
        """Generators of a group of permutations of the ranks that leaves the question as it is; none with a root."""
        return () if self.is_rooted else free_group(self.wires)

    @property
    def is_broadcast(self) -> bool:
        """Whether all chunks come from one rank and go to all others."""
        return len(self.flows) == 1 and len(self.flows[0][1]) == self.wires.p - 1

    @cached_property
    def steps(self) -> tuple[int, int, int]:
        """The least number of steps, and the two ranks that prove it."""
        return steps_bound(self.wires, self.flows)

    @cached_property
    def rounds(self) -> RoundsBound:
        """The least number of rounds per chunk, with its proof."""
        return _rounds(self.wires, self.flows, self.generators)


@lru_cache(256)
def _rounds(wires: UnitLinks, flows: tuple[Flow, ...], generators: tuple[Permutation, ...]) -> RoundsBound:
    return rounds_bound(wires, flows, limit_orbits(wires, generators))


def question_of(collective: Collective, wires: UnitLinks, op: str) -> RoundsQuestion:
    """Return the question for an operation that moves and does not add (a reduction's other half, turned round)."""
    p, root = collective.p, collective.root
    others = [tuple(end for end in range(p) if end != rank) for rank in range(p)]
    if op == "all-gather":
        flows = [((rank, others[rank]), rank) for rank in range(p)]
    elif op == "broadcast":
        flows = [((root, others[root]), 0)]
    elif op == "gather":
        flows = [((rank, (root,)), rank) for rank in others[root]]
    elif op == "scatter":
        flows = [((root, (rank,)), rank) for rank in others[root]]
    else:
        flows = [((src, (dst,)), src * p + dst) for src in range(p) for dst in others[src]]
    return RoundsQuestion(wires, tuple(flow for flow, _ in flows), tuple(block for _, block in flows), op in ROOTED)
