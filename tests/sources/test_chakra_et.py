"""Chakra execution traces: every schema, twins, groups, dependencies, damage."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from ringwright.formats.exports.chakra import chakra_collective
from ringwright.formats.sources.chakra_et import read_chakra_et
from ringwright.formats.sources.detect import detect, kind_of
from ringwright.formats.sources.gate.inputs import find
from ringwright.ground.errors import InputError
from ringwright.model.collective import Collective
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real
from written import attribute, block, double, framed, metadata, number, sources, tar_of, varint

COMP, SEND, RECV, COLL, META = 4, 5, 6, 7, 1


@pytest.mark.parametrize("op", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"])
def test_what_is_written_reads_as_the_same_size(op: str, tmp_path: Path) -> None:
    for rank, file in enumerate(chakra_collective(Collective(op, tuple(range(4)), 1 << 20))):
        (tmp_path / f"x.{rank}.et").write_bytes(file)
    events = read_chakra_et(find([str(tmp_path)])).df
    assert events["op"].to_list() == [op] * 4
    assert events["size_bytes"].unique().to_list() == [1 << 20]


def coll(ident: int, comm_type: int, size: int, *more: bytes, cpu: bool = False, deps: tuple[int, ...] = ()) -> bytes:
    waits = block(5, b"".join(map(varint, deps))) if deps else b""
    said = attribute("is_cpu_op", 27, int(cpu)), attribute("comm_type", 9, comm_type), attribute("comm_size", 9, size)
    return b"".join((number(1, ident), block(2, f"coll{ident}"), number(3, COLL), waits, *said, *more))


def read(folder: Path, *messages: bytes, name: str = "x.0.et") -> Trace:
    return read_chakra_et(sources(folder, {name: framed(*messages)}))


def test_what_our_export_writes_is_read_back(tmp_path: Path) -> None:
    written = chakra_collective(Collective("all-reduce", tuple(range(4)), 1 << 20))
    files = {f"run.{rank}.et": data for rank, data in enumerate(written)}
    trace = read_chakra_et(sources(tmp_path, files))
    rows = trace.df.select("op", "rank", "sequence", "size_bytes", "nranks").rows()
    assert rows == [("all-reduce", rank, 0, 1 << 20, 4) for rank in range(4)]
    assert trace.meta["world"] == 4
    assert trace.table("communicators")["members"].to_list() == [[0, 1, 2, 3]]


def test_numbers_of_any_type_are_accepted(tmp_path: Path) -> None:
    kinds = {7: 5, 9: 5, 11: 5, 13: 5, 15: 10, 17: 10}  # zigzag doubles
    nodes = [
        b"".join(
            (
                number(1, ident),
                block(2, "c"),
                number(3, COLL),
                attribute("comm_type", 9, 0),
                attribute("comm_size", field, value),
            )
        )
        for ident, (field, value) in enumerate(kinds.items())
    ]
    nodes.append(
        b"".join(
            (
                number(1, 90),
                block(2, "c"),
                number(3, COLL),
                attribute("comm_type", 9, 0),
                block(10, block(1, "comm_size") + double(3, 5.0)),
                attribute("involved_dim", 28, block(1, b"\x01\x00")),
            )
        )
    )
    trace = read(tmp_path, metadata(), *nodes)
    assert trace.df["size_bytes"].to_list() == [5] * 7
    assert trace.table("communicators")["comm_id"].to_list() == ["world", "dims:10"]


def test_all_gather_counts_what_one_rank_hands_in(tmp_path: Path) -> None:
    files = {f"x.{rank}.et": framed(metadata(), coll(0, 2, 1000), coll(1, 7, 8000)) for rank in range(4)}
    frame = read_chakra_et(sources(tmp_path, files)).df.filter(pl.col("rank") == 0)
    shown = frame.select("op", "size_bytes", "sent_bytes", "received_bytes").rows()
    assert shown == [("all-gather", 4000, 1000, 4000), ("reduce-scatter", 8000, 8000, 2000)]
    alone = read(tmp_path, metadata(), coll(0, 2, 1000), name="y.0.et")
    assert alone.df["size_bytes"].to_list() == [None]
    assert any(claim["field"] == "comm_size of all-gather" for claim in alone.table("claims").to_dicts())


def test_host_twins_are_not_counted(tmp_path: Path) -> None:
    twin = number(1, 5) + block(2, "c10d::allreduce_(0)") + number(3, COLL) + attribute("is_cpu_op", 27, 1)
    trace = read(tmp_path, metadata(), twin, coll(6, 0, 8, deps=(5,)), coll(7, 0, 8, cpu=True))
    assert trace.df.height == 1
    assert trace.table("ledger").filter(pl.col("reason").str.starts_with("host twin"))["lines"].to_list() == [2]


def test_groups_come_from_metadata_nodes(tmp_path: Path) -> None:
    printed = "['" + json.dumps([{"pg_name": "3", "ranks": [2, 5]}, {"pg_name": "0", "ranks": []}]) + "']"
    node = number(1, 0) + block(2, "## process_group:init ##") + number(3, META) + block(8, block(1, printed))
    mine = coll(1, 0, 64, attribute("pg_name", 29, "3"))
    trace = read(tmp_path, metadata(), node, mine, name="x.5.et")
    row = trace.df.row(0, named=True)
    assert (row["nranks"], row["comm_rank"], row["rank"]) == (2, 1, 5)
    assert trace.table("communicators")["members"].to_list() == [[2, 5]]


def test_each_file_names_its_groups_in_its_own_order(tmp_path: Path) -> None:
    def file(rank: int, *names: str) -> bytes:
        members = json.dumps([{"pg_name": "a", "ranks": [1, 0]}, {"pg_name": "b", "ranks": [0, 1]}])
        node = number(1, 0) + block(2, "groups") + number(3, META) + block(8, block(1, members))
        calls = [coll(ident, 0, 8, attribute("pg_name", 29, name)) for ident, name in enumerate(names, 1)]
        return framed(
            metadata(), node, *calls, number(1, 9) + block(2, "gemm") + number(3, COMP) + block(4, varint(rank + 1))
        )

    trace = read_chakra_et(sources(tmp_path, {"x.0.et": file(0, "a", "b"), "x.1.et": file(1, "b", "a", "b")}))
    named = dict(trace.table("communicators").select("communicator", "comm_id").rows())
    calls = (
        trace.df.filter(pl.col("kind") == "collective").select("rank", "communicator", "comm_rank", "sequence").rows()
    )
    said = [(rank, named[communicator], *more) for rank, communicator, *more in calls]
    assert said == [(0, "a", 1, 0), (0, "b", 0, 0), (1, "b", 1, 0), (1, "a", 0, 0), (1, "b", 1, 1)]
    assert trace.table("edges").rows() == [(2, 0, "ctrl"), (5, 1, "ctrl")]


def test_dependencies_become_edges_also_through_the_host(tmp_path: Path) -> None:
    host = number(1, 2) + block(2, "aten::add") + number(3, COMP) + attribute("is_cpu_op", 27, 1) + block(5, varint(1))
    kernel = number(1, 3) + block(2, "gemm") + number(3, COMP) + block(4, varint(2)) + number(7, 12)
    trace = read(tmp_path, metadata(), coll(1, 0, 8), host, kernel, coll(4, 0, 8, deps=(3, 77)))
    events = trace.df["kernel"].to_list()
    edges = [(events[src], events[dst], kind) for src, dst, kind in trace.table("edges").rows()]
    assert sorted(edges) == [("coll1", "gemm", "host"), ("gemm", "coll4", "data")]
    assert trace.df.filter(pl.col("kernel") == "gemm")["duration_s"].to_list() == [pytest.approx(12e-6)]


def test_cycles_of_dependencies_end(tmp_path: Path) -> None:
    def host(ident: int, before: int) -> bytes:
        return (
            number(1, ident)
            + block(2, "h")
            + number(3, COMP)
            + attribute("is_cpu_op", 27, 1)
            + block(5, varint(before))
        )

    trace = read(tmp_path, metadata(), coll(9, 0, 8), host(1, 2), host(2, 1), coll(3, 0, 8, deps=(1, 3)))
    assert trace.table("edges").height == 0


def test_the_schema_of_2022(tmp_path: Path) -> None:
    node = (
        number(1, 1)
        + block(2, "ALL_REDUCE")
        + number(3, 6)
        + number(13, 1)
        + number(14, 1)
        + number(14, 0)
        + number(18, 4096)
    )
    send = number(1, 2) + block(2, "S") + number(3, 4) + number(4, 1) + number(16, 0) + number(17, 3) + number(18, 64)
    trace = read(tmp_path, node, send)
    assert trace.df.select("kind", "op", "size_bytes", "peer").rows() == [
        ("collective", "all-reduce", 4096, None),
        ("p2p", "send", 64, 3),
    ]


def test_another_version_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"version '7\.1'"):
        read(tmp_path, metadata("7.1"), coll(1, 0, 8))


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_cut_file_keeps_the_nodes_before_the_cut(tmp_path: Path, cut: int) -> None:
    data = framed(metadata(), *(coll(ident, 0, 8) for ident in range(5)))
    trace = read_chakra_et(sources(tmp_path, {"x.0.et": data[:-cut]}))
    assert trace.df.height == 5 - -(-cut // len(framed(coll(4, 0, 8))))
    assert any("the rest not" in loss for loss in trace.meta["losses"])
    assert trace.table("ledger").filter(pl.col("outcome") == "refused").height == 1


def test_an_impossible_length_ends_the_file(tmp_path: Path) -> None:
    data = framed(metadata(), coll(1, 0, 8)) + varint(1 << 63)
    trace = read_chakra_et(sources(tmp_path, {"x.0.et": data}))
    assert trace.df.height == 1
    assert "9223372036854775808" in trace.meta["losses"][0]
    with pytest.raises(InputError, match="length"):
        read_chakra_et(sources(tmp_path, {"y.0.et": varint(1 << 63)}))


def test_a_foreign_file_does_not_lose_the_others(tmp_path: Path) -> None:
    files = {"x.0.et": framed(metadata(), coll(1, 0, 8)), "x.1.et": b"not protobuf at all", "x.2.et": b""}
    trace = read_chakra_et(sources(tmp_path, files))
    assert trace.df.height == 1
    assert len(trace.meta["losses"]) >= 1


def test_a_cut_archive_keeps_its_beginning(tmp_path: Path) -> None:
    packed = gzip.compress(framed(metadata(), *(coll(ident, 0, 8) for ident in range(10_000))), 1)
    trace = read_chakra_et(sources(tmp_path, {"x.0.et.gz": packed[: len(packed) // 2]}))
    assert 1000 < trace.df.height < 10_000
    assert any("damaged" in loss for loss in trace.meta["losses"])


def test_deep_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_chakra_et(sources(tmp_path, {"x.0.json": b'{"workload_graph": ' + b"[" * 100_000}))


def test_times_count_from_the_first(tmp_path: Path) -> None:
    nodes = [
        number(1, k) + block(2, "gemm") + number(3, COMP) + number(6, 1_700_000_000_000_000 + k) + number(7, 2)
        for k in (1, 4)
    ]
    trace = read(tmp_path, metadata(), *nodes)
    assert trace.df["start_s"].to_list() == [0.0, pytest.approx(3e-6, abs=3e-7)]
    assert trace.meta["origin_ns"] == pytest.approx(1_700_000_000_000_001_000, abs=500)


def test_detection() -> None:
    data = framed(metadata(), coll(1, 0, 8))
    assert kind_of(data, "x.0.et") == "chakra-et"
    assert kind_of(gzip.compress(tar_of({"a/x.0.et": data}))) == "chakra-et"
    assert kind_of(b'{"workload_graph": [{"Id": 1}]}') == "chakra-et"


@needs_shared_data
def test_the_feeder_trace_has_seven_collectives_not_twentyone() -> None:
    found = find([str(real("real/chakra/mlcommons_chakra_feeder_tests_trace.tar.gz"))])
    assert detect(found[0]) == ("chakra-et",)
    trace = read_chakra_et(found)
    calls = trace.df.filter(pl.col("kind") == "collective")
    assert dict(calls.group_by("op").len().rows()) == {"all-reduce": 5, "broadcast": 2}
    assert calls["size_bytes"].to_list() == [212480, 424, 8196000, 31502336, 26255360, 26550272, 9724160]
    assert calls["duration_s"].sum() == pytest.approx((28 + 5 + 5572 + 9093 + 8512 + 8178 + 5327) * 1e-6)
    assert (calls["algorithm"] == "ring").all()
    assert calls["datatype"].to_list()[:2] == ["float32", "int64"]
    ledger = trace.table("ledger")
    assert ledger.filter(pl.col("outcome") == "understood")["lines"].to_list() == [3650]
    assert ledger.filter(pl.col("reason").str.starts_with("host twin"))["lines"].to_list() == [14]


@needs_shared_data
def test_generated_traces_of_a_simulator() -> None:
    folder = real("real/chakra")
    trace = read_chakra_et(find([str(folder / f"astra_reduce_scatter_8npus_1MB.{rank}.et") for rank in range(8)]))
    rows = trace.df.select("op", "rank", "nranks", "size_bytes").rows()
    assert rows == [("reduce-scatter", rank, 8, 1 << 20) for rank in range(8)]
    ring = read_chakra_et(
        find([str(folder / f"astra_sim/custom_ring_allreduce_8npus_1MB.{rank}.et") for rank in range(8)])
    )
    assert dict(ring.df.group_by("op").len().rows()) == {"send": 112, "recv": 112, None: 56}
    sends = ring.df.filter(pl.col("op") == "send")
    assert sends.filter(pl.col("rank") == 3)["peer"].unique().to_list() == [4]
    assert sends["size_bytes"].unique().to_list() == [131072]
    assert ring.table("edges").height == 272


@needs_shared_data
def test_the_json_twin() -> None:
    trace = read_chakra_et(find([str(real("real/chakra/small_chakra.0.json"))]))
    row = trace.df.filter(pl.col("kind") == "collective").row(0, named=True)
    assert (row["op"], row["ground"], row["rank"], row["duration_s"]) == (
        "broadcast",
        "inferred",
        0,
        pytest.approx(28e-6),
    )


@pytest.mark.parametrize("width", [0, 3, 4, 8, 9])
def test_a_real_number_of_any_width(width: int) -> None:
    from ringwright.formats.sources.wire import real as number_of

    assert isinstance(number_of(b"\x00" * width), float)
