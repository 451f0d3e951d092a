"""Flight Recorder dumps: the interpreter of plain data and what it refuses, then the reader on real and made dumps."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources.detect import kind_of
from ringwright.formats.sources.flight_recorder import names, opcodes, read_flight_recorder
from ringwright.formats.sources.flight_recorder.columns import total_bytes
from ringwright.formats.sources.flight_recorder.opcodes import RefusedError, interpret, load
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError, RingwrightError
from ringwright.model.trace import Trace
from ringwright.native import plain
from ringwright_lab.testing.flight_dumps import as_json, pickled
from ringwright_lab.testing.flight_recorder import FlightJob
from shared_data import needs_shared_data, real

VALUES: list[Any] = [
    {"version": "2.9", "entries": [], "pg_config": {}},
    [None, True, False, 0, 1, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 2**40, -(2**62), 2**63, 2**200],
    {"a": [1.5, -0.0, 1e300], "b": ("x",), "c": (1, 2), "d": (1, 2, 3), "e": (1, 2, 3, 4), "f": ()},
    {"text": "naïve ☃ \n '\"\\", "raw": b"\x00\xff", "nested": {"k": [[[]]]}, 7: "seven"},
    ["again"] * 300 + [str(number) for number in range(300)],
]


def standard_pickles() -> list[tuple[int, int, bytes]]:
    """Written by another process, so that this one never imports the module."""
    code = (
        "import pickle, sys, ast\n"
        f"values = ast.literal_eval({VALUES!r}.__repr__())\n"
        "for n, v in enumerate(values):\n"
        "    for p in range(6):\n"
        "        print(n, p, pickle.dumps(v, p).hex())\n"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return [(int(n), int(p), bytes.fromhex(data)) for n, p, data in (line.split() for line in out.splitlines())]


def test_all_protocols_are_read_by_both_twins() -> None:
    for number, protocol, data in standard_pickles():
        if protocol < 3 and number == 3:
            continue  # bytes of protocols 0 to 2 are made by a call
        assert interpret(data) == VALUES[number], (number, protocol)
        assert load(data) == VALUES[number], (number, protocol)


def test_bytes_of_old_protocols_are_a_call_and_refused() -> None:
    data = next(data for number, protocol, data in standard_pickles() if (number, protocol) == (3, 2))
    with pytest.raises(RefusedError, match="GLOBAL"):
        load(data)


def test_the_writer_of_the_generator_is_read_back() -> None:
    value = {
        "a": [1, -5, 2**40, 0.5, None, True],
        "b": ("x", "y"),
        "c": {"d": "x" * 300},
        "e": [str(n) for n in range(400)],
    }
    assert load(pickled(value)) == interpret(pickled(value)) == value


@pytest.mark.skipif(plain is None, reason="no compiled twin")
def test_the_compiled_twin_reads_what_torch_writes() -> None:
    for data in FlightJob(seed=1, stacks=True).files().values():
        assert plain.load(data) == interpret(data)


@pytest.mark.parametrize(("code", "name"), sorted(opcodes.REFUSED.items()))
def test_every_opcode_that_could_name_or_call_is_refused_with_its_offset(code: str, name: str) -> None:
    data = b"\x80\x02](" + code.encode("latin-1") + b"os\nsystem\n"
    with pytest.raises(RefusedError, match=f"opcode {name} is refused") as caught:
        load(data)
    assert caught.value.at == 4


def malicious(canary: Path) -> dict[str, bytes]:
    command = f"touch {canary}".encode()
    call = b"cposix\nsystem\n(X" + struct.pack("<I", len(command)) + command + b"tR."
    hidden = b"}(X\x07\x00\x00\x00entries](" + call[:-1] + b"eu."
    return {
        "global": b"\x80\x02" + call,
        "nested": b"\x80\x02" + hidden,
        "stack global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c" + bytes([len(command)]) + command + b"\x85R.",
        "inst": b"(X" + struct.pack("<I", len(command)) + command + b"iposix\nsystem\n.",
        "object": b"(cposix\nsystem\nX" + struct.pack("<I", len(command)) + command + b"o.",
        "persistent": b"Pexternal\n.",
        "after a dump": pickled({"entries": [], "pg_config": {}})[:-1] + b"0" + call,
    }


def test_nothing_is_ever_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for name, data in malicious(canary).items():
        with pytest.raises(InputError) as caught:
            trace_of({"dump_0": data})
        assert "refused" in str(caught.value), name
        assert not canary.exists(), name


BOMBS = {
    "memo in lists": b"\x80\x02](K\x01eq\x00" + b"](h\x00h\x00eq\x00" * 60 + b".",
    "open containers": b"\x80\x02" + b"](" * 100_000 + b".",
    "tuples in tuples": b"\x80\x02)" + b"\x85" * 200_000 + b".",
    "tuple as key": b"\x80\x02})" + b"\x85" * 100_000 + b"K\x01s.",
    "a number of 2 GB": b"\x80\x02\x8b\xff\xff\xff\x7f1.",
    "a number of many digits": b"I" + b"9" * 1_000_000 + b"\n.",
    "a text of 4 GB": b"\x80\x02X\xff\xff\xff\xffx.",
    "a frame of exabytes": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x0f.",
    "keys that collide": b"\x80\x02}("
    + b"".join(b"\x8a\x08" + struct.pack("<q", n << 40) + b"N" for n in range(20_000))
    + b"u.",
    "a list within itself": b"\x80\x02]q\x00h\x00a.",
    "pops of nothing": b"\x80\x020000.",
    "far memo": b"\x80\x02]r\xff\xff\xff\xff.",
}


@pytest.mark.sampled(6, "*")
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end_soon(name: str) -> None:
    for read in (load, interpret):
        with contextlib.suppress(RefusedError):
            read(BOMBS[name])
    with pytest.raises(RingwrightError):
        trace_of({"dump_0": BOMBS[name]})


def test_a_shared_part_is_not_walked_again_and_again() -> None:
    """Sizes that name one list a thousand times, in entries that are one entry a thousand times."""
    sizes = b"](K\x02K\x03eq\x01](" + b"h\x01" * 5000 + b"eq\x02"
    entry = b"}(X\x0b\x00\x00\x00input_sizesh\x02X\x0e\x00\x00\x00profiling_nameX\x0f\x00\x00\x00nccl:all_reduceuq\x03"
    data = b"\x80\x02" + sizes + b"0" + b"}(X\x07\x00\x00\x00entries](" + entry + b"h\x03" * 2000 + b"eu."
    trace = trace_of({"dump_0": data})
    assert trace.df.filter(pl.col("kind") == "collective").height == 2001


JSON_BOMBS = {
    "deep": b'{"entries":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "many": b'{"entries":[' + b"[]," * 5_000_000 + b"[]]}",
    "open text": b'{"entries":[' + b'\\"' * 500_000,
    "huge number": b'{"entries":[{"record_id":' + b"9" * 100_000 + b"}],}",
    "no object": b"[1,2,3]",
    "nothing": b"",
}


@pytest.mark.parametrize("name", JSON_BOMBS)
def test_json_bombs_end_soon(name: str) -> None:
    with pytest.raises(InputError):
        trace_of({"dump_0.json": JSON_BOMBS[name]})


def trace_of(files: dict[str, bytes]) -> Trace:
    return read_flight_recorder([Source(name, lambda data=data: io.BytesIO(data)) for name, data in files.items()])


def real_dumps(run: str) -> Trace:
    folder = real(f"real/flight-recorder/{run}")
    return read_flight_recorder([source for source in find([str(folder)]) if "_dump_" in source.name])


@needs_shared_data
@pytest.mark.parametrize(("run", "operations"), [("gpu_error_2nd", 278), ("lock_gil_1st", 142)])
def test_real_dumps(run: str, operations: int) -> None:
    trace = real_dumps(run)
    calls = trace.df.filter(pl.col("kind").is_in(["collective", "p2p"]))
    assert calls.height == operations
    assert sorted(calls["rank"].unique()) == [
        rank for rank in range(16) if run == "gpu_error_2nd" or rank not in (9, 14)
    ]
    assert trace.meta["world"] == 16
    assert trace.meta["nccl_versions"] == ["2.27.3"]
    assert trace.meta["losses"] == []
    groups = trace.table("communicators")
    assert groups.height == 59
    assert groups.filter(pl.col("comm_id") == "37")["members"].to_list() == [[8, 9, 10, 11]]
    assert groups.filter(pl.col("comm_id") == "37")["role"].item() == "tp"


@needs_shared_data
def test_sizes_of_a_real_all_gather_and_counters_of_a_rank_without_entries() -> None:
    trace = real_dumps("gpu_error_2nd")
    row = trace.df.filter((pl.col("rank") == 9) & (pl.col("line") == 192074)).to_dicts()[0]
    assert (row["op"], row["sequence"], row["datatype"], row["state"]) == ("all-gather", 87749, "bfloat16", "scheduled")
    assert (row["sent_bytes"], row["size_bytes"]) == (2048 * 5120 * 2, 8192 * 5120 * 2)
    send = trace.df.filter((pl.col("rank") == 9) & (pl.col("op") == "send")).to_dicts()[0]
    assert (send["comm_rank"], send["peer"], send["sequence"]) == (9, 1, 13996)
    silent = real_dumps("lock_gil_1st")
    group = silent.table("communicators").filter(pl.col("comm_id") == "72")["communicator"].item()
    mine = silent.df.filter((pl.col("kind") == "status") & (pl.col("rank") == 9) & (pl.col("communicator") == group))
    assert dict(mine.select("op", "sequence").rows()) == {"last-enqueued": 45264, "last-completed": 45264}
    assert mine["ground"].unique().to_list() == ["inferred"]


def test_a_made_job_in_closed_form() -> None:
    job = FlightJob(seed=2, stacks=True)
    trace = trace_of(job.files())
    calls = trace.df.filter(pl.col("kind") != "status")
    assert calls.height == sum(len(job.program(rank)) for rank in range(job.world))
    assert calls["state"].unique().to_list() == ["completed"]
    assert trace.meta["origin_ns"] == min(e["time_created_ns"] for d in job.dumps().values() for e in d["entries"])
    scatter = calls.filter(pl.col("op") == "reduce-scatter")
    assert scatter["size_bytes"].unique().to_list() == [2048 * 4 * 4096 * 2]
    assert calls.filter(pl.col("duration_s").is_null()).height == 0
    assert calls["text"].drop_nulls().str.starts_with("train at /job/train.py").all()
    per_sequence = (
        calls.filter(pl.col("kind") == "collective")
        .group_by("communicator", "sequence")
        .agg(pl.col("rank").n_unique(), pl.col("nranks").first())
    )
    assert (per_sequence["rank"] == per_sequence["nranks"]).all()
    assert set(trace.table("communicators")["role"]) == {"world", "tp", "dp", "pp"}


def test_json_says_the_same_as_the_pickle() -> None:
    job = FlightJob("stopped", seed=5)
    pickle_rows, json_rows = (trace_of(job.with_(form=form).files()).df for form in ("pickle", "json"))
    assert pickle_rows.equals(json_rows)


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_dump_cut_short_keeps_what_came_before(form: str) -> None:
    files = FlightJob("stopped", seed=1, form=form).files()
    name = "nccl_trace_rank_3"
    whole = trace_of(files).df.filter((pl.col("rank") == 3) & (pl.col("kind") != "status")).height
    files[name] = files[name][: len(files[name]) * 2 // 3]
    trace = trace_of(files)
    kept = trace.df.filter((pl.col("rank") == 3) & (pl.col("kind") != "status")).height
    assert 0 < kept < whole or form == "json"  # JSON has its counters last and its entries first
    assert any("cut short" in loss for loss in trace.meta["losses"])
    assert trace.df["rank"].n_unique() == 16


@needs_shared_data
def test_stated_roles_reach_the_summary() -> None:
    summary = summarise(real_dumps("lock_gil_1st"))
    assert summary["roles"] == {"tp": 4, "pp": 2, "dp": 2, "ep": 8}
    assert summary["ranks_seen"] == summary["ranks_expected"] == 16


def test_groups_without_members_still_make_a_summary() -> None:
    summary = summarise(trace_of({"dump_0": pickled(dump([entry()], pg_config={}))}))
    assert summary["communicators"] == [{"size": 1, "count": 1}]


def test_a_foreign_file_and_a_second_dump_of_a_rank_are_noted() -> None:
    files = FlightJob(seed=1).files()
    files["notes.bin"] = b"\x80\x02K\x01."
    files["copy_rank_4"] = files["nccl_trace_rank_4"]
    trace = trace_of(files)
    assert trace.df["rank"].n_unique() == 16
    assert len(trace.meta["losses"]) == 2
    refused = trace.table("ledger").filter(pl.col("outcome") == "refused")
    assert sorted(refused["file"]) == ["copy_rank_4", "notes.bin"]


def test_the_rank_comes_from_the_groups_where_the_name_says_nothing() -> None:
    dumps = FlightJob(seed=1).dumps()
    trace = trace_of({"a": pickled(dumps[6]), "b": pickled(dumps[11])})
    assert sorted(trace.df["rank"].unique()) == [6, 11]
    assert trace.table("claims").filter(pl.col("field") == "rank").height == 2


def test_a_name_that_contradicts_the_groups_is_said() -> None:
    dumps = FlightJob(seed=1).dumps()
    trace = trace_of({"dump-3": pickled(dumps[6])})
    assert trace.df["rank"].unique().to_list() == [6]
    assert any("file name says rank 3" in loss for loss in trace.meta["losses"])


def entry(**given: Any) -> dict[str, Any]:
    base = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 10**18,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "is_p2p": False,
    }
    return base | given


def dump(entries: list[dict[str, Any]], **given: Any) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.9", "pg_config": config, "pg_status": {}, "entries": entries} | given


def test_coalesced_operations_take_the_state_of_their_marker() -> None:
    sends = [
        entry(record_id=n, profiling_name=name, collective_seq_id=0, p2p_seq_id=1, state="scheduled", is_p2p=True)
        for n, name in enumerate(("nccl:send 0->1", "nccl:recv 0<-1"))
    ]
    marker = entry(
        record_id=2, profiling_name="nccl:coalesced", collective_seq_id=0, p2p_seq_id=1, input_sizes=[], duration_ms=2.0
    )
    gathers = [
        entry(record_id=n, profiling_name="nccl:_all_gather_base", state="scheduled", output_sizes=[[8]])
        for n in (3, 4)
    ]
    joint = entry(
        record_id=5, profiling_name="nccl:ALLGATHER_coalesced", state="started", input_sizes=[], output_sizes=[]
    )
    trace = trace_of({"dump_0": pickled(dump([*sends, marker, *gathers, joint]))})
    rows = (
        trace.df.filter(pl.col("kind") != "status").select("op", "state", "size_bytes", "records", "duration_s").rows()
    )
    assert rows == [
        ("send", "completed", 16, 1, 0.002),
        ("recv", "completed", 16, 1, 0.002),
        ("all-gather", "started", 64, 2, None),
    ]


def test_counters_are_derived_where_there_are_none() -> None:
    trace = trace_of({"dump_0": pickled(dump([entry(), entry(record_id=1, collective_seq_id=2, state="started")]))})
    status = trace.df.filter(pl.col("kind") == "status")
    assert dict(status.select("op", "sequence").rows()) == {"last-enqueued": 2, "last-completed": 1}
    assert status["ground"].unique().to_list() == ["inferred"]


@pytest.mark.parametrize(
    "config",
    [
        [{"name": "0", "desc": "default_pg", "ranks": [0, 1]}],
        {"0": {"name": "0", "desc": "default_pg", "ranks": [0, 1]}},
        {"0": [0, 1]},
    ],
)
def test_process_groups_in_every_form(config: Any) -> None:
    trace = trace_of({"dump_1": as_json(dump([entry()], pg_config=config, version="2.4"))})
    row = trace.table("communicators").to_dicts()[0]
    assert (row["comm_id"], row["members"], row["size"]) == ("0", [0, 1], 2)
    assert trace.df["comm_rank"][0] == 1


def test_wrong_types_cost_only_the_value() -> None:
    wrong = [None, "x", -1, 1e99, [], {}, [[None]], [["a"]], [[2**70]], True, b"", ("a",), 2**80]
    entries = [entry(**{key: value}) for key in entry() for value in wrong]
    trace = trace_of({"dump_0": pickled_any(dump([*entries, entry()]))})
    assert trace.df.filter(pl.col("kind") != "status").height == len(entries) + 1


def pickled_any(value: Any) -> bytes:
    """Write with protocol 2 by hand what the generator's writer does not know."""
    return pickled(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, tuple) and len(value) != 2:
        return list(value)
    if isinstance(value, int) and abs(value) >= 2**63:
        return float(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_fuzz_ends_in_a_trace_or_an_error(form: str) -> None:
    draw = random.Random(f"fuzz {form}")
    whole = FlightJob("gpu-error", seed=3, world=8, tp=4, pp=2, steps=1, form=form).files()
    for case in range(100):
        files = dict(list(whole.items())[:3])
        name = draw.choice(sorted(files))
        data = bytearray(files[name])
        for _ in range(draw.choice((1, 3, 30))):
            at = draw.randrange(len(data))
            data[at : at + draw.choice((0, 1, 4))] = draw.randbytes(draw.choice((0, 1, 5)))
        files[name] = bytes(data[: draw.choice((len(data), draw.randrange(1, len(data) + 1)))])
        try:
            trace = trace_of(files)
        except RingwrightError:
            continue
        assert isinstance(trace, Trace), f"case {case} of {form}"
        assert trace.df["rank"].n_unique() >= 2


def test_names_of_operations() -> None:
    said = {
        "nccl:all_reduce": "all-reduce",
        "nccl:_all_gather_base": "all-gather",
        "nccl:all_gather_into_tensor_coalesced": "all-gather",
        "nccl:_reduce_scatter_base": "reduce-scatter",
        "nccl:all_to_all": "all-to-all",
        "gloo:broadcast": "broadcast",
        "nccl:_reduce_oop": "reduce",
        "nccl:all_reduce_barrier": "barrier",
        "xccl:gather": "gather",
        "nccl:new_window": "unknown",
    }
    assert {name: names.operation(name).op for name in said} == said
    assert names.operation("nccl:recv 0<-1")[:4] == ("p2p", "recv", 0, 1)
    assert names.operation("nccl:send 3->12")[:4] == ("p2p", "send", 3, 12)


def test_ranks_in_names() -> None:
    files = {
        "nccl_trace_rank_3": 3,
        "dump-3": 3,
        "_dump_14": 14,
        "trace_rank7.pkl": 7,
        "x/rank_2/fr_5.json.gz": 5,
        "job": None,
    }
    assert {name: names.rank_in_name(name) for name in files} == files


def test_roles_of_descriptions() -> None:
    said = {
        "default_pg": "world",
        "TENSOR_MODEL_PARALLEL_GROUP": "tp",
        "DATA_PARALLEL_GROUP_WITH_CP": "dp-cp",
        "mesh_tp": "tp",
        "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
        "EXPERT_MODEL_PARALLEL_GROUP": "ep",
        "EMBEDDING_GROUP": "embedding",
        "EXPERT_DATA_PARALLEL_GROUP": "edp",
        "MODEL_PARALLEL_GROUP": "mp",
        "undefined": None,
    }
    assert {name: names.role(name) for name in said} == said


def test_the_size_column_is_that_of_nccl_tests() -> None:
    assert total_bytes("all-reduce", 4, 16, 16) == 16
    assert total_bytes("all-gather", 4, 16, 64) == 64
    assert total_bytes("reduce-scatter", 4, 64, 16) == 64
    assert total_bytes("gather", 4, 16, 0) == 64
    assert total_bytes("scatter", 4, 0, 16) == 64
    assert total_bytes("recv", 2, None, 16) == 16


def test_dumps_are_detected() -> None:
    for form in ("pickle", "json"):
        data = next(iter(FlightJob(seed=1, form=form).files().values()))
        assert kind_of(data) == "flight-recorder"


def test_no_sources_is_an_error() -> None:
    with pytest.raises(InputError, match="no Flight Recorder dump"):
        read_flight_recorder([])
