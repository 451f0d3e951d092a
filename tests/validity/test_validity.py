"""What is not legal is refused with rank, step and chunk, and what is legal means what NumPy says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.levels import Levels
from ringwright.ground.errors import ProgramError, UsageError
from ringwright.model import interpreter, validity
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Layout, Op, Program, Step, cut, explicit


def changed(program: Program, steps: list[Step], **fields: object) -> Program:
    return dataclasses.replace(program, make_steps=lambda: steps, n_steps=len(steps), **fields)  # type: ignore[arg-type]


def rules(program: Program) -> set[str]:
    return {found.rule for found in validity.check(program)}


def test_a_contribution_counted_twice() -> None:
    program = ring(Collective("all-reduce", range(4), 1024))
    steps = list(program.steps())
    first = validity.check(changed(program, [*steps[:2], *steps[1:]]))[0]
    assert (first.rule, first.step) == ("double", 2)
    assert "counted twice" in first.message
    assert first.rank >= 0
    assert first.chunk >= 0


def test_a_dropped_chunk_names_rank_and_chunk() -> None:
    program = ring(Collective("all-gather", range(4), 1024))
    steps = list(program.steps())
    block = steps[-1].blocks[0]
    src, dst, chunk, _ = block.arrays()
    keep = dst != 2
    steps[-1] = Step((explicit(Op.SEND, src[keep], dst[keep], chunk[keep]),))
    found = [each for each in validity.check(changed(program, steps)) if each.rule == "result"]
    assert [(each.rank, each.chunk) for each in found] == [(2, int(chunk[~keep][0]))]


def test_a_missing_contribution_is_named() -> None:
    program = ring(Collective("all-reduce", range(3), 999))
    steps = list(program.steps())
    block = steps[0].blocks[0]
    src, dst, chunk, _ = block.arrays()
    steps[0] = Step((explicit(Op.REDUCE, src[1:], dst[1:], chunk[1:]),))
    assert any("lacks the contribution of rank 0" in str(each) for each in validity.check(changed(program, steps)))


def test_a_hierarchical_reduce_scatter_without_its_permutation() -> None:
    """Each rank ends with a finished block, but of another rank: the blocks follow the digits, not the ranks."""
    collective = Collective("reduce-scatter", range(6), 6 * 60 * 4)
    right = Levels(collective, [2, 3], [ring, ring]).program("two-levels")
    assert not validity.check(right)
    wrong = dataclasses.replace(
        right, layout=Layout(right.layout.n_chunks, right.layout.chunk_bytes, right.layout.parts)
    )
    found = validity.check(wrong)
    assert {each.rule for each in found} == {"result"}
    assert all(each.rank >= 0 and each.chunk >= 0 for each in found)


def test_reading_what_is_not_there() -> None:
    program = ring(Collective("all-gather", range(4), 1024))
    steps = list(program.steps())
    first = validity.check(changed(program, steps[::-1]))[0]
    assert (first.rule, first.step) == ("undefined", 0)
    with pytest.raises(ProgramError, match="sends what is not there"):
        interpreter.run(changed(program, steps[::-1]), interpreter.inputs(program.collective))


def test_adding_to_what_is_not_there() -> None:
    """A sum needs both of its sides: adding to a slot that nothing was written to is refused, by the interpreter too."""
    collective = Collective("reduce", range(2), 64)
    layout = cut(collective)
    spare = Layout(layout.n_chunks, layout.chunk_bytes, layout.parts, layout.slots + 1)
    steps = [
        Step((explicit(Op.REDUCE, [1], [0], [0], [1]),)),
        Step((explicit(Op.REDUCE, [0], [0], [0], [1]),)),
        Step((explicit(Op.COPY, [0], [0], [1], [0]),)),
    ]
    program = Program("made-up", collective, spare, lambda: steps, 3, Cost((), 64.0))
    first = validity.check(program)[0]
    assert (first.rule, first.message, first.rank, first.step, first.chunk) == (
        "undefined",
        "adds to what is not there",
        0,
        0,
        1,
    )
    with pytest.raises(ProgramError, match="adds to what is not there"):
        interpreter.run(program, interpreter.inputs(collective))
    written = [Step((explicit(Op.SEND, [1], [0], [0], [1]),)), *steps[1:]]
    assert not validity.check(changed(program, written))


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (Step((explicit(Op.SEND, [0, 1], [2, 2], [0, 0]),)), "conflict"),
        (Step((explicit(Op.SEND, [0], [9], [0]),)), "range"),
        (Step((explicit(Op.SEND, [0], [1], [99]),)), "range"),
        (Step((explicit(Op.SEND, [1], [1], [0]),)), "self"),
        (Step((explicit(Op.COPY, [1], [2], [0]),)), "self"),
        (Step((explicit(Op.CONTRIBUTE, [0], [1], [0]),)), "aggregator"),
    ],
)
def test_impossible_moves(step: Step, rule: str) -> None:
    collective = Collective("broadcast", range(3), 64)
    layout = cut(collective)
    full = Layout(layout.n_chunks, layout.chunk_bytes, before=((np.array([0]), np.array([0])),) * 3)
    program = Program("made-up", collective, full, lambda: [step], 1, Cost((), 64.0))
    assert rule in rules(program)


def test_declared_steps_and_bytes_are_held_to() -> None:
    program = ring(Collective("all-gather", range(4), 1024))
    assert rules(dataclasses.replace(program, n_steps=7)) == {"steps"}
    assert rules(dataclasses.replace(program, cost=Cost((), 1.0))) == {"cost"}


def test_an_order_that_does_not_commute() -> None:
    collective = Collective("reduce", range(4), 64, commutative=False)
    in_order = [Step((explicit(Op.REDUCE, [src], [dst], [0]),)) for src, dst in ((1, 0), (3, 2), (2, 0))]
    mixed = [Step((explicit(Op.REDUCE, [src], [0], [0]),)) for src in (2, 1, 3)]
    cost = Cost((), 3 * 64.0)
    assert not validity.check(Program("ordered", collective, cut(collective), lambda: in_order, 3, cost))
    assert rules(Program("mixed", collective, cut(collective), lambda: mixed, 3, cost)) == {"order"}


def test_every_rule_has_a_sentence() -> None:
    assert all(sentence and sentence[0].islower() for sentence in validity.RULES.values())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"op": "all-reduces"}, "not a collective"),
        ({"size_bytes": -1}, "negative size"),
        ({"group": ()}, "empty group"),
        ({"group": (0, 0)}, "each rank once"),
        ({"root": 9}, "root 9"),
        ({"dtype": "float7"}, "not a data type"),
        ({"op": "all-gather", "counts": (1, 2)}, "add up"),
        ({"op": "broadcast", "counts": (1, 2)}, "takes no counts"),
        ({"op": "all-to-all", "counts": ((1, 2),)}, "rows"),
    ],
)
def test_collectives_that_make_no_sense(fields: dict[str, object], words: str) -> None:
    given = {"op": "all-reduce", "group": range(4), "size_bytes": 64, **fields}
    with pytest.raises(UsageError, match=words):
        Collective(**given)  # type: ignore[arg-type]


def test_v_forms_with_empty_entries() -> None:
    collective = Collective("all-gather", (5, 1, 9), 12, counts=(4, 0, 8))
    program = ring(collective)
    assert not validity.check(program)
    given = interpreter.inputs(collective)
    assert [len(values) for values in interpreter.run(program, given)[0].values()] == [1, 0, 2]
