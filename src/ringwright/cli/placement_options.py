"""How the axes of a parallel form lie on a machine: the options of ``workload --place``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options
from ringwright.cli.fabrics import MachineOptions
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.jobs.model_workload import WorkloadSpec

USUAL_POLICY = "pytorch-ddp"


@Parameter(name="*", group=options.MACHINE)
@dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """Which placements are simulated."""

    places_axes: Annotated[
        bool,
        Parameter(
            name="--place", negative="", help="Rank how the axes can lie on the levels of a machine, by step time (P2)."
        ),
    ] = False
    most: Annotated[
        int | None,
        Parameter(
            name="--most",
            help="Placements that are simulated, the cheapest by rings first (usual: 16, fewer of more than 64 ranks).",
        ),
    ] = None
    algorithm: Annotated[
        str | None, Parameter(name="--algorithm", help="System that does the collectives (usual: nccl-2-4's choices).")
    ] = None

    def show(
        self, question: WorkloadSpec, gpu: str | None, policy: str | None, machine: MachineOptions, *, json: bool
    ) -> int:
        """Simulate the placements and print them."""
        from ringwright.cli import progress, reading
        from ringwright.ground.documents import read_json
        from ringwright.jobs import model_job, placements
        from ringwright.jobs.model_workload import SERVE
        from ringwright.jobs.placed_document import PlacedSteps
        from ringwright.reports.steps.placements import write

        if question.mode == SERVE:
            raise UsageError("placements are of one pass of serving", remedy="--mode prefill, or --mode decode")
        if machine.ranks is not None:
            raise UsageError("a job has the GPUs that its form needs: --ranks is not for placements", remedy="--gpus")
        if self.most is not None and self.most < 1:
            raise UsageError(f"--most is {self.most}", remedy="--most 1 or more")
        asked = model_job.GeneratedJobSpec(question, gpu, {"": self.algorithm} if self.algorithm else {})
        topology = machine.build() if machine.fabric or machine.topology else model_job.usual_fabric(asked)
        with progress.steps("placing") as advance:
            result = placements.placed(
                lambda each: model_job.made(asked, each), topology, policy or USUAL_POLICY, self.most, advance
            )
        if json:
            reading.print_json(result)
        else:
            write(read_json(PlacedSteps, result), sys.stdout)
        return 0

    def refuse(self, machine: MachineOptions) -> None:
        """Raise UsageError for what only placements have, where none are asked for."""
        given = [f"--{name}" for name in ("most", "algorithm") if getattr(self, name) is not None]
        given += [
            f"--{name}" for name in ("fabric", "topology", "fault", "calibration", "ranks") if getattr(machine, name)
        ]
        if given:
            raise UsageError(f"{given[0]} is for placements", remedy="--place, or leave it out")
