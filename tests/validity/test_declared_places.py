"""Where a declared order goes wrong is said to the thread block and the chunk, and what a switch touches counts at every member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from declared_programs import put, step, xml
from ringwright.formats.sources.programs.program_files import read_program
from ringwright.model import validity
from ringwright.model.threadblocks import Blocks, Code, Opcode, Schedule
from ringwright.model.validity import declared

INPUT, OUTPUT, SCRATCH = range(3)  # buffers; each rank has two chunks of each
Instruction = tuple[Opcode, tuple[int, int], tuple[int, int]]  # kind, source, target; each a buffer and a chunk


def side_by_side(*instructions: tuple[int, Instruction], group: int = INPUT) -> Schedule:
    """Return a schedule in which each instruction has a thread block of its own: (rank, instruction); nothing is ordered."""
    ranks = 1 + max(rank for rank, _ in instructions)
    rows = [
        [number, 0, kind, *src, *dst, 1, -1, 0, 0 if kind >= Opcode.LOAD else -1, -1, 0]
        for number, (_, (kind, src, dst)) in enumerate(instructions)
    ]
    return Schedule(
        Blocks.of([(rank, number, -1, -1, 0) for number, (rank, _) in enumerate(instructions)]),
        Code.of(rows),
        np.tile(np.array([0, 2, 4]), (ranks, 1)),
        np.full((ranks, 3), 2),
        1,
        groups=((tuple(range(ranks)), group),),
    )


def copy(src: tuple[int, int], dst: tuple[int, int]) -> Instruction:
    return Opcode.CPY, src, dst


@pytest.mark.parametrize(
    ("kind", "group", "other", "is_race"),
    [
        (Opcode.LOAD, INPUT, copy((SCRATCH, 0), (INPUT, 0)), True),
        (Opcode.LOAD, INPUT, copy((INPUT, 0), (SCRATCH, 0)), False),
        (Opcode.LOAD, INPUT, copy((SCRATCH, 0), (INPUT, 1)), False),
        (Opcode.LOAD, INPUT, copy((SCRATCH, 0), (OUTPUT, 1)), False),
        (Opcode.STORE, OUTPUT, copy((OUTPUT, 1), (SCRATCH, 0)), True),
        (Opcode.STORE, OUTPUT, copy((SCRATCH, 0), (INPUT, 0)), False),
        (Opcode.STORE, OUTPUT, copy((OUTPUT, 0), (SCRATCH, 0)), False),
        (Opcode.LOAD_STORE, INPUT, copy((SCRATCH, 0), (INPUT, 0)), True),
        (Opcode.LOAD_STORE, INPUT, copy((INPUT, 1), (SCRATCH, 0)), True),
        (Opcode.LOAD_STORE, INPUT, copy((INPUT, 0), (SCRATCH, 0)), False),
    ],
)
def test_a_switch_reads_and_writes_at_every_member(
    kind: Opcode, group: int, other: Instruction, *, is_race: bool
) -> None:
    """Rank 0 asks the switch, with chunk 0 as source and chunk 1 as target; rank 1 touches its own memory at the same time."""
    order = declared.check_order(side_by_side((0, (kind, (INPUT, 0), (OUTPUT, 1))), (1, other), group=group))
    assert [(each.rule, each.severity) for each in order] == [("race", "warning")] * is_race


def test_an_undefined_read_is_told_of_the_thread_block_that_does_it(tmp_path: Path) -> None:
    """Both thread blocks run at once; the first reads the chunk just before the one that nobody wrote."""
    first, second = [(-1, -1, [step("cpy", "i1", "s1")])], [(-1, -1, [step("cpy", "s0", "i0")])]
    found = validity.check(read_program(put(tmp_path, xml([[*first, *second]], coll="custom"))))
    assert [(each.rule, each.rank, each.step, each.chunk) for each in found] == [("undefined", 0, 0, 0)]
    assert found[0].message.startswith("thread block 1: ")
    assert found[0].message.endswith("(buffer s)")


def test_races_are_looked_for_in_rounds_that_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine thread blocks write one chunk, each with no order to the next: the same is found however few clocks are kept."""
    schedule = side_by_side(*[(0, copy((INPUT, 0), (SCRATCH, 0)))] * 9)
    kept: list[int] = []
    clocks = declared._clocks

    def counting(*given: Any) -> np.ndarray:
        made = clocks(*given)
        kept.append(made.size)
        return made

    monkeypatch.setattr(declared, "_clocks", counting)
    whole = declared.check_order(schedule)
    assert kept == [9 * 8]  # all that come before another at once: it is little
    kept.clear()
    monkeypatch.setattr(declared, "MOST_CLOCKS", 9 * 3)
    assert declared.check_order(schedule) == whole
    assert kept == [27, 27, 18]
    kept.clear()
    monkeypatch.setattr(declared, "MOST_CLOCKS", 1)
    assert declared.check_order(schedule) == whole
    assert kept == [9] * 8


def test_an_error_of_the_order_is_told_once_with_doubts_or_without(tmp_path: Path) -> None:
    """Both ranks receive before they send: a deadlock, and nothing that is only doubtful."""
    waiting = [(1, 1, [step("r", "i0", "s0"), step("s", "i0")])], [(0, 0, [step("r", "i0", "s0"), step("s", "i0")])]
    made = read_program(put(tmp_path, xml([*waiting], coll="custom")))
    errors = validity.check(made)
    assert {each.rule for each in errors} == {"deadlock"}
    assert validity.check(made, warnings=True) == errors


def test_of_many_that_are_stuck_twenty_are_told(tmp_path: Path) -> None:
    """A circle of ranks, each of which receives before it sends; each gives the one that it waits for."""
    many = 25
    circle = [
        [((rank + 1) % many, (rank - 1) % many, [step("r", "i0", "s0"), step("s", "i0")])] for rank in range(many)
    ]
    schedule = read_program(put(tmp_path, xml(circle, coll="custom"))).schedule
    assert isinstance(schedule, Schedule)
    told = declared.check_order(schedule, 30)
    assert [(each.rule, each.rank, each.step) for each in told] == [("deadlock", rank, 0) for rank in range(20)]
    assert told[1].message == "thread block 0: waits for the message of rank 0, thread block 0, step 1"
    assert len(declared.check_order(schedule)) == 20
    assert len(declared.check_order(schedule, 3)) == 3


def test_of_many_races_twenty_are_told_unless_more_are_asked_for() -> None:
    schedule = side_by_side(*[(0, copy((INPUT, 0), (SCRATCH, 0)))] * 31)
    assert len(declared.check_order(schedule)) == 20
    assert len(declared.check_order(schedule, 25)) == 25
    assert len(declared.check_order(schedule, 50)) == 30
