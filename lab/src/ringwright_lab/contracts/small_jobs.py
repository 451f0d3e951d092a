"""Small random jobs to try schedulers on: chains of layers, forward passes that branch, experts; and what their runs say."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Edge, Mesh, Workload
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.moe_chain import MoeLayer, moe_chain
from ringwright.workloads.pipeline_chain import StageTimes, pipeline_chain

if TYPE_CHECKING:
    from ringwright.engines.job.run import JobRun
    from ringwright.engines.job.step import Instances


@dataclass(frozen=True)
class Layers:
    """A chain in whole seconds and whole bytes: times forward and backward, and sizes, of each layer from the first one."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    sizes: tuple[int, ...]

    def job(self, ranks: int = 2, op: str = "all-reduce", *, element_bytes: int = 1) -> Workload:
        """Return the training step; elements of one byte can be cut to slices of one byte."""
        links = [
            ChainLayer(float(f), float(b), s, s // element_bytes, (2, 3))
            for f, b, s in zip(self.forward, self.backward, self.sizes, strict=True)
        ]
        return chain("random", links, ranks, op=op)

    def jobs(self) -> list[tuple[int, int, int]]:
        """Return, per tensor in ready order, when it is ready after the start of backward, its bytes, the forward after it."""
        jobs, now = [], 0
        for layer in reversed(range(len(self.sizes))):
            now += self.backward[layer]
            jobs.append((now, self.sizes[layer], sum(self.forward[layer:])))
        return jobs


def layers(draw: random.Random, most: int = 8, largest: int = 9, *, scale: int = 1) -> Layers:
    """Return a random chain of 2 to ``most`` layers of up to ``largest`` seconds, and as many bytes times ``scale``."""
    n = draw.randint(2, most)
    times = [tuple(draw.randint(1, largest) for _ in range(n)) for _ in range(3)]
    return Layers(times[0], times[1], tuple(size * scale for size in times[2]))


def branching(draw: random.Random, *, scale: int = 1, element_bytes: int = 1) -> Workload:
    """Return a random step of up to six layers whose forward branches: each waits for one or two of those before it."""
    job = layers(draw, most=6, scale=scale).job(element_bytes=element_bytes)
    forward = [task.name for task in job.tasks if task.kind == "F"]
    kept = [edge for edge in job.edges if not (edge.src in forward and edge.dst in forward)]
    for at, name in enumerate(forward[1:], 1):
        kept += [Edge(each, name) for each in draw.sample(forward[:at], min(at, draw.randint(1, 2)))]
    kept += [Edge(name, job.tasks[len(forward)].name) for name in forward]
    return replace(job, edges=tuple(kept))


def experts(draw: random.Random, *, scale: int = 1) -> Workload:
    """Return a random expert-parallel step of two to four layers on two groups of three ranks."""

    def size() -> int:
        return draw.randint(1, 9) * scale * 6  # falls into equal parts for every group

    made = [
        MoeLayer(
            float(draw.randint(1, 9)), float(draw.randint(1, 9)), float(draw.randint(1, 3)), size(), (size(),), size()
        )
        for _ in range(draw.randint(2, 4))
    ]
    return moe_chain("random experts", made, 3, replicas=2)


def stages(draw: random.Random, *, scale: int = 1) -> Workload:
    """Return a random pipeline of two devices with two stages each, two of them side by side."""
    took = StageTimes(float(draw.randint(1, 9)), float(draw.randint(1, 9)), float(draw.randint(1, 9)))
    size = draw.randint(1, 9) * scale
    return pipeline_chain(
        2, 2 * draw.randint(1, 3), 2, times=took, replicas=2, elements=size // 4, message_bytes=scale, splits=True
    )


def tensor(draw: random.Random, dims: Mapping[str, int]) -> Workload:
    """Return a step of a transformer of two layers that tensor parallel ranks share, with its sequence, and two replicas."""
    sizes = {"layers": 2, "vocabulary": 1024, "positions": 64, **dims}
    ranks = draw.choice((2, 4))
    model = WorkloadSpec("gpt2", 2 * ranks, f"tp{ranks},sp", draw.randint(1, 2), 1, sizes["positions"], dims=sizes)
    return workload(GeneratedJobSpec(model))


@cache
def mesh() -> Mesh:
    """Return 2 x 3 ranks of which only the outer axis shares gradients."""
    return Mesh((("dp", 3), ("tp", 2)))


def on_mesh(workload: Workload) -> Workload:
    """Return the job on a mesh of two groups of three ranks."""
    return replace(workload, mesh=mesh())


def operation_rows(run: JobRun) -> list[Instances]:
    """Return the rows of a run that are operations."""
    return [row for row in run.laid.rows if row.what == "operation"]


def sent(run: JobRun, queue: int) -> list[tuple[int, int, int, int]]:
    """Return what passed one queue as (ready, start, end, instance), in the order of start, equals by urgency."""
    flat, times = run.laid.flat, run.times
    mine = np.flatnonzero(flat.queue == queue)
    return sorted(
        ((int(times.ready[at]), int(times.start[at]), int(times.end[at]), int(at)) for at in mine),
        key=lambda each: (each[1], int(flat.key[each[3]]), each[0], each[3]),
    )


def link(rate: float = 1.0, overhead_s: float = 0.0) -> LinkCosts:
    """Return one link of ``rate`` bytes a second."""
    return LinkCosts(rate, overhead_s=overhead_s)
