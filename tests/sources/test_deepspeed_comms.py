"""DeepSpeed's communication logger: what its own code printed in four releases, and the tables of its tutorial."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.bandwidth import bandwidth
from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.formats.sources.deepspeed_comms.grammar import op_of, size
from ringwright.formats.sources.deepspeed_comms.rates import world
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace

FILES = Path(__file__).parent / "deepspeed"
MB = 1 << 20


def trace(name: str) -> Trace:
    return read(str(FILES / name))


def written(tmp_path: Path, *lines: str) -> Trace:
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n")
    return read(str(path))


def line(
    at_ms: int, name: str, time_ms: str, rates: str = "algbw (Gbps): 0.00 | busbw (Gbps): 0.00", size: str = "1.0 KB"
) -> str:
    stamp = f"[2026-01-02 03:04:{at_ms // 1000:02},{at_ms % 1000:03}]"
    return f"{stamp} [INFO] [logging.py:1:log_dist] [Rank 0] comm op: {name} | time (ms): {time_ms} | msg size: {size} | {rates}"


@pytest.mark.sampled(5, "*")
@pytest.mark.parametrize("name", [path.name for path in sorted(FILES.glob("*.[lj]*"))])
def test_every_file_keeps_the_summary(name: str) -> None:
    made = trace(name)
    seen = summarise(made)
    assert seen["kind"] == "deepspeed-comms"
    assert (seen["ranks_seen"], seen["ranks_expected"]) == (1, 16 if name == "tutorial.log" else 4)
    assert {"all-reduce", "all-gather", "broadcast", "barrier"} <= {row["op"] for row in seen["operations"]}
    assert seen["ledger"]["refused"] == 0
    assert not seen["losses"]
    json.dumps(seen)


def test_waiting_in_a_column_of_the_table_itself_is_claimed_as_printed(tmp_path: Path) -> None:
    head = "Comm. Op            Message Size        Count               Total Latency(ms)   Total straggler(ms) Avg Latency(ms)"
    row = "                    4.0 KB              2                   0.48                0.06                0.24  0.17  0.17"
    made = written(
        tmp_path, f"{head}     tput_avg (Gbps)     busbw_avg (Gbps)", "broadcast", row, row.replace("0.06", "", 1)
    )
    (event,) = made.df.to_dicts()
    assert (event["op"], event["multiplicity"], event["duration_s"]) == ("broadcast", 2, pytest.approx(0.24e-3))
    claims = {each["field"]: (each["value"], each["note"]) for each in made.table("claims").to_dicts()}
    assert claims["waiting of rank 0"] == ("0.06 of 0.48 ms", "broadcast, 4096 bytes, 2 calls")


@pytest.mark.parametrize("name", ["calls-0.9.5.log", "added-0.19.8.log"])
def test_lines_and_tables_of_the_same_calls_count_once(name: str) -> None:
    """Three steps of two all-reduces, two all-gathers and a broadcast, a barrier in the first; then what log_summary itself does."""
    events = trace(name).df
    steps = events.filter(~pl.col("text").str.starts_with("log_summary"), pl.col("size_bytes") != 12)
    counted = dict(steps.group_by("op").agg(pl.col("multiplicity").sum()).rows())
    extra = 1 if name.startswith("added") else 0  # the breakdown compares one barrier's latency, 4 bytes
    assert counted == {"all-reduce": 6 + extra, "all-gather": 6, "broadcast": 3, "barrier": 1}


def test_a_call_of_a_line_has_its_time_and_rank() -> None:
    first = trace("calls-0.9.5.log").df.row(0, named=True)
    assert (first["op"], first["rank"], first["line"], first["size_bytes"]) == ("all-reduce", 0, 10, size("3.81 MB"))
    assert first["duration_s"] == pytest.approx(0.01664)
    assert first["clock"] == "host:rank0"


def test_latencies_that_add_up_are_taken_apart() -> None:
    """Printed are 21.20, 22.89, 30.83, 31.84, ... ms, within 84 ms of wall clock for all."""
    made = trace("added-0.19.8.log")
    reduced = made.df.filter(op="all-reduce")["duration_s"].to_list()
    assert [round(each * 1e3, 2) for each in reduced[:5]] == [21.2, 1.69, 7.94, 1.01, 15.74]
    claim = made.table("claims").filter(field="latency").row(0, named=True)
    assert claim["ground"] == "inferred"
    ends = (made.df["start_s"] + made.df["duration_s"]).to_list()
    assert all(start >= end - 0.002 for start, end in zip(made.df["start_s"].to_list()[1:], ends[:-1], strict=True))


def test_a_log_that_was_cut_inside_a_table_keeps_its_lines() -> None:
    made = trace("cut-0.12.6.log")
    assert made.df["phase"].unique().sort().to_list() == ["log_all", "log_summary", "step"]
    assert len(made.df) == 21


def test_the_fastest_rank_tells_transfer_from_waiting() -> None:
    made = trace("stragglers-0.12.6.log")
    rates = {(row["op"], row["size_bytes"]): row for row in bandwidth(made)}
    broadcast = rates["broadcast", 256 * 1024]
    assert broadcast["time_us"] == pytest.approx(2340 / 3, abs=0.01)
    assert broadcast["wait_us"] == pytest.approx(17840 / 3, abs=5)  # as printed, to 0.01 ms
    said = made.table("claims").filter(pl.col("note").str.starts_with("broadcast"))
    assert said["value"].to_list() == ["17.84 of 20.19 ms"]
    assert {row["op"]: row["count"] for row in summarise(made)["operations"]}["broadcast"] == 3


def test_the_dictionary_has_exact_sizes() -> None:
    made = trace("summary-0.19.8.json")
    assert 4_000_012 in made.df["size_bytes"].to_list()
    # which release wrote it is not said, so neither are its times beyond doubt
    assert made.df["ground"].unique().to_list() == ["assumed"]
    assert made.meta["world"] == 4


def test_the_tutorial() -> None:
    made = trace("tutorial.log")
    seen = {row["op"]: row["count"] for row in summarise(made)["operations"]}
    assert seen["reduce-scatter"] == 40
    row = made.df.filter(op="reduce-scatter").row(1, named=True)
    assert row["multiplicity"] == 39
    assert row["duration_s"] == pytest.approx((602.29 - 9.46) / 39 * 1e-3)
    gathered = made.df.filter(text="all_gather_base").row(0, named=True)
    assert (gathered["sent_bytes"], gathered["size_bytes"], gathered["ground"]) == (6 * MB, 96 * MB, "assumed")


def test_tables_of_releases_that_add_up_give_no_times(tmp_path: Path) -> None:
    header = f"{'Comm. Op': <20}{'Message Size': <20}{'Count': <20}{'Total Latency(ms)': <20}{'Avg Latency(ms)': <20}"
    rows = [
        f"{' ': <20}{size: <20}{count: <20}{9.0: <20.2f}{3.0: <20.2f}{1.0: <20.2f}{0.5: <20.2f}"
        for size, count in (("4.0 B", 2), ("1.0 KB", 1))
    ]
    said = "[2026-01-02 03:04:05,678] [INFO] [logging.py:1:log_dist] [Rank 0] DeepSpeed info: version=0.18.9, git-hash=unknown"
    made = written(tmp_path, said, header + "tput_avg (Gbps)", "all_reduce", *rows, "barrier", rows[1])
    assert made.df["duration_s"].to_list() == [None, None, pytest.approx(0.009)]
    assert made.df["multiplicity"].to_list() == [2, 1, 1]
    assert "0.18.9" in made.meta["losses"][0]


def test_a_table_behind_a_launchers_prefix_and_another_after_a_reset(tmp_path: Path) -> None:
    def table(count: int, total: float) -> list[str]:
        header = (
            f"{'Comm. Op': <20}{'Message Size': <20}{'Count': <20}{'Total Latency(ms)': <20}{'Avg Latency(ms)': <20}"
        )
        row = f"{' ': <20}{'2.0 KB': <20}{count: <20}{total: <20.2f}{1.0: <20.2f}{1.0: <20.2f}{0.5: <20.2f}"
        return [f"node{number}: {text}" for number, text in enumerate((header, "my_loss_broadcast", "loss 3", row))]

    made = written(tmp_path, *table(3, 3.0), *table(5, 5.0), *table(2, 2.0))
    assert made.df["op"].to_list() == ["broadcast", "broadcast"]
    assert made.df["multiplicity"].to_list() == [5, 2]


def test_a_line_that_contradicts_itself_keeps_its_call_and_loses_its_time(tmp_path: Path) -> None:
    good = "algbw (Gbps): 8.39 | busbw (Gbps): 7.34"
    made = written(
        tmp_path,
        line(10, "broadcast", "2.00", "algbw (Gbps): 4.19 | busbw (Gbps): 4.19", "1.0 MB"),
        line(20, "all_reduce", "2.00", good, "1.0 MB"),
        line(30, "all_reduce", "2.00", "algbw (Gbps): 5.55 | busbw (Gbps): 4.86", "1.0 MB"),
        line(31, "broadcast", "9.00"),
        line(40, "broadcast", "1.00"),
        line(50, "all_reduce", "1.0 | msg")[:-40],
    )
    assert made.df["duration_s"].to_list() == [0.002, 0.002, None, None, 0.001]
    laws = {row["law"]: row["refused"] for row in summarise(made)["laws"]}
    assert laws == {"algbw": 1, "time": 1}
    assert "a call whose line is cut" in made.table("ledger")["reason"].to_list()


def test_calls_that_a_log_counts_as_well_become_measurements(tmp_path: Path) -> None:
    prefix = "host:1:2 [0] NCCL INFO "
    made = written(
        tmp_path,
        "host:1:2 [0] NCCL INFO NCCL version 2.21.5+cuda12.4",
        prefix + "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x2 - Init COMPLETE",
        prefix
        + "AllReduce: opCount 0 sendbuff 0x3 recvbuff 0x3 count 256 datatype 7 op 0 root 0 comm 0x1 [nranks=2] stream 0x4",
        line(10, "all_reduce", "2.00"),
    )
    assert {row["op"]: row["count"] for row in summarise(made)["operations"]} == {"all-reduce": 1}
    assert made.df.filter(kind="measurement")["duration_s"].to_list() == [0.002]
    assert made.meta["source"] == "nccl-log+deepspeed-comms"


def test_a_log_without_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no line and no table"):
        written(tmp_path, "Comm. Op            Message Size        Count               Total Latency(ms)   ", "nothing")


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("all_gather_into_tensor | [Caller Func: _allgather_params]", "all-gather"),
        ("reduce_scatter_fn", "reduce-scatter"),
        ("inference_all_reduce", "all-reduce"),
        ("broadcast_object_list", "broadcast"),
        ("batch_isend_irecv", "send-recv"),
        ("monitored_barrier", "barrier"),
        ("my_own", "unknown"),
    ],
)
def test_names_of_operations(name: str, op: str) -> None:
    assert op_of(name) == op


def test_the_world_is_told_by_rates_or_not_at_all() -> None:
    assert world([("all_reduce", 1204.52, 1129.23)]) == 16
    assert world([("all_gather", 3.02, 2.26), ("broadcast", 3.0, 3.0)]) == 4
    assert world([("all_gather", 2.02, 1.98)]) is None
    assert world([("all_reduce", 1000.0, 750.0), ("all_reduce", 1000.0, 875.0)]) is None
