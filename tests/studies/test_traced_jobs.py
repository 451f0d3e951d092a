"""A simulated job as a recording: who was ready when, steps that hold what is theirs, the device, and the late rank that it tells."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ringwright.algorithms.blocks.ring import ring
from ringwright.analysis.metrics import metrics
from ringwright.analysis.summary import summarise
from ringwright.calls.run_trace import trace as collective_trace
from ringwright.cli import main
from ringwright.engines.choose import simulate as simulate_program
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric, faults
from ringwright.jobs import model_job, study
from ringwright.jobs.job_trace import trace
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing import event_owners
from ringwright.jobs.study import PolicyResult
from ringwright.model.collective import Collective
from ringwright.model.trace import Trace
from ringwright.workloads.replay import replayed

SWITCH = "switch:8,rate=100Gb/s"


def recorded(
    on: str = SWITCH,
    mesh: str = "dp8",
    lines: Sequence[str] = (),
    policy: str = "pytorch-ddp",
    micro_batches: int | None = None,
) -> tuple[Trace, PolicyResult]:
    machine = faults.apply(fabric(on), lines)
    spec = WorkloadSpec("gpt3-125m", None, mesh, micro_batches=micro_batches)
    job = model_job.made(model_job.GeneratedJobSpec(spec), machine)
    result = study.answer(job, policy)
    return trace(job, result), result


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_the_straggler_of_a_saved_job_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", "--model", "gpt3-125m", "--gpus", "8", "--fabric", SWITCH, "--fault", "rank 3 slow 4x")
    asked(capsys, *words, "--trace", str(tmp_path / "y"))
    answer = asked(capsys, "summary", str(tmp_path / "y"))["answer"]
    assert (answer["kind"], answer["ranks"], answer["place"]) == ("slow", [3], "rank")
    assert answer["sentence"].startswith("Slow because rank 3 computes 4 times as long as ranks that do the same")
    figures = {each["name"]: each["value"] for each in answer["figures"]}
    assert figures["ranks to blame"] == "3"
    # Seven ranks wait, in each of three steps, for as long as rank 3 works longer: 38.69 - 9.673 ms.
    waited_ms = float(figures["waiting that it causes"].removesuffix(" ms"))
    assert 0.95 < waited_ms / (7 * 3 * (38.69 - 9.673)) < 1.05
    assert answer["command"]


def test_a_healthy_job_accuses_nobody_and_its_gpu_is_not_what_it_lacks() -> None:
    told = summarise(recorded()[0])
    assert told["verdict"] is None
    assert told["answer"]["kind"] == "slow"
    assert told["answer"]["ranks"] == []
    assert not any("name its GPU" in each for each in [told["answer"]["sentence"], *told["normal_unknown"]])


def test_when_each_rank_was_ready_is_kept() -> None:
    events = recorded(lines=["rank 3 slow 4x"])[0].df.filter(pl.col("kind") == "collective")
    call = pl.struct("communicator", "sequence")
    assert events.group_by(call).agg(pl.col("start_s").n_unique())["start_s"].max() == 1
    assert (events["enqueue_s"] <= events["start_s"] + 1e-12).all()
    last = events.filter(pl.col("enqueue_s") == pl.col("enqueue_s").max().over("communicator", "sequence"))
    assert last.filter(rank=3).height >= 39  # of 42: but for what nobody computes for
    early, late = (events.filter(pl.col("rank") == rank)["enqueue_s"].to_numpy() for rank in (0, 3))
    assert late[:12] == pytest.approx(4 * early[:12], rel=1e-6)  # of the first step: it computes four times as long


@pytest.mark.parametrize(
    ("mesh", "policy", "micro_batches"),
    [("dp8", "pytorch-ddp", None), ("dp8", "p3", None), ("tp2,pp2,dp2", "none", 4), ("dp8", "bytescheduler", None)],
)
def test_a_step_holds_what_is_its_own(mesh: str, policy: str, micro_batches: int | None) -> None:
    made, result = recorded(mesh=mesh, policy=policy, lines=["rank 3 slow 2x"], micro_batches=micro_batches)
    end = pl.col("start_s") + pl.col("duration_s")
    steps = made.df.filter(kind="step")
    assert steps["rank"].null_count() == 0
    assert steps.height == 8 * result.run.laid.steps
    held = (
        made.df.filter(pl.col("kind") != "step")
        .group_by("rank", "iteration")
        .agg(pl.col("start_s").min().alias("first"), end.max().alias("last"))
        .join(steps.with_columns(end.alias("end")), on=["rank", "iteration"])
    )
    assert held.height == steps.height
    assert held["first"].to_numpy() == pytest.approx(held["start_s"].to_numpy(), abs=1e-12)
    assert held["last"].to_numpy() == pytest.approx(held["end"].to_numpy(), abs=1e-12)
    told = [each["time_s"] for each in summarise(made)["iterations"]]
    assert told[-1] == pytest.approx(result.step_s, rel=0.02)  # a last one ends with nothing behind it


def test_metrics_tell_the_waiting_of_each_step() -> None:
    made = recorded(lines=["rank 3 slow 4x"], policy="p3")[0]
    told = metrics(made)
    assert [each["interval"] for each in told] == [0.0, 1.0, 2.0]
    assert len({each["comm/all-reduce/calls"] for each in told}) == 1
    assert all(each["comm/all-reduce/wait_us"] > 0 for each in told)
    healthy = metrics(recorded()[0])
    assert max(each["comm/all-reduce/wait_us"] for each in healthy) < 1e-3


def test_ranks_that_are_alike_stay_together_where_they_are_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_owners, "MOST_APART", 0)
    made = recorded(lines=["rank 3 slow 4x"])[0].df
    work = made.filter(kind="compute", op="F", iteration=1)
    assert sorted(work.unique("rank_class").select("rank", "multiplicity").rows(), key=str) == [(3, 1), (None, 7)]
    steps = made.filter(kind="step", iteration=1)
    assert dict(steps.select("rank_class", "multiplicity").iter_rows()) == {"all, rank 0": 7, "all, rank 3": 1}


def test_each_rank_has_the_calls_of_its_own_groups() -> None:
    made = recorded(mesh="tp2,pp2,dp2", lines=["rank 5 slow 2x"], policy="none", micro_batches=2)[0]
    members = dict(made.table("communicators").select("communicator", "members").iter_rows())
    calls = made.df.filter(pl.col("kind").is_in(["collective", "p2p"]))
    assert all(rank in members[number] for rank, number in calls.select("rank", "communicator").unique().iter_rows())
    told = calls.filter(kind="collective").group_by("communicator", "sequence").agg(pl.col("rank").sort())
    assert all(ranks == sorted(members[number]) for number, _, ranks in told.iter_rows())
    sends = calls.filter(kind="p2p")
    pairs = {
        (rank, members[number][peer]) for rank, number, peer in sends.select("rank", "communicator", "peer").iter_rows()
    }
    assert pairs == {pair for low in range(4) for pair in ((low, low + 4), (low + 4, low))}


def test_the_device_is_named() -> None:
    told = [dict(recorded(on)[0].table("claims").select("field", "value").iter_rows()) for on in ("dgx-h100:1", SWITCH)]
    assert told[0]["gpu"] == "h100"
    assert "gpu" not in told[1]
    assert told[1]["device"] == "h100"


@pytest.mark.parametrize(("lines", "policy"), [([], "pytorch-ddp"), (["rank 3 slow 4x"], "none"), ([], "none")])
def test_a_saved_job_replays_as_it_was(lines: list[str], policy: str) -> None:
    """Its updates wait for all sums, as the barrier in front of them does."""
    made, result = recorded(lines=lines, policy=policy)
    again = replayed(made)
    assert simulate(again.workload, again.costs).step_s == pytest.approx(result.run.step_s, rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "nics"), [((0, 1, 9), ["nic0", "nic1", "nic1"]), ((3, 8, 11), ["nic3", "nic0", "nic3"])]
)
def test_a_collective_names_the_places_that_a_job_names(ranks: tuple[int, ...], nics: list[str]) -> None:
    machine = fabric("dgx-a100:2")
    program = ring(Collective("all-reduce", ranks, 1 << 20), machine)
    rows = collective_trace(program, machine, simulate_program(program, machine)).table("topology")
    assert rows["rank"].to_list() == list(ranks)
    assert rows["nic"].to_list() == nics
    assert rows["host"].to_list() == [f"node{rank // 8}" for rank in ranks]
    hosts = dict(zip(rows["host"], rows["value"], strict=True))
    assert [hosts[host] for host in rows["host"]] == rows["value"].to_list(), "ranks of a host lie in one part"
    assert len(set(hosts.values())) == len(hosts)


def test_ranks_of_a_fabric_without_hosts_are_on_none() -> None:
    machine = fabric("torus:2x2")
    program = ring(Collective("all-reduce", range(4), 1 << 20), machine)
    rows = collective_trace(program, machine, simulate_program(program, machine)).table("topology")
    assert rows["host"].null_count() == rows["value"].null_count() == 4
