"""Where a workload is written, for the verb that makes one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.jobs.model_workload import WorkloadSpec


@Parameter(name="*", group=options.OUTPUT)
@dataclass(frozen=True, kw_only=True)
class WorkloadFile:
    """A file for the workload of an iteration, or for the buckets that a policy makes of its gradients."""

    output: Annotated[options.Target, Parameter(help="FILE.json, FILE.csv, or a folder of Chakra traces.")] = None
    to: Annotated[
        str | None,
        Parameter(
            help="json, chakra, ddp-buckets(-py), fsdp2-prefetch(-py), megatron-flags, torchtitan-toml, pipeline-csv."
        ),
    ] = None
    policy: Annotated[
        str | None, Parameter(help="Policy that goes along: pytorch-ddp, bytescheduler:partition_mb=1, ...")
    ] = None
    gpu: Annotated[
        str | None,
        Parameter(
            help="Device whose times its tasks have, and whose memory is compared (default: h100, or the fabric's)."
        ),
    ] = None
    force: Annotated[options.Force, Parameter(help="Overwrite it.")] = False

    def save(self, question: WorkloadSpec) -> None:
        """Write the workload, if a file is named."""
        if self.output is None:
            given = next((name for name in ("to", "policy") if getattr(self, name) is not None), None)
            if given:
                raise UsageError(f"--{given} is for a file", remedy="name it: -o workload.json")
            return
        from ringwright.jobs import model_job, workload_files
        from ringwright.jobs.model_workload import SERVE

        if question.mode == SERVE:
            raise UsageError("a file holds one pass of serving", remedy="--mode prefill, or --mode decode")
        workload = model_job.workload(model_job.GeneratedJobSpec(question, self.gpu), self.policy)
        made = workload_files.save(workload, self.output, self.to, force=self.force)
        print(f"wrote {made[0]}" + (f" and {len(made) - 1} more" if len(made) > 1 else ""), file=sys.stderr)
