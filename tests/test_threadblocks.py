"""Declared order: messages of thread blocks, room in FIFOs, races, and the same time as the order that data give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declared_programs import MSCCL, MSCCLPP, assert_result, put, rules, step, verdict, xml
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines import events, flat
from ringwright.engines.machine import machine
from ringwright.formats.exports.threadblocks import scheduled
from ringwright.formats.sources.programs.program_files import read_program, verify_file
from ringwright.ground.errors import ProgramError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit, nothing
from ringwright.model.threadblocks import Schedule
from ringwright.model.threadblocks.timing import message_numbers
from ringwright.model.topology import Topology
from shared_data import needs_shared_data, real
from small_fabrics import full

SAMPLES = [f"real/msccl-xml/{name}.xml" for name in MSCCL] + [f"real/mscclpp-json/{name}.json" for name in MSCCLPP]


def time_ps(program: Program, topology: Topology) -> int:
    on = machine(topology)
    return events.run(flat.flatten(program, on), on, native=False).time_ps


def spread(kind: str, p: int, parts: int) -> Program:
    """Every rank sends all others its contribution (all-to-all) or its whole vector, to be added (all-reduce)."""
    pairs = [(a, b) for a in range(p) for b in range(p) if a != b]
    src, dst = (np.repeat(np.array(column), parts) for column in zip(*pairs, strict=True))
    inner = np.tile(np.arange(parts), len(pairs))
    collective = Collective(kind, range(p), p * parts * 4)
    chunk = (src * p + dst) * parts + inner if kind == "all-to-all" else inner
    block = explicit(Op.SEND if kind == "all-to-all" else Op.REDUCE, src, dst, chunk)
    size = collective.size_bytes * ((p - 1) if kind == "all-to-all" else p * (p - 1))
    cost = Cost((Term(1, 1),), size)
    return Program("spread", collective, cut(collective, parts), lambda: [Step((block,))], 1, cost)


# ------------------------------------------------------------------------------------------------------------ messages
@needs_shared_data
@pytest.mark.parametrize("name", SAMPLES)
def test_messages_are_numbered_as_engines_number_them(name: str) -> None:
    program = read_program(real(name))
    assert isinstance(program.schedule, Schedule)
    pieces = flat.gather(program)
    moves = program.schedule.moves
    owner, count = message_numbers(moves, program.n_nodes)
    assert count == len(pieces.src)
    np.testing.assert_array_equal(np.repeat(owner, moves.span), pieces.message)
    before, after, joins = program.schedule.edges()
    assert min(before.min(), after.min()) >= 0
    assert max(before.max(), after.max()) < count + joins


@pytest.mark.parametrize("op", ["all-reduce", "reduce-scatter", "all-gather"])
@pytest.mark.parametrize(("p", "channels"), [(2, 1), (3, 2), (8, 1), (8, 2)])
@pytest.mark.parametrize("reduce_rate", [float("inf"), 3e10])
def test_a_scheduled_ring_takes_as_long_as_the_ring(op: str, p: int, channels: int, reduce_rate: float) -> None:
    import dataclasses

    program = ring(Collective(op, range(p), p * channels * 65536), channels=channels)
    fabric = dataclasses.replace(full(p), reduce_rate=reduce_rate)
    assert time_ps(scheduled(program, protocol="LL"), fabric) == time_ps(program, fabric)


@pytest.mark.parametrize("kind", ["all-to-all", "all-reduce"])
def test_thread_blocks_do_not_wait_for_each_other_without_need(kind: str) -> None:
    program = spread(kind, 4, 1)
    declared = scheduled(program, protocol="LL")
    assert time_ps(declared, full(4)) == time_ps(program, full(4))


@given(
    st.integers(2, 5),
    st.integers(1, 5),
    st.sampled_from(["all-to-all", "all-reduce"]),
    st.sampled_from(["Simple", "LL"]),
)
def test_any_spread_can_be_scheduled_and_is_right(p: int, parts: int, kind: str, protocol: str) -> None:
    try:
        declared = scheduled(spread(kind, p, parts), protocol=protocol)
    except ProgramError:  # crosswise waits beyond the depth of a FIFO: refused, not repaired
        assert protocol == "Simple"
        return
    assert not validity.check(declared)
    assert_result(declared)


def test_a_group_of_one_is_scheduled_as_nothing() -> None:
    declared = scheduled(nothing("ring", Collective("all-reduce", range(1), 64)))
    assert isinstance(declared.schedule, Schedule)
    assert len(declared.schedule.code) == 0
    assert not validity.check(declared)
    assert_result(declared)


# ---------------------------------------------------------------------------------------------------------- by hand
def both(steps: list[str], others: list[str]) -> str:
    return xml([[(1, 1, steps)], [(0, 0, others)]])


EXCHANGE = [step("s", "i0"), step("s", "i1"), step("rrc", "i0", "i0"), step("rrc", "i1", "i1")]


def test_an_exchange_of_two_messages_fits_a_fifo_of_two(tmp_path: Path) -> None:
    path = put(tmp_path, both(EXCHANGE, EXCHANGE))
    program = read_program(path)
    assert not validity.check(program)
    assert_result(program)
    doubts = validity.check(program, warnings=True)
    assert [(each.rule, each.severity) for each in doubts] == [("deadlock", "warning")]


def test_a_third_message_does_not_fit(tmp_path: Path) -> None:
    more = [*EXCHANGE[:2], step("s", "i0"), *EXCHANGE[2:], step("r", "i0", "s0")]
    found = validity.check(read_program(put(tmp_path, both(more, more))))
    assert {each.rule for each in found} == {"deadlock"}
    assert {(each.rank, each.step) for each in found} == {(0, 2), (1, 2)}
    assert "waits for room for message 3" in found[0].message
    assert not validity.check(read_program(put(tmp_path, both(more, more).replace("Simple", "LL"))))


def test_what_is_sent_may_be_overwritten_before_it_arrives(tmp_path: Path) -> None:
    """A send is over when its message is in the FIFO; the receiver gets what was sent, not what came later."""
    first = [step("s", "i0"), step("s", "i1"), step("cpy", "i1", "i0"), step("r", "i0", "i0"), step("r", "i1", "i1")]
    other = [step("rrc", "i0", "i0"), step("rrc", "i1", "i1"), step("s", "i0"), step("s", "i1")]
    program = read_program(put(tmp_path, both(first, other)))
    assert not validity.check(program)
    assert_result(program)


@pytest.mark.parametrize(
    ("steps", "others", "rule"),
    [
        (EXCHANGE, EXCHANGE[:3], "match"),
        (EXCHANGE, [*EXCHANGE, step("s", "i0")], "match"),
        (EXCHANGE, [*EXCHANGE[:3], step("rrc", "i0", "i0", cnt=2)], "match"),
        ([step("s", "i0", cnt=2), *EXCHANGE[2:]], EXCHANGE, "match"),
        (EXCHANGE[2:] + EXCHANGE[:2], EXCHANGE[2:] + EXCHANGE[:2], "deadlock"),
        (EXCHANGE, [EXCHANGE[1], EXCHANGE[0], *EXCHANGE[2:]], "result"),
        (EXCHANGE, [*EXCHANGE[:3], step("rrc", "i0", "i1")], "result"),
        ([step("s", "s0"), *EXCHANGE[1:]], EXCHANGE, "undefined"),
        ([*EXCHANGE, step("re", "i0", "s0")], EXCHANGE, "undefined"),
        ([*EXCHANGE[:2], step("rrc", "i0", "i0"), step("r", "i1", "i1")], EXCHANGE, "result"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, steps: list[str], others: list[str], rule: str) -> None:
    report = verdict(tmp_path, both(steps, others))
    assert report["errors"][0]["rule"] == rule, report
    assert rules(report) <= {rule, "result"}
    assert all(error["rank"] is not None for error in report["errors"])
    assert not report["valid"]


@needs_shared_data
def test_a_local_sum_into_a_buffer_never_written_is_refused() -> None:
    """MSCCL's ``re`` adds to its target; one that nothing was written to holds whatever memory held."""
    report = verify_file(real("regressions/adds-into-nothing.xml"))
    first = report["errors"][0]
    assert (first["rule"], first["rank"], first["step"], first["chunk"]) == ("undefined", 0, 2, 0)
    assert not report["valid"]


def test_a_contribution_counted_twice(tmp_path: Path) -> None:
    steps = [
        step("s", "i0", cnt=2),
        step("s", "i0", cnt=2),
        step("rrc", "i0", "i0", cnt=2),
        step("rrc", "i0", "i0", cnt=2),
    ]
    report = verdict(tmp_path, both(steps, steps))
    first = report["errors"][0]
    assert (first["rule"], first["code"]) == ("double", "V12")
    assert first["rank"] in (0, 1)


def test_races_need_an_order(tmp_path: Path) -> None:
    """Sums into one chunk from two thread blocks are a race without a dependency, and right with one."""

    def three(dep: tuple[int, int], has: int) -> str:
        hub = [(-1, 1, [step("rrc", "i0", "i0", has=has)]), (-1, 2, [step("rrc", "i0", "i0", dep=dep)])]
        spokes = [[(0, -1, [step("s", "i0")])], [(0, -1, [step("s", "i0")])]]
        return xml([hub, *spokes], chunks=1, coll="reduce")

    report = verdict(tmp_path, three((-1, -1), 0))
    assert rules(report) == {"race"}
    first = report["errors"][0]
    assert (first["rank"], first["step"], first["chunk"]) == (0, 0, 0)
    assert "no order between this and rank 0, thread block" in first["message"]
    assert verdict(tmp_path, three((0, 0), 1))["valid"]


def test_a_full_fifo_is_no_order(tmp_path: Path) -> None:
    """That a third send had to wait for a receive says nothing about who touches a chunk first."""
    sender = [(1, -1, [step("s", "i0"), step("s", "i0"), step("s", "i0")]), (-1, 1, [step("r", "i0", "i1")])]
    receiver = [(-1, 0, [step("r", "i0", "s0")] * 3), (0, -1, [step("s", "i1")])]
    assert rules(verdict(tmp_path, xml([sender, receiver], coll="custom"))) == set()
    sender[0][2].append(step("cpy", "i1", "s1"))
    assert rules(verdict(tmp_path, xml([sender, receiver], coll="custom"))) == {"race"}


def test_two_thread_blocks_on_one_connection(tmp_path: Path) -> None:
    twice = xml([[(1, -1, [step("s")]), (1, -1, [step("s")])], [(-1, 0, [step("r"), step("r")])]], coll="custom")
    report = verdict(tmp_path, twice)
    assert rules(report) == {"match"}
    assert "where thread block 0 does" in report["errors"][0]["message"]


def test_engines_see_a_shallow_fifo(tmp_path: Path) -> None:
    """With room for two messages, the third waits until the first has been taken out, which waits for something slow."""
    slow = [(1, -1, [step("s", "i0")] * 3)]
    busy = [
        (-1, 0, [step("r", "i0", "s0", dep=(1, 0)), step("r", "i0", "s0"), step("r", "i0", "s0")]),
        (-1, 2, [step("r", "i1", "s1", cnt=1, has=1)]),
    ]
    late = [(1, 3, [step("rcs", "i1", "s1")])]
    last = [(2, -1, [step("s", "i1")])]
    text = xml([slow, busy, late, last], coll="custom")
    simple, deep = (time_ps(read_program(put(tmp_path, t)), full(4)) for t in (text, text.replace("Simple", "LL")))
    assert simple > deep
