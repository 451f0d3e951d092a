"""Pairs of recordings of one drawn job that differ by a change: before, after, and the change as advice spells it.

The generator of back-tests. What a change does is simulated with the true costs of the job (``testing.drawn_jobs``), which
whoever is tested does not see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ringwright.fabrics import fabric
from ringwright.ground.units import MIB
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.model.registry import scheduler
from ringwright.model.topology import Topology
from ringwright.model.trace import Trace
from ringwright.model.workload import Workload
from ringwright_lab.testing.drawn_jobs import DrawnJob, Random, drawn, recorded

CAPS = (0.02, 1.2)  # of all gradients, a bucket
SLOW = (1.1, 2.0)  # times the compute of others
POLICIES = ("p3", "bytescheduler", "dear")
ALGORITHMS = (
    "nccl-2-4:algorithm=ring:protocol=simple",
    "nccl-2-4:algorithm=tree:protocol=simple",
    "nccl-2-4:algorithm=tree:protocol=ll128",
)
RATES = (10, 25, 100)  # Gb/s of a port


@dataclass(frozen=True)
class RecordedPair:
    """Two recordings and the change between them; ``true_gain`` is the gain without noise, ``machine`` what both ran on."""

    kind: str
    seed: int
    change: str
    before: Trace = field(repr=False)
    after: Trace = field(repr=False)
    true_gain: float
    machine: Topology | None = field(default=None, repr=False)


def pair(kind: str, seed: int) -> RecordedPair:
    """Return a pair; ``kind`` is one of ``KINDS``."""
    return KINDS[kind](seed, np.random.default_rng((seed, *kind.encode())))


def _told(
    job: DrawnJob, kind: str, change: str, before: Workload, after: Workload, changed: DrawnJob | None = None
) -> RecordedPair:
    other = changed or job
    gain = 1 - other.step_s(after) / job.step_s(before)
    return RecordedPair(kind, job.seed, change, recorded(job, before, 0), recorded(other, after, 1), gain)


def buckets(job: DrawnJob, share: float) -> str:
    """Return buckets of a share of all gradients, the first of them no larger than the others."""
    cap = job.total_bytes / MIB * share
    return f"pytorch-ddp:bucket_cap_mb={cap:.4g}:first_bucket_mb={min(1.0, cap):.4g}"


def _share(rng: Random) -> float:
    return float(np.exp(rng.uniform(*np.log(CAPS))))


def _buckets(seed: int, rng: Random) -> RecordedPair:
    """Buckets of another size."""
    job = drawn(seed)
    before, after = buckets(job, _share(rng)), buckets(job, _share(rng))
    return _told(job, "buckets", after, job.planned(scheduler(before)[1]), job.planned(scheduler(after)[1]))


def _policy(seed: int, rng: Random) -> RecordedPair:
    """Another scheduler."""
    job = drawn(seed)
    before, after = buckets(job, _share(rng)), str(rng.choice(POLICIES))
    return _told(job, "policy", after, job.planned(scheduler(before)[1]), job.planned(scheduler(after)[1]))


def _repair(seed: int, rng: Random) -> RecordedPair:
    """A rank that was slow, mended."""
    job = drawn(seed)
    plan = job.planned(scheduler(buckets(job, _share(rng)))[1])
    rank = int(rng.integers(plan.mesh.size))
    slow = replace(job, slowed={rank: float(np.exp(rng.uniform(*np.log(SLOW))))})
    return _told(slow, "repair", f"repair:{rank}", plan, plan, job)


def _links(seed: int, rng: Random) -> RecordedPair:
    """Links that are twice as fast."""
    job, machine = on_machine(seed, rng)
    name = next(iter(machine.classes))
    change = f"links {name} x2"
    faster = fabric(f"{machine.name.partition(',')[0]},rate={2 * _rate(machine)}Gb/s")
    plan = job.planned(scheduler(buckets(job, _share(rng)))[1])
    after = replace(job, costs=replace(job.costs, model=on_fabric(faster, job.workload), changed=change))
    return replace(_told(job, "links", change, plan, plan, after), machine=machine)


def _algorithm(seed: int, rng: Random) -> RecordedPair:
    """Another algorithm of the library."""
    job, machine = on_machine(seed, rng)
    change = str(rng.choice(ALGORITHMS))
    plan = job.planned(scheduler(buckets(job, _share(rng)))[1])
    model = on_fabric(machine, job.workload).done_by({"all-reduce": change})
    after = replace(job, costs=replace(job.costs, model=model, changed=change))
    return replace(_told(job, "algorithm", f"all-reduce={change}", plan, plan, after), machine=machine)


def on_machine(seed: int, rng: Random) -> tuple[DrawnJob, Topology]:
    """Return a drawn job whose true costs are those of a fabric, as far as the engines know it, and the fabric."""
    job = drawn(seed)
    machine = fabric(f"switch:{job.workload.mesh.size},rate={int(rng.choice(RATES))}Gb/s")
    mine = on_fabric(machine, job.workload)
    sent_s = sum(stage.wire_s for stage in mine.stages("all-reduce", job.total_bytes, _ranks(job), "dp"))
    was_s = sum(stage.wire_s for stage in job.costs.model.stages("all-reduce", job.total_bytes, _ranks(job), "dp"))
    # As much communication beside its compute as it was drawn with.
    tasks = tuple(replace(each, seconds=each.seconds * sent_s / was_s) for each in job.workload.tasks)
    workload = replace(job.workload, tasks=tasks)
    return replace(job, workload=workload, costs=replace(job.costs, model=mine)), machine


def _ranks(job: DrawnJob) -> tuple[int, ...]:
    return tuple(range(job.workload.mesh.size))


def _rate(machine: Topology) -> int:
    return round(float(machine.rate.min()) * 8e-9)


KINDS: dict[str, Callable[[int, Random], RecordedPair]] = {
    "buckets": _buckets,
    "policy": _policy,
    "repair": _repair,
    "links": _links,
    "algorithm": _algorithm,
}
