"""Small random jobs for the theory of scheduling: chains of layers, every policy on them, and what their runs say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ringwright.engines.job.run import JobRun
from ringwright.ground.plugins import HOUSE
from ringwright.ground.units import MIB, PS
from ringwright.model.registry import schedulers
from ringwright.model.stages import Costs
from ringwright.model.workload import Queue, Workload
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright_lab.contracts.outcome import beside
from ringwright_lab.contracts.small_jobs import Layers, layers, link, on_mesh, operation_rows, sent

__all__ = [
    "MIB",
    "POLICIES",
    "Layers",
    "crossing_s",
    "fifo",
    "layers",
    "link",
    "on_mesh",
    "operation_rows",
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


# Knobs that cut and fuse jobs of a few bytes.
SMALL: dict[str, dict[str, Any]] = {
    "pytorch-ddp": {"bucket_cap_mb": units(12), "first_bucket_mb": units(4)},
    "gradientflow": {"theta_mb": units(10), "element_bytes": 1},
    "poseidon": {"scheme": "dense", "pair_mb": units(3)},
    "p3": {"slice_elements": 2},
    "bytescheduler": {"partition_mb": units(3), "credit_mb": units(7)},
    "pace": {"slice_mb": units(4)},
}
# Every scheduler of the folders that sends what the job sends (``CHANGES`` says what else one changes) and needs no pipeline,
# and two more.
OURS = [system for system in schedulers() if system.origin == HOUSE]
HELD = [
    system
    for system in OURS
    if "payloads" not in beside(system.load(), "CHANGES") and "workload.pipeline" not in system.needs
]
POLICIES: dict[str, Scheduler] = {
    "fifo": fifo,
    **{system.slug: partial(system.load(), **SMALL.get(system.slug, {})) for system in HELD},
    "bytescheduler, scanning": partial(bytescheduler, **SMALL["bytescheduler"], scan=True),
}


def crossing_s(run: JobRun) -> float:
    """Return seconds from the start of the first backward pass to the end of the next forward pass."""
    tasks = [row for row in run.laid.rows if row.what == "task"]
    begin = min(int(run.starts(row, 0).min()) for row in tasks if row.kind == "B")
    end = max(int(run.ends(row, 1).max()) for row in tasks if row.kind == "F")
    return (end - begin) / PS
