"""Random training jobs on random fabrics, and what must hold of each: what is worse never makes it faster.

``python tests/whole_jobs.py 1000 --seed 0`` tries so many and prints each excess; the tests take a few.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass, replace

import ringwright
from ringwright.costs.stages import Costs
from ringwright.engines.job.run import simulate
from ringwright.errors import RingwrightError
from ringwright.fabrics.faults import apply
from ringwright.registry import scheduler
from ringwright.studies.jobs.generated import GeneratedJobSpec, made
from ringwright.studies.jobs.study import NONE
from ringwright.studies.model_workload import WorkloadSpec
from ringwright.topology import Topology
from ringwright.workload import Workload

POLICIES = (NONE, "pytorch-ddp", "poseidon", "p3:slice_elements=4000000", "bytescheduler", "pace", "tictac")
MOST_FAULTY = 32  # ranks of a job that is also tried with a fault: one host's ranks are then simulated one by one
MOST_GAIN = (
    0.005  # of a step, by which something worse may make it faster: messages are served in the order in which they come
)


@dataclass(frozen=True)
class WholeJob:
    """One drawn job: its model, where it runs, its policy; ``seed`` draws it again."""

    seed: int
    card: WorkloadSpec
    fabric: str
    policy: str

    def __str__(self) -> str:
        dims = ",".join(f"{name}={size}" for name, size in (self.card.dims or {}).items())
        return f"{self.seed}: {self.card.model} {dims} {self.card.parallel} on {self.fabric}, {self.policy}"


def drawn(seed: int, most: int = 64) -> WholeJob:
    """Return a job of 8 to ``most`` GPUs: dense or with experts, every axis of parallelism, several GPUs a NIC or one."""
    draw = random.Random(f"whole job {seed}")
    experts = draw.random() < 0.3
    gpus = 8 << draw.randrange((most // 8).bit_length())
    left, axes = gpus, {}
    for axis, choices in (("tp", (1, 1, 2, 4, 8)), ("pp", (1, 1, 2, 4))):
        axes[axis] = draw.choice([each for each in choices if left % each == 0])
        left //= axes[axis]
    words = [f"{axis}{size}" for axis, size in axes.items() if size > 1]
    if experts:
        words += [f"ep{draw.choice([each for each in (2, 4, 8) if left % each == 0] or [1])}"]
    words += [each for each in ("sp",) if axes["tp"] > 1 and draw.random() < 0.5]
    words += [f"zero{draw.choice((0, 1))}"] if left > 1 else []
    dims = {
        "layers": axes["pp"] * draw.choice((2, 3, 5)) + draw.randrange(axes["pp"]),
        "hidden": 128 * draw.choice((8, 16, 32)) if not experts else 4096,
    }
    if not experts:
        dims["heads"] = dims["hidden"] // 128
    card = WorkloadSpec(
        "mixtral-8x7b" if experts else "gpt3-175b",
        gpus,
        ",".join([*words, f"dp{left}"]),
        micro_batches=draw.choice((1, 2, 4)) * (max(1, axes["pp"])),
        micro_batch_size=1,
        seq=draw.choice((64, 256, 1024)),
        dims=dims,
    )
    nodes = -(-gpus // 8)
    fabrics = [f"ndv2:{nodes}"] * 3 + [
        f"dgx-h100:{nodes}",
        f"dgx-a100:{nodes}",
        f"dgx-h100:{nodes},layout=switch",
        f"switch:{gpus}",
    ]
    return WholeJob(seed, card, draw.choice(fabrics), draw.choice(POLICIES))


def worse(job: WholeJob, topology: Topology) -> dict[str, Topology]:
    """Return the fabric made worse in one respect each."""
    draw = random.Random(f"worse {job.seed}")
    link, late = draw.randrange(topology.n_links), draw.choice((2e-6, 20e-6, 100e-6))
    ends = f"{topology.label(int(topology.src[link]))}>{topology.label(int(topology.dst[link]))}"
    changed = {
        f"latency +{late * 1e6:g} us": replace(topology, latency_s=topology.latency_s + late),
        "rate x 0.8": replace(topology, rate=topology.rate * 0.8),
    }
    if topology.n_ranks <= MOST_FAULTY:
        changed[f"{ends} rate 50%"] = apply(topology, [f"link {ends} rate 50%"])
    return changed


def longer(workload: Workload) -> Workload:
    """Return the workload with a thousandth more bytes, at least one element, in every payload."""
    payloads = []
    for each in workload.payloads:
        width = max(1, each.size_bytes // max(each.elements, 1))
        more = 1 + each.elements // 1000
        payloads.append(replace(each, size_bytes=each.size_bytes + more * width, elements=each.elements + more))
    return replace(workload, payloads=tuple(payloads))


def scheduled(job: WholeJob, workload: Workload, costs: Costs) -> Workload:
    """Return the workload under the job's policy."""
    return workload if job.policy == NONE else scheduler(job.policy)[1](workload, costs)  # type: ignore[no-any-return]


def step_s(job: WholeJob, topology: Topology, *, longer_payloads: bool = False) -> float:
    """Return the seconds of one step of the job on a fabric."""
    asked = made(GeneratedJobSpec(job.card, "h100"), topology)
    asked = replace(asked, workload=longer(asked.workload)) if longer_payloads else asked
    return simulate(
        scheduled(job, asked.workload, asked.costs),
        asked.costs,
        steps=3,
        slowdowns=asked.slowdowns,
        marked=asked.marked,
        interference=asked.interference,
    ).step_s


def gains(job: WholeJob) -> dict[str, float]:
    """Return by what share each thing that is worse makes the job faster (negative: slower)."""
    topology = ringwright.fabric(job.fabric)
    before = step_s(job, topology)
    told = {name: 1.0 - step_s(job, each) / before for name, each in worse(job, topology).items()}
    return {**told, "bytes x 1.001": 1.0 - step_s(job, topology, longer_payloads=True) / before}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", type=int)
    parser.add_argument("--seed", type=int, default=0, help="the first of the jobs")
    parser.add_argument("--most", type=int, default=64, help="GPUs")
    given = parser.parse_args()
    worst, excesses, refused = 0.0, 0, 0
    for seed in range(given.seed, given.seed + given.jobs):
        job = drawn(seed, given.most)
        try:
            told = gains(job)
        except RingwrightError as error:
            refused += 1
            print(f"refused: {job}: {error.what}", flush=True)
            continue
        worst = max(worst, *told.values())
        for name, gain in told.items():
            if gain > MOST_GAIN:
                excesses += 1
                print(f"{gain:.2%} faster with {name}: {job}", flush=True)
    print(
        f"{given.jobs:,} jobs, {refused} refused, {excesses} excesses above {MOST_GAIN:.1%}, at most {worst:.3%} faster"
    )
    return int(bool(excesses))


if __name__ == "__main__":
    sys.exit(main())
