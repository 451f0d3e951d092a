"""Random training jobs on random fabrics, and what must hold of each: what is worse never makes it faster, its parts add up, and
ranks that are simulated once for all of a class take what they take one by one.

``python tests/whole_jobs.py 1000 --seed 0`` tries so many, counts what they are, and prints each excess with the command that
repeats it; the tests take a few.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from dataclasses import dataclass, fields, replace

import numpy as np

import ringwright
from ringwright.engines.job.run import JobRun, simulate
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.jobs.explained.account import account
from ringwright.jobs.model_job import GeneratedJobSpec, made
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.cost_cache import TimedRanks
from ringwright.jobs.pricing.costs import LIBRARY, FabricCosts
from ringwright.jobs.study import NONE, Job
from ringwright.model.program import Program
from ringwright.model.registry import algorithm, scheduler
from ringwright.model.stages import Costs
from ringwright.model.topology import NIC, Topology
from ringwright.model.workload import Workload

POLICIES = (NONE, "pytorch-ddp", "poseidon", "p3:slice_elements=4000000", "bytescheduler", "pace", "tictac")
MOST_FAULTY = 32  # ranks of a job that is also tried with a fault, and rank by rank
# Of a step, by which something worse may make it faster: messages are served in the order in which they come.
MOST_GAIN = 0.005
OFTEN = 64  # GPUs, up to which a job is drawn four times as often as with more
ROUNDING = 1e-9  # of a step, by which its parts may miss it
SHARES = {"two groups on one NIC": 0.3, "experts": 0.2, "uneven pipelines": 0.2}  # of the jobs, at least


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
    """Return a job of 8 to ``most`` GPUs: dense or with experts, every axis of parallelism, most often several GPUs a NIC."""
    draw = random.Random(f"whole job {seed}")
    experts = draw.random() < 0.3
    sizes = [8 << at for at in range((most // 8).bit_length())]
    gpus = draw.choices(sizes, [4 if size <= OFTEN else 1 for size in sizes])[0]
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
    fabrics = [f"ndv2:{nodes}"] * 5 + [
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
    """Return the workload with a thousandth more bytes in every payload, at least one element, or one byte where none are said."""
    payloads = []
    for each in workload.payloads:
        width = max(1, each.size_bytes // each.elements) if each.elements else 1
        more = 1 + (each.elements or each.size_bytes) // 1000
        elements = each.elements + more if each.elements else 0
        payloads.append(replace(each, size_bytes=each.size_bytes + more * width, elements=elements))
    return replace(workload, payloads=tuple(payloads))


def scheduled(job: WholeJob, workload: Workload, costs: Costs) -> Workload:
    """Return the workload under the job's policy."""
    return workload if job.policy == NONE else scheduler(job.policy)[1](workload, costs)  # type: ignore[no-any-return]


def asked_on(job: WholeJob, topology: Topology) -> Job:
    """Return the job on a fabric, before its policy."""
    return made(GeneratedJobSpec(job.card, "h100"), topology)


@dataclass(frozen=True, eq=False)
class KeptChoices(FabricCosts):
    """Costs on a worse machine of what the library chose on the machine as it was.

    NCCL chooses by the time of an operation alone. Beside others another choice may be better: one that is as fast alone and puts
    half as many bytes on the links, for instance, which a slower link makes it take.
    """

    was: FabricCosts | None = None

    def program(self, op: str, size_bytes: int, group: TimedRanks) -> Program:
        """Return the program that was chosen, on this machine; what the library chooses here where that is not to be had."""
        assert self.was is not None
        chosen = self.was.program(op, size_bytes, group)
        knobs = {name: chosen.knobs[name] for name in ("algorithm", "protocol", "channels") if chosen.knobs.get(name)}
        if chosen.name != LIBRARY or not knobs:
            return super().program(op, size_bytes, group)
        _, make, _ = algorithm(LIBRARY)
        try:
            return make(chosen.collective, self._machine(group), **knobs)  # type: ignore[no-any-return]
        except UsageError:
            return super().program(op, size_bytes, group)


def made_worse(job: WholeJob, asked: Job, topology: Topology) -> Job:
    """Return the job on a worse machine, on which the library does what it did."""
    worse_on = asked_on(job, topology)
    if not isinstance(asked.costs, FabricCosts) or not isinstance(worse_on.costs, FabricCosts):
        return worse_on
    given = {each.name: getattr(worse_on.costs, each.name) for each in fields(FabricCosts) if each.init}
    return replace(worse_on, costs=KeptChoices(**given, was=asked.costs))


def simulated(planned: Workload, asked: Job, late: dict[int, float] | None = None, *, folded: bool = True) -> JobRun:
    """Return the run of three steps of a scheduled workload; ``late`` ranks begin each so many seconds later."""
    return simulate(
        planned,
        asked.costs,
        steps=3,
        slowdowns=asked.slowdowns,
        marked=asked.marked,
        interference=asked.interference,
        late=late,
        folded=folded,
    )


@dataclass(frozen=True)
class Tried:
    """By what share each thing that is worse made a job faster (negative: slower), and what was seen of the job itself.

    ``missed``: by what share of the step its parts missed it; ``apart``: by what share of it the step of all ranks one by one
    is longer or shorter; ``kinds``: what it is, of ``SHARES`` and by GPUs.
    """

    gains: dict[str, float]
    missed: float
    apart: float
    kinds: tuple[str, ...]


def tried(job: WholeJob) -> Tried:
    """Return what came out of one job. What its policy and the library decided is kept: decided anew, it may be better."""
    topology = ringwright.fabric(job.fabric)
    asked = asked_on(job, topology)
    planned = scheduled(job, asked.workload, asked.costs)
    run = simulated(planned, asked)
    told = {name: simulated(planned, made_worse(job, asked, each)) for name, each in worse(job, topology).items()}
    told["bytes x 1.001"] = simulated(longer(planned), asked)
    apart = 0.0
    if topology.n_ranks <= MOST_FAULTY:
        apart = abs(simulated(planned, asked, folded=False).step_s / run.step_s - 1.0)
        rank = random.Random(f"late {job.seed}").randrange(job.card.gpus or 1)
        told[f"rank {rank} 1 ms late"] = simulated(planned, asked, {rank: 1e-3})
    gains = {name: 1.0 - each.step_s / run.step_s for name, each in told.items()}
    return Tried(gains, missed(run), apart, tuple(kinds(job, asked)))


def missed(run: JobRun) -> float:
    """Return by what share of the step compute, update, exposed communication by role and idle time miss it in all.

    inf where one of them is negative, or a role is exposed for longer than it communicates.
    """
    spent = account(run)
    exposed = [role.exposed_s for role in spent.roles.values()]
    parts = [spent.compute_s, spent.update_s, *exposed, spent.idle_s]
    slack = ROUNDING * spent.step_s
    wrong = min(parts) < -slack or any(role.exposed_s > role.busy_s + slack for role in spent.roles.values())
    return math.inf if wrong else abs(math.fsum(parts) - spent.step_s) / spent.step_s


def kinds(job: WholeJob, asked: Job) -> list[str]:
    """Return what a job is, of ``SHARES`` and by GPUs."""
    stages = asked.workload.mesh.sizes.get("pp", 1)
    told = {
        "two groups on one NIC": isinstance(asked.costs, FabricCosts) and share_a_nic(asked.costs),
        "experts": "mixtral" in job.card.model,
        "uneven pipelines": stages > 1 and (job.card.dims or {})["layers"] % stages > 0,
        f"{job.card.gpus} GPUs": True,
    }
    return [name for name, holds in told.items() if holds]


def share_a_nic(costs: FabricCosts) -> bool:
    """Return whether two groups of some operation, of those timed together, send or receive by one NIC."""
    topology = costs.topology
    if topology.hosts is None:
        return False
    for groups in costs.met.beside.values():
        used: Counter[int] = Counter()
        for group in groups:
            ranks = np.array(group.ranks)
            starts, links = topology.routes(ranks, np.roll(ranks, -1))
            ends = np.concatenate((topology.src[links], topology.dst[links])) if starts[-1] else np.zeros(0, np.int64)
            used.update(np.unique(ends[topology.kinds[ends] == NIC]).tolist())
        if used and max(used.values()) > 1:
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", type=int)
    parser.add_argument("--seed", type=int, default=0, help="the first of the jobs")
    parser.add_argument("--most", type=int, default=512, help="GPUs")
    given = parser.parse_args()
    worst, widest, furthest, excesses, refused = -math.inf, 0.0, 0.0, 0, 0
    seen: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.jobs):
        job = drawn(seed, given.most)
        again = f"python tests/whole_jobs.py 1 --seed {seed} --most {given.most}"
        try:
            told = tried(job)
        except RingwrightError as error:
            refused += 1
            print(f"refused: {error.what}: {job}\n    {again}", flush=True)
            continue
        seen.update(told.kinds)
        worst, widest = max(worst, *told.gains.values()), max(widest, told.missed)
        furthest = max(furthest, told.apart)
        excess = [f"{gain:.3%} faster with {name}" for name, gain in told.gains.items() if gain > MOST_GAIN]
        excess += [f"{told.apart:.3%} from all ranks one by one"] if told.apart > MOST_GAIN else []
        excess += [f"parts miss the step by {told.missed:.2g}"] if told.missed > ROUNDING else []
        excesses += len(excess)
        for each in excess:
            print(f"{each}: {job}\n    {again}", flush=True)
        if (seed + 1 - given.seed) % 50 == 0:
            print(f"{seed + 1 - given.seed:,} of {given.jobs:,} jobs, {excesses} excesses", file=sys.stderr, flush=True)
    for name in (
        *SHARES,
        *sorted((name for name in seen if name not in SHARES), key=lambda name: int(name.split()[0])),
    ):
        print(f"{seen[name]:>6,} {name}" + (f", at least {SHARES[name]:.0%}" if name in SHARES else ""))
    print(
        f"{given.jobs:,} jobs, {refused} refused, {excesses} excesses above {MOST_GAIN:.1%}, at most {worst:.3%} faster, "
        f"parts within {widest:.1g} of the step, {furthest:.3%} from all ranks one by one"
    )
    return int(bool(excesses))


if __name__ == "__main__":
    sys.exit(main())
