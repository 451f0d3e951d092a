"""The compiler of the language: fusion, instances, order and hints change nothing of what a script means."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringwright.algorithms.language import ChunkScript, compile_script, compiled
from ringwright.algorithms.language.script import WIDTH
from ringwright.ground.errors import ProgramError, UsageError
from ringwright.model import interpreter
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.threadblocks import Opcode, Schedule
from ringwright.model.threadblocks.msccl import DEPTH
from ringwright.model.validity.declared import check_order

pytestmark = pytest.mark.once
ELEMENTS = 2  # a chunk of an instance


def kinds(program: Program) -> list[str]:
    """Return what the instructions do, in the order of the thread blocks."""
    assert isinstance(program.schedule, Schedule)
    return [Opcode(kind).name for kind in program.schedule.code.kind.tolist()]


def vectors(p: int, chunks: int) -> Collective:
    return Collective("all-reduce", range(p), 4 * ELEMENTS * chunks, in_place=True)


def written(seed: int, p: int, chunks: int, instances: int) -> ChunkScript:
    """Return a script of random lines: copies and sums within and between ranks, to scratch and back, of several chunks."""
    draw = random.Random(seed)
    script = ChunkScript(vectors(p, chunks * instances), chunks=chunks)
    lengths = [0] * p
    for _ in range(draw.randrange(1, 40)):
        rank, count = draw.randrange(p), draw.choice((1, 1, 1, 2, 3))
        count = min(count, chunks)
        channel = draw.choice((-1, -1, -1, 0, 1))
        if lengths[rank] >= count and draw.random() < 0.3:
            ref = script.chunk(rank, "aside", draw.randrange(lengths[rank] - count + 1), count)
        else:
            ref = script.chunk(rank, "input", draw.randrange(chunks - count + 1), count)
        to, at = draw.randrange(p), draw.randrange(chunks - count + 1)
        overlaps = to == rank and ref.buffer == "input"
        if draw.random() < 0.25:
            ref.copy(to, "aside", channel=channel)
            lengths[to] += count
        elif not overlaps and draw.random() < 0.5:
            script.chunk(to, "input", at, count).reduce(ref, channel=channel)
        elif not overlaps:
            ref.copy(to, "input", at, channel=channel)
    return script


def replayed(script: ChunkScript, data: list[np.ndarray]) -> list[np.ndarray]:
    """Return what the inputs hold after the lines of a script, one after the other; ``data`` are (chunks, elements) each."""
    state = [[each.copy(), np.zeros((0, 0)), np.zeros((200, each.shape[1]), np.int64)] for each in data]
    for adds, src, a, i, dst, b, j, n, *_ in np.array(script.log).reshape(-1, WIDTH).tolist():
        values = state[src][min(a, 2)][i : i + n].copy()
        target = state[dst][min(b, 2)]
        target[j : j + n] = target[j : j + n] + values if adds else values
    return [buffers[0] for buffers in state]


def run(program: Program, data: list[np.ndarray]) -> list[np.ndarray]:
    return [held[0] for held in interpreter.run(program, [{0: each} for each in data])]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 5), st.integers(1, 5), st.sampled_from(sorted(DEPTH)))
def test_fusion_never_changes_a_result(seed: int, p: int, chunks: int, protocol: str) -> None:
    script = written(seed, p, chunks, 1)
    data = [np.random.default_rng(rank).integers(1, 1000, (chunks, ELEMENTS)) for rank in range(p)]
    wanted = replayed(script, data)
    for fuse in (True, False):
        program = compile_script(script, protocol=protocol, fuse=fuse, checked=False)
        assert isinstance(program.schedule, Schedule)
        assert [each for each in check_order(program.schedule) if each.severity == "error"] == []
        for ours, theirs in zip(run(program, [each.reshape(-1) for each in data]), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs.reshape(-1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 4), st.integers(1, 4), st.integers(2, 4), st.booleans())
def test_instances_do_what_one_does(seed: int, p: int, chunks: int, instances: int, interleaved: bool) -> None:
    script = written(seed, p, chunks, instances)
    program = compile_script(script, instances=instances, interleaved=interleaved, checked=False)
    assert isinstance(program.schedule, Schedule)
    assert [each for each in check_order(program.schedule) if each.severity == "error"] == []
    data = [np.random.default_rng(rank).integers(1, 1000, (instances * chunks, ELEMENTS)) for rank in range(p)]
    # What one instance has of a vector: batched, its chunks lie together; interleaved, they take turns. Here each is held to
    # a run of that instance by itself.
    own = range(instances * chunks)
    unit = _unit(script, chunks) if interleaved else chunks
    for instance in range(instances):
        mine = [at for at in own if at // unit % instances == instance]
        wanted = replayed(script, [each[mine] for each in data])
        got = run(program, [each.reshape(-1) for each in data])
        for ours, theirs in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(ours.reshape(-1, ELEMENTS)[mine], theirs)


def _unit(script: ChunkScript, chunks: int) -> int:
    rows = np.array(script.log).reshape(-1, WIDTH)
    named = [rows[rows[:, side] == 0][:, [side + 1, 7]].reshape(-1) for side in (2, 5)]
    return int(np.gcd.reduce([chunks, *np.concatenate(named).tolist()]))


# -------------------------------------------------------------------------------------------------------------- fusion
def line_of(p: int, adds: bool, over: bool = False) -> Program:
    """Return a program that hands a chunk from rank to rank, adding on each; ``over``: the last copies its own to all."""
    script = ChunkScript(vectors(p, 1), chunks=1)
    ref = script.chunk(0)
    for rank in range(1, p):
        ref = script.chunk(rank).reduce(ref) if adds else ref.copy(rank, "input", 0)
    for rank in range(p - 1) if over else ():
        ref = ref.copy(rank, "input", 0)
    return compile_script(script, checked=False)


def test_what_is_received_and_sent_on_is_one_instruction() -> None:
    assert kinds(line_of(4, adds=False)) == ["S", "RCS", "RCS", "R"]
    assert kinds(line_of(4, adds=True)) == ["S", "RRCS", "RRCS", "RRC"]


def test_a_sum_that_is_overwritten_is_not_stored() -> None:
    fused = line_of(3, adds=True, over=True)
    assert sorted(kinds(fused)) == ["R", "RCS", "RRCS", "RRS", "S"]
    script = ChunkScript(vectors(3, 1), chunks=1)
    script.chunk(1).reduce(script.chunk(0)).copy(2, "input", 0)  # nothing overwrites it
    assert kinds(compile_script(script, checked=False)) == ["S", "RRCS", "R"]


def test_without_fusion_every_end_is_an_instruction() -> None:
    script = ChunkScript(vectors(3, 1), chunks=1)
    script.chunk(1).reduce(script.chunk(0)).copy(2, "input", 0)
    assert kinds(compile_script(script, fuse=False, checked=False)) == ["S", "RRC", "S", "R"]


# --------------------------------------------------------------------------------------------------- hints and channels
def hinted(**hints: int) -> Program:
    script = ChunkScript(vectors(3, 2), chunks=2)
    script.chunk(0, "input", 0).copy(1, "aside", send_tb=0, recv_tb=0)
    script.chunk(0, "input", 1).copy(2, "aside", **hints)
    return compile_script(script, checked=False)


def test_a_thread_block_has_one_peer_each_way_and_one_channel() -> None:
    with pytest.raises(ProgramError, match="thread block 0 of rank 0 sends to rank 1 already, not 2") as caught:
        hinted(send_tb=0)
    assert caught.value.where.startswith("test_gc3_compiler.py:")
    with pytest.raises(ProgramError, match="thread block 0 of rank 0 sends to rank 1 already"):
        hinted(channel=1, send_tb=0)
    schedule = hinted(send_tb=1).schedule
    assert isinstance(schedule, Schedule)
    assert schedule.blocks.send.tolist() == [1, 2, -1, -1]


def test_flows_that_part_at_a_rank_get_channels_of_their_own() -> None:
    """Rank 1 passes chunk 0 of rank 0 on to 2 and chunk 1 to 3: a thread block has one peer to send to."""

    def write(script: ChunkScript) -> None:
        for index, target in enumerate((2, 3)):
            script.chunk(0, "input", index).copy(1, "input", index).copy(target, "input", index)

    script = ChunkScript(vectors(4, 2), chunks=2)
    write(script)
    program = compile_script(script, checked=False)
    assert kinds(program).count("RCS") == 2
    assert isinstance(program.schedule, Schedule)
    assert sorted(set(program.schedule.blocks.channel.tolist())) == [0, 1]


def test_a_hinted_channel_is_kept_where_that_costs_a_fusion() -> None:
    script = ChunkScript(vectors(4, 2), chunks=2)
    for index, target in enumerate((2, 3)):
        script.chunk(0, "input", index).copy(1, "input", index, channel=5).copy(target, "input", index, channel=5)
    program = compile_script(script, checked=False)
    assert kinds(program).count("RCS") == 1
    assert isinstance(program.schedule, Schedule)
    assert set(program.schedule.blocks.channel.tolist()) == {5}


def test_messages_that_would_overtake_each_other_get_another_channel() -> None:
    """Rank 1 could send its own chunk 1 at once, but rank 2 must take chunk 0 first, which has yet to come from rank 0."""
    script = ChunkScript(vectors(3, 2), chunks=2)
    script.chunk(0, "input", 0).copy(1, "input", 0).copy(2, "input", 0)
    script.chunk(1, "input", 1).copy(2, "input", 0)
    program = compile_script(script, checked=False)
    assert kinds(program).count("RCS") == program.knobs["fused"] == 1
    assert isinstance(program.schedule, Schedule)
    assert sorted(set(program.schedule.blocks.channel.tolist())) == [0, 1]
    assert [each for each in check_order(program.schedule) if each.severity == "error"] == []


def test_more_chunks_than_a_step_carries_are_cut() -> None:
    script = ChunkScript(vectors(2, 150), chunks=150)
    script.chunk(0, "input", 0, 150).copy(1, "aside", 0)
    program = compile_script(script, checked=False)
    assert isinstance(program.schedule, Schedule)
    assert program.schedule.code.count.tolist() == [71, 71, 8] * 2


def test_more_messages_than_a_connection_holds_wait_their_turn() -> None:
    """Ten chunks at once on one connection, of which two are under way at a time, and an answer to each."""

    def write(script: ChunkScript) -> None:
        sent = [script.chunk(0, "input", k).copy(1, "aside") for k in range(10)]
        for k, ref in enumerate(sent):
            script.chunk(1, "input", k).reduce(ref).copy(0, "input", k)

    program = compiled(write, Collective("all-reduce", range(2), 400), chunks=10)
    assert program.collective.p == 2


def test_nonsense_is_refused() -> None:
    script = ChunkScript(vectors(2, 2), chunks=2)
    for refused in ({"protocol": "simple"}, {"instances": 0}, {"instances": 10**9}, {"instances": 1.5}):
        with pytest.raises(UsageError):
            compile_script(script, **refused)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="is not legal: result"):
        compile_script(script)  # it does nothing


def test_the_same_script_is_the_same_program() -> None:
    left, right = (compile_script(written(7, 4, 3, 2), instances=2, checked=False) for _ in range(2))
    assert isinstance(left.schedule, Schedule)
    assert isinstance(right.schedule, Schedule)
    for name in ("block", "kind", "src", "dst", "count", "dep"):
        assert getattr(left.schedule.code, name).tolist() == getattr(right.schedule.code, name).tolist()
