"""SCCL: every algorithm on the frontier between steps and rounds per chunk, by asking a solver.

Idea: ask whether an algorithm of C chunks a block, S steps and R rounds exists (a round: the slowest link carries a chunk); ask
    on, from the bounds upwards, for all that no other one beats in both steps and R/C; take what is fastest at the size.
Cost: S alpha + (R/C) b beta for blocks of b bytes over the slowest link, without waiting between steps.
Knobs: chunks a block is cut into, steps and rounds (none: left to the search; of an all-reduce, those of either half; all three
    make one query); budget=none seconds; seed=0 of the solver; link_model=pipelined (blocking: busy during the latency),
    by which the fastest is picked.
Holds: exactly S steps, and in each no limit of the machine carries more than its chunks times the rounds of the step. A
    reduction is its dual on the reversed machine, backwards in time; an all-reduce two of them. Wait for each other as data do.
Figure: up to 6.8 times as fast as NCCL on a DGX-1.
Source: Cai, Liu, Maleki, Musuvathi, Mytkowicz, Nelson, Saarikivi, PPoPP 2021, arXiv 2008.08708; microsoft/msccl-tools.
Declines: counts; groups of more than 32; reductions that keep the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.searching import ALPHA_OF, Budget, Deadline, LinkModel, told
from ringwright.algorithms.synthesis.sccl.frontier import Frontier, WantedAnswer, frontier
from ringwright.algorithms.synthesis.sccl.programs import backwards, forwards, program_of
from ringwright.algorithms.synthesis.sccl.question import TURNED, RoundsQuestion, question_of
from ringwright.bounds.round_limits import wires_of
from ringwright.engines.choose import simulate
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.ground.knobs import Range, Seed
from ringwright.model.program import nothing

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.sccl.model import RoundsSchedule
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "gather", "scatter", "all-to-all")
NEEDS = ("topology.links",)
FABRICS = ("switch", "ring", "full", "dgx-1:1", "torus:2x2")
MOST_RANKS = 32
MOST_TIMED = 4  # schedules of the frontier that are simulated: the fastest by the model
ALPHA_S, RATE = 1e-6, 25e9  # of a link where no machine is given: an NVLink of a V100

Chunks = Annotated[int, Range(1, 256)]
Turns = Annotated[int, Range(1, 1024)]


def sccl(
    collective: Collective,
    topology: Topology | None = None,
    *,
    chunks: Chunks | None = None,
    steps: Turns | None = None,
    rounds: Turns | None = None,
    budget: Budget | None = None,
    seed: Seed = 0,
    link_model: LinkModel = "pipelined",
) -> Program:
    """Return the fastest program of the frontier for the collective's size; without a machine, a link joins every pair."""
    require_op("sccl", collective, OPS)
    require_commutative("sccl", collective)
    if collective.p == 1:
        return nothing("sccl", collective)
    _require_small(collective)
    units = max(1, int(collective.block_bytes.min()) // collective.unit_bytes)
    wanted, deadline = WantedAnswer(chunks, steps, rounds, units), Deadline(budget)
    asked = _questions(collective, topology)
    sought = [frontier(asked[0], wanted, seed, deadline)]
    chosen = _choices(asked, sought, wanted, seed, deadline)
    likely = sorted(chosen, key=lambda choice: _model_s(collective, asked, choice, topology))[:MOST_TIMED]
    programs = [made for choice in likely for made in _programs(collective, asked, choice)]
    best = min(programs, key=lambda program: _time_s(program, topology, link_model))
    return told(
        best,
        bound=" + ".join(str(question.rounds.per_chunk) for question in asked),
        frontier=" ".join(_named(choice) for choice in chosen),
        unsettled=sum(each.unsettled for each in sought),
        link_model=link_model,
        stopped=deadline.stopped,
    )


def _require_small(collective: Collective) -> None:
    if collective.counts is not None:
        raise UsageError(
            "sccl cuts all blocks alike, and counts make them unequal", remedy="--algorithm direct or ring"
        )
    if collective.p > MOST_RANKS:
        raise DeclinedError(
            f"sccl searches machines of up to {MOST_RANKS} ranks, not {collective.p:,}",
            remedy=f"a group of at most {MOST_RANKS}, or sccl as the inner algorithm of a hierarchical one",
        )


def _questions(collective: Collective, topology: Topology | None) -> list[RoundsQuestion]:
    """Return what is to be asked: a reduction on the machine turned round; of an all-reduce both halves."""
    wires = wires_of(topology, collective.group)
    if collective.op == "all-reduce":
        return [question_of(collective, each, "all-gather") for each in (wires.turned, wires)]
    if collective.op in TURNED:
        return [question_of(collective, wires.turned, TURNED[collective.op])]
    return [question_of(collective, wires, collective.op)]


def _choices(
    asked: list[RoundsQuestion], sought: list[Frontier], wanted: WantedAnswer, seed: int, deadline: Deadline
) -> list[tuple[RoundsSchedule, ...]]:
    """Return a schedule for each question, once for each point of the frontier; halves of an all-reduce have the same chunks.

    Where the second half is another question, its frontiers are added to what is ``sought``.
    """
    first = sought[0].schedules
    if len(asked) == 1 or asked[0] == asked[1]:
        return [(each,) * len(asked) for each in first]
    chosen: list[tuple[RoundsSchedule, ...]] = []
    for each in first:
        try:
            sought.append(frontier(asked[1], replace(wanted, chunks=each.asked.chunks), seed, deadline))
        except InfeasibleError:
            if each is first[-1] and not chosen:
                raise
            continue
        chosen += [(each, other) for other in sought[-1].schedules]
    return chosen


def _programs(
    collective: Collective, asked: list[RoundsQuestion], choice: tuple[RoundsSchedule, ...]
) -> Iterator[Program]:
    """Yield the program whose moves wait for data alone, and the one that keeps step."""
    moves = []
    for number, (question, schedule) in enumerate(zip(asked, choice, strict=True)):
        is_back = collective.reduces and number == 0
        moves += backwards(question, schedule) if is_back else forwards(question, schedule)
    chunks, rounds = choice[0].asked.chunks, sum(each.asked.rounds for each in choice)
    parts = chunks * (collective.p if collective.op == "all-reduce" else 1)
    facts = {"chunks": chunks, "steps": len(moves), "rounds": rounds}
    yield told(program_of(collective, parts, moves), **facts, in_step=False)
    if len(moves) > 1:
        yield told(program_of(collective, parts, moves, in_step=True), **facts, in_step=True)


def _model_s(
    collective: Collective, asked: list[RoundsQuestion], choice: tuple[RoundsSchedule, ...], topology: Topology | None
) -> float:
    """Return S alpha + (R/C) b beta: the longest latency of a link for each step, the slowest link for each round."""
    latency_s = ALPHA_S if topology is None else float(topology.latency_s.max(initial=0.0))
    rate = RATE if topology is None else asked[0].wires.unit_rate
    steps, rounds = sum(each.asked.steps for each in choice), sum(each.asked.rounds for each in choice)
    block = collective.size_bytes / (1 if asked[0].is_broadcast else collective.p)
    return steps * latency_s + rounds / choice[0].asked.chunks * block / rate


def _time_s(program: Program, topology: Topology | None, link_model: LinkModel) -> float:
    """Return how long a program takes on the machine; without one, by what it declares."""
    if topology is None:
        return program.cost.messages * ALPHA_S + program.cost.path_bytes / RATE
    return simulate(program, topology, engine="events", alpha=ALPHA_OF[link_model]).time_s


def _named(choice: tuple[RoundsSchedule, ...]) -> str:
    steps, rounds = sum(each.asked.steps for each in choice), sum(each.asked.rounds for each in choice)
    return f"({choice[0].asked.chunks},{steps},{rounds})"
