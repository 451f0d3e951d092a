"""Logs of Megatron-LM: lines of a real job, and what its timers print in each of their forms."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.formats.sources.megatron_log.reader import moves
from ringwright.formats.sources.sample import sample
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace
from ringwright.reports.terminal import text
from shared_data import needs_shared_data, real

FILES = Path(__file__).parent / "megatron"


def written(tmp_path: Path, *lines: str) -> Trace:
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n")
    return read(str(path))


def claims(trace: Trace) -> dict[str, str]:
    return dict(trace.table("claims").select("field", "value").rows())


def test_a_job_of_2021() -> None:
    trace = read(str(FILES / "bigscience.log"))
    seen = summarise(trace)
    assert [(step["iteration"], step["time_s"]) for step in seen["iterations"]] == [
        (1, pytest.approx(150.8917)),
        (2, pytest.approx(123.8963)),
        (3, pytest.approx(124.3622)),
        (4, pytest.approx(122.224)),
    ]
    assert seen["operations"] == []  # no operation is told, so none is counted
    assert seen["ranks_expected"] == 64
    assert claims(trace)["launch pp"] == "16"
    assert claims(trace)["phase backward-compute"] == "78963.30 ms, 61% of the step"
    setup = trace.df.filter(pl.col("iteration").is_null())
    assert setup["phase"].to_list() == [
        "load-checkpoint",
        "model-and-optimizer-setup",
        "train/valid/test-data-iterators-setup",
    ]
    reduced = trace.df.filter(phase="backward-embedding-all-reduce", iteration=4).row(0, named=True)
    assert (reduced["kind"], reduced["op"], reduced["size_bytes"]) == ("phase", "all-reduce", None)
    assert reduced["duration_s"] == pytest.approx(4.20937)


def test_the_fastest_and_the_slowest_rank() -> None:
    trace = read(str(FILES / "megatron-minmax.log"))
    steps = trace.df.filter(kind="step").select("iteration", "multiplicity", "duration_s").rows()
    assert steps == [(2, 2, pytest.approx(0.0364)), (4, 2, pytest.approx(0.022))]
    gathered = trace.df.filter(phase="params-all-gather", iteration=2).select("task", "rank", "duration_s").rows()
    assert gathered == [("fastest rank", None, pytest.approx(0.00262)), ("slowest rank", None, pytest.approx(0.00521))]
    notes = dict(trace.table("claims").select("field", "note").rows())
    assert notes["phase forward-compute"] == "the slowest rank; the fastest 2.10 ms"
    assert (
        notes["phase params-all-gather"]
        == "the slowest rank; the fastest 3.48 ms; named after all-gather, bytes not told"
    )


def test_the_slowest_alone_and_every_rank() -> None:
    slowest = read(str(FILES / "megatron-max.log")).df.filter(kind="phase")
    assert slowest["task"].unique().to_list() == ["slowest rank"]
    every = read(str(FILES / "megatron-all.log"))
    mine = every.df.filter(phase="embedding-grads-all-reduce", iteration=2)
    assert mine.select("rank", "duration_s").rows() == [(0, pytest.approx(0.00135)), (3, pytest.approx(0.00099))]
    assert summarise(every)["ranks_seen"] == 4
    for name in ("max", "all", "minmax"):
        ledger = read(str(FILES / f"megatron-{name}.log")).table("ledger")
        assert ledger["outcome"].to_list() == ["understood"]


def test_deepspeeds_timers_and_other_spellings(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        "[2024-06-21 10:50:42,167] [INFO] [logging.py:96:log_dist] [Rank 0] step=7, skipped=0, lr=[1e-08], mom=[(0.9, 0.999)]",
        "[2024-06-21 10:50:42,168] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd: 25341.72 | bwd_allreduce: 1955.54",
        "[2024-06-21 10:50:42][INFO][training:1609] -  iteration=       7/  31 | consumed_samples= 768 | elapsed_time_per_iteration_ms=108893.2 | x=1 | [LM]-TFLOPs=49.66 |",
        " iteration        9/      31 | consumed samples:  1 | elapsed time per iteration (s): 2.50 | throughput per GPU (TFLOP/s/GPU): 50.7 |",
        "0: (min, max) time across ranks (ms):",
        "0:     optimizer ......................................: (2221.02, 2234.98)",
        "1:     optimizer ......................................: (1.00, 2.00)",
        "time (ms):",
        "    forward-backward ...............................: 3.25",
        "done",
    )
    rows = trace.df.select("kind", "phase", "op", "rank", "iteration", "duration_s").rows()
    assert rows == [
        ("step", None, None, None, 7, pytest.approx(108.8932)),
        ("step", None, None, None, 9, pytest.approx(2.5)),
        ("phase", "fwd", None, 0, 7, pytest.approx(25.34172)),
        ("phase", "bwd_allreduce", "all-reduce", 0, 7, pytest.approx(1.95554)),
        ("phase", "optimizer", None, None, 9, pytest.approx(2.22102)),
        ("phase", "optimizer", None, None, 9, pytest.approx(2.23498)),
        ("phase", "forward-backward", None, None, 9, pytest.approx(0.00325)),
    ]
    assert claims(trace)["throughput"] == "50.2 TFLOP/s per GPU"
    # the first of the two lines counts as many iterations as lie between them
    assert trace.df.filter(kind="step")["multiplicity"].to_list() == [2, 2]


@needs_shared_data
def test_beside_nccls_lines_steps_count_once() -> None:
    trace = read(str(real("real/nccl-logs/bigscience_meg_gpt2_perf_n16-1999618.out.gz")))
    assert trace.meta["source"] == "nccl-log+megatron-log"
    assert [step["iteration"] for step in summarise(trace)["iterations"]] == [1, 2, 3, 4]
    assert trace.df.filter(phase="forward-recv")["iteration"].to_list() == [1, 2, 3, 4]
    assert summarise(trace)["roles"]["pp"] == 16


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("backward-send-forward-recv", "send-recv"),
        ("forward-recv", "recv"),
        ("optimizer_allgather", "all-gather"),
        ("all-grads-sync", None),  # all-reduce, or reduce-scatter where the optimizer is sharded
        ("embedding-grads-all-reduce", "all-reduce"),
        ("optimizer-inner-step", None),
    ],
)
def test_operations_that_names_tell(name: str, op: str | None) -> None:
    assert moves(name) == op


def test_nothing_in_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no iteration"):
        written(tmp_path, "times across ranks (ms):", "nothing")


def test_a_log_whose_lines_are_all_read_is_of_one_kind() -> None:
    """Its steps and its launch are read with NCCL's lines already, so no line of it counts twice."""
    trace = read(str(sample()))
    assert trace.meta["source"] == "nccl-log"
    assert trace.table("ledger").filter(pl.col("reason").str.contains("timer")).is_empty()


# ------------------------------------------------------------------------------------------------------------- torchtitan
def titan(rank: int, second: float, step: int, tokens: str = "5,000") -> str:
    stamp = f"2025-06-16 22:30:{second:06.3f}".replace(".", ",")
    line = f"step: {step:2}  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: {tokens}  tflops: 300.00  mfu: 30.00%"
    return f"[rank{rank}]:[titan] {stamp} - root - INFO - {line}"


def test_the_time_of_a_step_of_torchtitan_is_between_two_lines_of_its_rank(tmp_path: Path) -> None:
    lines = [titan(0, 1, 10), titan(1, 1.5, 10), titan(0, 15, 20, "7,000"), titan(1, 17.5, 20), titan(0, 16, 20)]
    trace = written(tmp_path, *lines)
    steps = trace.df.filter(kind="step").select("iteration", "rank", "multiplicity", "duration_s", "ground").rows()
    assert steps == [
        (10, 0, 1, None, "read"),
        (10, 1, 1, None, "read"),
        (20, 0, 10, pytest.approx(1.4), "inferred"),
        (20, 1, 10, pytest.approx(1.6), "inferred"),
        (20, 0, 1, None, "read"),  # a line again: no step lies between
    ]
    told = claims(trace)
    assert (told["tokens"], told["mfu"], told["throughput"]) == (
        "5,400 a second and GPU",
        "30.00 %",
        "300.0 TFLOP/s per GPU",
    )


def test_steps_and_timers_stand_in_the_text_where_a_log_holds_no_calls() -> None:
    printed = text(summarise(read(str(FILES / "megatron-minmax.log"))), width=100)
    assert "22 ms to 36.4 ms" in printed
    assert re.search(r"params-all-gather +\d+\.\d\d ms, \d+% of the step", printed)
    assert printed.index("params-all-gather ") < printed.index("forward-backward ")  # named after an operation first


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("titan1287.log", ("1.396 s to 1.465 s", "mfu: 33.94 %")),
        ("megatron756.log", ("5.445 s to 5.534 s",)),
        ("nccl743_megatron_timers.log", ("backward-params-all-reduce", "21.29 ms, 14% of the step")),
    ],
)
def test_what_published_logs_say_of_steps_is_printed(name: str, said: tuple[str, ...]) -> None:
    printed = text(summarise(read(real(f"field/{name}"))), width=100)
    assert [words for words in said if words not in printed] == []
