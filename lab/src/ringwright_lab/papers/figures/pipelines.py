"""What figures of pipeline schedules share: pipelines in units of a stage's forward pass, and when their steps end."""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.engines.job.run import simulate
from ringwright.ground.units import PS
from ringwright.model.stages import Stage
from ringwright.model.workload import Workload
from ringwright.workloads.pipeline_chain import StageTimes, pipeline_chain

ELEMENTS = 480  # parameters of a stage: sums of them are cut into many parts


@dataclass(frozen=True)
class UnitCosts:
    """Seconds of a sum over the parameters of one stage; what goes from stage to stage takes ``message_s``."""

    sum_s: float = 0.0
    message_s: float = 0.0

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase; a half of a sum takes half of its time."""
        if role == "pp":
            return (Stage(self.message_s),)
        half = 1.0 if op == "all-reduce" else 0.5
        return (Stage(half * self.sum_s * size_bytes / (4 * ELEMENTS)),)


def units(p: int, m: int, v: int, schedule: str = "1f1b", **more: object) -> Workload:
    """Return a pipeline of p devices with v stages each, whose backward pass is twice as long as its forward pass."""
    return pipeline_chain(p, m, v, schedule=schedule, replicas=2, elements=ELEMENTS, **more)  # type: ignore[arg-type]


def plain(p: int, m: int, v: int) -> Workload:
    """Return the same model without a loop: one stage a device, v times as long, in one forward and one backward."""
    return pipeline_chain(p, m, 1, times=StageTimes(v, v, v), replicas=2, elements=ELEMENTS)


def computed(workload: Workload) -> float:
    """Return when the first step's last pass ends, with nothing to wait for but passes."""
    return simulate(workload, UnitCosts(), steps=1).finished(0) / PS


def ended(workload: Workload, costs: UnitCosts) -> float:
    """Return when all of the first step has ended, its sums too."""
    return float(simulate(workload, costs, steps=1).times.end.max()) / PS


def steady(workload: Workload, costs: UnitCosts, steps: int = 6) -> float:
    """Return how long a step is once steps follow each other."""
    return simulate(workload, costs, steps=steps).lasted(steps - 1) / PS
