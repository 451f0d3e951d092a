"""Small random jobs for the theory of scheduling: chains of layers, every policy on them, and what their runs say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ringwright.contracts.small_jobs import MIB, Layers, layers, link, on_mesh, operations, sent
from ringwright.costs.stages import Costs
from ringwright.engines.job.run import JobRun
from ringwright.engines.job.step import PS
from ringwright.schedulers.fifo.gradientflow import gradientflow
from ringwright.schedulers.fifo.poseidon import poseidon
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.schedulers.priority.p3 import p3
from ringwright.schedulers.priority.pace import pace
from ringwright.schedulers.priority.tictac import tictac
from ringwright.workload import Queue, Workload

__all__ = [
    "MIB",
    "POLICIES",
    "Layers",
    "crossing_s",
    "fifo",
    "layers",
    "link",
    "on_mesh",
    "operations",
    "sent",
    "units",
]

Scheduler = Callable[[Workload, Costs], Workload]


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


def crossing_s(run: JobRun) -> float:
    """Return seconds from the start of the first backward pass to the end of the next forward pass."""
    tasks = [row for row in run.laid.rows if row.what == "task"]
    begin = min(int(run.starts(row, 0).min()) for row in tasks if row.kind == "B")
    end = max(int(run.ends(row, 1).max()) for row in tasks if row.kind == "F")
    return (end - begin) / PS
