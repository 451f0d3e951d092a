"""What cannot be advised on: what can be said is said, the rest is refused with what to record, or with what was typed wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import shared_data
from ringwright.cli import main
from ringwright.jobs.job_trace import trace
from ringwright.jobs.study import Job, answer
from ringwright.model.stages import LinkCosts
from ringwright.model.trace import Trace
from ringwright.workloads.chain import ChainLayer, chain

pytestmark = pytest.mark.once
TABLE = """# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  1 on  host0 device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid  2 on  host0 device  1 [0x0b] NVIDIA A100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    10.00    0.00    0.00      0    10.00    0.00    0.00      0
          16             4     float     sum      -1    11.00    0.00    0.00      0    11.00    0.00    0.00      0
"""


def asked(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["advise", *words, "--json"]) == 0
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


def test_a_benchmark_is_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "table.txt").write_text(TABLE)
    told = asked(str(tmp_path / "table.txt"), capsys=capsys)
    assert told["verdict"] == "cannot-tell"
    assert "benchmark" in str(told["why"])
    assert "ringwright run" in str(told["refused"])


def test_a_log_without_calls_says_what_to_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nccl.log").write_text("host0:1:1 [0] NCCL INFO NCCL version 2.18.5+cuda12.2\n")
    told = asked(str(tmp_path / "nccl.log"), capsys=capsys)
    assert told["verdict"] == "cannot-tell"
    assert "with times" in str(told["refused"])


def test_one_rank_of_many_is_asked_what_it_can_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the rank that was recorded the step is replayed; who is late is not known, and said to be not."""
    job = Job(chain("toy", [ChainLayer(0.01, 0.02, 8 << 20, 2 << 20)] * 6, ranks=4), LinkCosts(5e8), folded=False)
    whole = trace(job, answer(job, "pytorch-ddp:bucket_cap_mb=100"))
    events = whole.table("events").with_row_index("was").filter((pl.col("rank") == 0) | pl.col("rank").is_null())
    number = {was: at for at, was in enumerate(events["was"])}
    renumbered = [pl.col(end).replace_strict(number, default=None).alias(end) for end in ("src_event", "dst_event")]
    edges = whole.table("edges").with_columns(renumbered).drop_nulls(["src_event", "dst_event"])
    mine = {"events": events.drop("was"), "edges": edges}
    Trace.of({**{name: whole.table(name) for name in whole.tables}, **mine}, whole.meta).save(tmp_path / "one")
    told = asked(str(tmp_path / "one"), "--may", "repair,nccl", capsys=capsys)
    refused = {str(each["what"]): each for each in told["refused"]}  # type: ignore[attr-defined]
    assert "two or more ranks" in refused["repair"]["why"]
    assert "--fabric" in refused["nccl"]["remedy"]
    assert any("were not recorded" in each for each in told["assumptions"])  # type: ignore[attr-defined]
    assert told["verdict"] == "nothing"
    assert "applies" in str(told["why"])
    assert all(each["remedy"] for each in refused.values())
    cut = asked(str(tmp_path / "one"), "--may", "ddp", capsys=capsys)
    assert cut["verdict"] == "changes"  # its one bucket went when backward was over
    assert "bucket_cap_mb" in str(cut["changes"])


@pytest.mark.parametrize(
    ("words", "said", "remedy"),
    [
        (["--model", "gpt3-125m", "--gpus", "8", "--gpu", "h9000"], "h9000", "list gpus"),
        (["--sample", "--model", "vgg16"], "--model is for a job from a model", "leave one"),
        (["--sample", "--may", "ddp", "--release", "2.20"], "is for nccl", "--may nccl,ddp"),
        (["--sample", "--release", "9.9"], "9.9", "2.21.5"),
        (["--sample", "--may", ""], "no layer ''", "--may repair"),
        (["--sample", "--memory", "many"], "many", ""),
        (["--sample", "--fabric", "dgx-h900:2"], "dgx-h900", "list fabrics"),
        (["--sample", "--fault", "link rank0 dead"], "--fault", "--fabric"),
        (["--model", "gpt3-125m", "--gpus", "16", "--fabric", "switch:4"], "16 ranks do not fit", "larger fabric"),
    ],
)
def test_what_was_typed_wrongly_says_so(
    words: list[str], said: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert remedy in error


def test_layers_that_the_job_cannot_have_are_refused_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "gpt3-125m", "--gpus", "4", "--fabric", "switch:4", "--may", "fsdp,placement,switch,repair"]
    told = asked(*words, capsys=capsys)
    refused = {str(each["what"]): each for each in told["refused"]}  # type: ignore[attr-defined]
    assert set(refused) == {"fsdp", "placement", "switch", "repair"}
    assert all(each["remedy"] for each in refused.values())


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("nccl-logs/alcf_resnet50_2025-01-15-15-59-06_without_aws.log", "cannot-tell"),
        ("nccl-tests/deepops_dgxa100_2n_8xHDR200_allreduce.txt", "cannot-tell"),
        ("kineto/param_dlrm_kineto.tar.gz", "changes"),
    ],
)
def test_real_recordings(path: str, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(
        str(shared_data.data_folder() / "real" / path), "--may", "repair,nccl", "--budget", "100s", capsys=capsys
    )
    assert told["verdict"] == verdict
    assert told["changes"] or told["refused"]
