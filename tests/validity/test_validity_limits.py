"""Limits are held to the number, fingerprints tell every contribution from every other, and the first of many faults is named."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from ringwright.ground.errors import ProgramError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Layout, Op, Program, Step, cut, explicit
from ringwright.model.validity import workload_parts
from ringwright.model.validity.follow import ProgramFollower
from ringwright.model.validity.rules import Violation
from ringwright.model.validity.trace import trace
from ringwright.model.workload import Mesh, RankClass, Task, Workload


def one_step(collective: Collective, *blocks: tuple[Op, list[int], list[int], list[int]], **layout: object) -> Program:
    """Return a program of one step that declares to send nothing."""
    made = dataclasses.replace(cut(collective), **layout)  # type: ignore[arg-type]
    step = Step(tuple(explicit(*block) for block in blocks))
    return Program("by-hand", collective, made, lambda: iter([step]), 1, Cost((), 0.0))


BROADCAST = Collective("broadcast", range(3), 12)


@pytest.mark.parametrize(
    ("block", "rule", "place"),
    [
        ((Op.SEND, [0, 0, 0], [1, 7, 8], [0, 0, 0]), "range", "rank 7 of 3"),
        ((Op.SEND, [0, 0, 0], [1, 2, 1], [0, 5, 6]), "range", "chunk 5 of 1"),
        ((Op.SEND, [0, 1, 2], [1, 1, 2], [0, 0, 0]), "self", "send to rank 1"),
        ((Op.COPY, [0, 0, 1], [0, 1, 2], [0, 0, 0]), "self", "copy to rank 1"),
    ],
)
def test_of_several_impossible_moves_the_first_is_named(
    block: tuple[Op, list[int], list[int], list[int]], rule: str, place: str
) -> None:
    first = validity.check(one_step(BROADCAST, block))[0]
    assert (first.rule, first.message) == (rule, place)
    assert (first.rank, first.step, first.chunk) == (block[1][1], 0, block[3][1])


def test_the_first_move_at_a_rank_that_aggregates_nothing_is_named() -> None:
    """Rank 3 of four nodes is a switch: the second contribution goes to a rank, and so does the third."""
    wanted = Collective("reduce", range(3), 12)
    block = (Op.CONTRIBUTE, [0, 1, 2], [3, 2, 1], [0, 0, 0])
    made = dataclasses.replace(one_step(wanted, block), aggregators=(3,))
    first = validity.check(made)[0]
    assert (first.rule, first.rank, first.step, first.chunk) == ("aggregator", 1, 0, 0)


def test_an_input_that_lies_in_no_slot_is_told_as_the_input() -> None:
    spot = (np.array([4]), np.array([0]))
    made = one_step(BROADCAST, before=(spot, spot, spot))
    (found,) = validity.check(made)
    assert (found.rule, found.rank, found.message) == ("range", 0, "its input reaches slot 4, the layout has 1")


@pytest.mark.parametrize(("moves", "is_named"), [(4_000_000, True), (4_000_001, False)])
def test_up_to_four_million_moves_are_followed_contribution_by_contribution(moves: int, is_named: bool) -> None:
    """Beyond that a wrong result is found by its fingerprint alone; which contribution is missing is not said."""
    empty = SimpleNamespace(count=moves, blocks=())  # as many moves to count, none to follow
    wanted = Collective("reduce", range(2), 8)
    made = Program("large", wanted, cut(wanted), lambda: [cast("Step", empty)], 1, Cost((), 0.0))
    assert [each.message for each in trace(made, 20)] == ["chunk 0 lacks the contribution of rank 1"] * is_named


@pytest.mark.parametrize("first", [0, 1 << 20, (1 << 27) - 40])
def test_no_two_contributions_look_alike(first: int) -> None:
    """Else a result of the wrong ranks, or of a neighbour's chunk, would pass. Up to as many slots as are ever checked."""
    wanted = Collective("all-reduce", range(2), 8)
    follower = ProgramFollower(Program("any", wanted, Layout(1, np.array([8])), lambda: iter(()), 0, Cost((), 0.0)), 20)
    ranks = [*range(40), *range(131_000, 131_040)]
    seen = np.concatenate([follower._contribution(rank, np.arange(first, first + 40)) for rank in ranks])
    assert len(np.unique(seen)) == len(seen)


def test_twenty_broken_rules_are_told_unless_more_are_asked_for() -> None:
    """Nothing is sent: each of six ranks lacks the chunks of the five others."""
    made = one_step(Collective("all-gather", range(6), 48))
    assert len(validity.check(made)) == 20
    assert len(validity.check(made, 25)) == 25
    assert len(validity.check(made, 50)) == 30
    with pytest.raises(ProgramError, match="and 19 more"):
        validity.require(made)


def test_a_violation_without_a_place_says_only_what_is_broken() -> None:
    broken = Violation("cost", "8 B sent, declared 4 B")
    assert str(broken) == "cost: 8 B sent, declared 4 B"
    assert broken.place() == (("rank", -1), ("step", -1), ("chunk", -1))
    assert broken.severity == "error"


# ------------------------------------------------------------------------------------------------------------- workloads
def told_of_mesh(ranks: int, micro_batches: int = 1) -> list[str]:
    made = Workload(
        "large", Mesh((("dp", ranks),)), (RankClass("all"),), (Task("a", "all", "F", 1.0),), micro_batches=micro_batches
    )
    return [f"{each.message}; {each.remedy}" for each in workload_parts.mesh(made)]


def test_a_mesh_has_up_to_four_million_ranks() -> None:
    assert told_of_mesh(4_194_304) == []
    assert told_of_mesh(4_194_305) == ["4,194,305 ranks; at most 4,194,304"]


def test_a_step_has_up_to_a_million_micro_batches() -> None:
    assert told_of_mesh(1, 1_048_576) == []
    assert told_of_mesh(1, 1_048_577) == ["1048577 micro-batches a step; 1 to 1,048,576"]
