"""MSCCL XML: real files, round trips, scheduled programs, every rule broken once, files nobody should have."""

from __future__ import annotations

import json
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declared_programs import (
    MSCCL,
    assert_result,
    assert_same_lanes,
    edit,
    put,
    rules,
    step,
    verdict,
    xml,
)
from ringwright.algorithms import blocks as algorithms
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.formats.exports.places import CARRIED
from ringwright.formats.sources.findings import READING_RULES
from ringwright.formats.sources.programs.msccl_xml import check_windows, read_msccl_xml
from ringwright.formats.sources.programs.program_files import CODES, read_program, sniff, verify_file
from ringwright.ground.errors import InputError, ProgramError, UsageError
from ringwright.model import interpreter, validity
from ringwright.model.collective import Collective
from ringwright.model.program import Block, Cost, Op, Program, Step, cut, explicit, turn
from ringwright.model.threadblocks import Opcode, Schedule
from shared_data import needs_shared_data, real

pytestmark = pytest.mark.once


def small(op: str = "all-reduce", p: int = 3, channels: int = 1, **knobs: Any) -> str:
    return msccl_xml(ring(Collective(op, range(p), p * channels * 4), channels=channels), **knobs).decode()


# --------------------------------------------------------------------------------------------------------- real files
@pytest.mark.sampled(5, "*")
@needs_shared_data
@pytest.mark.parametrize("name", MSCCL)
def test_real_files_are_valid_right_and_come_back(name: str, tmp_path: Path) -> None:
    path = real(f"real/msccl-xml/{name}.xml")
    report = verify_file(path)
    assert report["valid"], report["errors"]
    assert {row["rule"] for row in report["warnings"]} <= {"xml", "deadlock"}
    chunks = int(read_msccl_xml(path).schedule.attributes["nchunksperloop"])  # type: ignore[union-attr, call-overload]
    program = read_msccl_xml(path, size_bytes=chunks * 8)
    assert_result(program)
    assert_same_lanes(program, read_msccl_xml(put(tmp_path, msccl_xml(program)), size_bytes=chunks * 8))


@needs_shared_data
def test_what_real_files_are() -> None:
    found = {name: verify_file(real(f"real/msccl-xml/{name}.xml")) for name in MSCCL}
    assert {(row["collective"], row["ranks"]) for row in found.values()} == {
        ("all-gather", 4),
        ("all-gather", 8),
        ("all-gather", 32),
        ("all-reduce", 4),
        ("all-reduce", 8),
        ("all-to-all", 8),
    }
    # Only one needs more than one message under way on a connection.
    tight = [name for name, row in found.items() if any(each["rule"] == "deadlock" for each in row["warnings"])]
    assert tight == ["azure-ndv4-ag-32m-1g"]
    program = read_program(real("real/msccl-xml/azure-ndv4-ap2ll.xml"))
    assert isinstance(program.schedule, Schedule)
    assert (program.schedule.code.kind == Opcode.NOP).sum() == 1328
    assert program.collective.size_bytes == 33280  # the first multiple of 128 chunks of 4 B from 32769 B on


@needs_shared_data
def test_real_windows_of_one_machine_do_not_overlap() -> None:
    names = ("ar_hier_12_Simple", "ar_tree_12_LL", "ag_hier_4_LL", "ag_hier_4_Simple")
    paths = [real(f"real/msccl-xml/azure-ncv4-{name}.xml") for name in names]
    assert check_windows(list(paths)) == []


# ----------------------------------------------------------------------------------------------------- what we write
@pytest.mark.parametrize("op", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("p", "channels"), [(2, 1), (3, 2), (8, 1)])
def test_rings_are_written_and_read(tmp_path: Path, op: str, in_place: bool, p: int, channels: int) -> None:
    program = ring(Collective(op, range(p), p * channels * 8), channels=channels)
    path = put(tmp_path, msccl_xml(program, in_place=in_place))
    report = verify_file(path)
    assert report["valid"], report["errors"]
    again = read_msccl_xml(path)
    assert again.collective.op == op
    assert_result(again)
    assert msccl_xml(again) == path.read_bytes()


@pytest.mark.parametrize("op", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize("in_place", [True, False])
def test_blueconnect_with_its_permuted_slots(tmp_path: Path, op: str, in_place: bool) -> None:
    program = blueconnect(Collective(op, range(12), 12 * 12 * 4), factors=(2, 3, 2))
    path = put(tmp_path, msccl_xml(program, in_place=in_place))
    assert verify_file(path)["valid"]
    assert_result(read_msccl_xml(path))


def test_a_ring_is_fused() -> None:
    kinds = re.findall(r'type="(\w+)"', small(p=4))
    assert {kind: kinds.count(kind) for kind in kinds} == {"s": 4, "rrcs": 12, "rcs": 8, "r": 4}


def test_targets_spell_reduce_scatter_their_way() -> None:
    assert 'coll="reduce_scatter"' in small("reduce-scatter")
    assert 'coll="reducescatter"' in small("reduce-scatter", target="azure")
    assert 'inplace="1" outofplace="0"' in small()
    assert 'inplace="0" outofplace="1"' in small(in_place=False)
    with pytest.raises(UsageError, match="reads no MSCCL XML"):
        small(target="nccl")


def test_windows_that_touch_neither_overlap_nor_leave_a_gap(tmp_path: Path) -> None:
    low = put(tmp_path, small(window=(0, 1 << 20)), "low.xml")
    high = put(tmp_path, small(window=(1 << 20, 0)), "high.xml")
    wide = put(tmp_path, small(window=(4096, 1 << 21)), "wide.xml")
    assert check_windows([low, high]) == []
    assert len(check_windows([low, high, wide])) == 2
    assert 'minBytes="0" maxBytes="1048575"' in low.read_text()


def test_what_the_format_cannot_carry_is_refused() -> None:
    collective = Collective("all-reduce", range(4), 64)
    at_switch = Step((explicit(Op.CONTRIBUTE, range(4), 4, 0),))
    program = Program("nvls", collective, cut(collective), lambda: [at_switch], 1, Cost((), 64.0), aggregators=(4,))
    with pytest.raises(ProgramError, match="aggregates in the network"):
        msccl_xml(program)
    gathered = Collective("gather", range(4), 64)
    with pytest.raises(ProgramError, match="no runtime format has a gather"):
        msccl_xml(Program("g", gathered, cut(gathered), tuple, 0, Cost((), 0.0)))
    with pytest.raises(ProgramError, match="256"):
        msccl_xml(ring(Collective("all-reduce", range(130), 130 * 4)))
    wide = Step((Block(Op.REDUCE, (4,), turn(4), turn(4, 1), turn(4), channel=40),))
    program = Program("wide", collective, cut(collective, 4), lambda: [wide], 1, Cost((), 64.0))
    with pytest.raises(ProgramError):
        msccl_xml(program)


def test_uneven_chunks_are_refused() -> None:
    collective = Collective("all-gather", range(2), 24, counts=(8, 16))
    with pytest.raises(ProgramError, match="unequal chunks"):
        msccl_xml(ring(collective))


# ------------------------------------------------------------------------------------------------ rules of the format
RIGHT = small()
BROKEN = [
    ("xml", "V1", RIGHT.replace("</algo>", "")),
    ("xml", "V1", RIGHT + "<algo/>"),
    ("xml", "V1", RIGHT.replace("algo", "program")),
    ("xml", "V1", edit(RIGHT, "<step ", "<tb ")),
    ("attribute", "V2", RIGHT.replace("Simple", "simple")),
    ("attribute", "V2", RIGHT.replace("allreduce", "all-reduce")),
    ("attribute", "V2", RIGHT.replace('ngpus="3"', 'ngpus="three"')),
    ("attribute", "V2", RIGHT.replace('inplace="1" outofplace="0"', 'inplace="0" outofplace="0"')),
    ("attribute", "V2", edit(RIGHT, 'type="s"', 'type="ra"')),
    ("attribute", "V2", edit(RIGHT, 'srcbuf="i"', 'srcbuf="x"')),
    ("attribute", "V2", edit(RIGHT, 'cnt="1" ', "")),
    ("gpus", "V3", RIGHT.replace('gpu id="2"', 'gpu id="1"')),
    ("gpus", "V3", RIGHT.replace('ngpus="3"', 'ngpus="4"')),
    ("gpus", "V3", RIGHT.replace('gpu id="2"', 'gpu id="3"')),
    ("chunks", "V4", edit(RIGHT, 'i_chunks="3"', 'i_chunks="2"')),
    ("chunks", "V4", small("all-gather").replace('nchunksperloop="3"', 'nchunksperloop="4"')),
    ("limits", "V5", edit(RIGHT, '<tb id="0"', '<tb id="1"')),
    ("limits", "V5", edit(RIGHT, 'step s="1"', 'step s="2"')),
    ("limits", "V5", edit(RIGHT, 'cnt="1"', 'cnt="72"')),
    ("limits", "V5", edit(RIGHT, 'chan="0"', 'chan="1"')),
    ("limits", "V5", edit(RIGHT, "<tb [^§]*?</tb>", lambda match: match[0] * 2)),
    ("limits", "V5", xml([[(-1, -1, [step("cpy", "i0", "i1")] * 257)], []], coll="custom")),
    ("limits", "V5", xml([[(-1, -1, [])] * 217, []], coll="custom")),
    ("peer", "V6", edit(RIGHT, r'send="\d"', 'send="-1"')),
    ("peer", "V6", edit(RIGHT, r'recv="\d"', 'recv="0"')),
    ("peer", "V6", edit(RIGHT, r'send="\d"', 'send="3"')),
    ("match", "V7", edit(RIGHT, r'send="1" recv="2"', 'send="2" recv="1"')),
    ("index", "V8", edit(RIGHT, r'srcoff="\d"', 'srcoff="3"')),
    ("index", "V8", edit(RIGHT, r'dstbuf="i" dstoff="\d" cnt="1"', 'dstbuf="s" dstoff="0" cnt="1"', 1)),
    ("dependency", "V9", edit(RIGHT, 'depid="-1" deps="-1"', 'depid="0" deps="0"')),
    ("dependency", "V9", edit(RIGHT, 'depid="-1" deps="-1"', 'depid="5" deps="0"')),
    ("dependency", "V9", edit(RIGHT, 'depid="-1" deps="-1"', 'depid="-1" deps="0"')),
    (
        "dependency",
        "V9",
        xml([[(-1, -1, [step("nop", dep=(1, 0))]), (-1, -1, [step("cpy", "i0", "s0", has=1)])], []], coll="custom"),
    ),
    ("window", "V14", RIGHT.replace('minBytes="0"', 'minBytes="9"').replace(str(1 << 48), "8")),
]


@pytest.mark.parametrize(("rule", "code", "text"), BROKEN, ids=[f"{n}-{row[0]}" for n, row in enumerate(BROKEN)])
def test_a_broken_rule_is_named_with_its_line(tmp_path: Path, rule: str, code: str, text: str) -> None:
    report = verdict(tmp_path, text)
    assert not report["valid"]
    assert (rule, code) in {(error["rule"], error["code"]) for error in report["errors"]}, report
    if rule != "match":
        assert all(error["line"] for error in report["errors"])
        with pytest.raises(ProgramError, match=rf"{report['errors'][0]['rule']}: ") as raised:
            read_program(put(tmp_path, text, "again"))
        assert re.search(r"again:\d+", raised.value.where)
        assert "ringwright verify" in raised.value.remedy
        assert raised.value.exit_code == 4
    json.dumps(report)


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    text = edit(edit(RIGHT, 'cnt="1"', 'cnt="0"'), 'cnt="1"', 'cnt="99"', 5)
    report = verdict(tmp_path, edit(text, r'type="s" srcbuf="i" srcoff="\d"', 'type="s" srcbuf="i" srcoff="77"', 2))
    assert len({(error["rank"], error["step"]) for error in report["errors"]}) == 3


def test_a_place_is_told_by_rank_step_and_chunk(tmp_path: Path) -> None:
    error = verdict(tmp_path, edit(RIGHT, r'srcoff="\d"', 'srcoff="7"'))["errors"][0]
    assert (error["rank"], error["step"], error["chunk"], error["line"]) == (0, 0, 7, 4)
    assert error["message"] == "thread block 0: src i[7..7] of 3 chunks"


# ---------------------------------------------------------------------------------------------- seeded changes of steps
TREES = small("all-reduce", 4, 2)
DEPENDENT = small("all-reduce", 3, in_place=False)


@pytest.mark.parametrize("base", [RIGHT, TREES, DEPENDENT], ids=["ring", "two-rings", "out-of-place"])
def test_dropping_any_step_is_found(tmp_path: Path, base: str) -> None:
    steps = len(re.findall("<step [^>]*>\n", base))
    for number in range(steps):
        text = _renumbered(edit(base, " *<step [^>]*>\n", "", number))
        report = verdict(tmp_path, text)
        assert not report["valid"], number
        assert report["errors"][0]["rank"] is not None


@pytest.mark.parametrize("base", [RIGHT, DEPENDENT], ids=["ring", "out-of-place"])
def test_swapping_steps_is_found_or_harmless(tmp_path: Path, base: str) -> None:
    lines = base.splitlines()
    places = [n for n in range(len(lines) - 1) if "<step" in lines[n] and "<step" in lines[n + 1]]
    found = 0
    for place in places:
        swapped = [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]]
        found += _found_or_harmless(tmp_path, _renumbered("\n".join(swapped)))
    assert found > len(places) / 2


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r'send="\d"', 'send="0"'),
        (r'recv="\d"', 'recv="1"'),
        (r'srcoff="\d"', 'srcoff="1"'),
        (r'dstoff="\d"', 'dstoff="2"'),
        ('cnt="1"', 'cnt="2"'),
        ('hasdep="1"', 'hasdep="0"'),
        (r'depid="\d" deps="\d"', 'depid="-1" deps="-1"'),
        (r'deps="\d"', 'deps="0"'),
        ("rrc", "r"),
        ("rcs", "rrs"),
        ("rrcs", "rcs"),
        ('type="s"', 'type="nop"'),
    ],
)
def test_any_change_of_a_field_is_found_or_harmless(tmp_path: Path, pattern: str, new: str) -> None:
    base = DEPENDENT
    for number in range(len(re.findall(pattern, base))):
        _found_or_harmless(tmp_path, edit(base, pattern, new, number))


def test_a_missing_dependency_is_a_race(tmp_path: Path) -> None:
    seen = set()
    for number in range(len(re.findall(r'depid="\d+" deps="\d+"', DEPENDENT))):
        report = verdict(tmp_path, edit(DEPENDENT, r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', number))
        seen |= rules(report)
        assert not report["valid"]
    assert seen == {"race"}
    for number in range(len(re.findall('hasdep="1"', DEPENDENT))):
        assert rules(verdict(tmp_path, edit(DEPENDENT, 'hasdep="1"', 'hasdep="0"', number))) == {"dependency"}


def test_dependencies_in_a_circle_are_a_deadlock(tmp_path: Path) -> None:
    blocks = [
        (-1, -1, [step("cpy", "i0", "s0", dep=(1, 0), has=1)]),
        (-1, -1, [step("cpy", "i0", "s1", dep=(0, 0), has=1)]),
    ]
    report = verdict(tmp_path, xml([blocks, []], coll="custom"))
    assert rules(report) == {"deadlock"}
    assert "waits for rank 0, thread block 1, step 0" in report["errors"][0]["message"]


def _renumbered(text: str) -> str:
    lines, place = [], 0
    for line in text.splitlines():
        place = 0 if "<tb" in line else place
        if "<step" in line:
            place += 1
        lines.append(re.sub(r'(<step) s="\d+"', rf'\1 s="{place - 1}"', line))
    return "\n".join(lines)


def _found_or_harmless(folder: Path, text: str) -> int:
    """A file is either refused with a rule and a rank, or it still does what it says."""
    report = verdict(folder, text)
    if report["valid"]:
        assert_result(read_program(folder / "program"))
        return 0
    assert all(error["rule"] and error["rank"] is not None for error in report["errors"])
    return 1


# ---------------------------------------------------------------------------------------------- files nobody should have
@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY b "b"><!ENTITY c "&b;&b;">]>' + RIGHT,
        '<!DOCTYPE algo SYSTEM "http://localhost/x">' + RIGHT,
        "<algo>" * 100_000,
        RIGHT.replace("<step ", "<step><step><step>", 1),
        RIGHT.replace('name="ring"', 'name="' + "x" * 100_000 + '"'),
        "<algo " + " ".join(f'a{n}="1"' for n in range(1000)) + "/>",
        RIGHT.replace('nchunksperloop="3"', 'nchunksperloop="999999999999"').replace('i_chunks="3"', 'i_chunks="0"'),
        RIGHT.replace('s_chunks="0"', 's_chunks="999999999999"'),
        RIGHT.replace('ngpus="3"', 'ngpus="99999999"'),
        RIGHT.replace('s="0"', 's="' + "9" * 5000 + '"'),
        '<?xml version="1.0" encoding="no-such-code"?>' + RIGHT,
        "<",
        "<algo>\x00</algo>",
    ],
)
def test_hostile_files_are_refused(tmp_path: Path, text: str) -> None:
    report = verdict(tmp_path, text)
    assert not report["valid"]
    assert report["errors"]


def test_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringwright.formats.sources.elements.MOST_BYTES", 1000)
    assert rules(verdict(tmp_path, RIGHT)) == {"xml"}
    monkeypatch.undo()
    monkeypatch.setattr("ringwright.formats.sources.elements.MOST_ELEMENTS", 5)
    assert rules(verdict(tmp_path, RIGHT)) == {"xml"}


def test_comments_byte_order_marks_and_prologs_are_fine(tmp_path: Path) -> None:
    assert verdict(tmp_path, "<!-- made by hand -->\n" + RIGHT)["valid"]
    assert verdict(tmp_path, "\ufeff" + RIGHT)["valid"]
    assert verdict(tmp_path, '<?xml version="1.0"?>\n' + RIGHT)["valid"]


def test_other_elements_are_kept_and_warned_about(tmp_path: Path) -> None:
    text = edit(RIGHT, "<tb", '<copy i_off="0" o_off="0"/><tb')
    report = verdict(tmp_path, text)
    assert report["valid"]
    assert [row["rule"] for row in report["warnings"] if row["rule"] == "xml"] == ["xml"]
    program = read_program(tmp_path / "program")
    assert_same_lanes(program, read_program(put(tmp_path, msccl_xml(program), "again")))


def test_the_front_door_tells_formats_apart(tmp_path: Path) -> None:
    assert sniff(put(tmp_path, RIGHT)) == "msccl-xml"
    with pytest.raises(InputError, match="no program in a known format"):
        read_program(put(tmp_path, "hello"))
    with pytest.raises(InputError, match="cannot be read"):
        verify_file(tmp_path / "absent")


def test_sizes_must_fit_the_chunks(tmp_path: Path) -> None:
    path = put(tmp_path, RIGHT)
    assert read_msccl_xml(path, size_bytes=3 << 20).collective.size_bytes == 3 << 20
    with pytest.raises(UsageError, match="cannot be cut into 3 equal chunks"):
        read_msccl_xml(path, size_bytes=1 << 20)


def test_a_custom_collective_just_runs(tmp_path: Path) -> None:
    text = xml([[(1, -1, [step("s", "i0")])], [(-1, 0, [step("r", "i0", "s0")])]], coll="custom")
    report = verdict(tmp_path, text)
    assert report["valid"]
    assert report["collective"] == "custom"
    assert [row["rule"] for row in report["warnings"]] == ["result"]
    program = read_program(tmp_path / "program")
    assert interpreter.run(program, interpreter.inputs(program.collective)) == [{}, {}]


def test_a_file_for_both_is_checked_both_ways(tmp_path: Path) -> None:
    """A file made for one of them claims to do both: out of place the result never gets there, in place it does."""
    out_of_place = small(in_place=False)
    assert verdict(tmp_path, out_of_place)["valid"]
    assert verdict(tmp_path, out_of_place.replace('inplace="0" outofplace="1"', 'inplace="1" outofplace="1"'))["valid"]
    in_place = verdict(tmp_path, RIGHT.replace('inplace="1" outofplace="0"', 'inplace="1" outofplace="1"'))
    assert not in_place["valid"]


@settings(max_examples=30)
@given(
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]), st.integers(2, 6), st.integers(1, 3), st.booleans()
)
def test_writing_and_reading_is_the_identity(op: str, p: int, channels: int, in_place: bool) -> None:
    import tempfile

    program = ring(Collective(op, range(p), p * channels * 4), channels=channels)
    with tempfile.TemporaryDirectory() as folder:
        first = read_msccl_xml(put(Path(folder), msccl_xml(program, in_place=in_place)))
        again = read_msccl_xml(put(Path(folder), msccl_xml(first), "again"))
    assert_same_lanes(first, again)
    assert not validity.check(again)


# ---------------------------------------------------------------------------------------------------- all algorithms
def blocks() -> list[tuple[str, str, int]]:
    names = [module.name for module in pkgutil.iter_modules(algorithms.__path__)]
    found = []
    for name in names:
        module = import_module(f"{algorithms.__name__}.{name}")
        if hasattr(module, "OPS") and hasattr(module, name):
            found += [(name, op, p) for op in module.OPS if op in CARRIED for p in (4, 5)]
    return found


@pytest.mark.sampled(1, "p")
@pytest.mark.parametrize(("name", "op", "p"), blocks())
def test_every_algorithm_is_scheduled_or_refused(tmp_path: Path, name: str, op: str, p: int) -> None:
    build = getattr(import_module(f"{algorithms.__name__}.{name}"), name)
    try:
        program = build(Collective(op, range(p), p * p * 64))
    except UsageError:
        return
    if program.aggregators:
        with pytest.raises(ProgramError, match="network"):
            msccl_xml(program)
        return
    path = put(tmp_path, msccl_xml(program))
    assert verify_file(path)["errors"] == []
    assert_result(read_program(path))


def test_every_rule_of_the_table_has_a_sentence() -> None:
    """What ``verify`` can name is written down: while a file is read, or when its program is followed."""
    assert set(CODES) <= set(READING_RULES) | set(validity.RULES)
    assert set(READING_RULES) <= set(CODES)
