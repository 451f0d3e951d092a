"""The law of one physics: an operation of a job alone on the wire takes what the collective verb says, under every fault."""

from __future__ import annotations

from typing import Any

import pytest

from ringwright.calls.asked_faults import AskedFaults
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.fabrics import fabric
from ringwright.jobs.model_job import GeneratedJobSpec, made
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import answer
from ringwright_lab.testing.one_physics import broken, broken_job, drawn, drawn_job

pytestmark = pytest.mark.once  # packets are the same by the twin

NODES, NIC = "dgx-a100:2", "nic node0/nic0"


def row(line: str = "", algorithm: str = "gc3", size_bytes: int = 16 << 20) -> dict[str, Any]:
    """Return what the collective verb answers on two nodes."""
    healthy, faults = fabric(NODES), AskedFaults((line,) if line else ())
    question = SimulationSpec("all-reduce", faults.on(healthy), healthy=healthy, faults=faults if line else None)
    told: dict[str, Any] = sweep(question, [algorithm], [size_bytes])["rows"][0]
    return told


def step_s(line: str, policy: str) -> float:
    """Return the seconds of a step of bert-large on two nodes."""
    healthy = fabric(NODES)
    top = AskedFaults((line,)).on(healthy) if line else healthy
    job = made(GeneratedJobSpec(WorkloadSpec("bert-large", 16, dims={"layers": 4}), algorithms={"": "gc3"}), top)
    return answer(job, policy).step_s


@pytest.mark.sampled(1, "policy")
@pytest.mark.parametrize("policy", ["none", "dear"])
def test_a_job_behind_a_failing_optic_is_between_healthy_and_half_the_rate(policy: str) -> None:
    """It ends with half of the lanes, whole ones: no step has their errors and the lost rate at once."""
    well, half, optic = (step_s(line, policy) for line in ("", f"{NIC} rate 50%", f"{NIC} optics degrade"))
    assert well < optic <= half * (1 + 1e-9)


def test_a_fault_that_does_nothing_leaves_the_answer_of_a_healthy_fabric() -> None:
    """Packets are followed for it, yet headers and queues are there without it too: what they lose is added, and nothing else."""
    for algorithm, size in (("gc3", 16 << 20), ("nccl-2-4", 1 << 20)):
        well_us = row(algorithm=algorithm, size_bytes=size)["time_us"]
        optic = row(f"{NIC} optics degrade", algorithm, size)
        assert optic["time_us"] == optic["healthy_us"] == well_us
        assert "forward error correction mends" in optic["unaffected"][0]["why"]
        half_us = row(f"{NIC} rate 50%", algorithm, size)["time_us"]
        assert optic["worst_us"] == pytest.approx(half_us, rel=1e-9)  # its last stage, or none is worse
        assert optic["worst_start_s"] == 0.8


def test_severer_losses_take_no_less_and_none_is_below_healthy() -> None:
    told = [row(f"{NIC} {line}", size_bytes=4 << 20) for line in ("ber 1e-4", "loss 0.01%", "loss 0.1%", "loss 1%")]
    means_us = [each["healthy_us"] if each["mean_us"] is None else each["mean_us"] for each in told]
    assert means_us == sorted(means_us)
    assert all(each["time_us"] >= each["healthy_us"] == told[0]["healthy_us"] for each in told)


@pytest.mark.sampled(3, "seed")
@pytest.mark.parametrize("seed", [31, 43, 64, 81, 98, 109, 140, 172, 319, 361])
def test_a_drawn_call_keeps_the_law(seed: int) -> None:
    """One of each kind of fault; ``scripts/one-physics`` draws 1,000."""
    assert broken(drawn(seed)) == []


@pytest.mark.sampled(2, "seed")
@pytest.mark.parametrize("seed", [3, 6, 23, 32])
def test_the_operations_of_a_drawn_job_keep_the_law(seed: int) -> None:
    assert broken_job(drawn_job(seed)) == []
