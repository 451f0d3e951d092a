"""What a program declares about its streams is held to: by itself, and against what the switches of a machine can do."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import ringwright
from ringwright.algorithms.blocks.collnet_direct import collnet_direct
from ringwright.algorithms.blocks.nvls import nvls
from ringwright.algorithms.blocks.two_level import two_level
from ringwright.cli import main
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.fabrics._capabilities import SHARP
from ringwright.formats.exports.topology_json import topology_json
from ringwright.ground.errors import ProgramError
from ringwright.model import validity
from ringwright.model.codecs.formats import codecs
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.streams import LOSS_RULES, Stream, granted
from ringwright.model.topology import Capability, Topology
from ringwright.model.validity import RULES

pytestmark = pytest.mark.once
TOP = fabric("switch:4,sharp=true")
NODE = 4
SUM = Collective("all-reduce", range(4), 1 << 16)
LEGAL = collnet_direct(SUM, TOP, segments=4)
TIMED = replace(LEGAL.streams[0], loss="host-timer", versions=2, timeout_s=1e-3)


def streams(**changed: Any) -> Program:
    """Return the program with other fields in its stream."""
    return replace(LEGAL, streams=(replace(LEGAL.streams[0], **changed),))


def able(**changed: Any) -> Topology:
    """Return the machine with other figures of its switch."""
    return replace(TOP, aggregators={NODE: replace(TOP.aggregators[NODE], **changed)})


def rules(program: Program, topology: Topology | None = None) -> set[str]:
    return {found.rule for found in validity.check(program, topology=topology)}


def test_what_we_ship_is_legal() -> None:
    assert not rules(LEGAL, TOP)
    assert not rules(replace(LEGAL, streams=(TIMED,)), TOP)


ALONE: list[tuple[str, Program, str]] = [
    ("stream", replace(LEGAL, streams=()), "no stream is declared"),
    ("stream", replace(LEGAL, streams=LEGAL.streams * 2), "2 streams take them"),
    ("stream", replace(LEGAL, streams=(*LEGAL.streams, Stream(3))), "a stream at node 3, which is no aggregator"),
    ("stream", streams(channels=(0,)), "on channel 1: no stream"),
    ("slots", streams(slots=3), "moves use 4 places at node 4, its stream has 3 slots"),
    ("slots", streams(slots=-1), "a stream in -1 slots"),
    ("slots", streams(slots=8, window=9), "a window of 9 packets in 8 slots"),
    ("slots", streams(window=-1), "a window of -1 packets"),
    ("payload", streams(payload_bytes=-4), "packets of -4 B"),
    ("codec", streams(codec="nonsense"), "'nonsense' at node 4 is no number format that is known: native"),
    ("loss", streams(loss="hope"), "'hope' at node 4 is no loss rule that is known: reliable"),
    ("loss", streams(loss="host-timer", timeout_s=1e-3), "needs 2 versions, not 1"),
    ("loss", streams(loss="host-timer", versions=2), "needs a timer, not one of 0 s"),
    ("loss", streams(timeout_s=1e-3), "reliable at node 4 has no timer"),
    ("loss", streams(loss="resend-to-server", timeout_s=1e-3), "needs a node that finishes the rest"),
    ("loss", streams(loss="resend-to-server", timeout_s=1e-3, fallback=4), "node 4, is no other node"),
    ("loss", streams(loss="resend-to-server", timeout_s=1e-3, fallback=9), "node 9, is no other node"),
    ("loss", streams(fallback=0), "has no fallback"),
]


@pytest.mark.parametrize(("rule", "program", "says"), ALONE, ids=lambda each: each if isinstance(each, str) else "")
def test_a_program_breaks_a_rule_by_itself(rule: str, program: Program, says: str) -> None:
    found = validity.check(program)
    assert {each.rule for each in found} == {rule}
    assert says in found[0].message


def test_a_codec_holds_some_types_and_operations() -> None:
    whole = replace(LEGAL, collective=replace(SUM, dtype="int32"))
    assert rules(replace(whole, streams=streams(codec="block-exponent").streams)) == {"codec"}
    largest = replace(LEGAL, collective=replace(SUM, reduce_op="max"))
    assert rules(replace(largest, streams=streams(codec="split-float").streams)) == {"codec"}
    assert not rules(streams(codec="block-exponent"))


ON_A_MACHINE: list[tuple[str, Program, Topology, str]] = [
    ("memory", LEGAL, able(memory_bytes=1), "switch has 1 B, in which one stream would have no slot"),
    ("memory", streams(slots=1 << 20), TOP, "take 4,294,967,296 B, it has 16,777,216 B"),
    ("memory", streams(slots=16, versions=2), able(memory_bytes=16 * 4096), "take 131,072 B, it has 65,536 B"),
    ("slots", LEGAL, able(memory_bytes=3 * 4096), "moves use 4 places at switch, its stream has 3 slots"),
    ("payload", streams(payload_bytes=4097), TOP, "packets of 4097 B, switch takes 4096 B"),
    ("codec", streams(codec="split-float"), TOP, "switch adds no numbers in split-float"),
    ("capability", LEGAL, replace(TOP, aggregators={}), "adds nothing"),
    ("capability", LEGAL, able(ops=("max",)), "does not add by sum"),
    ("capability", LEGAL, able(dtypes=("int32",)), "does not add float32"),
    ("capability", LEGAL, able(fanin_max=3), "adds at most 3 contributions, not 4"),
    ("capability", LEGAL, able(multicast=False), "has no multicast"),
    ("capability", streams(codec="block-exponent"), able(codecs=("block-exponent",), dtypes=("float32",)), "int32"),
    ("concurrency", LEGAL, able(concurrency=0), "serves 0 streams at a time"),
]


@pytest.mark.parametrize(
    ("rule", "program", "topology", "says"), ON_A_MACHINE, ids=lambda each: each if isinstance(each, str) else ""
)
def test_a_machine_cannot_do_what_a_program_asks(rule: str, program: Program, topology: Topology, says: str) -> None:
    found = validity.check(program, topology=topology)
    assert {each.rule for each in found} == {rule}
    assert says in found[0].message
    with pytest.raises(ProgramError, match=f"not legal: {rule}: "):
        simulate(program, topology)
    with pytest.raises(ProgramError, match=f"not legal: {rule}: "):
        simulate(program, topology, "closed-form")


def test_an_average_is_a_sum_and_a_broadcast_adds_nothing() -> None:
    assert not rules(replace(LEGAL, collective=replace(SUM, reduce_op="avg")), TOP)
    top = fabric("dgx-h100:1")
    gather = nvls(Collective("all-gather", range(8), 1 << 20, dtype="int8"), top)
    assert not rules(gather, top)


def test_contributions_of_an_operation_that_does_not_commute_need_a_node_that_keeps_an_order() -> None:
    """The leaf adds its members in rank order where it keeps one; where it adds as they come, nothing says so."""
    ordered = replace(LEGAL, collective=replace(SUM, commutative=False))
    assert not rules(ordered, able(order="fixed"))
    assert rules(ordered, able(order="arrival")) == {"order"}


def test_trees_through_one_switch_are_so_many_streams() -> None:
    """One streaming tree per Quantum switch, one per port of a Quantum-2: eight heads of a node are eight trees of a switch."""
    top = fabric("dgx-h100:2,layout=switch,sharp=true")
    wanted = Collective("all-reduce", range(16), 1 << 20)
    quantum = {node: replace(can, concurrency=1) for node, can in top.aggregators.items()}
    older = replace(top, aggregators=quantum)
    assert not rules(collnet_direct(wanted, top), top)
    assert rules(collnet_direct(wanted, older), older) == {"concurrency"}
    assert not rules(collnet_direct(wanted, older, heads=1), older)


def test_streams_share_what_others_leave() -> None:
    can = Capability(memory_bytes=100 * 1024, payload_bytes=1024)
    assert granted([Stream(9), Stream(9, slots=20), Stream(9, versions=2)], can) == [40, 20, 20]
    assert granted([Stream(9, slots=200), Stream(9)], can) == [200, 0]
    assert granted([Stream(9, payload_bytes=512)], can) == [200]


def test_parts_of_two_levels_share_a_stream() -> None:
    top = fabric("dgx-h100:2,sharp=true")
    program = two_level(Collective("all-reduce", range(16), 1 << 20), top, leaders=4, outer=collnet_direct)
    assert [stream.node for stream in program.streams] == list(program.aggregators)
    assert not rules(program, top)


def test_closed_lists_say_what_they_take() -> None:
    known = {each.name for each in fields(LOSS_RULES["reliable"])}
    assert known == {"owner", "versions", "has_timer", "has_fallback", "adapts"}
    assert set(SHARP.codecs) <= set(codecs())
    assert {rule for rule, *_ in (*ALONE, *ON_A_MACHINE)} < set(RULES)


# ------------------------------------------------------------------------------------------------------------ as a user
def file_of(folder: Path, **figures: Any) -> Path:
    """Return a file of the machine whose switch has other figures."""
    document = json.loads(topology_json(TOP))
    document["aggregators"][str(NODE)] |= figures
    path = folder / "machine.json"
    path.write_text(json.dumps(document))
    return path


def test_verify_says_what_a_machine_cannot_do(tmp_path: Path) -> None:
    assert ringwright.verify(LEGAL, TOP)
    told = ringwright.verify(LEGAL, file_of(tmp_path, memory_bytes=1))
    assert [each.rule for each in told.errors] == ["memory"]
    assert [each.rule for each in ringwright.verify(streams(codec="nonsense")).errors] == ["codec"]
    assert [each.rule for each in ringwright.verify(streams(slots=2)).errors] == ["slots"]


SIMULATE = ("simulate", "all-reduce", "-b", "1M", "-e", "1M")
Shown = pytest.CaptureFixture[str]


def asked(capsys: Shown, *words: str) -> tuple[int, str]:
    code = main([*SIMULATE, *words])
    out, error = capsys.readouterr()
    return code, " ".join((out + error).split())


def test_simulate_refuses_by_rule(tmp_path: Path, capsys: Shown) -> None:
    tiny = str(file_of(tmp_path, memory_bytes=1))
    code, said = asked(capsys, "--topology", tiny, "--algorithm", "collnet-direct")
    assert code == 4
    assert "not legal: memory: switch has 1 B" in said
    assert "try: " in said
    code, said = asked(capsys, "--topology", tiny, "--algorithm", "ring,collnet-direct")
    assert code == 0
    assert "Declined collnet-direct: collnet-direct is not legal: memory: switch has 1 B" in said
    code, said = asked(capsys, "--fabric", "switch:4,sharp=true", "--algorithm", "collnet-direct:slots=100000")
    assert code == 2
    assert "memory: 100,000 slots for each of 1 trees take 409,600,000 B of switch, which has 16,777,216 B" in said
    assert "try: slots=4096 or fewer" in said
    assert asked(capsys, "--fabric", "switch:4,sharp=true", "--algorithm", "collnet-direct:slots=4096")[0] == 0
    code, said = asked(capsys, "--topology", str(file_of(tmp_path, codecs=["nonsense"])))
    assert code == 3
    assert "'nonsense' is no number format that is known: native, block-exponent" in said
    code, said = asked(
        capsys, "--topology", str(file_of(tmp_path, codecs=["split-float"])), "--algorithm", "collnet-direct"
    )
    assert code == 2
    assert "switch cannot do this: it adds no numbers in native" in said


@pytest.mark.parametrize("figures", [{"passes": 0}, {"concurrency": 0}, {"payload_bytes": 0}, {"order": "any"}])
def test_a_file_with_figures_that_cannot_be_is_refused(figures: dict[str, Any], tmp_path: Path, capsys: Shown) -> None:
    assert asked(capsys, "--topology", str(file_of(tmp_path, **figures)))[0] == 3


def test_every_preset_says_where_its_figures_come_from() -> None:
    for spec in ("dgx-h100:2,sharp=true", "gb200-nvl72:1", "leaf-spine:12,sharp=true", "fat-tree:16,sharp=true"):
        assert all(can.provenance for can in fabric(spec).aggregators.values()), spec
