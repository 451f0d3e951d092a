"""A knob that an answer names moves its own number on that input, or the row says why it does not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from kineto_traces import GEMM, Maker, read
from ringwright.advise.advise import AdviceSpec, advise
from ringwright.advise.settings import Setup
from ringwright.advise.situation import of_recording
from ringwright.analysis.exposed.overlap import overlap
from ringwright.fabrics import fabric
from ringwright.jobs import model_job, recorded_job, rows
from ringwright.jobs.job_trace import trace
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import Job, answer
from ringwright.model.registry import scheduler
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.replay import replayed
from ringwright_lab.testing.drawn_jobs import drawn
from ringwright_lab.testing.drawn_jobs import recorded as run_of

pytestmark = pytest.mark.once
MIB = 1 << 20
WHOLE = "pytorch-ddp:bucket_cap_mb=25:first_bucket_mb=25"
POLICIES = ("none", "pytorch-ddp:bucket_cap_mb=5", "p3", "bytescheduler", "gradientflow", "tictac")
MODELS = (("vgg16", None, "switch:8,rate=10Gb/s"), ("gpt2", "tp2", "dgx-a100:1"), ("gpt2", "fsdp", "dgx-a100:1"))


def layered(op: str = "all-reduce", layers: int = 9) -> Job:
    """Layers of 2 MiB of gradients, which take about as long as the layers."""
    made = chain("job", [ChainLayer(0.01, 0.02, 2 * MIB) for _ in range(layers)], ranks=2, op=op)
    return Job(made, LinkCosts(2 * MIB / 0.02, overhead_s=0.001), folded=False)


def replay(job: Job, policy: str) -> Job:
    """Return the job of a recording that was made by a policy."""
    return recorded_job.job(replayed(trace(job, answer(job, policy))), recorded_job.Counterfactual())


def moved_or_told(job: Job, policies: tuple[str, ...]) -> int:
    """Hold every knob that an answer names against the step that it makes; return how many moved it."""
    document = rows.document(job, policies)
    told = [row for row in document["rows"] if row["declined"] is None]
    steps: dict[str, float] = {}
    plain = next(row["step_us"] for row in told if row["policy"] == "none")
    for row in told:
        if row["policy"] != "none" and row["step_us"] == pytest.approx(plain, rel=1e-9):
            assert any(each.startswith(f"{row['policy']}: ") for each in row["decided"]), row["policy"]
        for cause in row["why"]:
            for knob in cause.get("remedies", ()):
                name = knob["policy"]
                assert name in cause["advice"]
                if knob["why_not"] is None:
                    steps[name] = steps.get(name) or answer(job, name).step_s * 1e6
                    assert steps[name] != pytest.approx(row["step_us"], rel=1e-9), (row["policy"], cause["cause"], name)
            named = set(re.findall(r"\b(?:pytorch-ddp|p3|bytescheduler)\b[^,; ]*", cause["advice"].replace(": ", " ")))
            assert named <= {each["policy"] for each in cause.get("remedies", ())}, "every knob that is named is held"
    return len(steps)


def test_a_cap_below_the_recorded_buckets_cuts_them() -> None:
    """A recording of buckets as large as all gradients: smaller caps are other steps, near what they are without a recording."""
    job = layered()
    told = replay(job, WHOLE)
    steps = {}
    for cap in (25, 5, 2):
        policy = f"pytorch-ddp:bucket_cap_mb={cap}:first_bucket_mb={cap}"
        steps[cap] = answer(told, policy).step_s
        assert steps[cap] == pytest.approx(answer(job, policy).step_s, rel=0.05)
    assert steps[5] < 0.95 * steps[25]
    assert steps[2] < 0.95 * steps[5]
    assert answer(told, "none").step_s == pytest.approx(steps[25], rel=1e-6)


def test_what_is_told_is_what_advice_tells() -> None:
    """Both ask about the same pieces: a policy has one step in either."""
    job = layered()
    found = of_recording(trace(job, answer(job, WHOLE)), None)
    base, told = found.job(Setup()), replay(job, WHOLE)
    for policy in ("pytorch-ddp:bucket_cap_mb=5", "p3", "bytescheduler"):
        label, schedule = scheduler(policy)
        plan = schedule(base.workload, base.costs)
        assert answer(told, policy).step_s == pytest.approx(
            answer(base, lambda *_, plan=plan: plan).step_s, rel=1e-6
        ), label


@pytest.mark.parametrize("seed", [1, 5, 11])
def test_of_recordings(seed: int) -> None:
    job = drawn(seed)
    cap = job.total_bytes / MIB
    plan = job.planned(scheduler(f"pytorch-ddp:bucket_cap_mb={cap:.4g}:first_bucket_mb={cap:.4g}")[1])
    told = recorded_job.job(replayed(run_of(job, plan, 0)), recorded_job.Counterfactual())
    assert moved_or_told(told, POLICIES) > 0


@pytest.mark.parametrize(("model", "form", "machine"), MODELS)
def test_of_models(model: str, form: str | None, machine: str) -> None:
    spec = model_job.GeneratedJobSpec(WorkloadSpec(model, 8, form))
    assert moved_or_told(model_job.made(spec, fabric(machine)), ("none", "pytorch-ddp", "p3")) >= (form != "fsdp")


def test_where_nothing_can_be_cut_the_row_says_so() -> None:
    """Scattered gradients are replayed as they were recorded: caps below them change nothing, and that is said."""
    told = replay(layered("reduce-scatter", 3), "none")
    document = rows.document(told, ("none", "pytorch-ddp:bucket_cap_mb=1:first_bucket_mb=1"))
    plain, capped = document["rows"]
    assert capped["step_us"] == pytest.approx(plain["step_us"], rel=1e-9)
    assert any("as long as without it" in each and "no bucket cuts" in each for each in capped["decided"])


def test_the_pieces_of_a_policy_are_enlarged_from_what_it_sends() -> None:
    """Small pieces on a network of long latency: the knob that is named is the policy's own, larger than it was."""
    job = replace(layered(), costs=LinkCosts(2 * MIB / 0.002, overhead_s=0.01))

    def small(workload: Workload, costs: Any) -> Workload:
        return bytescheduler(workload, costs, partition_mb=0.25, credit_mb=0.25)

    small.spelling = "bytescheduler:partition_mb=0.25:credit_mb=0.25"  # type: ignore[attr-defined]
    (row,) = rows.document(job, [small])["rows"]
    (latency,) = [each for each in row["why"] if each["cause"] == "latency"]
    assert "bytescheduler:partition_mb=1" in latency["advice"]


def test_an_audit_names_a_cap_below_the_bucket_that_it_saw() -> None:
    job = Maker()
    job.step(1, 0, 2000)
    job.collective(100, 50, **{"In msg nelems": MIB})
    job.kernel(GEMM, 90, 100)
    job.collective(300, 400, **{"In msg nelems": 9 * MIB})
    job.kernel(GEMM, 705, 10, launch=300)
    (row,) = [each for each in overlap(read(job))["exposed"] if each["cause"] == "bucket"]
    assert row["switch"] == "DDP(bucket_cap_mb=9); FSDP: shard layer by layer"  # half of 18 MiB of bfloat16


def test_what_advice_names_moves_the_step_that_is_replayed() -> None:
    job = layered(layers=4)
    recording = trace(job, answer(job, WHOLE))
    found = advise(of_recording(recording, None), AdviceSpec(("ddp", "policy"), seconds=600.0))
    told = recorded_job.job(replayed(recording), recorded_job.Counterfactual())
    assert found["changes"]
    for change in found["changes"]:
        for spelling in change["spelling"].split("; "):
            assert answer(told, spelling).step_s < answer(told, "none").step_s
