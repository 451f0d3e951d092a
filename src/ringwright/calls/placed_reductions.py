"""Where should the axes of a job lie, and how should their sums be made there? One axis reduced, all placements, all sequences.

All groups of an axis reduce at the same time and share the links. Sequences are priced by rings; the cheapest of them, and the
single all-reduce, are timed by the event engine with the messages of all groups on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.blocks.pipeline import pipeline
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.ring_steps import rings
from ringwright.algorithms.synthesis.p2.chosen import SequencePrices, ranked, told_sequence
from ringwright.algorithms.synthesis.p2.composed import Composed
from ringwright.algorithms.synthesis.p2.language import Hierarchy
from ringwright.algorithms.synthesis.p2.machine import levels_of
from ringwright.algorithms.synthesis.p2.matrices import Matrix, groups, matrices, reduced_levels
from ringwright.algorithms.synthesis.p2.parts import SmallPrograms
from ringwright.engines.concurrent_programs import simulate_together
from ringwright.ground.units import PS
from ringwright.model.collective import Collective

if TYPE_CHECKING:
    from ringwright.algorithms.compose import Algorithm
    from ringwright.algorithms.synthesis.p2.search import Sequenced
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class PlacedReduction:
    """A placement, and what the reductions of some axes take there, by the best sequence and by one all-reduce."""

    matrix: Matrix
    levels: tuple[str, ...]
    sequence: str
    seconds: float
    single_s: float

    @property
    def gain(self) -> float:
        """How many times longer the single all-reduce takes."""
        return self.single_s / self.seconds if self.seconds else 1.0


def placed_reductions(
    topology: Topology,
    axes: Sequence[int],
    over: Sequence[int],
    size_bytes: int,
    *,
    inner: Algorithm = ring,
    length: int = 5,
    keep: int = 5,
) -> list[PlacedReduction]:
    """Return every placement of axes of these sizes on a machine, the fastest reduction over axes ``over`` first.

    ``size_bytes``: what each rank has to be summed; ``inner`` does the instructions of a sequence, of which the ``keep``
    cheapest of at most ``length`` are timed. UsageError where the axes do not fill the machine.
    """
    levels = levels_of(topology, range(topology.n_ranks))
    rows = []
    for matrix in matrices(axes, levels.sizes):
        devices = levels.order[groups(matrix, over)]
        times = list(_times(topology, matrix, devices, over, size_bytes, levels.names, inner, length, keep))
        seconds, sequence = min(times, key=lambda timed: timed[0])
        single_s = min(each for each, named in times if " " not in named and named.startswith("AR"))
        rows.append(PlacedReduction(matrix, levels.names, sequence, seconds, single_s))
    return sorted(rows, key=lambda row: row.seconds)


def reduction_s(
    topology: Topology, matrix: Matrix, over: Sequence[int], size_bytes: int, *, length: int = 5, keep: int = 5
) -> float:
    """Return the seconds of the reductions of some axes with one placement, by the best sequence of rings."""
    levels = levels_of(topology, range(topology.n_ranks))
    devices = levels.order[groups(matrix, over)]
    times = _times(topology, matrix, devices, over, size_bytes, levels.names, ring, length, keep)
    return min(seconds for seconds, _ in times)


def _times(
    topology: Topology,
    matrix: Matrix,
    devices: np.ndarray,
    over: Sequence[int],
    size_bytes: int,
    names: Sequence[str],
    inner: Algorithm,
    length: int,
    keep: int,
) -> Iterator[tuple[float, str]]:
    """Yield (seconds, sequence) of the cheapest sequences and of the single all-reduce."""
    parts_of = reduced_levels(matrix, over)
    if not parts_of:
        yield 0.0, "AR()"
        return
    hierarchy = Hierarchy(tuple(size for size, _ in parts_of))
    called = [names[level] for _, level in parts_of]
    made_by = SmallPrograms((inner, ring), (inner, pipeline), rings(topology, devices))
    for _, sequence in ranked(SequencePrices(hierarchy, topology, devices, size_bytes), "all-reduce", length, keep):
        programs = _programs(devices, hierarchy, called, sequence, made_by, size_bytes)
        yield float(simulate_together(programs, topology).ends_ps.max()) / PS, told_sequence(sequence, called)


def _programs(
    devices: np.ndarray,
    hierarchy: Hierarchy,
    names: Sequence[str],
    sequence: Sequenced,
    parts: SmallPrograms,
    size_bytes: int,
) -> list[Program]:
    """Return the program of each group: one, with the ranks of each."""
    plain = Collective("all-reduce", range(math.prod(hierarchy.sizes)), size_bytes)
    made = Composed(plain, hierarchy, names, np.arange(plain.p), sequence, parts).program("p2")
    return [replace(made, collective=replace(plain, group=tuple(group))) for group in devices.tolist()]
