"""What the generator wrote is what the reader reads: versions, hosts, ranks, members, operations to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reading import FACTS, members, operations, put, small_job, summary_of
from ringwright_lab.testing import GeneratedLog, NcclJob, deepseek_v3_inference, training_job, write_log
from ringwright_lab.testing.nccl_dirt import PREFIXES

RELEASES = ("2.3", "2.7", "2.10", "2.18", "2.23", "2.27", "2.30")
JOBS = {
    "mixed": lambda modern: training_job(2, 4, tp=2, pp=2 if modern else 1, iterations=2, layers=1, tokens=64, seed=5),
    "data-parallel": lambda modern: training_job(2, 4, iterations=2, seed=3),
    "sharded": lambda modern: training_job(2, 4, fsdp=True, iterations=2, seed=3),
    "tensor-8": lambda modern: training_job(4, 8, tp=8, iterations=1, layers=1, seed=3),
    "experts": lambda modern: training_job(
        2, 4, tp=2, ep=2 if modern else None, iterations=2, layers=1, tokens=64, seed=5
    ),
}


def agree(log: GeneratedLog, folder: Path, events: str = "auto") -> dict[str, Any]:
    """Read a whole log and compare everything that its truth tells."""
    summary, truth = summary_of(put(log, folder), events), log.truth
    assert {name: summary[name] for name in FACTS} == {name: truth[name] for name in FACTS}
    assert operations(summary) == operations(truth)
    assert members(summary) == members(truth)
    if len(truth["communicators"]) > 1 or truth["roles"]["dp"] != 1:  # one communicator alone does not tell its role
        assert summary["roles"] == truth["roles"]
    assert_ledger(summary, truth)
    assert summary["verdict"] is None
    assert summary["pair_ground"]["conserved"]
    return summary


def assert_ledger(summary: dict[str, Any], truth: dict[str, Any]) -> None:
    ledger = summary["ledger"]
    assert ledger["lines"] == truth["lines"]["physical"]
    assert sum(row["lines"] for row in summary["ledger_detail"]) == ledger["lines"]
    assert ledger["lines"] == sum(ledger[name] for name in ("understood", "repaired", "refused", "other"))


@pytest.mark.sampled(6, "*")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", JOBS)
def test_every_release_reads_as_written(tmp_path: Path, release: str, name: str) -> None:
    log = write_log(JOBS[name](release != "2.3"), release)
    whole = agree(log, tmp_path / "all")
    folded = agree(log, tmp_path / "folded", "folded")
    assert whole["operations"] == folded["operations"]
    assert whole["pair_bytes"] == folded["pair_bytes"]


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("release", RELEASES)
def test_one_file_per_process_reads_the_same(tmp_path: Path, release: str) -> None:
    apart = agree(write_log(small_job(release), release, per_process=True), tmp_path / "apart")
    merged = agree(write_log(small_job(release), release), tmp_path / "merged")
    assert apart["operations"] == merged["operations"]
    assert members(apart) == members(merged)


@pytest.mark.sampled(5, "*")
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("release", ["2.7", "2.18", "2.30"])
def test_launcher_prefixes_change_nothing(tmp_path: Path, release: str, prefix: str) -> None:
    agree(write_log(small_job(release), release, prefix=prefix), tmp_path / "job")


@pytest.mark.parametrize("release", ["2.27", "2.30"])
def test_time_stamps_change_nothing_but_the_timeline(tmp_path: Path, release: str) -> None:
    assert agree(write_log(small_job(), release), tmp_path / "plain")["timeline"] is None
    assert agree(write_log(small_job(), release, timestamps=True), tmp_path / "timed")["timeline"] is not None


@pytest.mark.parametrize("release", ["2.18", "2.27"])
def test_rccl_reads_as_written(tmp_path: Path, release: str) -> None:
    agree(write_log(small_job(release), release, rccl=True), tmp_path / "job")


@pytest.mark.parametrize(
    "options", [{"calls": True}, {"finish": "abort"}, {"finish": "running"}, {"channels": 8}], ids=str
)
def test_other_line_kinds_change_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    agree(write_log(small_job(), "2.27", **options), tmp_path / "job")


@pytest.mark.sampled(4, "release")
@pytest.mark.parametrize("late_tails", [False, True])
@pytest.mark.parametrize("release", ["2.7", "2.18", "2.27"])
def test_damaged_lines_cost_at_most_what_is_gone(tmp_path: Path, release: str, late_tails: bool) -> None:
    """Counts and bytes survive damage, as one whole line of the ranks is enough; records lack what no one can recover."""
    job = training_job(2, 4, tp=2, iterations=4, layers=1, tokens=64, seed=5)
    log = write_log(job, release, dirty=0.02, late_tails=late_tails)
    summary = summary_of(put(log, tmp_path / "job"))
    assert_ledger(summary, log.truth)
    assert summary["communicators"] == log.truth["communicators"]
    assert members(summary) == members(log.truth)
    found, true = operations(summary), operations(log.truth)
    assert found.keys() == true.keys()
    written = sum(row[1] for row in true.values())
    assert abs(sum(row[1] for row in found.values()) - written) <= 0.002 * written
    for op, (count, _, size_bytes, histogram) in true.items():
        assert (op, found[op][0], found[op][2], found[op][3]) == (op, count, size_bytes, histogram)


def inference_job() -> NcclJob:
    return deepseek_v3_inference(16, prompt_tokens=1024, decode_passes=4)


@pytest.mark.parametrize("events", ["auto", "folded"])
def test_deepseek_inference_to_the_byte(tmp_path: Path, events: str) -> None:
    """181 all-reduces of tokens x 7168 x 2 B and one gather of 129,280 bf16 logits per pass (public model description)."""
    found = operations(agree(write_log(inference_job(), "2.27"), tmp_path / "job", events))
    assert set(found) == {"all-reduce", "all-gather"}
    reduces, gathers = found["all-reduce"], found["all-gather"]
    assert gathers[0] == 5
    assert reduces[0] == 181 * gathers[0]
    assert reduces[3] == {14_336: 181 * 4, 14_680_064: 181}
    assert gathers[3] == {16 * 16_160: 5}
    assert reduces[1] == 16 * reduces[0]
    assert reduces[2] == 181 * (4 * 14_336 + 14_680_064)
