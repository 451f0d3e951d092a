"""What rows of a simulation say about switches, which kinds of switches a fabric may have, and which of them NCCL uses."""

from __future__ import annotations

from typing import Any

import pytest

from ringwright.algorithms.libraries.nccl_2_4.system import system_of
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective

pytestmark = pytest.mark.once


def rows(spec: str, *spellings: str) -> dict[str, dict[str, Any]]:
    question = SimulationSpec("all-reduce", fabric(spec), "flows")
    return {row["algorithm"]: row for row in sweep(question, spellings, [64 << 10])["rows"]}


def test_a_row_says_what_its_program_leases_of_the_switches() -> None:
    told = rows("switch:4,switches=tofino", "switchml:slots=64", "ring", "sharp:mode=llt")
    assert told["switchml:slots=64"]["stream"] == {"slots": 64, "codec": "block-exponent", "loss": "host-timer"}
    assert told["switchml:slots=64"]["switch_memory_bytes"] == 64 * 2 * 1024
    assert (told["ring"]["stream"], told["ring"]["switch_memory_bytes"]) == (None, None)
    assert told["sharp:mode=llt"]["declined"]


def test_streams_of_all_trees_at_a_switch_count_and_those_inside_hosts_do_not() -> None:
    told = rows("dgx-h100:2,layout=leaf-spine,sharp=true", "sharp:mode=llt", "sharp:mode=llt:heads=2")
    assert told["sharp:mode=llt"]["stream"] == {"slots": 23, "codec": "native", "loss": "reliable"}
    assert told["sharp:mode=llt"]["switch_memory_bytes"] == 8 * 23 * 1024
    assert told["sharp:mode=llt:heads=2"]["switch_memory_bytes"] == 2 * 23 * 1024


def test_switches_inside_hosts_count_where_there_are_no_others() -> None:
    told = rows("dgx-h100:1", "nvls")["nvls"]
    assert told["switch_memory_bytes"] == 4 << 20
    assert told["stream"]["slots"] == (4 << 20) // 256


@pytest.mark.parametrize("spec", ["switch:4", "leaf-spine:4", "fat-tree:4", "dgx-a100:2"])
def test_a_fabric_says_what_its_switches_add(spec: str) -> None:
    codecs = {
        kind: {codec for able in fabric(f"{spec},switches={kind}").aggregators.values() for codec in able.codecs}
        for kind in ("plain", "quantum-2", "tofino", "tofino-fpisa")
    }
    assert codecs["plain"] == set()
    assert codecs["quantum-2"] == {"native"}
    assert codecs["tofino"] == {"native", "block-exponent"}
    assert codecs["tofino-fpisa"] == {"split-float"}
    assert fabric(f"{spec},sharp=true").aggregators == fabric(f"{spec},switches=quantum-2").aggregators
    with pytest.raises(UsageError, match="two kinds of switches"):
        fabric(f"{spec},sharp=true,switches=tofino")
    with pytest.raises(UsageError):
        fabric(f"{spec},switches=none")


def test_nccl_takes_the_network_where_it_adds_the_type() -> None:
    def offered(kind: str, dtype: str) -> bool:
        topology = fabric(f"dgx-h100:2,switches={kind}")
        return system_of(Collective("all-reduce", range(16), 64, dtype), topology).collnet

    assert offered("quantum-2", "bfloat16")
    assert not offered("quantum", "bfloat16")
    assert offered("quantum", "float32")
    assert not offered("tofino", "float32")
