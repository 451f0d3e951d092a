"""Every algorithm on real ranks: many small cases in one start, each result compared with the interpreter's, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.execute import batch
from ringwright.execute.executors import Executor
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.model.registry import find, systems
from ringwright_lab.contracts.algorithm import AlgorithmCase, cases

if TYPE_CHECKING:
    from ringwright.model.program import Program

GROUP_SIZES = (2, 3, 4, 8)
SIZES = ("ragged", "even", "fewer", "bytes")
AT_ONCE = 150  # cases in one start
MOST_RANKS = {"mpich": 2}  # it never gives a core away while it waits; all others share cores


@dataclass(frozen=True)
class Result:
    """One case on one executor; ``wrong`` says what differs, or what stopped it, ``declined`` why it did not run."""

    case: AlgorithmCase
    executor: str
    wrong: str = ""
    declined: str = ""


def chosen(
    group_sizes: Sequence[int] = GROUP_SIZES, sizes: Sequence[str] = SIZES, *, slugs: Sequence[str] = ()
) -> list[AlgorithmCase]:
    """Return one case for each algorithm, collective, group size, buffer size and root, on the first fabric that it takes."""
    case_of: dict[tuple[object, ...], AlgorithmCase] = {}
    named = [system for system in systems() if not slugs or system.slug in slugs]
    for case in cases(named, group_sizes):
        if case.size in sizes:
            case_of.setdefault((case.slug, case.op, case.p, case.size, case.root), case)
    return list(case_of.values())


def program(case: AlgorithmCase) -> Program | None:
    """Return the program of a case; None where the algorithm openly declines it.

    What works only between hosts gets a group that is spread over those of the fabric.
    """
    from ringwright.fabrics import fabric

    topology = fabric(case.fabric if ":" in case.fabric else f"{case.fabric}:{case.p}")
    collective = case.collective()
    spread = range(0, topology.n_ranks, max(topology.n_ranks // case.p, 1))[: case.p]
    for group in dict.fromkeys((range(case.p), spread)):
        try:
            made: Program = find(case.slug).load()(dataclasses.replace(collective, group=group), topology)
        except UsageError:
            continue
        return made
    return None


def verify(
    executor: Executor, wanted: Iterable[AlgorithmCase], *, timeout_s: float = 20.0, seed: int = 0
) -> Iterator[Result]:
    """Run cases on real ranks and yield what came of each."""
    waiting: dict[int, list[tuple[AlgorithmCase, Program]]] = {}
    for case in wanted:
        made = program(case)
        if made is None:
            yield Result(case, executor.name, declined="the algorithm declines it")
            continue
        if made.n_nodes > MOST_RANKS.get(executor.name, 64):
            yield Result(case, executor.name, declined=f"too many ranks for {executor.name}")
            continue
        tried = waiting.setdefault(made.n_nodes, [])
        tried.append((case, made))
        if len(tried) == AT_ONCE:
            yield from _together(executor, tried, timeout_s, seed)
            tried.clear()
    for tried in waiting.values():
        if tried:
            yield from _together(executor, tried, timeout_s, seed)


def _together(
    executor: Executor, tried: Sequence[tuple[AlgorithmCase, Program]], timeout_s: float, seed: int
) -> Iterator[Result]:
    """Run a batch in one start; where that start fails, each case in a start of its own, so that one is blamed alone."""
    try:
        answers = batch.run_all(executor, [made for _, made in tried], timeout_s=timeout_s, seed=seed)
    except RingwrightError as error:
        if len(tried) == 1:
            yield Result(tried[0][0], executor.name, str(error))
            return
        for each in tried:
            yield from _together(executor, [each], timeout_s, seed)
        return
    for (case, made), outcome in zip(tried, answers, strict=True):
        yield Result(case, executor.name, batch.wrong(made, outcome, seed=seed))
