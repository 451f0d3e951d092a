"""A plan that adds in a switch is put at the switch of its ranks, and held to what that one can do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import ringwright
from ringwright.algorithms.blocks.nvls import nvls
from ringwright.algorithms.blocks.ring import ring
from ringwright.calls.switch_assignment import seated
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.formats.exports.mscclpp_json import mscclpp_json
from ringwright.formats.exports.topology_json import topology_json
from ringwright.formats.sources.programs.program_files import read_program
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program

pytestmark = pytest.mark.once
BOX = fabric("dgx-h100:1")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_bytes(mscclpp_json(nvls(Collective("all-reduce", range(8), 1 << 20), BOX)))
    return path


def read(path: Path) -> Program:
    return read_program(path, size_bytes=1 << 20)


def test_an_imported_switch_is_the_nvswitch_of_its_ranks(plan: Path) -> None:
    program = read(plan)
    assert program.aggregators == (8,)  # the node behind the last rank: here a NIC
    at_home = seated(program, BOX)
    assert at_home.aggregators == (BOX.find("node0/nvswitch"),)
    assert {stream.node for stream in at_home.streams} == {BOX.find("node0/nvswitch")}
    run = ringwright.simulate(program, BOX)
    assert run.time_s > 0
    assert all("nic" not in name for name, _, _ in run.load())
    assert ringwright.verify(program, BOX)


def test_others_stay_where_they_are() -> None:
    for program in (
        ring(Collective("all-reduce", range(8), 1 << 20)),
        nvls(Collective("all-reduce", range(8), 64), BOX),
    ):
        assert seated(program, BOX) is program


def test_ranks_of_several_switches_share_none(plan: Path) -> None:
    with pytest.raises(UsageError, match="no switch of this fabric aggregates"):
        seated(read(plan), fabric("dgx-a100:1"))
    program = read(plan)
    spread = replace(program, collective=replace(program.collective, group=range(4, 12)))
    with pytest.raises(UsageError, match="its ranks are attached to 2"):
        seated(spread, fabric("dgx-h100:2"))


def test_verify_holds_a_plan_to_the_switch_of_a_machine(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(plan), "--fabric", "dgx-h100:1"]) == 0
    document = json.loads(topology_json(BOX))
    document["aggregators"][str(BOX.find("node0/nvswitch"))]["memory_bytes"] = 1
    machine = plan.parent / "machine.json"
    machine.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["verify", str(plan), "--topology", str(machine), "--json"]) == 4
    assert [row["rule"] for row in json.loads(capsys.readouterr().out)["errors"]] == ["memory"]
    assert main(["verify", str(plan), "--topology", str(machine), "--fabric", "dgx-h100:1"]) == 2
