"""Logs of Megatron-LM: lines of a real job, and what its timers print in each of their forms."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.formats.sources.megatron_log.reader import moves
from ringwright.formats.sources.sample import sample
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace
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
