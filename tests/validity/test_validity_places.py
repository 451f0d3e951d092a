"""A finding about a program says exactly where: rank, step and chunk; nothing is off by one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import pytest

from ringwright.ground.errors import ProgramError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, cut, explicit
from ringwright.model.validity.rules import Violation

SEND, REDUCE = Op.SEND, Op.REDUCE
Move = tuple[Op, int, int, int]  # op, source, target, chunk


def program(collective: Collective, steps: Sequence[Sequence[Move]], n_steps: int | None = None) -> Program:
    made = [Step(tuple(explicit(op, [src], [dst], [chunk]) for op, src, dst, chunk in moves)) for moves in steps]
    layout = cut(collective)
    sent = sum(int(layout.bytes_of(chunk)) for moves in steps for _, _, _, chunk in moves)
    return Program(
        "by-hand",
        collective,
        layout,
        lambda: iter(made),
        len(made) if n_steps is None else n_steps,
        Cost((), float(sent)),
    )


BROADCAST = Collective("broadcast", range(3), 12)
PASSED_ON = [[(SEND, 0, 1, 0)], [(SEND, 1, 2, 0)]]


def test_a_legal_program_has_no_violation() -> None:
    assert validity.check(program(BROADCAST, PASSED_ON)) == []


def test_the_number_of_steps_has_no_place() -> None:
    found = validity.check(program(BROADCAST, [*PASSED_ON, []], n_steps=2))
    assert found == [Violation("steps", "3 steps, declared 2", -1, -1, -1, "error")]
    assert str(found[0]) == "steps: 3 steps, declared 2"


def test_what_lacks_has_no_step_and_what_is_too_much_the_step_that_wrote_it_last() -> None:
    found = validity.check(program(BROADCAST, PASSED_ON[:1]))
    assert [(each.rule, each.rank, each.step, each.chunk) for each in found] == [("result", 2, -1, 0)]
    scan = Collective("scan", range(2), 8)
    backwards = program(scan, [[], [(REDUCE, 1, 0, 0), (REDUCE, 0, 1, 0)]])
    strange = [each for each in validity.check(backwards) if "has the contribution" in each.message]
    assert [(each.rank, each.step, each.chunk) for each in strange] == [(0, 1, 0)]
    assert "has the contribution of rank 1" in str(strange[0])


def test_a_result_that_never_arrives_is_told_from_a_wrong_one() -> None:
    gathered = Collective("all-gather", range(2), 16)
    found = validity.check(program(gathered, [[(SEND, 0, 1, 0)]]))
    assert [(each.message, each.rank, each.step) for each in found] == [("chunk 1 never arrives", 0, -1)]
    overwritten = [[(SEND, 0, 1, 0), (SEND, 1, 0, 1)], [(SEND, 1, 0, 0)]]
    assert validity.check(program(gathered, overwritten)) == []
    made = program(gathered, overwritten[:1])
    swapped = [*made.make_steps(), Step((explicit(Op.COPY, [0], [0], [0], [1]),))]
    wrong = dataclasses.replace(made, make_steps=lambda: iter(swapped), n_steps=2)
    found = validity.check(wrong)
    assert [(each.message, each.rank, each.step) for each in found] == [("chunk 1 is not what it should be", 0, 1)]


def test_two_writes_to_one_slot_of_a_later_rank_name_it() -> None:
    gathered = Collective("all-gather", range(3), 24)
    found = validity.check(program(gathered, [[(SEND, 1, 2, 1), (SEND, 1, 2, 1)]]))
    assert [(each.rank, each.step, each.chunk) for each in found if each.rule == "conflict"] == [(2, 0, 1)]


def test_two_writes_to_one_slot_name_it() -> None:
    found = validity.check(program(BROADCAST, [[(SEND, 0, 1, 0), (SEND, 0, 1, 0)], [(SEND, 1, 2, 0)]]))
    assert ("conflict", 1, 0, 0) in [(each.rule, each.rank, each.step, each.chunk) for each in found]


@pytest.mark.parametrize("moves", [[(REDUCE, 2, 0, 0)], [(REDUCE, 0, 2, 0)]], ids=["upwards", "downwards"])
def test_ranks_that_are_ordered_but_not_neighbours_are_refused_where_order_counts(moves: list[Move]) -> None:
    ordered = Collective("all-reduce", range(3), 12, commutative=False)
    found = validity.check(program(ordered, [moves]))
    assert "combines ranks that are not neighbours" in [each.message for each in found]


def test_the_error_of_an_illegal_program_names_the_first_place_and_counts_the_rest() -> None:
    with pytest.raises(ProgramError) as refused:
        validity.require(program(BROADCAST, PASSED_ON[:1]))
    assert " more" not in refused.value.what
    assert refused.value.where == "rank 2, chunk 0"
    with pytest.raises(ProgramError) as refused:
        validity.require(program(BROADCAST, [[]]))
    assert refused.value.what.endswith(" and 1 more")


@pytest.mark.parametrize(("op", "what"), [("all-gather", "input"), ("gather", "input"), ("all-to-all", "input")])
def test_a_layout_with_too_few_slots_is_told(op: str, what: str) -> None:
    """A layout for one chunk cannot hold the blocks of another collective: a broken rule, not a bug of ours."""
    wanted = Collective(op, range(4), 4000)
    made = Program("short", wanted, cut(Collective("broadcast", range(4), 4000), 1), lambda: iter(()), 0, Cost((), 0.0))
    (first, *_) = validity.check(made)
    assert (first.rule, first.rank >= 0) == ("range", True)
    assert re.search(rf"its ({what}|result) reaches slot \d+, the layout has \d+", first.message)
