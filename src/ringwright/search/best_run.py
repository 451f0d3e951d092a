"""The best program seen at work: the engine's run message by message, the load of each link over time, the trees of one root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.choose import simulate
from ringwright.engines.event_loop import served
from ringwright.engines.messages import MessageGraph
from ringwright.engines.passages import RunPassages
from ringwright.search.chunk_routes import trees
from ringwright.search.runtime_files import refused

if TYPE_CHECKING:
    from ringwright.engines.machine import Machine
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.search.chunk_routes import CarriedTree
    from ringwright.search.study import Synthesised, SynthesisedRow

BINS = 96
MOST_HOPS = 1_000_000  # that are followed one by one: some seconds


@dataclass(frozen=True)
class SeenProgram:
    """The best program of the largest size at work.

    ``load`` is the share of each of ``BINS`` equal parts of the time in which a resource of ``run.machine`` passes bytes:
    float64 of shape (resources, BINS), or None, and ``unseen`` says why. ``trees`` are those of one root, by bytes; ``refused``
    says why MSCCL XML cannot carry the program, where it cannot.
    """

    row: SynthesisedRow
    program: Program
    run: Run
    load: np.ndarray | None
    unseen: str
    trees: tuple[CarriedTree, ...]
    refused: str


def seen(result: Synthesised) -> SeenProgram:
    """Return the best program of the largest size at work, on the machine that was asked about."""
    row = result.largest
    program, question = result.programs[row.size_bytes], result.question
    hops = _most_hops(program)
    run = simulate(program, question.topology, alpha=question.alpha, fold_symmetry=hops > MOST_HOPS)
    load, unseen = None, ""
    if run.flat is None or run.machine is None or run.folded:
        unseen = f"{hops:,} transfers are more than are followed one by one"
    elif run.flat.n_hops > MOST_HOPS:
        unseen = f"{run.flat.n_hops:,} passages of links are more than are followed one by one"
    else:
        load = load_over_time(run.flat, run.machine, run.time_ps - run.base_ps)
    return SeenProgram(row, program, run, load, unseen, tuple(trees(program)), refused(program, "msccl-xml"))


def _most_hops(program: Program) -> int:
    return sum(block.count for step in program.steps() for block in step.blocks)


def load_over_time(flat: MessageGraph, machine: Machine, time_ps: int, bins: int = BINS) -> np.ndarray:
    """Return the share of each of ``bins`` equal parts of a time in which each resource passes bytes.

    float64 of shape (resources, bins), by the event engine's own passages.
    """
    begin, stop, leave = served(flat, machine)
    every = RunPassages(begin, stop, leave, np.ones(len(begin)), is_exact=True)
    return every.load(flat.hops, machine.n, time_ps, bins)
