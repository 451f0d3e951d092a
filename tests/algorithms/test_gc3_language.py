"""What a script refuses, and where it says that; aliases, scratch, splitting; seeded deadlocks and races are found."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from declared_programs import assert_result, rules, verdict
from ringwright.algorithms.language import ChunkScript, compile_script, compiled
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.ground.errors import ProgramError, RingwrightError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.threadblocks import Opcode, Schedule
from ringwright.model.threadblocks.msccl import DEPTH
from ringwright.model.validity import check

pytestmark = pytest.mark.once


def script(op: str = "all-reduce", p: int = 4, chunks: int | None = None, **how: bool) -> ChunkScript:
    return ChunkScript(Collective(op, range(p), 4 * 64 * p), chunks=chunks, **how)


def ring(script: ChunkScript) -> None:
    p = script.ranks
    for index in range(script.chunks):
        ref = script.chunk(index % p, "input", index)
        for step in range(1, p):
            ref = script.chunk((index + step) % p, "input", index).reduce(ref)
        for step in range(p - 1):
            ref = ref.copy((index + step) % p, "input", index)


def refused(write: Callable[[], object], match: str) -> RingwrightError:
    """Return the error, which names a line of the function that it came from."""
    with pytest.raises(ProgramError, match=match) as caught:
        write()
    name, line = caught.value.where.split(":")
    lines, first = inspect.getsourcelines(write)
    assert name == Path(__file__).name
    assert first <= int(line) < first + len(lines)
    return caught.value


# ----------------------------------------------------------------------------------------------------------- references
def test_a_stale_reference_is_refused_with_both_lines() -> None:
    def stale() -> None:
        s = script()
        ref = s.chunk(0)
        s.chunk(1).copy(0, "input", 0)
        ref.copy(2, "scratch")

    error = refused(stale, "chunk 0 of input at rank 0 was overwritten at test_gc3_language.py:")
    _, first = inspect.getsourcelines(stale)
    assert error.where == f"{Path(__file__).name}:{first + 4}"
    assert error.what.endswith(f":{first + 3}")


def test_what_was_added_to_is_stale_too() -> None:
    def sums() -> None:
        s = script()
        left, right = s.chunk(0), s.chunk(1)
        left.reduce(right)
        right.reduce(left)

    refused(sums, "chunk 0 of input at rank 0 was overwritten")


def test_a_range_is_stale_when_one_of_its_chunks_is() -> None:
    def part() -> None:
        s = script()
        whole = s.chunk(0, "input", 0, 4)
        s.chunk(1, "input", 3).copy(0, "input", 3)
        whole.split(2)[0].copy(1, "aside")  # not of the half that was overwritten
        whole.split(2)[1].copy(1, "aside")

    assert "chunks 2 to 3" in refused(part, "was overwritten").what


def test_nothing_is_read_before_it_is_there() -> None:
    def scratch() -> None:
        script().chunk(0, "aside")

    def output() -> None:
        script(in_place=False).chunk(0, "output")

    def root() -> None:
        script("broadcast").chunk(1)

    def hole() -> None:
        s = script()
        s.chunk(0).copy(1, "aside", 2)
        s.chunk(1, "aside", 1, 2)

    refused(scratch, "rank 0 has nothing in aside from chunk 0 on")
    refused(output, "rank 0 has nothing in output")
    refused(root, "rank 1 has nothing in input")
    refused(hole, "rank 1 has nothing in aside from chunk 1 on")


def test_nonsense_names_its_line() -> None:
    def rank() -> None:
        script().chunk(4)

    def behind() -> None:
        script().chunk(0, "input", 3, 2)

    def none() -> None:
        script().chunk(0, "input", 0, 0)

    def nowhere() -> None:
        script(in_place=False).chunk(0).copy(1)

    def away() -> None:
        script().chunk(0).copy(-1, "aside")

    def widths() -> None:
        s = script()
        s.chunk(0, "input", 0, 2).reduce(s.chunk(1))

    def sums() -> None:
        s = script("all-to-all")
        s.chunk(0).reduce(s.chunk(1))

    def apart() -> None:
        s = script()
        s.chunk(0, "input", 0).group(s.chunk(0, "input", 2))

    def thirds() -> None:
        script().chunk(0, "input", 0, 4).split(3)

    refused(rank, "no rank 4 among 4")
    refused(behind, "input has 4 chunks, not 3 to 4")
    refused(none, "0 chunks from 0 on are none")
    refused(nowhere, "must say to which chunk")
    refused(away, "no rank -1")
    refused(widths, "cannot be added")
    refused(sums, "an? all-to-all adds nothing up")
    refused(apart, "do not follow each other")
    refused(thirds, "3 equal parts")


def test_what_is_no_number_name_or_reference_names_its_line() -> None:
    def halves() -> None:
        script().chunk(0, "input", 1.0)  # type: ignore[arg-type]

    def unnamed() -> None:
        script().chunk(0).copy(1, None, 0)  # type: ignore[arg-type]

    def number() -> None:
        script().chunk(0).reduce(3)  # type: ignore[arg-type]

    def endless() -> None:
        script().chunk(0).copy(1, "aside", 1 << 40)

    def shifted() -> None:
        script().chunk(0, "input", 0, 2).copy(0, "input", 1)

    refused(halves, "chunk 1.0 and count 1 must be whole numbers")
    refused(unnamed, "None is no name of a buffer")
    refused(number, "3 is no reference")
    refused(endless, "aside cannot have more than")
    refused(shifted, "overlap")


def test_a_script_says_what_it_cannot_be_for() -> None:
    for op, chunks, in_place in (
        ("gather", 4, None),
        ("all-gather", 6, None),
        ("all-to-all", 4, True),
        ("scan", 0, None),
        ("all-reduce", 1 << 40, None),
    ):
        with pytest.raises(UsageError):
            ChunkScript(Collective(op, range(4), 64), chunks=chunks, in_place=in_place)
    with pytest.raises(UsageError):
        ChunkScript(Collective("all-gather", range(2), 12, counts=(4, 8)))


# -------------------------------------------------------------------------------------------------------------- buffers
def test_in_place_input_and_output_are_one_memory() -> None:
    gathered, scattered, reduced = script("all-gather"), script("reduce-scatter"), script("all-reduce")
    for rank in range(4):
        assert gathered.chunk(rank, "input", 0).index == gathered.chunk(rank, "output", rank).index == rank
        assert scattered.chunk(rank, "output", 0).index == scattered.chunk(rank, "input", rank).index == rank
    assert reduced.chunk(1, "output", 3).buffer == "input"
    gathered.chunk(2, "input", 0).copy(2, "output", 2)  # onto itself
    assert len(compile_script(gathered, checked=False).schedule.code) == 0  # type: ignore[union-attr]


def test_scratch_buffers_have_names_and_grow() -> None:
    s = script()
    first, second = s.chunk(0).copy(1, "left"), s.chunk(0, "input", 0, 2).copy(1, "right")
    third = s.chunk(0).copy(1, "left")
    assert [repr(each) for each in (first, second, third)] == [
        "chunk 0 of left at rank 1",
        "chunks 0 to 1 of right at rank 1",
        "chunk 1 of left at rank 1",
    ]
    together = first.group(third)
    assert (together.index, together.count) == (0, 2)
    schedule = compile_script(s, checked=False).schedule
    assert isinstance(schedule, Schedule)
    assert schedule.sizes.tolist() == [[4, 0, 0], [4, 0, 4], [4, 0, 0], [4, 0, 0]]
    received = schedule.code.kind == Opcode.R
    assert sorted(zip(schedule.code.dst[received].tolist(), schedule.code.count[received].tolist(), strict=True)) == [
        (0, 1),
        (1, 1),
        (2, 2),
    ]


@pytest.mark.parametrize("in_place", [True, False])
def test_out_of_place_the_result_is_elsewhere(in_place: bool) -> None:
    def write(s: ChunkScript) -> None:
        ring(s)
        for rank in range(s.ranks):
            s.chunk(rank, "input", 0, s.chunks).copy(rank, "output", 0)

    program = compiled(write, Collective("all-reduce", range(3), 12 * 7), in_place=in_place)
    assert_result(program)
    copies = (program.schedule.code.kind == Opcode.CPY).sum()  # type: ignore[union-attr]
    assert copies == (0 if in_place else 3)


@pytest.mark.parametrize("op", ["scan", "exscan"])
def test_prefix_sums_can_be_written(op: str) -> None:
    def chain(s: ChunkScript) -> None:
        for index in range(s.chunks):
            for rank in range(1, s.ranks):
                before = s.chunk(rank - 1, "input", index)
                s.chunk(rank, "input", index).reduce(before)

    def shifted(s: ChunkScript) -> None:
        for index in range(s.chunks):
            for rank in range(1, s.ranks):
                ref = s.chunk(rank - 1, "input", index).copy(rank, "output", index)
                if rank > 1:
                    ref.reduce(s.chunk(rank - 1, "output", index))

    write = chain if op == "scan" else shifted
    program = compiled(write, Collective(op, range(4), 4 * 30), chunks=3, in_place=op == "scan", instances=2)
    assert_result(program)


# ------------------------------------------------------------------------------------------- deadlocks, races, mismatches
def changed(program: Program, **columns: np.ndarray) -> Program:
    schedule = program.schedule
    assert isinstance(schedule, Schedule)
    code = dataclasses.replace(schedule.code, **columns)
    return dataclasses.replace(program, schedule=Schedule(**{**_fields(schedule), "code": code}))


def _fields(schedule: Schedule) -> dict[str, object]:
    return {field.name: getattr(schedule, field.name) for field in dataclasses.fields(schedule)}


def found_rules(program: Program) -> set[str]:
    return {each.rule for each in check(program)}


def test_a_cycle_across_ranks_is_found() -> None:
    """Both ranks receive first: every rank by itself is in order, which is all that the public tool looks at."""

    def swap(s: ChunkScript) -> None:
        for rank in range(2):
            s.chunk(rank, "input", 0, 2).copy(1 - rank, "output", 0, channel=0, send_tb=0, recv_tb=0)

    program = compiled(swap, Collective("send-recv", range(2), 64), chunks=2)
    schedule = program.schedule
    assert isinstance(schedule, Schedule)
    assert schedule.code.kind.tolist() == [Opcode.S, Opcode.R, Opcode.S, Opcode.R]
    back = np.array([1, 0, 3, 2])
    names = ("kind", "src_buffer", "src", "dst_buffer", "dst", "count")
    locked = changed(program, **{name: getattr(schedule.code, name)[back] for name in names})
    assert found_rules(locked) == {"deadlock"}


def crossed(messages: int) -> list[str]:
    """Return the steps of two ranks that send so many messages each before they take any."""
    sends = [f'type="s" srcbuf="i" srcoff="{k}" dstbuf="i" dstoff="{k}"' for k in range(messages)]
    receives = [f'type="r" srcbuf="s" srcoff="{k}" dstbuf="s" dstoff="{k}"' for k in range(messages)]
    return [f'{each} cnt="1" depid="-1" deps="-1" hasdep="0"/>' for each in (*sends, *receives)]


@pytest.mark.parametrize("protocol", sorted(DEPTH))
def test_more_messages_than_a_fifo_holds_are_found(tmp_path: Path, protocol: str) -> None:
    for messages in (DEPTH[protocol], DEPTH[protocol] + 1):
        steps = crossed(messages)
        text = (
            f'<algo name="x" proto="{protocol}" nchannels="1" nchunksperloop="{messages}" ngpus="2" coll="custom" inplace="1"'
            ' outofplace="0" minBytes="0" maxBytes="0">'
        )
        for rank in range(2):
            text += f'<gpu id="{rank}" i_chunks="{messages}" o_chunks="0" s_chunks="{messages}">'
            text += f'<tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">'
            text += "".join(f'<step s="{s}" {each}' for s, each in enumerate(steps)) + "</tb></gpu>"
        report = verdict(tmp_path, text + "</algo>")
        assert rules(report) == (set() if messages <= DEPTH[protocol] else {"deadlock"})


def test_the_compiler_never_makes_what_locks_up() -> None:
    """The same exchange of many messages, written as a script: sends wait for receives, with any protocol."""

    def exchange(s: ChunkScript) -> None:
        for index in range(s.chunks):
            for rank in range(2):
                s.chunk(rank, "input", index).copy(1 - rank, "output", index, channel=0, send_tb=0, recv_tb=0)

    for protocol in DEPTH:
        assert_result(compiled(exchange, Collective("send-recv", range(2), 4 * 40), chunks=20, protocol=protocol))


def test_a_dependency_that_is_left_out_is_a_race() -> None:
    def through_scratch(s: ChunkScript) -> None:
        for index in range(s.chunks):
            for rank in range(2):
                s.chunk(rank, "input", index).copy(1 - rank, "aside", index, send_tb=0, recv_tb=0)
        for rank in range(2):
            for index in range(s.chunks):
                s.chunk(rank, "input", index).reduce(s.chunk(rank, "aside", index), send_tb=1)

    program = compiled(through_scratch, Collective("all-reduce", range(2), 64))
    schedule = program.schedule
    assert isinstance(schedule, Schedule)
    waiting = np.flatnonzero(schedule.code.dep >= 0)
    assert len(waiting)
    for row in waiting.tolist():
        dep = schedule.code.dep.copy()
        dep[row] = -1
        assert "race" in found_rules(changed(program, dep=dep)), row


def test_what_is_received_twice_or_in_another_order_is_found() -> None:
    program = compiled(ring, Collective("all-reduce", range(3), 36))
    schedule = program.schedule
    assert isinstance(schedule, Schedule)
    kind = schedule.code.kind.copy()
    kind[np.flatnonzero(kind == Opcode.RRCS)[0]] = Opcode.RRC  # it no longer sends
    assert found_rules(changed(program, kind=kind)) == {"match"}
    text = msccl_xml(program).decode()
    assert 'type="rrs"' in text
    assert "deadlock" not in text
