"""Inspector records and Prometheus text: the printed figures, every format, and damaged input."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import polars as pl
import pytest

from ringwright.formats.sources.detect import kind_of
from ringwright.formats.sources.nccl_inspector import read_inspector
from ringwright.formats.sources.prometheus import bucket_bytes, read_prometheus
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError, RingwrightError
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real

REDUCE_SCATTER = "nccl_inspector_readme_reducescatter_verbose_v4.0.json"
ALL_REDUCE = "nccl_inspector_readme_allreduce_v4.0.json"


def inspector(*texts: str | bytes) -> Trace:
    data = [text if isinstance(text, bytes) else text.encode() for text in texts]
    return read_inspector([Source(f"file{n}.log", lambda text=text: io.BytesIO(text)) for n, text in enumerate(data)])


def record(
    rank: int = 0, comm: str = "0xa", nranks: int = 2, pid: int | None = None, sn: int = 1, **perf: Any
) -> dict[str, Any]:
    coll = {"coll": "AllReduce", "coll_sn": sn, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 100} | perf
    return {
        "header": {"id": comm, "rank": rank, "n_ranks": nranks, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "hostname": "node0",
            "pid": 100 + rank if pid is None else pid,
        },
        "coll_perf": coll,
    }


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(item) + "\n" for item in records)


@needs_shared_data
def test_the_printed_bandwidth_of_a_reduce_scatter() -> None:
    row = inspector(real(f"real/inspector/{REDUCE_SCATTER}").read_bytes()).df.to_dicts()[0]
    assert row["size_bytes"] == 2_147_483_648 * 8
    assert round(row["size_bytes"] / row["duration_s"] / 1e9, 2) == 418.44
    assert round(row["size_bytes"] / row["duration_s"] / 1e9, 6) == 418.439467
    assert (row["comm_rank"], row["sequence"], row["ground"]) == (4, 1231, "read")
    assert row["start_s"] == pytest.approx((1752867229235181 - 1752867229235059) / 1e6)
    assert "kernel_gpu" in row["text"]


@needs_shared_data
def test_the_printed_all_reduce() -> None:
    trace = inspector(real(f"real/inspector/{ALL_REDUCE}").read_bytes())
    row = trace.df.to_dicts()[0]
    assert (row["op"], row["size_bytes"], row["nranks"], row["sequence"]) == ("all-reduce", 17_179_869_184, 8, 1407)
    assert round(row["size_bytes"] / row["duration_s"] / 1e9, 6) == 277.210914
    assert round(row["size_bytes"] / row["duration_s"] / 1e9 * 2 * 7 / 8, 6) == 485.119099
    assert row["ground"] == "inferred"  # the record does not say what took the time
    assert not trace.table("claims").filter(pl.col("field") == "contradiction").height


def test_ranks_of_the_largest_communicator_are_global() -> None:
    tensor = [record(r % 2, comm=f"0xt{r // 2}", nranks=2, pid=100 + r) for r in range(4)]
    world = [record(r, comm="0xw", nranks=4, pid=100 + r) for r in range(4)]
    trace = inspector(*(lines(t, w) for t, w in zip(tensor, world, strict=True)))
    assert trace.meta["world"] == 4
    members = dict(trace.table("communicators").select("comm_id", "members").rows())
    assert members == {"0xw": [0, 1, 2, 3], "0xt0": [0, 1], "0xt1": [2, 3]}
    assert trace.df.group_by("communicator", "rank").len().height == 8
    assert trace.table("topology").height == 4


def test_ranks_stay_unknown_where_groups_are_apart() -> None:
    trace = inspector(*(lines(record(r % 2, comm=f"0xt{r // 2}", pid=100 + r)) for r in range(4)))
    assert trace.meta["world"] is None
    assert trace.df["rank"].null_count() == 4
    assert trace.df["comm_rank"].to_list() == [0, 1, 0, 1]


def test_later_formats_markers_sends_and_unknown_keys() -> None:
    head = record()
    marker = {
        "header": head["header"] | {"comm_name": "DP Group 0"},
        "metadata": head["metadata"] | {"inspector_output_format_version": "v4.3"},
    }
    marker["dump_stats"] = {"coll_records": 1, "coll_dropped_total": 4096, "p2p_dropped_total": 0}
    coll = {
        "coll_perf": head["coll_perf"]
        | {"coll_algo": "NVLS_TREE", "coll_proto": "SIMPLE", "coll_timing_source": "kernel_gpu", "coll_color": "red"}
    }
    p2p = {
        "p2p_perf": {
            "p2p": "Send",
            "p2p_sn": 3,
            "p2p_peer": 1,
            "p2p_msg_size_bytes": 8192,
            "p2p_exec_time_us": 10,
            "p2p_timing_source": "kernel_gpu",
        }
    }
    trace = inspector(lines(marker, coll, p2p, {"proxy_trace": {"record_type": "proxy_op"}}))
    first, second = trace.df.to_dicts()
    assert (first["algorithm"], first["protocol"]) == ("nvls-tree", "simple")
    assert "red" in first["text"]
    assert (second["kind"], second["op"], second["peer"], second["sent_bytes"]) == ("p2p", "send", 1, 8192)
    claims = dict(trace.table("claims").select("field", "value").rows())
    assert claims["dropped records"] == "coll 4,096"
    assert claims["unknown keys"] == "coll_color"
    assert trace.table("communicators")["name"].to_list() == ["DP Group 0"]
    assert dict(trace.table("ledger").group_by("outcome").agg(pl.col("lines").sum()).rows())["other"] == 1


def test_pretty_printed_and_cut_records() -> None:
    whole = json.dumps(record(sn=7), indent=2)
    trace = inspector(whole[: len(whole) // 2] + "\n" + whole + "\n" + whole + "\n{not json}\n")
    assert trace.df["sequence"].to_list() == [7, 7]
    assert trace.table("ledger").filter(pl.col("outcome") == "refused")["lines"].sum() == 2


def test_a_size_of_another_convention_is_said() -> None:
    trace = inspector(lines(record(coll="AllGather", coll_exec_time_us=1000, coll_algobw_gbs=1.048576)))
    assert trace.table("claims").filter(pl.col("field") == "contradiction").height == 1


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "{" * 100_000, '{"header": 3}', lines({"coll_perf": {"coll": "AllReduce"}})]
)
def test_nothing_readable_is_an_error(text: str) -> None:
    with pytest.raises(InputError):
        inspector(text)


def test_fuzz_ends_in_a_trace_or_an_error() -> None:
    draw = random.Random("inspector")
    whole = lines(*(record(sn=n) for n in range(5))).encode()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 5, 40))):
            at = draw.randrange(len(data))
            data[at : at + draw.choice((0, 1, 3))] = draw.randbytes(draw.choice((0, 1, 3)))
        try:
            assert isinstance(inspector(bytes(data)), Trace)
        except RingwrightError:
            continue


LABELS = 'version="v5.1",slurm_job_id="unknown",node="nvl-T01",gpu="GPU0",comm_name="DP Group 0",n_nodes="1",nranks="4"'
EXPORTED = (
    f'nccl_bus_bandwidth_gbs{{{LABELS},collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"}} 678.263\n'
    f'nccl_collective_exec_time_microseconds{{{LABELS},collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"}} 9498.47\n'
    f'nccl_p2p_bus_bandwidth_gbs{{{LABELS},p2p_operation="Send",message_size="512-513MB"}} 464.9\n'
    f'nccl_p2p_exec_time_microseconds{{{LABELS},p2p_operation="Send",message_size="512-513MB"}} 1154.87\n'
    f"nccl_collectives_dropped_total{{{LABELS}}} 12\n"
)


def prometheus(text: str) -> Trace:
    return read_prometheus([Source("job.prom", lambda: io.BytesIO(text.encode()))])


def test_gauges_of_the_inspector_become_measurements() -> None:
    trace = prometheus(EXPORTED)
    assert kind_of(EXPORTED.encode()) == "prometheus"
    found = trace.df.filter(pl.col("kind") == "measurement").to_dicts()
    assert [(row["op"], row["size_bytes"], row["value"], row["duration_s"]) for row in found] == [
        ("all-reduce", 4 << 30, 678.263, pytest.approx(9498.47e-6)),
        ("send", 512 << 20, 464.9, pytest.approx(1154.87e-6)),
    ]
    assert (found[0]["algorithm"], found[0]["protocol"], found[0]["nranks"]) == ("ring", "ll", 4)
    assert trace.df.filter(pl.col("kind") == "metric").height == 5
    assert "12" in trace.table("claims").filter(pl.col("field") == "dropped records")["value"].to_list()


@needs_shared_data
def test_gauges_of_xpu_timer() -> None:
    path = real("real/metrics/dlrover_hang_xpu_timer_metric_some.prom")
    trace = prometheus(path.read_text())
    assert trace.df.filter(pl.col("kind") == "metric").height == 177
    assert trace.meta["world"] == 8
    assert trace.table("topology").height == 8
    assert trace.table("ledger").filter(pl.col("outcome") == "refused").height == 0


def test_labels_with_escapes_and_damaged_lines() -> None:
    trace = prometheus('a{x="q\\"uo\\\\te\\n",rank="3"} 1.5 1700000000000\nb NaN\nc{x=} 1\nd{x="open 1\ne one\n')
    assert trace.df["op"].to_list() == ["a", "b"]
    assert json.loads(trace.df["text"][0]) == {"x": 'q"uo\\te\n', "rank": "3"}
    assert trace.df["rank"][0] == 3
    assert trace.table("ledger").filter(pl.col("outcome") == "refused")["lines"].to_list() == [3]


def test_buckets() -> None:
    assert [bucket_bytes(text) for text in ("0B", "512-513B", "8-9KB", "4-5GB", "x")] == [0, 512, 8192, 4 << 30, None]


def test_text_without_samples_is_an_error() -> None:
    with pytest.raises(InputError):
        prometheus("# HELP nothing\n")
