"""MSCCL++ plans: real files in both dialects, one-sided order, fused operations, plans made from programs."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declared_programs import MSCCL, MSCCLPP, assert_result, assert_same_lanes, put, rules, verdict
from ringwright.algorithms.blocks.nvls import nvls
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.formats.exports.mscclpp_json import mscclpp_json
from ringwright.formats.sources.programs.mscclpp_json import read_mscclpp_json
from ringwright.formats.sources.programs.program_files import read_program, verify_file
from ringwright.ground.errors import ProgramError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, cut, explicit
from ringwright.model.threadblocks import Schedule
from shared_data import needs_shared_data, real

pytestmark = pytest.mark.once

I0, I1, S0, S1 = ({"type": letter, "index": index, "size": 1} for letter in "is" for index in (0, 1))
FAR_I0, FAR_S0, FAR_S1 = ({"buffer_id": buffer, "index": i, "size": 1} for buffer, i in ((1, 0), (0, 0), (0, 1)))
NOP = {"name": "nop"}


def op(name: str, src: list[Any] | None = None, dst: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    operands = {"src_buff": src, "dst_buff": dst} if src is not None else {}
    return {"name": name, "channel_type": "memory", **operands, **more}


def mark(name: str, channel: int = 0) -> dict[str, Any]:
    return op(name, channel_ids=[channel])


def plan(*ranks: list[list[dict[str, Any]]], semaphores: int = 0, **more: Any) -> dict[str, Any]:
    """Return a plan of two ranks with two chunks each; every thread block has the channel of its number."""
    gpus = []
    for rank, blocks in enumerate(ranks):
        threadblocks = [
            {
                "id": number,
                "ops": ops,
                "channels": [{"channel_type": "memory", "channel_ids": [number]}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0, 1]}],
            }
            for number, ops in enumerate(blocks)
        ]
        peer = 1 - rank
        gpus.append(
            {
                "id": rank,
                "input_chunks": 2,
                "output_chunks": 2,
                "scratch_chunks": 2,
                "threadblocks": threadblocks,
                "channels": [{"channel_type": "memory", "connected_to": [peer] * len(blocks)}],
                "remote_buffers": [
                    {"rank": peer, "type": letter, "access_channel_types": ["memory"]} for letter in "si"
                ],
                "semaphores": [{"init_value": 0}] * semaphores,
            }
        )
    return {"name": "t", "collective": "allreduce", "protocol": "Simple", "inplace": True, "gpus": gpus, **more}


# Both ranks put what they have into the other's scratch, and add.
SWAP = [
    op("put", [I0, I1], [FAR_S0, FAR_S1], channel_ids=[0]),
    mark("signal"),
    mark("wait"),
    NOP,
    op("re", [I0, S0], [I0]),
    op("re", [I1, S1], [I1]),
]


def check_text(folder: Path, value: dict[str, Any]) -> dict[str, Any]:
    return verdict(folder, json.dumps(value))


# --------------------------------------------------------------------------------------------------------- real files
@needs_shared_data
@pytest.mark.parametrize("name", MSCCLPP)
def test_real_plans_are_valid_right_and_come_back(name: str, tmp_path: Path) -> None:
    path = real(f"real/mscclpp-json/{name}.json")
    report = verify_file(path)
    assert report["valid"], report["errors"]
    program = read_mscclpp_json(path)
    assert_result(program)
    text = mscclpp_json(program)
    assert json.loads(text) == json.loads(path.read_bytes())
    assert_same_lanes(program, read_mscclpp_json(put(tmp_path, text)))


@needs_shared_data
def test_a_published_plan_has_a_race() -> None:
    """Thread block 1 of rank 0 reads half a chunk that thread block 0 of rank 1 wrote, and waits for thread block 1 only."""
    doubts = {name: verify_file(real(f"real/mscclpp-json/{name}.json"))["warnings"] for name in MSCCLPP}
    assert [name for name, rows in doubts.items() if rows] == ["reduce_tbg"]
    assert {row["rule"] for row in doubts["reduce_tbg"]} == {"race"}
    assert any("rank 1, thread block 0, step 0" in row["message"] for row in doubts["reduce_tbg"])


@needs_shared_data
def test_a_switch_adds_up() -> None:
    program = read_program(real("real/mscclpp-json/reduce_nvls.json"))
    moves = [(int(block.op), block.count) for step in program.steps() for block in step.blocks]
    assert moves == [(Op.CONTRIBUTE, 2)] * 2 + [(Op.EMIT, 2)] * 2
    assert program.aggregators == (2,)


@pytest.mark.sampled(6, "name")
@needs_shared_data
@pytest.mark.parametrize("name", MSCCL)
def test_msccl_programs_become_plans(name: str, tmp_path: Path) -> None:
    program = read_program(real(f"real/msccl-xml/{name}.xml"))
    if not isinstance(program.schedule, Schedule) or len(program.schedule.code) > 3000:
        program = read_program(real("real/msccl-xml/azure-ncv4-ag_hier_4_LL.xml"))
    path = put(tmp_path, mscclpp_json(program))
    report = verify_file(path)
    assert report["valid"], report["errors"]
    assert report["warnings"] == []
    assert_result(read_program(path))
    assert read_program(path).cost.messages == program.cost.messages


# ----------------------------------------------------------------------------------------------------- what we write
@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize("in_place", [True, False])
def test_programs_become_plans(tmp_path: Path, collective: str, in_place: bool) -> None:
    for program in (
        ring(Collective(collective, range(4), 64), channels=2),
        blueconnect(Collective(collective, range(6), 6 * 6 * 4), factors=(2, 3)),
    ):
        path = put(tmp_path, mscclpp_json(program, in_place=in_place, window=(1024, 1 << 20)))
        report = verify_file(path)
        assert (report["valid"], report["errors"], report["warnings"]) == (True, [], [])
        assert_result(read_program(path))
        assert json.loads(path.read_bytes())["min_message_size"] == 1024


def test_a_plan_does_not_become_msccl_xml(tmp_path: Path) -> None:
    program = read_program(put(tmp_path, json.dumps(plan([SWAP], [SWAP]))))
    with pytest.raises(ProgramError, match="writes at its peers by itself"):
        msccl_xml(program)


# --------------------------------------------------------------------------------------------------- one-sided order
def test_a_swap_by_hand(tmp_path: Path) -> None:
    report = check_text(tmp_path, plan([SWAP], [SWAP]))
    assert (report["valid"], report["warnings"]) == (True, [])
    assert_result(read_program(tmp_path / "program"))


def test_a_put_is_seen_only_behind_a_wait(tmp_path: Path) -> None:
    without = [each for each in SWAP if each["name"] != "wait"]
    report = check_text(tmp_path, plan([without], [without]))
    assert any(row["rule"] == "race" for row in report["warnings"]) or not report["valid"]


def test_a_signal_before_the_put_orders_nothing(tmp_path: Path) -> None:
    early = [SWAP[1], SWAP[0], *SWAP[2:]]
    report = check_text(tmp_path, plan([early], [early]))
    assert {row["rule"] for row in report["warnings"]} == {"race"}


def test_a_wait_without_a_signal_is_a_deadlock(tmp_path: Path) -> None:
    silent = [each for each in SWAP if each["name"] != "signal"]
    report = check_text(tmp_path, plan([SWAP], [silent]))
    assert rules(report) == {"deadlock"}
    assert (report["errors"][0]["rank"], report["errors"][0]["step"]) == (0, 2)


def test_semaphores_order_thread_blocks(tmp_path: Path) -> None:
    release, acquire = op("sem_release", semaphore_ids=[0]), op("sem_acquire", semaphore_ids=[0])
    ranks = [[[*SWAP[:3], release], [acquire, *SWAP[4:]]]] * 2
    report = check_text(tmp_path, plan(*ranks, semaphores=1))
    assert (report["valid"], report["warnings"]) == (True, [])
    loose = [[[*SWAP[:3], release], SWAP[4:]]] * 2
    assert {row["rule"] for row in check_text(tmp_path, plan(*loose, semaphores=1))["warnings"]} == {"race"}
    stuck = [[SWAP[:3], [acquire, *SWAP[4:]]]] * 2
    assert rules(check_text(tmp_path, plan(*stuck, semaphores=1))) == {"deadlock"}


def test_a_semaphore_may_start_raised(tmp_path: Path) -> None:
    acquire = op("sem_acquire", semaphore_ids=[0])
    value = plan([[acquire, *SWAP]], [[acquire, *SWAP]], semaphores=1)
    assert rules(check_text(tmp_path, value)) == {"deadlock"}
    for gpu in value["gpus"]:
        gpu["semaphores"] = [{"init_value": 1}]
    assert check_text(tmp_path, value)["valid"]


def test_two_signallers_must_both_have_signalled(tmp_path: Path) -> None:
    """A wait for as many signals as there are comes after all of them; one for fewer after any."""
    release, acquire = op("sem_release", semaphore_ids=[0]), op("sem_acquire", semaphore_ids=[0])
    one, two = [op("copy", [I0], [S0]), release], [op("copy", [I1], [S1]), release]
    last = [acquire, acquire, op("copy", [S0], [I1])]
    value = plan([one, two, last], [], semaphores=1, collective="custom")
    assert {row["rule"] for row in check_text(tmp_path, value)["warnings"]} == {"result"}
    value = plan([one, two, last[1:]], [], semaphores=1, collective="custom")
    assert {row["rule"] for row in check_text(tmp_path, value)["warnings"]} == {"result", "race"}


def test_barriers(tmp_path: Path) -> None:
    meet = op("barrier", barrier_id=0, num_threadblocks=2)
    ranks = [[[*SWAP[:3], meet], [meet, *SWAP[4:]]]] * 2
    report = check_text(tmp_path, plan(*ranks))
    assert (report["valid"], report["warnings"]) == (True, [])
    alone = [[[*SWAP[:3], meet], SWAP[4:]]] * 2
    assert rules(check_text(tmp_path, plan(*alone))) == {"match"}


def test_packets_carry_their_flag(tmp_path: Path) -> None:
    send, add = op("ppkt", [I0, I1], [FAR_S0, FAR_S1]), op("repkt", [I0, S0], [I0])
    right = [[[send, add, op("repkt", [I1, S1], [I1])]]] * 2
    report = check_text(tmp_path, plan(*right, protocol="LL"))
    assert (report["valid"], report["warnings"]) == (True, [])
    assert_result(read_program(tmp_path / "program"))
    missing = [[[op("ppkt", [I0], [FAR_S0]), add, op("repkt", [I1, S1], [I1])]]] * 2
    assert rules(check_text(tmp_path, plan(*missing, protocol="LL"))) == {"match"}


@pytest.mark.parametrize("name", ["pws", "pwsf"])
def test_a_put_with_its_signal(tmp_path: Path, name: str) -> None:
    ops = [{**SWAP[0], "name": name}, *SWAP[2:]]
    report = check_text(tmp_path, plan([ops], [ops]))
    assert (report["valid"], report["warnings"]) == (True, [])


def test_reading_at_the_peer(tmp_path: Path) -> None:
    """rres: rank 0 adds what it reads at rank 1 and writes the sum there as well."""
    far = [{"buffer_id": 1, "index": index, "size": 1} for index in (0, 1)]
    ready, done = [mark("signal"), mark("wait")], [mark("signal"), mark("wait")]
    busy = [op("rres", [near, there], [near, there]) for near, there in zip((I0, I1), far, strict=True)]
    report = check_text(tmp_path, plan([[*ready, *busy, *done]], [[*ready, *done]]))
    assert (report["valid"], report["warnings"]) == (True, [])
    assert_result(read_program(tmp_path / "program"))


def test_a_group_of_thread_blocks_shares_a_chunk(tmp_path: Path) -> None:
    ranks = []
    for _ in range(2):
        blocks = []
        for number in range(2):
            share = {"tbg_info": {"tb_id": number, "tbg_size": 2}}
            blocks.append([{**each, **(share if "src_buff" in each else {})} for each in SWAP])
        ranks.append(blocks)
    value = plan(*ranks)
    report = check_text(tmp_path, value)
    assert (report["valid"], report["warnings"]) == (True, [])
    program = read_program(tmp_path / "program")
    assert program.layout.n_chunks == 4
    assert_result(program)
    assert isinstance(program.schedule, Schedule)
    np.testing.assert_array_equal(np.unique(program.schedule.code.count[program.schedule.code.src > 0]), [1])


# ------------------------------------------------------------------------------------------------ what is wrong is named
def changed(path: str, new: Any) -> dict[str, Any]:
    value: Any = copy.deepcopy(plan([SWAP], [SWAP]))
    *inner, last = path.split(".")
    place = value
    for key in inner:
        place = place[int(key)] if key.isdigit() else place[key]
    if new is None:
        del place[int(last) if last.isdigit() else last]
    else:
        place[int(last) if last.isdigit() else last] = new
    return value  # type: ignore[no-any-return]


FIRST = "gpus.0.threadblocks.0"
BROKEN = [
    ("json", "gpus", None),
    ("json", "gpus", {}),
    ("json", "gpus.0.id", "0"),
    ("json", f"{FIRST}.ops.0.src_buff.0.type", "x"),
    ("attribute", "protocol", "LL128"),
    ("attribute", f"{FIRST}.ops.0.name", "putt"),
    ("gpus", "gpus.1.id", 0),
    ("gpus", "gpus", []),
    ("chunks", "gpus.0.input_chunks", 3),
    ("chunks", "gpus.0.input_chunks", -1),
    ("limits", f"{FIRST}.id", 1),
    ("limits", f"{FIRST}.ops.4.tbg_info", {"tb_id": 2, "tbg_size": 2}),
    ("limits", f"{FIRST}.ops.4.tbg_info", {"tb_id": 0, "tbg_size": 1000}),
    ("limits", "gpus.0.scratch_chunks", 1 << 40),
    ("peer", "gpus.0.channels.0.connected_to.0", 0),
    ("peer", "gpus.0.channels.0.connected_to.0", 7),
    ("peer", "gpus.0.remote_buffers.0.rank", 0),
    ("peer", f"{FIRST}.ops.0.dst_buff.0", S0),
    ("peer", f"{FIRST}.ops.4.dst_buff.0", FAR_S0),
    ("index", f"{FIRST}.ops.0.dst_buff.0.buffer_id", 5),
    ("index", f"{FIRST}.ops.1.channel_ids.0", 3),
    ("index", f"{FIRST}.ops.0.src_buff.0.index", 2),
    ("index", f"{FIRST}.ops.4.src_buff.1.size", 2),
    ("index", f"{FIRST}.channels.0.channel_ids.0", 9),
    ("index", f"{FIRST}.remote_buffer_refs.0.remote_buffer_ids.0", 9),
    ("deadlock", f"{FIRST}.ops.1", None),
    ("result", f"{FIRST}.ops.4", None),
    ("window", "min_message_size", 1 << 63),
]


@pytest.mark.parametrize(("rule", "path", "new"), BROKEN, ids=[f"{n}-{row[0]}" for n, row in enumerate(BROKEN)])
def test_a_broken_rule_is_named(tmp_path: Path, rule: str, path: str, new: Any) -> None:
    value = changed(path, new)
    if path == "min_message_size":
        value["max_message_size"] = 5
    report = check_text(tmp_path, value)
    assert not report["valid"]
    assert rule in rules(report), report["errors"]
    if rule not in ("json", "window") and path not in ("protocol", "gpus"):
        assert any(error["rank"] is not None or rule == "limits" for error in report["errors"])
    json.dumps(report)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"gpus":' * 100_000,
        '{"a":' + "[" * 100_000,
        '{"name": 1e400}',
        '{"name": "\\ud800"}',
        "{}",
        '{"gpus": null}',
        '{"name": ' + "9" * 10_000 + "}",
    ],
)
def test_hostile_files_are_refused(tmp_path: Path, text: str) -> None:
    assert not verdict(tmp_path, text)["valid"]


def test_the_oldest_field_set_is_named(tmp_path: Path) -> None:
    old = {
        "name": "a",
        "colletive": "allreduce",
        "protocol": "LL",
        "inplace": True,
        "gpus": [{"id": 0, "inputChunks": 4}],
    }
    report = check_text(tmp_path, old)
    assert not report["valid"]


def test_the_older_dialect_says_type_and_buff(tmp_path: Path) -> None:
    value = plan([SWAP], [SWAP])
    for gpu in value["gpus"]:
        gpu["channels"] = [{"type": "memory", "connected_to": gpu["channels"][0]["connected_to"]}]
        del gpu["semaphores"]
    assert check_text(tmp_path, value)["valid"]
    assert json.loads(mscclpp_json(read_program(tmp_path / "program"))) == value


def test_every_operation_dropped_is_found(tmp_path: Path) -> None:
    for number, each in enumerate(SWAP):
        if each is not NOP:
            report = check_text(tmp_path, changed(f"{FIRST}.ops.{number}", None))
            assert not report["valid"] or {row["rule"] for row in report["warnings"]} == {"race"}, each


@settings(max_examples=20)
@given(
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]), st.integers(2, 5), st.integers(1, 2), st.booleans()
)
def test_any_ring_becomes_a_plan(collective: str, p: int, channels: int, in_place: bool) -> None:
    import tempfile

    program = ring(Collective(collective, range(p), p * channels * 4), channels=channels)
    with tempfile.TemporaryDirectory() as folder:
        again = read_program(put(Path(folder), mscclpp_json(program, in_place=in_place)))
    assert not validity.check(again, warnings=True)
    assert_result(again)


# ------------------------------------------------------------------------------------------------------ in the switch
@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize("segments", [1, 3])
def test_nvls_becomes_a_plan_with_switch_channels(tmp_path: Path, collective: str, segments: int) -> None:
    program = nvls(Collective(collective, range(4), 4 * 3 * 64), fabric("dgx-h100:1"), segments=segments)
    path = put(tmp_path, mscclpp_json(program))
    report = verify_file(path)
    assert (report["valid"], report["errors"], report["warnings"]) == (True, [], [])
    again = read_program(path)
    assert_result(again)
    names = {each["name"] for each in json.loads(path.read_bytes())["gpus"][0]["threadblocks"][0]["ops"]}
    wanted = {"all-reduce": {"glres", "gstore"}, "all-gather": {"gstore"}, "reduce-scatter": {"glres"}}[collective]
    assert names - {"signal", "wait", "nop"} == wanted
    moved = {op: sum(block.count for step in program.steps() for block in step.blocks if block.op == op) for op in Op}
    ours = {op: sum(block.count for step in again.steps() for block in step.blocks if block.op == op) for op in Op}
    assert moved == ours


def test_a_switch_among_other_moves_is_refused() -> None:
    collective = Collective("all-reduce", range(4), 64)
    mixed = Step((explicit(Op.CONTRIBUTE, range(4), 4, 0), explicit(Op.SEND, 0, 1, 0)))
    program = Program("mixed", collective, cut(collective), lambda: [mixed], 1, Cost((), 64.0), aggregators=(4,))
    with pytest.raises(ProgramError, match="more than the switch can"):
        mscclpp_json(program)


def shared_in_place(p: int = 4) -> dict[str, Any]:
    """Return an all-gather by packets: each rank stores its own through the switch, into the slot that it took it from."""

    def at(letter: str, index: int) -> dict[str, Any]:
        return {"type": letter, "index": index, "size": 1}

    gpus = []
    for rank in range(p):
        blocks = [[{"name": "upkt", "src_buff": [at("s", n)], "dst_buff": [at("o", n)]}] for n in range(p)]
        blocks[0][:0] = [
            {"name": "cpkt", "src_buff": [at("o", rank)], "dst_buff": [at("s", rank)]},
            {
                "name": "gstorepkt",
                "channel_type": "switch",
                "src_buff": [at("s", rank)],
                "dst_buff": [{"switch_channel_id": 0, "index": rank, "size": 1}],
            },
        ]
        switch = [{"channel_type": "switch", "channel_ids": [0]}]
        gpus.append(
            {
                "id": rank,
                "input_chunks": 1,
                "output_chunks": p,
                "scratch_chunks": p,
                "threadblocks": [
                    {"id": n, "ops": ops, "channels": [] if n else switch, "remote_buffer_refs": []}
                    for n, ops in enumerate(blocks)
                ],
                "channels": [{**switch[0], "buffer_type": "s", "rank_groups": [{"size": p, "ranks": list(range(p))}]}],
                "remote_buffers": [],
                "semaphores": [],
            }
        )
        del gpus[-1]["channels"][0]["channel_ids"]
    return {**plan(), "collective": "allgather", "protocol": "LL", "inplace": True, "gpus": gpus}


def test_a_packet_put_back_where_it_was_taken(tmp_path: Path) -> None:
    given = shared_in_place()
    told = verify_file(put(tmp_path, json.dumps(given)))
    assert (told["valid"], told["errors"], told["warnings"]) == (True, [], [])
    moved = copy.deepcopy(given)
    moved["gpus"][1]["threadblocks"][0]["ops"][1]["dst_buff"][0]["index"] = 0  # onto another rank's
    assert {row["rule"] for row in verify_file(put(tmp_path, json.dumps(moved)))["errors"]} >= {"match"}
    apart = copy.deepcopy(given)
    first, second = apart["gpus"][2]["threadblocks"][:2]
    second["ops"].insert(0, first["ops"].pop(1))  # another thread block wrote it, and nothing orders the two
    second["channels"], first["channels"] = first["channels"], []
    assert {row["rule"] for row in verify_file(put(tmp_path, json.dumps(apart)))["errors"]} == {"match"}


@needs_shared_data
def test_a_plan_of_mscclpp_that_shares_in_place() -> None:
    told = verify_file(real("foreign/mscclpp-allgather_nvls_zero_copy_pkt.json"))
    assert (told["valid"], told["warnings"], told["collective"], told["ranks"]) == (True, [], "all-gather", 8)


def test_what_has_no_result_is_out_of_scope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signals = plan([[mark("signal"), mark("wait")]], [[mark("signal"), mark("wait")]], collective="")
    told = verify_file(put(tmp_path, json.dumps(signals)))
    assert (told["valid"], told["collective"]) == (True, "custom")  # it names none
    for gpu in signals["gpus"]:
        gpu["input_chunks"] = gpu["output_chunks"] = 0
    assert main(["verify", str(put(tmp_path, json.dumps(signals)))]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "not judged" in said
    assert "out of scope because no rank has input or output chunks" in said
    assert "unreadable" not in said
    assert "Broken rules" not in said
