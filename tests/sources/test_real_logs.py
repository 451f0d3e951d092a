"""Real logs of real jobs give the answers that are known for them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from shared_data import needs_shared_data, real

pytestmark = needs_shared_data

LOGS = {
    "megatron": "real/nccl-logs/bigscience_meg_gpt2_perf_n16-1999618.out.gz",
    "bench64": "real/nccl-logs/bigscience_n16_32gb_all_reduce_bench.txt.gz",
    "bench16": "real/nccl-logs/bigscience_all_reduce_bench-32gb-n4.txt",
    "bench4": "real/nccl-logs/bigscience_n1_16gb_all_reduce_bench.txt",
    "vae-hang": "real/nccl-logs/alcf_VAE_2024-11-08-21-23-14_with_aws.log",
    "vae-healthy": "real/nccl-logs/alcf_VAE_2025-01-15-16-06-30_with_aws.log",
    "resnet50": "real/nccl-logs/alcf_resnet50_2025-01-15-15-59-06_without_aws.log",
    "tensorflow": "real/nccl-logs/issue_NVIDIA-nccl-203.log",
    "titan": "real/nccl-logs/issue_pytorch-torchtitan-1369.log",
    "ray": "real/nccl-logs/issue_NVIDIA-nccl-1193.log",
    "one-rank": "real/nccl-logs/issue_NVIDIA-nccl-1238.log",
    "port": "real/nccl-logs/issue_Lightning-lit-llama-380.log",
    "hca": "real/nccl-logs/issue_NVIDIA-nccl-230.log",
    "plugin": "real/nccl-logs/issue_NVIDIA-nccl-1405.log",
    "watchdog": "real/nccl-logs/issue_hiyouga-LlamaFactory-7396_watchdog.log",
    "rccl": "real/nccl-logs/rccl_replayer_readme_excerpt.log",
    "tuning": "real/nccl-logs/eunomia_p3-allgather-reducescatter-sweep.md",
}
HEALTHY = (
    "megatron",
    "bench64",
    "bench16",
    "bench4",
    "vae-healthy",
    "resnet50",
    "tensorflow",
    "titan",
    "ray",
    "tuning",
)


@cache
def summary(name: str) -> dict[str, Any]:
    return summarise(read(real(LOGS[name])))


def sizes(name: str) -> dict[int, int]:
    return {row["size"]: row["count"] for row in summary(name)["communicators"]}


def members(name: str, size: int) -> set[tuple[int, ...]]:
    return {tuple(row["members"]) for row in summary(name)["communicator_list"] if row["size"] == size}


@pytest.mark.sampled(8, "*")
@pytest.mark.parametrize("name", LOGS)
def test_every_line_is_in_the_ledger(name: str) -> None:
    ledger = summary(name)["ledger"]
    assert ledger["lines"] == sum(ledger[key] for key in ("understood", "repaired", "refused", "other")) > 0
    assert summary(name)["pair_ground"]["conserved"]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_has_no_verdict(name: str) -> None:
    assert summary(name)["verdict"] is None


def test_megatron_communicators_and_roles() -> None:
    found = summary("megatron")
    assert found["nccl_versions"] == ["2.7.8"]
    assert (found["hosts"], found["ranks_seen"], found["ranks_expected"]) == (16, 64, 64)
    assert sizes("megatron") == {1: 64, 2: 64, 4: 16, 16: 1, 64: 2}
    assert found["roles"] | {"ep": None} == {"tp": 4, "pp": 16, "dp": 1, "ep": None}


def test_megatron_members() -> None:
    assert members("megatron", 16) == {tuple(range(0, 64, 4))}
    assert members("megatron", 4) == {tuple(range(first, first + 4)) for first in range(0, 64, 4)}
    neighbours = {(rank, rank + 4) for rank in range(60)}
    assert members("megatron", 2) == neighbours | {(rank, rank + 60) for rank in range(4)}


def test_megatron_iterations_and_lines() -> None:
    found = summary("megatron")
    assert [row["iteration"] for row in found["iterations"]] == [1, 2, 3, 4]
    assert found["iterations"][0]["time_s"] == pytest.approx(150.8917)
    kinds = read(real(LOGS["megatron"])).query("select kind, count(*) n from topology group by kind")
    assert dict(kinds.rows())["device"] == 64


@pytest.mark.parametrize("name", ["vae-hang", "vae-healthy", "resnet50"])
def test_two_true_hosts_and_eight_ranks(name: str) -> None:
    found = summary(name)
    assert (found["hosts"], found["ranks_seen"], found["ranks_expected"]) == (2, 8, 8)
    assert sizes(name) == {8: 1}
    assert found["nccl_versions"] == ["2.20.5"]


def test_a_desynchronised_hang_accuses_nobody() -> None:
    verdict = summary("vae-hang")["verdict"]
    assert verdict["kind"] == "hang-desynchronised"
    assert verdict["ranks"] == []
    assert verdict["confidence"] == 0.0
    text = " ".join(verdict["evidence"])
    assert "ALLREDUCE 6215 on rank 0;" in text
    assert "BROADCAST 3861 on ranks 1, 4, 5, 6" in text
    assert "said nothing: 2, 3, 7" in text


def test_watchdogs_that_agree_cannot_tell() -> None:
    verdict = summary("watchdog")["verdict"]
    assert (verdict["kind"], verdict["ranks"]) == ("hang", [])


def test_bench_logs() -> None:
    assert sizes("bench64") == {64: 1}
    assert (summary("bench64")["hosts"], summary("bench64")["ranks_seen"]) == (16, 64)
    assert sizes("bench16") == {16: 1}
    assert summary("bench16")["nccl_versions"] == ["2.10.3"]
    assert sizes("bench4") == {4: 1}


def test_a_ring_of_64_is_recovered_behind_the_cut_list() -> None:
    topology = read(real(LOGS["bench64"])).table("topology")
    rings = topology.filter(topology["kind"] == "ring")
    assert set(rings["ground"]) == {"inferred"}
    for channel in rings["channel"].unique():
        edges = rings.filter(rings["channel"] == channel)
        assert sorted(edges["src"]) == sorted(edges["dst"]) == list(range(64))


def test_port_error_comes_before_the_peers_completion_error() -> None:
    verdict = summary("port")["verdict"]
    assert (verdict["kind"], verdict["hosts"]) == ("port-error", ["...-48"])


def test_hca_error_on_three_ranks() -> None:
    verdict = summary("hca")["verdict"]
    assert (verdict["kind"], verdict["ranks"]) == ("nic-error", [12, 13, 14])


def test_every_completion_error_names_the_same_peer() -> None:
    verdict = summary("plugin")["verdict"]
    assert (verdict["kind"], verdict["hosts"]) == ("peer-unreachable", ["10.216.210.236"])


def test_missing_ranks_are_stated_not_guessed() -> None:
    found = summary("ray")
    assert (found["ranks_seen"], found["ranks_expected"]) == (3, 128)
    assert found["pair_bytes"] == []
    operation = found["operations"][0]
    assert (operation["count"], operation["records"]) == (2, 4)
    assert operation["size_histogram"] == [
        {"size_bytes": 28_266_288, "count": 1},
        {"size_bytes": 29_528_912, "count": 1},
    ]
    assert any("3 of 128 ranks" in text for text in found["warnings"])


def test_real_datatypes_and_counts() -> None:
    found = {row["op"]: row for row in summary("titan")["operations"]}
    assert found["all-gather"]["size_histogram"] == [{"size_bytes": 16_777_216, "count": 2}]
    assert found["reduce-scatter"]["size_histogram"] == [{"size_bytes": 16_777_216, "count": 1}]
    assert found["all-reduce"]["count"] == 2
    assert {row["op"]: row["count"] for row in summary("tensorflow")["operations"]} == {"all-reduce": 4}
    assert summary("one-rank")["operations"][0]["count"] == 4
    assert summary("rccl")["operations"][0]["bytes"] == 536_870_912


def test_tuning_lines_without_prefix() -> None:
    chosen = {row["size_bytes"]: (row["algorithm"], row["protocol"]) for row in summary("tuning")["algorithms"]}
    assert chosen[32768] == ("pat", "simple")
    assert chosen[16] == ("ring", "ll")
    assert len(chosen) == 23
