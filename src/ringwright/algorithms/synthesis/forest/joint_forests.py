"""Forests of several groups that run at the same time and know of each other: one linear program for the trees of all.

Each collective keeps a program of its own. What is shared are the links: trees of one group leave those alone that another one
needs more, so that the most loaded link of all takes the least time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ringwright.algorithms.searching import ALPHA_OF, Deadline, told
from ringwright.algorithms.synthesis.forest import OPS
from ringwright.algorithms.synthesis.forest._choice import candidates
from ringwright.algorithms.synthesis.forest._packing import SHARED, both_phases
from ringwright.algorithms.synthesis.forest._question import ForestQuestion
from ringwright.bounds.arcs import together as on_same_resources
from ringwright.bounds.shared_trees import forests
from ringwright.bounds.tree_demands import TreeDemand
from ringwright.engines.concurrent_programs import simulate_together
from ringwright.ground.errors import UsageError
from ringwright.model.program import nothing

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.forest._choice import PiecedForest
    from ringwright.bounds.forests import Forest
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

MOST_PIECES = (1, 4, 16, 64, 192)  # of the tries that are run, all groups with as many at the most
MOST_TRIED = 1_000_000  # moves of all groups in a try


@dataclass(frozen=True)
class PlannedTogether:
    """Programs of groups that know of each other, in the order of their collectives.

    ``time_s`` is when the last one is done, by the event engine; ``forest_s`` what the most loaded link takes in the limit of
    large data; ``least_s`` what the program's dual proves for all trees of these groups over the machine's routes.
    """

    programs: tuple[Program, ...]
    time_s: float
    forest_s: float
    least_s: float
    stopped: bool


def together(
    collectives: Sequence[Collective],
    topology: Topology,
    *,
    link_model: str = "pipelined",
    seed: int = 0,
    budget_s: float | None = None,
) -> PlannedTogether:
    """Return programs of collectives that begin together on one machine, planned as one.

    Raises UsageError for an operation that has no trees, InfeasibleError where a rank is not reached.
    """
    for each in collectives:
        if each.op not in OPS:
            raise UsageError(f"no trees for {each.op}", where="groups planned together", remedy=", ".join(OPS))
    machine, deadline = topology.at(0.0) if topology.faults else topology, Deadline(budget_s)
    several = [each for each in collectives if each.p > 1]
    questions = [ForestQuestion(each, machine, "throughput", seed, deadline, turning=False) for each in several]
    if not questions:
        return PlannedTogether(tuple(nothing("forest", each) for each in collectives), 0.0, 0.0, 0.0, False)
    for question, arcs in zip(questions, on_same_resources([each.arcs for each in questions]), strict=True):
        question.arcs = arcs
    sets: list[list[tuple[Forest, ...]]] = []
    times: list[tuple[float, float]] = []
    for is_free in (False, True) if any(each.collective.op == "all-reduce" for each in questions) else (False,):
        demands = [_demand(each, is_free=is_free) for each in questions]
        packed = forests(demands, seed=seed, enough=SHARED, must_stop=deadline.passed)
        sets.append([_phases(question, each) for question, each in zip(questions, packed, strict=True)])
        times.append((sum(each.time_s for each in packed[0]), sum(each.least_s for each in packed[0])))
    best: tuple[float, list[Program]] | None = None
    tries = [_tries(questions, each, blocking=link_model == "blocking") for each in sets]
    for chosen in chain.from_iterable(tries):
        programs = [question.program(each) for question, each in zip(questions, chosen, strict=True)]
        time_s = float(simulate_together(programs, topology, ALPHA_OF[link_model]).ends_ps.max()) / 1e12
        if best is None or time_s < best[0]:
            best = time_s, programs
        if deadline.passed():
            break
    time_s, programs = best if best is not None else (0.0, [])
    order = iter(told(each, algorithm="together", stopped=deadline.stopped) for each in programs)
    made = tuple(next(order) if each.p > 1 else nothing("forest", each) for each in collectives)
    # Blocks that are shared out freely are never slower than equal ones, so their proof holds for both.
    return PlannedTogether(made, time_s, min(each[0] for each in times), times[-1][1], deadline.stopped)


def _demand(question: ForestQuestion, *, is_free: bool) -> TreeDemand:
    """Return what trees of a collective are to carry; all-reduce along the same trees both ways where arcs have a way back.

    ``is_free``: the roots of an all-reduce share its data out as is best; else all have as much, which fewer pieces suffice for.
    """
    arcs, op = question.arcs, question.collective.op
    if op == "all-reduce":
        both = arcs.there_and_back()
        return TreeDemand((arcs.turned_round(), arcs) if both is None else (both,), question.weight, is_free=is_free)
    spreads = op in ("all-gather", "broadcast")
    return TreeDemand((arcs if spreads else arcs.turned_round(),), question.weight)


def _phases(question: ForestQuestion, packed: tuple[Forest, ...]) -> tuple[Forest, ...]:
    if question.collective.op == "all-reduce" and len(packed) == 1:
        return both_phases(packed[0], question.arcs)
    return packed


def _tries(
    questions: Sequence[ForestQuestion], sets: Sequence[tuple[Forest, ...]], *, blocking: bool
) -> Iterator[list[PiecedForest]]:
    """Yield for each number of pieces what every group does, messages merged and apart, as long as moves are not too many."""
    every = [
        [one for one in candidates([each], None, question.smallest, blocking=blocking) if not one.window]
        for question, each in zip(questions, sets, strict=True)
    ]
    seen: set[tuple[int, ...]] = set()
    for merged in (True, False):
        for pieces in MOST_PIECES:
            chosen = [
                next((one for one in mine if one.merged is merged and one.pieces <= pieces), mine[0]) for mine in every
            ]
            moves = sum(question.moves(each) for question, each in zip(questions, chosen, strict=True))
            key = tuple(map(id, chosen))
            if key in seen or (seen and moves > MOST_TRIED):
                continue
            seen.add(key)
            yield chosen
