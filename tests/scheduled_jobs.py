"""Small random jobs for the theory of scheduling: chains of layers, every policy on them, and what their runs say."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from ringwright.costs.stages import Costs, LinkCosts
from ringwright.engines.job.run import JobRun
from ringwright.engines.job.step import PS, Row
from ringwright.schedulers.fifo.gradientflow import gradientflow
from ringwright.schedulers.fifo.poseidon import poseidon
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.schedulers.priority.p3 import p3
from ringwright.schedulers.priority.pace import pace
from ringwright.schedulers.priority.tictac import tictac
from ringwright.workload import Mesh, Queue, Workload
from ringwright.workloads.chain import Link, chain

Scheduler = Callable[[Workload, Costs], Workload]
MIB = 1 << 20


@dataclass(frozen=True)
class Layers:
    """A chain in whole seconds and whole bytes: times forward and backward, and sizes, of each layer from the first one."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    sizes: tuple[int, ...]

    def job(self, ranks: int = 2, op: str = "all-reduce") -> Workload:
        """Return the training step; elements are bytes, so that slices can be of one byte."""
        links = [
            Link(float(f), float(b), s, s, (2, 3)) for f, b, s in zip(self.forward, self.backward, self.sizes, strict=True)
        ]  # fmt: skip
        return chain("random", links, ranks, op=op)

    def jobs(self) -> list[tuple[int, int, int]]:
        """Return, per tensor in ready order, when it is ready after the start of backward, its bytes, the forward after it."""
        found, now = [], 0
        for layer in reversed(range(len(self.sizes))):
            now += self.backward[layer]
            found.append((now, self.sizes[layer], sum(self.forward[layer:])))
        return found


def layers(draw: random.Random, most: int = 8, largest: int = 9) -> Layers:
    """Return a random chain of 2 to ``most`` layers."""
    n = draw.randint(2, most)
    times = [tuple(draw.randint(1, largest) for _ in range(n)) for _ in range(3)]
    return Layers(times[0], times[1], times[2])


def units(size: int) -> float:
    """Return bytes in MiB, as knobs are given."""
    return size / MIB


def fifo(workload: Workload, _costs: Costs) -> Workload:
    """Send whole tensors, first come first served, behind a barrier, all at once."""
    queue = Queue(windows={"dp": (float("inf"), "bytes")})
    return workload.with_policy("fifo", queue=queue, boundary="barrier")


POLICIES: dict[str, Scheduler] = {
    "fifo": fifo,
    "pytorch-ddp": partial(pytorch_ddp, bucket_cap_mb=units(12), first_bucket_mb=units(4)),
    "gradientflow": partial(gradientflow, theta_mb=units(10), element_bytes=1),
    "poseidon": partial(poseidon, scheme="dense", pair_mb=units(3)),
    "p3": partial(p3, slice_elements=2),
    "tictac": tictac,
    "bytescheduler": partial(bytescheduler, partition_mb=units(3), credit_mb=units(7)),
    "bytescheduler, scanning": partial(bytescheduler, partition_mb=units(3), credit_mb=units(7), scan=True),
    "pace": partial(pace, slice_mb=units(4)),
}  # fmt: skip


@cache
def mesh() -> Mesh:
    """Return 2 x 3 ranks of which only the outer axis shares gradients."""
    return Mesh((("dp", 3), ("tp", 2)))


def on_mesh(workload: Workload) -> Workload:
    """Return the job on a mesh of two groups of three ranks."""
    return replace(workload, mesh=mesh())


def operations(run: JobRun) -> list[Row]:
    """Return the rows of operations."""
    return [row for row in run.laid.rows if row.what == "operation"]


def crossing_s(run: JobRun) -> float:
    """Return seconds from the start of the first backward pass to the end of the next forward pass."""
    tasks = [row for row in run.laid.rows if row.what == "task"]
    begin = min(int(run.starts(row, 0).min()) for row in tasks if row.kind == "B")
    end = max(int(run.ends(row, 1).max()) for row in tasks if row.kind == "F")
    return (end - begin) / PS


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
