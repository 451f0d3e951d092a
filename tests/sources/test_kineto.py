"""Reading PyTorch profiler traces: links, spellings, groups, ranks, sequences, clocks."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kineto_traces import ALL_REDUCE, GEMM, Maker, claims, collectives, meta, read, source
from ringwright.analysis.summary import summarise
from ringwright.formats.sources.detect import kind_of
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.kineto import pieces, read_kineto, reader, stream
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError


def test_kernel_record_and_call_become_one_row() -> None:
    job = Maker()
    job.step(3, 50, 500)
    job.collective(200, 40)
    job.kernel(GEMM, 150, 30)
    job.add("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 260, 3, stream=7)
    trace = read(job)
    (row,) = collectives(trace)
    assert (row["op"], row["kind"], row["rank"], row["comm_rank"], row["nranks"]) == (
        "all-reduce",
        "collective",
        0,
        0,
        2,
    )
    assert (row["size_bytes"], row["count"], row["element_bytes"], row["datatype"]) == (2000, 1000, 2, "bfloat16")
    assert (row["algorithm"], row["protocol"], row["reduce_op"], row["channels"]) == ("ring", "ll", "sum", 8)
    assert (row["kernel_class"], row["stream"], row["iteration"], row["state"]) == ("nccl", "20", 3, "completed")
    assert row["start_s"] == pytest.approx(150e-6)
    assert row["enqueue_s"] == pytest.approx(145e-6)
    assert row["duration_s"] == pytest.approx(40e-6)
    assert trace.df.group_by("kind").len().sort("kind").rows() == [
        ("collective", 1),
        ("compute", 1),
        ("memory", 1),
        ("step", 1),
    ]
    event = json.loads(job.text())["traceEvents"][row["line"]]
    assert event["name"] == ALL_REDUCE
    assert trace.meta["world"] == 2
    assert trace.meta["library"] == "nccl"
    assert trace.meta["source"] == "kineto"


@pytest.mark.parametrize("spelling", ["BFloat16", "c10::BFloat16", "torch.bfloat16"])
def test_spellings_of_types(spelling: str) -> None:
    job = Maker()
    job.collective(100, 10, dtype=spelling)
    assert collectives(read(job))[0]["size_bytes"] == 2000


@pytest.mark.parametrize(
    ("name", "count", "out", "op", "size"),
    [
        ("allreduce", 100, 100, "all-reduce", 200),
        ("_allgather_base", 100, 200, "all-gather", 400),
        ("all_gather_into_tensor_coalesced", 100, 100, "all-gather", 400),
        ("_reduce_scatter_base", 200, 100, "reduce-scatter", 400),
        ("reduce_scatter_tensor_coalesced", 200, 100, "reduce-scatter", 400),
        ("broadcast", 100, 100, "broadcast", 200),
        ("reduce", 100, 100, "reduce", 200),
        ("all_to_allv", 300, 100, "all-to-all", 600),
        ("all_to_all", 300, 300, "all-to-all", 600),
        ("barrier", 0, 0, "barrier", 0),
    ],
)
def test_sizes_follow_nccl_tests(name: str, count: int, out: int, op: str, size: int) -> None:
    job = Maker()
    job.record(94, 4, **meta(name, count, out))
    job.kernel("ncclDevKernel_Generic(ncclDevKernelArgs)", 100, 10, stream=20)
    (row,) = collectives(read(job))
    assert (row["op"], row["size_bytes"]) == (op, size)
    sent = size if op == "reduce-scatter" else 2 * count
    assert (row["sent_bytes"], row["received_bytes"]) == (sent, size if op == "all-gather" else 2 * out)


def test_send_and_receive_are_point_to_point() -> None:
    job = Maker()
    for at, name, peer in ((100, "send", {"Dst_Rank": 1}), (200, "recv", {"Src_Rank": 1})):
        job.record(at - 6, 4, **meta(name, 50, **peer))
        job.kernel("ncclDevKernel_SendRecv(ncclDevKernelArgs)", at, 10, stream=22)
    job.kernel("ncclDevKernel_SendRecv(ncclDevKernelArgs)", 300, 10, stream=22)
    rows = collectives(read(job))
    assert [(row["kind"], row["op"], row["peer"], row["size_bytes"]) for row in rows] == [
        ("p2p", "send", 1, 100),
        ("p2p", "recv", 1, 100),
        ("p2p", "send-recv", None, None),
    ]


def test_metadata_copied_onto_the_kernel_needs_no_record() -> None:
    job = Maker()
    job.kernel(ALL_REDUCE, 100, 10, stream=20, launch=float("nan"), **meta("allreduce", 8, Seq=41))
    (row,) = collectives(read(job))
    assert (row["size_bytes"], row["sequence"], row["ground"], row["enqueue_s"]) == (16, 41, "read", None)


def test_kernels_link_by_external_id_when_their_call_is_missing() -> None:
    job = Maker()
    job.record(50, 4, **{"External id": 77, **meta("allreduce", 8)})
    job.kernel(ALL_REDUCE, 100, 10, stream=20, launch=float("nan"), **{"External id": 77})
    assert [row["size_bytes"] for row in collectives(read(job))] == [16]


def test_wait_is_no_collective() -> None:
    job = Maker()
    job.collective(100, 10)
    job.record(120, 3, **{**meta("wait", 0), "Process Group Name": "0"})
    job.record(130, 3)
    trace = read(job)
    assert len(collectives(trace)) == 1
    assert claims(trace, "nameless records")[0]["value"] == "2"


def test_two_records_of_one_operation_count_once() -> None:
    nested = Maker()
    nested.record(90, 20)
    nested.collective(100, 10)
    assert len(collectives(read(nested))) == 1
    following = Maker()
    following.collective(100, 10, Seq=5)
    following.record(110, 2, **meta("allreduce", 1000, Seq=5))
    assert len(collectives(read(following))) == 1


def test_an_operation_without_its_kernel_is_kept_as_scheduled() -> None:
    job = Maker()
    job.collective(100, 10)
    job.record(300, 3, **meta("allreduce", 1000))
    rows = collectives(read(job))
    assert [(row["state"], row["duration_s"] is None) for row in rows] == [("completed", False), ("scheduled", True)]


def test_first_kernels_without_metadata_are_counted_as_unknown() -> None:
    job = Maker()
    job.kernel("ncclDevKernel_Generic(ncclDevKernelArgs)", 50, 10, stream=20, launch=float("nan"))
    job.collective(100, 10)
    trace = read(job)
    rows = collectives(trace)
    assert sorted((row["op"], row["size_bytes"]) for row in rows) == [("all-reduce", 2000), ("unknown", None)]
    assert claims(trace, "kernels without metadata")[0]["value"] == "1"


def test_several_kernels_of_one_record_are_one_operation() -> None:
    job = Maker()
    job.record(90, 20, **meta("allreduce", 1000))
    job.kernel(ALL_REDUCE, 100, 10, stream=20, launch=92)
    job.kernel(ALL_REDUCE, 120, 10, stream=20, launch=95)
    (row,) = collectives(read(job))
    assert row["records"] == 2
    assert row["duration_s"] == pytest.approx(30e-6)


def test_kernels_of_a_graph_are_operations_of_their_own() -> None:
    job = Maker()
    job.record(0, 50, **meta("allreduce", 1000))
    for replay, launch in enumerate((10, 300)):
        job.add("cuda_runtime", "cudaGraphLaunch", launch, 5, correlation=900 + replay)
        for at in (100, 200):
            job.add("kernel", ALL_REDUCE, launch + at, 10, 20, correlation=900 + replay, stream=20)
    rows = [row for row in collectives(read(job)) if row["duration_s"]]
    assert [(row["graph_captured"], row["graph_replay"]) for row in rows] == [
        (True, 0),
        (True, 0),
        (True, 1),
        (True, 1),
    ]


def test_rccl_takes_the_operation_from_the_call() -> None:
    job = Maker()
    job.header["deviceProperties"] = [{"id": 0, "name": "AMD Instinct MI300X"}]
    job.record(94, 4, **meta("_allgather_base", 100, 200))
    job.kernel("ncclDevKernel_Generic_4(ncclDevKernelArgs)", 100, 10, stream=20)
    trace = read(job)
    (row,) = collectives(trace)
    assert (row["op"], row["kernel_class"], trace.meta["library"]) == ("all-gather", "rccl", "rccl")


def test_labels_name_operations_of_older_releases() -> None:
    job = Maker()
    job.record(90, 20)
    job.add("user_annotation", "nccl:_reduce_scatter_base", 91, 18)
    job.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 100, 10, stream=20)
    job.add("user_annotation", "nccl:all_to_all", 191, 18)  # not recorded at all
    job.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 200, 10, stream=20)
    trace = read(job)
    rows = collectives(trace)
    assert [(row["op"], row["ground"]) for row in rows] == [("reduce-scatter", "inferred"), ("all-to-all", "inferred")]
    assert "named send-recv where the call is reduce-scatter" in claims(trace, "operation")[0]["note"]


def test_gloo_runs_on_the_host() -> None:
    job = Maker(backend="gloo")
    job.record(100, 50, **meta("allreduce", 1000))
    job.add("user_annotation", "gloo:all_reduce", 101, 400)
    trace = read(job)
    (row,) = collectives(trace)
    assert row["duration_s"] == pytest.approx(400e-6)
    assert (row["kernel_class"], row["ground"], trace.meta["library"]) == ("gloo", "inferred", "gloo")
    assert trace.meta["limits"]
    assert claims(trace, "device events")


# ------------------------------------------------------------------------------------------------------------- groups


def ranks_text(ranks: list[int], *, cut: int = 30) -> str:
    return "[" + ", ".join(map(str, ranks[:cut])) + (", ...]" if len(ranks) > cut else "]")


def test_a_cut_rank_list_is_completed_from_the_group_configuration() -> None:
    ranks = list(range(0, 128, 2))
    config = [{"pg_name": "7", "pg_desc": "mesh_dp", "pg_size": 64, "ranks": ranks}]
    job = Maker(rank=126, world=128, pg_config=config)
    job.collective(100, 10, **{"Process Group Name": "7", "Group size": 64, "Process Group Ranks": ranks_text(ranks)})
    trace = read(job)
    group = trace.table("communicators").filter(pl.col("comm_id") == "7").to_dicts()[0]
    assert group["members"] == ranks
    assert group["role"] == "dp"
    assert group["ground"] == "read"
    assert collectives(trace)[0]["comm_rank"] == 63


def test_a_cut_rank_list_is_completed_from_first_rank_and_stride() -> None:
    ranks = list(range(3, 3 + 40 * 4, 4))
    said = {"Process Group Ranks": ranks_text(ranks), "Group size": 40, "Global rank start": 3, "Global rank stride": 4}
    job = Maker(rank=3, world=160)
    job.collective(100, 10, **said)
    trace = read(job)
    assert trace.table("communicators")["members"].to_list() == [ranks]
    assert "cut at 30" in claims(trace, "members")[0]["note"]


def test_a_cut_rank_list_that_nothing_completes_says_so() -> None:
    ranks = [*range(20), *range(40, 60)]
    job = Maker(rank=0, world=160)
    job.collective(100, 10, **{"Process Group Ranks": ranks_text(ranks), "Group size": 40})
    (group,) = read(job).table("communicators").to_dicts()
    assert group["size"] == 40
    assert group["members"] == ranks[:30] + [-1] * 10


def test_old_group_ids_and_no_groups() -> None:
    old = Maker()
    old.record(94, 4, **{"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 4, "Process Group ID": 3})
    old.kernel(ALL_REDUCE, 100, 10, stream=20)
    trace = read(old)
    assert trace.table("communicators")["comm_id"].to_list() == ["3"]
    assert collectives(trace)[0]["size_bytes"] == 16
    none = Maker(world=2), Maker(rank=1, world=2)
    for job, streams in zip(none, ((20, 31), (44, 57)), strict=True):  # numbers of streams differ, their order does not
        for place, stream_number in enumerate(streams):
            job.kernel(ALL_REDUCE, 100 + 100 * place, 10, stream=stream_number)
    trace = read(*none)
    groups = trace.table("communicators")
    assert groups["ranks_seen"].to_list() == [2, 2]
    assert groups["members"].to_list() == [[0, 1], [0, 1]]
    assert len(claims(trace, "communicator")) == 2


def test_equal_names_with_other_members_are_other_groups() -> None:
    jobs = [Maker(rank=rank, world=4) for rank in range(4)]
    for rank, job in enumerate(jobs):
        pair = [0, 1] if rank < 2 else [2, 3]
        job.collective(100, 10, **{"Process Group Name": "tp", "Process Group Ranks": str(pair)})
    trace = read(*jobs)
    assert trace.table("communicators")["members"].to_list() == [[0, 1], [2, 3]]
    assert [row["communicator"] for row in collectives(trace)] == [0, 0, 1, 1]


# ----------------------------------------------------------------------------------------------------- ranks and clocks


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank-3.json", 3), ("a/rank3_trace.json.gz", 3), ("worker12_step_4.1.pt.trace.json", 12), ("x.json", 0)],
)
def test_rank_from_the_file_name(name: str, rank: int) -> None:
    job = Maker(rank=None)
    job.collective(100, 10)
    trace = read_kineto([job.source(name)])
    assert collectives(trace)[0]["rank"] == rank
    assert claims(trace, "rank")


def test_files_that_claim_one_rank_are_told_apart_by_name() -> None:
    jobs = [Maker(rank=0) for _ in range(2)]
    for job in jobs:
        job.collective(100, 10)
    trace = read_kineto([job.source(f"rank{place}.json") for place, job in enumerate(jobs)])
    assert sorted(row["rank"] for row in collectives(trace)) == [0, 1]
    assert "same rank" in claims(trace, "rank")[0]["note"]


def test_host_and_process() -> None:
    job = Maker()
    job.collective(100, 10)
    trace = read_kineto([job.source("gpu-node-17_10.1694128201554.pt.trace.json")])
    (device,) = trace.table("topology").to_dicts()
    assert (device["kind"], device["host"], device["pid"], device["device"], device["rank"]) == (
        "device",
        "gpu-node-17",
        10,
        0,
        0,
    )


def test_clocks_of_ranks_meet_at_the_earliest_origin() -> None:
    base = 1_700_000_000_000_000_000
    first, second = Maker(rank=0), Maker(rank=1)
    first.collective(5000, 10)
    second.collective(3000, 10)
    trace = read_kineto(
        [
            first.source("rank0.json", baseTimeNanoseconds=base),
            second.source("rank1.json", baseTimeNanoseconds=base + 4_000_000),
        ]
    )
    assert trace.meta["origin_ns"] == base + 4994 * 1000
    starts = {row["rank"]: row["start_s"] for row in collectives(trace)}
    assert starts[0] == pytest.approx(6e-6)
    assert starts[1] == pytest.approx(2006e-6)


def test_times_since_1970_are_their_own_origin() -> None:
    job = Maker()
    job.collective(1_694_128_201_425_808, 10)
    assert read(job).meta["origin_ns"] == 1_694_128_201_425_802_000
    unknown = Maker()
    unknown.collective(100, 10)
    trace = read(unknown)
    assert trace.meta["origin_ns"] is None
    assert claims(trace, "origin")


# ---------------------------------------------------------------------------------------------------------- sequences


def test_sequence_is_read_when_it_is_there() -> None:
    jobs = [Maker(rank=rank) for rank in range(2)]
    for rank, job in enumerate(jobs):
        for place in range(rank, 4):  # the second rank's profile begins one operation later
            job.collective(100 + 100 * place, 10, Seq=60 + place)
    trace = read(*jobs)
    assert [row["sequence"] for row in collectives(trace)] == [60, 61, 62, 63, 61, 62, 63]
    assert not claims(trace, "sequence")
    assert {row["ground"] for row in collectives(trace)} == {"read"}


def test_sequence_is_counted_per_kind_and_equal_on_all_ranks() -> None:
    jobs = [Maker(rank=rank) for rank in range(2)]
    orders = (("allreduce", "broadcast", "allreduce"), ("broadcast", "allreduce", "allreduce"))
    for job, order in zip(jobs, orders, strict=True):
        for place, name in enumerate(order):
            job.record(94 + 100 * place, 4, **meta(name, 10))
            job.kernel("ncclDevKernel_Generic(x)", 100 + 100 * place, 10, stream=20)
    rows = collectives(read(*jobs))
    assert [(row["op"], row["sequence"]) for row in rows] == [
        ("all-reduce", 0),
        ("broadcast", 1),
        ("all-reduce", 2),
        ("broadcast", 1),
        ("all-reduce", 0),
        ("all-reduce", 2),
    ]
    assert {row["ground"] for row in rows} == {"inferred"}


def test_counting_follows_steps_when_profiles_begin_apart() -> None:
    jobs = [Maker(rank=rank) for rank in range(2)]
    for rank, job in enumerate(jobs):
        for step in range(rank, 3):
            job.step(step, 1000 * step, 900)
            job.collective(1000 * step + 100, 10)
            job.collective(1000 * step + 200, 10)
    rows = collectives(read(*jobs))
    first, second = (
        {(r["iteration"], r["start_s"]): r["sequence"] for r in rows if r["rank"] == rank} for rank in (0, 1)
    )
    assert [first[key] for key in sorted(first)] == [0, 1, 2, 3, 4, 5]
    assert [second[key] for key in sorted(second)] == [
        2,
        3,
        4,
        5,
    ]


def test_counting_moves_ranks_against_each_other_where_sizes_then_fit() -> None:
    jobs = [Maker(rank=rank) for rank in range(2)]
    counts = [10, 20, 30, 40]
    for rank, job in enumerate(jobs):
        for place, count in enumerate(counts[rank:]):
            job.collective(100 + 100 * place, 10, **{"In msg nelems": count})
    trace = read(*jobs)
    assert [row["sequence"] for row in collectives(trace)] == [0, 1, 2, 3, 1, 2, 3]
    assert any("different numbers" in row["note"] for row in claims(trace, "sequence"))


# --------------------------------------------------------------------------------------------- files, damage, and size


def test_damaged_files_do_not_lose_the_good_ones(tmp_path: Path) -> None:
    good, other = Maker(rank=0), Maker(rank=1)
    for job in (good, other):
        job.collective(100, 10)
    (tmp_path / "rank0.json").write_bytes(good.text())
    packed = gzip.compress(other.text())
    (tmp_path / "rank1.json.gz").write_bytes(packed[: len(packed) - 30])
    (tmp_path / "rank2.json").write_text("this is no trace")
    (tmp_path / "rank3.json.gz").write_bytes(b"\x1f\x8b garbage")
    paths = [str(tmp_path / name) for name in ("rank0.json", "rank1.json.gz", "rank2.json", "rank3.json.gz")]
    trace = read_kineto(find(paths))
    assert 0 in {row["rank"] for row in collectives(trace)}
    assert sum("rank2.json" in loss for loss in trace.meta["losses"]) >= 1
    assert any("input damaged" in loss for loss in trace.meta["losses"])
    with pytest.raises(InputError) as error:
        read_kineto(find(paths[2:]))
    assert error.value.remedy
    assert error.value.where


def test_a_cut_file_keeps_what_stands_before_the_cut() -> None:
    job = Maker()
    for place in range(50):
        job.collective(100 + 100 * place, 10)
    text = job.text()
    trace = read_kineto([source(text[: text.index(b'"traceEvents"') + (len(text) // 2)])])
    assert 20 < len(collectives(trace)) < 30
    assert any("the file is cut" in loss for loss in trace.meta["losses"])
    assert collectives(trace)[0]["size_bytes"] == 2000


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("block", [64, 1000, 8 << 20])
def test_blocks_of_any_size_give_the_same_events(
    monkeypatch: pytest.MonkeyPatch, indent: int | None, block: int
) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", block)
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f'a{n} }},{{ \\" ]', "args": {"l": [{"a": 1}, {"b": [{}, {}]}]}}
        for n in range(40)
    ]
    text = json.dumps(
        {"x": [{"y": 1}, {"z": 2}], "traceEvents": events, "baseTimeNanoseconds": 5, "q": [{}, {}]}, indent=indent
    )
    found = pieces.Reading("x")
    names = [event.name for batch in stream.batches(source(text.encode()), found) for event in batch]
    assert names == [event["name"] for event in events]
    assert (found.events, found.refused, found.losses) == (40, 0, [])
    assert found.header == {"baseTimeNanoseconds": 5}


def test_known_damage_is_mended() -> None:
    text = b'{"traceEvents":[{"ph":"X","name":"a","args":{"x":inf,"y":-nan}},{"ph":"X","name":"C:\\dir"},{"ph":"X","name":"\xff"}],"baseTimeNanoseconds":5,"x":[{"a":1}]}'
    found = pieces.Reading("x")
    names = [event.name for batch in stream.batches(source(text), found) for event in batch]
    assert names == ["a", "C:\\dir", "\ufffd"]
    assert found.header == {"baseTimeNanoseconds": 5}
    assert found.repaired
    assert not found.refused


def test_an_event_is_mended_beside_one_that_cannot_be() -> None:
    text = b'{"traceEvents":[{"ph":"X" 5},{"ph":"X","name":"\xff"},{"ph":"X","name":"b"}]}'
    found = pieces.Reading("x")
    names = [event.name for batch in stream.batches(source(text), found) for event in batch]
    assert names[1:] == ["\ufffd", "b"]
    assert (found.events, found.refused) == (3, 1)


def test_damage_costs_its_neighbourhood_and_not_the_rest_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{"ph": "X", "name": f"op{k}"} for k in range(2_000)]
    one = json.dumps(events)[1:].replace('"name": "op40"', "5") + ","
    looked_at = 0
    repair = pieces.repair

    def counted(piece: bytes) -> bytes:
        nonlocal looked_at
        looked_at += len(piece)
        return repair(piece)

    monkeypatch.setattr(pieces, "repair", counted)
    found = pieces.Reading("x")
    times = 30  # the array seems to close so often
    text = '{"traceEvents": [' + one * times
    total = sum(len(batch) for batch in stream.batches(source(text.encode()), found))
    assert total == found.events == 2_000 * times
    assert found.refused == times
    assert looked_at < 2 * times * pieces.WINDOW_BYTES


@pytest.mark.parametrize("window", [1, 40, 100])
def test_an_event_that_holds_what_looks_like_others_is_whole_in_every_window(
    monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(pieces, "WINDOW_BYTES", window)
    events: list[dict[str, Any]] = [
        {"ph": "X", "name": f"op{k}", "args": {"of": [{"name": "x"}, {"name": "y"}]}} for k in range(20)
    ]
    events[-1].pop("args")
    text = json.dumps({"traceEvents": [*events[:3], 5, *events[3:]]})
    found = pieces.Reading("x")
    names = [event.name for batch in stream.batches(source(text.encode()), found) for event in batch]
    assert names == ["op0", "op1", "op2", None, *(f"op{k}" for k in range(3, 20))]
    assert (found.events, found.refused) == (21, 1)


def test_odd_types_cost_their_own_event_only() -> None:
    job = Maker()
    job.collective(100, 10)
    good = json.loads(job.text())["traceEvents"]
    odd: list[Any] = [
        5,
        "x",
        None,
        [],
        {"ph": "X", "cat": "kernel", "name": 5},
        {"ph": "X", "cat": ["kernel"], "name": "n"},
    ]
    for value in (None, "1", [], {}, True, -1, 1e308, 10**400):
        odd += [
            {**event, field: value}
            for event in good
            for field in ("ts", "dur", "args", "tid", "pid", "name", "cat", "ph")
        ]
        odd += [{**event, "args": {**event["args"], key: value}} for event in good for key in event["args"]]
    job.numbers, job.events = itertools.count(500), []
    job.collective(10_000, 10)
    good = job.events
    text = json.dumps({**job.header, "traceEvents": [*odd, *good]}).encode()
    trace = read_kineto([source(text)])
    assert any(row["size_bytes"] == 2000 and row["line"] == len(odd) + 2 for row in collectives(trace))
    assert trace.table("ledger").filter(pl.col("outcome") == "refused")["lines"].sum() > 0
    assert trace.table("ledger")["lines"].sum() == len(odd) + len(good)


def test_hostile_nesting_and_huge_text() -> None:
    good = b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":{"stream":7}}'
    deep = b'{"ph":"X","cat":"kernel","name":"d","ts":1,"dur":1,"args":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    wide = b'{"ph":"X","cat":"kernel","name":"' + b"w" * 20_000_000 + b'","ts":1,"dur":1,"args":{}}'
    trace = read_kineto([source(b'{"traceEvents":[' + b",".join([good, deep, good, wide, good]) + b"]}")])
    assert trace.df.filter(pl.col("kind") == "compute").height == 4
    assert max(len(name) for name in trace.df["kernel"]) <= 2048
    for text in (b"[" * 500_000, b'{"a":' * 200_000, b'{"traceEvents":' + b"[" * 500_000, b'{"' + b"k" * 5_000_000):
        with pytest.raises(InputError):
            read_kineto([source(text)])


def test_an_endless_event_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(stream, "LONGEST_EVENT", 5000)
    good = b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":{"stream":7}}'
    wide = b'{"ph":"X","cat":"kernel","name":"' + b"w" * 50_000 + b'","ts":1,"dur":1,"args":{}}'
    trace = read_kineto([source(b'{"traceEvents":[' + b",".join([good, good, wide, good]) + b"]}")])
    assert trace.df.height == 3
    assert any("left out" in loss for loss in trace.meta["losses"])


def test_duplicate_keys_and_two_arrays() -> None:
    one = b'{"ph":"M","ph":"X","cat":"kernel","name":"k","ts":9,"ts":1,"dur":1}'
    trace = read_kineto([source(b'{"traceEvents":[' + one + b'],"traceEvents":[' + one + b"]}")])
    assert trace.df["kind"].to_list() == ["compute", "compute"]


def test_a_list_without_header_and_without_end() -> None:
    job = Maker()
    job.collective(100, 10)
    text = json.dumps(job.events).encode()
    assert len(collectives(read_kineto([source(text)]))) == 1
    assert kind_of(text) == kind_of(job.text()) == "kineto"


def test_archives_that_expand_beyond_reason_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BOMB_FLOOR", 10_000)
    monkeypatch.setattr(stream, "BLOCK_BYTES", 10_000)
    job = Maker()
    for place in range(1000):
        job.collective(100 + 100 * place, 10)
    trace = read_kineto([source(job.text(), "rank0.json.gz", compressed=1)])
    assert any("beyond all reason" in loss for loss in trace.meta["losses"])


def test_many_rows_wait_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Maker(rank=rank) for rank in range(3)]
    for job in jobs:
        for place in range(20):
            job.kernel(GEMM, 100 * place, 10)
        job.collective(5000, 10)
    in_memory = read(*jobs).df
    monkeypatch.setattr(reader, "ROWS_IN_MEMORY", 25)
    on_disk = read(*jobs)
    assert on_disk.held is not None
    assert on_disk.df.equals(in_memory)


def test_progress_is_told() -> None:
    job = Maker()
    job.collective(100, 10)
    seen: list[int] = []
    read_kineto([job.source()], progress=seen.append)
    assert sum(seen) == len(job.text())


def test_nothing_at_all() -> None:
    def fails() -> Any:
        raise OSError("gone")

    for text in (b"", b"{}", b"[]", b'{"traceEvents":[]}', b'{"traceEvents":5}'):
        with pytest.raises(InputError):
            read_kineto([source(text)])
    with pytest.raises(InputError, match="gone"):
        read_kineto([Source("x.json", fails)])


def test_groups_that_the_profile_does_not_list_are_unknown() -> None:
    """The list of groups is that of the profile's begin: a call whose buffers tell of another size was made in a later one."""
    jobs = []
    for rank in range(4):
        listed = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]}]
        job = Maker(rank, 4, backend="gloo", pg_config=listed)
        said = {"Input Dims": [[200], [100], []], "Input type": ["float", "float", ""], "Concrete Inputs": ["", "", ""]}
        job.add("cpu_op", "c10d::_allgather_base_", 10, 5, **said)
        for at, op in ((12, "all_gather"), (50, "all_reduce")):
            job.add("user_annotation", f"gloo:{op}", at, 9, **{"Input Dims": [[100]], "Input type": ["float"]})
        jobs.append(job)
    trace = read(*jobs)
    rows = [row for row in collectives(trace) if row["rank"] == 0]
    assert [(row["op"], row["nranks"], row["sequence"]) for row in rows] == [
        ("all-gather", 2, None),
        ("all-reduce", None, None),
    ]
    assert summarise(trace)["verdict"] is None  # those of one pair and those of another need not agree
    notes = [row["note"] for row in claims(trace, "members")]
    assert len(notes) == 2
    assert "does not name" in notes[0]
