"""gc3: its programs are right with every protocol, come back from their files, and run on real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from declared_programs import assert_result, assert_same_lanes, put
from ringwright.algorithms.language import ChunkScript, compile_script
from ringwright.algorithms.synthesis.gc3 import _DOES, gc3
from ringwright.execute import batch, check
from ringwright.execute.executors import executor
from ringwright.fabrics import fabric
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.formats.exports.mscclpp_json import mscclpp_json
from ringwright.formats.sources.programs.msccl_xml import read_msccl_xml
from ringwright.formats.sources.programs.program_files import read_program
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.threadblocks import Opcode, Schedule
from ringwright.model.threadblocks.msccl import DEPTH
from ringwright.model.validity import check as violations

pytestmark = pytest.mark.once

EVERY = [(name, op) for name, does in _DOES.items() for op in does]
# As in the published examples; what the public tool makes of them, nops included.
UPSTREAM = {"ring": 960, "all-pairs": 5344, "hierarchical": 544, "three-step": 2208, "ring of 64": 8128}


def made(name: str, op: str, p: int = 4, **knobs: Any) -> Program:
    return gc3(Collective(op, range(p), 4 * 24 * p * p), program=name, node=2, **knobs)  # type: ignore[arg-type]


def steps(program: Program) -> int:
    assert isinstance(program.schedule, Schedule)
    return len(program.schedule.code)


@pytest.mark.sampled(8, "*")
@pytest.mark.parametrize(("name", "op"), EVERY)
def test_every_program_is_right_with_every_protocol(name: str, op: str) -> None:
    for protocol in DEPTH:
        for fusion in (True, False):
            program = made(name, op, 8, protocol=protocol, fusion=fusion, channels=2)
            assert violations(program) == []
            assert_result(program)
        assert_result(made(name, op, 4, protocol=protocol, instances=2))


@pytest.mark.sampled(12, "*")
@pytest.mark.parametrize(("name", "op"), EVERY)
@pytest.mark.parametrize("knobs", [{}, {"instances": 2, "channels": 2, "protocol": "LL128"}], ids=["plain", "knobs"])
def test_files_come_back(tmp_path: Path, name: str, op: str, knobs: dict[str, Any]) -> None:
    program = made(name, op, **knobs)
    again = read_msccl_xml(put(tmp_path, text := msccl_xml(program)), size_bytes=_whole(program))
    assert msccl_xml(again) == text
    assert isinstance(again.schedule, Schedule)
    assert isinstance(program.schedule, Schedule)
    for field in ("block", "step", "kind", "src_buffer", "src", "dst_buffer", "dst", "count", "dep", "has_dep"):
        np.testing.assert_array_equal(getattr(again.schedule.code, field), getattr(program.schedule.code, field))
    assert_same_lanes(again, read_msccl_xml(put(tmp_path, msccl_xml(again)), size_bytes=_whole(program)))
    if op != "send-recv":  # a file calls it custom, and does not say what its result is
        assert again.collective.op == op
        assert_result(again)
        plan = read_program(put(tmp_path, mscclpp_json(program), "plan.json"))
        assert plan.collective.op == op
        assert violations(plan) == []
        assert_result(plan)


def _whole(program: Program) -> int:
    """Return the size of the call; of what a file cannot name, that of all vectors."""
    size = program.collective.size_bytes
    return size * program.p if program.collective.op == "send-recv" else size


# -------------------------------------------------------------------------------------------------- counts of the card
def test_a_ring_has_the_steps_of_the_public_tool() -> None:
    program = gc3(Collective("all-reduce", range(8), 1 << 20), program="ring", channels=4, instances=8)
    assert steps(program) == UPSTREAM["ring"]
    assert isinstance(program.schedule, Schedule)
    kinds = np.bincount(program.schedule.code.kind, minlength=7)
    assert kinds[[Opcode.S, Opcode.R, Opcode.RCS, Opcode.RRC, Opcode.RRS, Opcode.RRCS]].tolist() == [
        64,
        64,
        6 * 64,
        0,
        6 * 64,
        64,
    ]
    assert program.channels == 32
    assert steps(gc3(Collective("all-reduce", range(64), 1 << 20), program="ring")) == UPSTREAM["ring of 64"]


def test_other_programs_need_no_more_steps_than_the_public_tool_makes() -> None:
    whole = Collective("all-reduce", range(8), 1 << 20)
    assert steps(gc3(whole, program="all-pairs", instances=4, protocol="LL")) == 4032 < UPSTREAM["all-pairs"]
    nodes = Collective("all-reduce", range(16), 1 << 20)
    assert steps(gc3(nodes, program="hierarchical", node=8)) <= UPSTREAM["hierarchical"]
    exchange = Collective("all-to-all", range(32), 1 << 20)
    assert steps(gc3(exchange, program="three-step", node=8)) <= UPSTREAM["three-step"]


def test_messages_are_what_the_programs_promise() -> None:
    """Two-step crosses between nodes in one message a pair of ranks, three-step in one a pair of nodes."""
    p, node = 12, 3
    exchange = Collective("all-to-all", range(p), 4 * p * 12)
    crossing = {}
    for name in ("all-pairs", "two-step", "three-step"):
        schedule = gc3(exchange, program=name, node=node).schedule  # type: ignore[arg-type]
        assert isinstance(schedule, Schedule)
        sends = np.isin(schedule.code.kind, (Opcode.S, Opcode.RCS))
        to = schedule.blocks.send[schedule.code.block[sends]]
        across = to // node != schedule.rank[sends] // node
        crossing[name] = (int(across.sum()), int(schedule.code.count[sends][across].sum()))
    assert crossing == {"all-pairs": (108, 108), "two-step": (36, 108), "three-step": (12, 108)}


# ------------------------------------------------------------------------------------------------------------- choosing
def test_auto_goes_by_operation_machine_and_size() -> None:
    def chosen(op: str, size: int, machine: str) -> object:
        topology = fabric(machine)
        return gc3(Collective(op, range(topology.n_ranks), size), topology).knobs["algorithm"]

    assert chosen("all-reduce", 1 << 16, "switch:4") == "all-pairs"
    assert chosen("all-reduce", 1 << 24, "switch:4") == "ring"
    assert chosen("all-reduce", 1 << 24, "dgx-a100:2") == "hierarchical"
    assert chosen("all-to-all", 1 << 20, "switch:4") == "all-pairs"
    assert chosen("all-to-all", 1 << 20, "dgx-a100:2") == "two-step"
    assert chosen("broadcast", 1 << 16, "switch:4") == "binomial-tree"
    assert chosen("broadcast", 1 << 24, "switch:4") == "ring"
    assert chosen("send-recv", 1 << 20, "dgx-a100:2") == "all-to-next"
    assert chosen("send-recv", 1 << 20, "switch:4") == "ring"


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(UsageError, match="ring does no all-to-all"):
        made("ring", "all-to-all")
    with pytest.raises(UsageError, match="power of two of ranks, not 6"):
        made("recursive-doubling", "all-gather", 6)
    with pytest.raises(UsageError, match="5 ranks are no whole nodes of 2"):
        made("hierarchical", "all-reduce", 5)
    with pytest.raises(UsageError, match="gc3 does no gather"):
        gc3(Collective("gather", range(4), 64))
    with pytest.raises(UsageError, match="keep the order"):
        gc3(Collective("all-reduce", range(4), 64, commutative=False))
    with pytest.raises(DeclinedError, match="at most 1,000,000 are compiled"):
        gc3(Collective("all-reduce", range(64), 1 << 20), program="ring", instances=200)
    assert gc3(Collective("all-reduce", range(1), 64)).n_steps == 0


@pytest.mark.parametrize("size", [0, 1, 4, 28, 4 * 1021, 3001])
def test_sizes_that_do_not_fall_into_equal_chunks(size: int) -> None:
    for name, op in EVERY:
        program = gc3(Collective(op, range(4), size), program=name, node=2, instances=3)  # type: ignore[arg-type]
        assert violations(program) == [], (name, op)
        assert_result(program)


# --------------------------------------------------------------------------------------------------------- real processes
RUN_FOR_REAL = [("ring", "all-reduce", 3), ("all-pairs", "all-reduce", 2), ("three-step", "all-to-all", 1)]


@pytest.mark.parametrize("name", ["memory", "sockets"])
def test_real_processes_get_the_sums_of_integers(tmp_path: Path, name: str) -> None:
    """Each program as it is compiled, and again as its file says it: four processes, every element right."""
    programs = [made(each, op, instances=instances) for each, op, instances in RUN_FOR_REAL]
    programs += [made(each, op) for each, op in EVERY if (each, op) not in {row[:2] for row in RUN_FOR_REAL}]
    for number, program in enumerate(list(programs)):
        if program.collective.op != "send-recv":
            path = put(tmp_path, msccl_xml(program), f"{number}.xml")
            programs.append(read_msccl_xml(path, size_bytes=program.collective.size_bytes))
    answers = batch.run_all(executor(name), programs, seed=3, timeout_s=60)
    for program, nodes in zip(programs, answers, strict=True):
        assert not any(each.wrong for each in nodes), program
        assert check.against_interpreter(program, nodes, seed=3) is None, program


def test_two_processes_of_python_make_the_same_program() -> None:
    import hashlib
    import subprocess
    import sys

    code = (
        "from ringwright.algorithms.synthesis.gc3 import gc3;from ringwright.model.collective import Collective;"
        "from ringwright.formats.exports.msccl_xml import msccl_xml;import hashlib;"
        "p=gc3(Collective('all-reduce',range(12),1<<20),program='hierarchical',node=4,instances=2);"
        "print(hashlib.sha256(msccl_xml(p)).hexdigest())"
    )
    ran = subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": "1"}, capture_output=True, check=True)
    here = gc3(Collective("all-reduce", range(12), 1 << 20), program="hierarchical", node=4, instances=2)
    assert ran.stdout.decode().strip() == hashlib.sha256(msccl_xml(here)).hexdigest()


def test_it_is_typed_at_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    from ringwright.cli import main

    words = ["simulate", "all-reduce", "--fabric", "dgx-a100:2", "-b", "64M", "--algorithm"]
    assert main([*words, "gc3:program=hierarchical:channels=8:instances=2:protocol=LL128", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert row["algorithm"].startswith("gc3")
    assert row["time_us"] > row["bound_us"] > 0
    assert main([*words, "gc3:program=tree"]) == 2
    assert "recursive-doubling" in capsys.readouterr().err


def test_a_script_of_its_own_is_what_the_system_makes() -> None:
    """The system adds nothing to what a user's own script would be."""
    from ringwright.algorithms.synthesis.gc3.programs import Plan, ring

    collective = Collective("all-gather", range(5), 4 * 5 * 6)
    script = ChunkScript(collective)
    ring(script, Plan(5, 1))
    ours, theirs = compile_script(script), gc3(collective, program="ring")
    assert isinstance(ours.schedule, Schedule)
    assert isinstance(theirs.schedule, Schedule)
    np.testing.assert_array_equal(ours.schedule.code.dst, theirs.schedule.code.dst)
