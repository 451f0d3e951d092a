"""The law of replays: a simulated job's recording, replayed unchanged, takes the time of the job within a hundredth.

What the job knew and the replay must find again: the order of work on a device, messages between stages, what met on one port,
groups of some stages, updates that reach into the next step, ranks that a fault makes unlike.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl
import pytest

from ringwright.fabrics import fabric, faults
from ringwright.jobs import job_trace, model_job, recorded_job
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import PolicyResult, answer
from ringwright.model.rewrites import operations
from ringwright.workloads.recorded.finer import cuttable
from ringwright.workloads.replay import Replay, replayed

pytestmark = pytest.mark.once

NEAR = 0.01
SWITCH = "switch:8,rate=100Gb/s"
FABRICS = {
    SWITCH: ("rank {rank} slow 2x", "link rank{rank}--switch rate 50%"),
    "switch:16,rate=10Gb/s": ("rank {rank} slow 4x", "link rank{rank}--switch rate 25%"),
    "dgx-a100:2": ("rank {rank} slow 1.5x", "nic node0/nic1 rate 50%"),
    "dgx-h100:2": ("rank {rank} slow 3x", "nic node1/nic0 rate 25%"),
}
MODELS, POLICIES = (
    ("gpt3-125m", "bert-large", "gpt3-350m"),
    ("pytorch-ddp", "pytorch-ddp", "none", "dear", "bytescheduler"),
)
DRAWN = int(os.environ.get("RINGWRIGHT_DRAWS", "0"))
SEEDS = range(DRAWN) if DRAWN else (2, 3, 5, 9, 11, 14, 16, 21)


@dataclass(frozen=True)
class JobAsked:
    """A job: what runs where, in which parallel form, and what is wrong with the machine."""

    mesh: str
    on: str = SWITCH
    model: str = "gpt3-125m"
    micro_batches: int | None = 4
    policy: str = "pytorch-ddp"
    lines: Sequence[str] = ()


def drawn(seed: int) -> JobAsked:
    """Return a job: every form that its ranks allow, each third with a fault."""
    draw = random.Random(seed)
    on, model = draw.choice(list(FABRICS)), draw.choice(MODELS)
    ranks = fabric(on).n_ranks
    tp, pp = draw.choice(((2, 1), (1, 2), (2, 2), (1, 4), (2, 4), (4, 2), (1, 1)))
    axes = {"tp": tp, "pp": pp, "dp": ranks // (tp * pp)}
    extra = [["sp"] if tp > 1 and draw.random() < 0.3 else [], draw.choice(([], [], ["zero1"], ["fsdp"]))]
    mesh = [f"{axis}{count}" for axis, count in axes.items() if count > 1]
    wrong = draw.choice(FABRICS[on]).format(rank=draw.randrange(ranks)) if draw.random() < 1 / 3 else ""
    policy = "pytorch-ddp" if extra[1] or axes["dp"] == 1 else draw.choice(POLICIES)
    mesh += [*extra[0], *(extra[1] if axes["dp"] > 1 else [])]
    return JobAsked(",".join(mesh), on, model, draw.choice((1, 2, 4, 8)), policy, [wrong] if wrong else [])


def simulated(asked: JobAsked) -> tuple[PolicyResult, Replay]:
    """Return the job's step, and its recording as a replay."""
    machine = faults.apply(fabric(asked.on), asked.lines)
    spec = WorkloadSpec(asked.model, None, asked.mesh, micro_batches=asked.micro_batches, dims={"layers": 12})
    job = model_job.made(model_job.GeneratedJobSpec(spec), machine)
    result = answer(job, asked.policy)
    return result, replayed(job_trace.trace(job, result))


def again(replay: Replay) -> PolicyResult:
    """Return the replay that changes nothing, as ``simulate RECORDING`` answers it."""
    return answer(recorded_job.job(replay, recorded_job.Counterfactual()), "none")


def kept(asked: JobAsked) -> Replay:
    """Hold a job to the law, and return its replay."""
    result, replay = simulated(asked)
    assert replay.ground == "dependencies"
    assert again(replay).step_s == pytest.approx(result.step_s, rel=NEAR), asked
    assert replay.measured_s == pytest.approx(result.step_s, rel=NEAR)
    assert recorded_job.ground(replay)["warnings"] == []
    return replay


@pytest.mark.sampled(3, "seed")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_job_is_replayed_as_long_as_it_took(seed: int) -> None:
    """``scripts/replays-of-jobs`` draws 1,000."""
    kept(drawn(seed))


@pytest.mark.parametrize("mesh", ["dp8", "tp2,dp4", "tp2,pp2,dp2", "pp4,dp2"])
def test_micro_batches_are_replayed_in_the_order_in_which_they_ran(mesh: str) -> None:
    """Events are written layer by layer, all micro-batches of one together: no device works so."""
    kept(JobAsked(mesh))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rate", ["25Gb/s", "400Gb/s"])
@pytest.mark.parametrize("mesh", ["dp8", "tp2,dp4", "tp2,pp2,dp2", "pp4,dp2"])
def test_a_job_moved_to_another_fabric_takes_what_it_takes_there(mesh: str, rate: str) -> None:
    """The recording says what it ran on: what is asked about is another network, not a word about its own."""
    other = f"switch:8,rate={rate}"
    _, replay = simulated(JobAsked(mesh))
    there, _ = simulated(JobAsked(mesh, other))
    moved = recorded_job.job(replay, recorded_job.Counterfactual(healthy=fabric(other)))
    assert moved.fabric == other
    near = 3 * NEAR if "pp" in mesh else NEAR  # how far stages disturb each other stays as recorded
    assert answer(moved, "none").step_s == pytest.approx(there.step_s, rel=near)
    assert recorded_job.job(replay, recorded_job.Counterfactual(healthy=fabric(SWITCH))).fabric == recorded_job.ITS_OWN


def test_a_recording_that_says_no_fabric_is_taken_to_be_on_the_one_named() -> None:
    _, replay = simulated(JobAsked("dp8"))
    assert replay.trace is not None
    replay.trace.meta.pop("asked")
    slow, own = fabric("switch:8,rate=25Gb/s"), fabric(SWITCH)
    taken = recorded_job.job(replay, recorded_job.Counterfactual(healthy=slow))
    assert answer(taken, "none").step_s == pytest.approx(again(replay).step_s)
    assert any("--ran-on names it" in line for line in taken.assumptions)
    told = recorded_job.job(replay, recorded_job.Counterfactual(healthy=slow, ran_on=own))
    assert answer(told, "none").step_s > 2 * again(replay).step_s
    assert not any("--ran-on" in line for line in told.assumptions)


def test_the_first_step_begins_at_no_time_and_is_replayed_in_order_too() -> None:
    """What begins at 0 s is not what has no time."""
    spec = WorkloadSpec("gpt3-125m", None, "dp8", micro_batches=4)
    job = model_job.made(model_job.GeneratedJobSpec(spec), fabric(SWITCH))
    first = replayed(job_trace.trace(job, answer(job, "none")), step=0)
    assert first.trace is not None
    assert first.trace.df.filter(pl.col("kind") == "compute")["start_s"].min() == 0
    assert again(first).step_s == pytest.approx(first.measured_s, rel=NEAR)


def test_a_stage_waits_for_the_message_of_the_one_before() -> None:
    """A message is an event of its sender; what waits for it on another rank flows from it."""
    replay = kept(JobAsked("pp2,dp4"))
    messages = [each for each in replay.workload.payloads if each.op == "send-recv"]
    assert len(messages) == 8
    of = {task.name: task.of for task in replay.workload.tasks}
    assert all({of[name] for name, _ in each.consumers} == {each.peer} for each in messages)
    assert all(each.peer != each.of for each in messages)


def test_what_met_on_a_port_is_slower_by_what_it_met_and_once() -> None:
    """Sums of the model beside sums of gradients: each operation lasts as long as it did, not as its like on the average."""
    result, replay = simulated(JobAsked("tp2,dp4", policy="none"))
    sums = [each.disturbed for each in replay.workload.payloads if each.role == "tp"]
    assert min(sums) < 0.95
    assert max(sums) > 1.1
    assert sum(sums) / len(sums) == pytest.approx(1.0, rel=1e-6)
    alike = replace(replay.workload, payloads=tuple(replace(each, disturbed=1.0) for each in replay.workload.payloads))
    averaged = again(replace(replay, workload=alike))
    assert averaged.step_s > 1.03 * result.step_s  # the first micro-batches met nobody


def test_the_first_and_the_last_stage_are_a_part_of_their_pipeline() -> None:
    replay = kept(JobAsked("pp4,dp2", micro_batches=2))
    (shared,) = (each for each in replay.workload.payloads if each.role == "embedding")
    assert replay.workload.mesh.axes == (("pp", 4), ("dp", 2))
    assert (shared.of, shared.joint, shared.axes) == ("pp0", ("pp3",), ("pp",))


@pytest.mark.parametrize("policy", ["p3:slice_elements=2000000", "bytescheduler", "dear", "lina"])
def test_sums_that_reach_into_the_next_step_do_so_again(policy: str) -> None:
    replay = kept(JobAsked("dp8", micro_batches=2, policy=policy))
    crossing = [each for each in replay.workload.edges if each.distance]
    crossing += [each for each in replay.workload.payloads if any(distance for _, distance in each.consumers)]
    assert crossing


@pytest.mark.parametrize("line", ["rank 5 slow 2x", "link rank6--switch rate 50%"])
def test_ranks_that_a_fault_makes_unlike_are_replayed_one_by_one(line: str) -> None:
    assert len(kept(JobAsked("tp2,dp4", lines=[line])).workload.classes) > 1


def test_buckets_of_every_stage_are_joined_as_recorded() -> None:
    """A policy may cut them; none that does not may change what is sent."""
    _, replay = simulated(JobAsked("tp4,pp2,dp2,sp", "switch:16,rate=10Gb/s", micro_batches=1))
    sent = {(each.of, each.size_bytes) for each in operations(cuttable(replay.workload)) if each.role == "dp"}
    assert sent == {(each.of, each.size_bytes) for each in replay.workload.payloads if each.role == "dp"}


def test_a_replay_that_misses_its_recording_says_so() -> None:
    """Gates between roles are in no recording: messages of stages wait there for sums, and none does in the replay."""
    result, replay = simulated(JobAsked("pp2,dp4", policy="multidimensional-scheduling"))
    assert abs(again(replay).step_s / result.step_s - 1) > NEAR
    (warning,) = recorded_job.ground(replay)["warnings"]
    assert warning.startswith("the replay, unchanged, is")
