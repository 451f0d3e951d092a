"""The moves at aggregating nodes, those of many blocks together, are those that one by one would be counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from ringwright.model.collective import Collective
from ringwright.model.program import Affine, Block, Cost, Layout, Op, Program, Step, constant, turn
from ringwright.model.validity import node_moves as module
from ringwright.model.validity.node_moves import AT_NODES, node_moves

pytestmark = pytest.mark.once
P, NODES, SLOTS = 4, 7, 24
LAYOUT = Layout(12, np.array([8, 4, 12]), n_slots=SLOTS)


def one_by_one(program: Program) -> tuple[Counter[tuple[int, ...]], set[tuple[int, ...]], set[tuple[int, int, int]]]:
    """Return the bytes of each operation, source, target and channel, those that are copied, and the places used."""
    size, copied, places = Counter[tuple[int, ...]](), set(), set()
    blocks = [block for step in program.steps() for block in step.blocks if block.op in AT_NODES and block.count]
    for block in blocks:
        for src, dst, chunk, to in zip(*(each.tolist() for each in block.arrays()), strict=True):
            row = (int(block.op), src, dst, block.channel)
            slots = range(chunk, chunk + block.span)
            size[row] += sum(int(program.layout.bytes_of(np.array([slot]))[0]) for slot in slots)
            copied |= {row} if block.multicast else set()
            for node, first in ((src, chunk), (dst, to)):
                places |= {(node, block.channel, first + i) for i in range(block.span) if node >= P}
    return size, copied, places


def some_program(seed: int) -> Program:
    """Return a program of many blocks over few lists of ends, in all the forms that numbers have."""
    draw = np.random.default_rng(seed)
    lists = [(draw.integers(0, NODES, 5), draw.integers(0, NODES, 5)) for _ in range(3)]
    ends: list[tuple[Affine | np.ndarray, Affine | np.ndarray]] = [
        *lists,
        (turn(5), constant(P)),
        (constant(P), turn(5)),
    ]
    slots = [constant(3), constant(7), turn(5, 2), Affine(((2, 1, 7, 2),), 1)]

    def slot() -> Affine | np.ndarray:
        return slots[draw.integers(4)] if draw.random() < 0.7 else draw.integers(0, SLOTS - 3, 5)

    def block() -> Block:
        src, dst = ends[draw.integers(len(ends))]
        op, to = Op(int(draw.integers(len(Op)))), slot() if draw.random() < 0.5 else None
        span, channel = (int(each) for each in draw.integers(1, 4, 2))
        return Block(op, (5,), src, dst, slot(), to, span, channel, multicast=bool(draw.random() < 0.3))

    steps = [Step(tuple(block() for _ in range(4))) for _ in range(30)]
    steps.append(Step((replace(steps[0].blocks[0], shape=(0,)),)))  # of no move
    collective = Collective("all-reduce", range(P), 96)
    return Program("some", collective, LAYOUT, lambda: steps, len(steps), Cost((), 0.0), aggregators=(4, 5, 6))


@pytest.mark.parametrize("batch", [1, 40, 1 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_together_are_the_moves_one_by_one(seed: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", batch)
    program = some_program(seed)
    moves, (size, copied, places) = node_moves(program), one_by_one(program)
    rows = list(zip(*(each.tolist() for each in (moves.op, moves.src, moves.dst, moves.channel)), strict=True))
    assert dict(zip(rows, moves.size_bytes.tolist(), strict=True)) == size
    assert {row for row, many in zip(rows, moves.copied.tolist(), strict=True) if many} == copied
    assert [tuple(each) for each in moves.places.tolist()] == sorted(places, key=lambda at: (at[1], at[0], at[2]))
    assert {getattr(moves, each.name).dtype for each in fields(moves)} == {np.dtype(np.int64), np.dtype(bool)}


def test_a_list_is_looked_at_once_however_many_blocks_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Block] = []
    made = module._List

    def noted(block: Block, *more: Any) -> module._List:
        looked.append(block)
        return made(block, *more)

    monkeypatch.setattr(module, "_List", noted)
    src, dst = np.arange(P), np.full(P, P)
    steps = [
        Step((Block(Op.CONTRIBUTE, (P,), src, dst, constant(turn % 6), constant(turn % 2)),)) for turn in range(12)
    ]
    program = replace(some_program(0), make_steps=lambda: steps, n_steps=12)
    moves = node_moves(program)
    assert len(looked) == 1
    assert moves.size_bytes.tolist() == [12 * 8] * P
    assert moves.places.tolist() == [[P, 0, 0], [P, 0, 1]]
