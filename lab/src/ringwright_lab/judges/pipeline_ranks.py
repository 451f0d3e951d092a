"""An order of a pipeline on real ranks: a small model on gloo, its gradients held against those of the unpipelined model."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ringwright.execute.rank_host import here
from ringwright.execute.rank_processes import run_ranks
from ringwright.execute.torch_ranks import require_torch
from ringwright.formats.exports.pipeline_csv import NAME, as_csv
from ringwright.graph.pipelines.stages import stages_of
from ringwright.ground.errors import UsageError
from ringwright.model.workload import Workload

MOST_DEVICES, MOST_S = 8, 120.0
OWN = -1  # the place of PyTorch's own schedule among the answers


@dataclass(frozen=True)
class PipelineStep:
    """A step of a pipeline: which stages each device has, micro-batches, and the file of its order ("": PyTorch's own)."""

    devices: list[list[int]]
    micro_batches: int
    order: str

    @property
    def stages(self) -> int:
        """Number of stages along the model."""
        return sum(map(len, self.devices))


def differing(workloads: Sequence[Workload], *, own: bool = False) -> dict[int, list[str]]:
    """Run orders of pipelines through torch.distributed.pipelining, one process a device.

    Parameters
    ----------
    workloads
        Pipelines of one number of devices, at most eight: the orders of their passes, as they are exported.
    own
        Run PyTorch's own ScheduleLoopedBFS as well, on the stages of the first one.

    Returns
    -------
    dict
        For each workload by its place (-1: PyTorch's own), "parameter on device" of the gradients that differ in any bit from
        those of the unpipelined model; nothing where all are equal.

    Raises
    ------
    UsageError
        For pipelines of several numbers of devices, or of too many.
    RanksFailedError
        Where a rank died, or the ranks came to no end.
    """
    require_torch()
    shapes = [stages_of(each, NAME).shape for each in workloads]
    devices = {shape.devices for shape in shapes}
    if len(devices) != 1 or max(devices) > MOST_DEVICES:
        told = ", ".join(map(str, sorted(devices))) or "no"
        raise UsageError(f"pipelines of {told} devices", remedy=f"one number of devices, at most {MOST_DEVICES}")
    steps = []
    for at, shape in enumerate(shapes):
        mine = [[shape.stage(device, chunk) for chunk in range(shape.chunks)] for device in range(shape.devices)]
        steps.append(PipelineStep(mine, shape.micro_batches, f"{at}.csv"))
    with tempfile.TemporaryDirectory(prefix="ringwright-") as name:
        folder = Path(name)
        for each, step in zip(workloads, steps, strict=True):
            (folder / step.order).write_bytes(as_csv(each))
        first = [PipelineStep(steps[0].devices, steps[0].micro_batches, "")] if own else []
        (folder / "steps.json").write_text(json.dumps([asdict(each) for each in [*first, *steps]]))
        run_ranks(__spec__.name, folder, here(max(devices)), MOST_S)
        answers = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(max(devices))]
    listed = [
        [f"{name} on device {at}" for at, each in enumerate(answers) for name in each[turn]]
        for turn in range(len(answers[0]))
    ]
    return dict(enumerate(listed, OWN if own else 0))


def main() -> int:
    """Be one rank: run every step and say what differs."""
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    steps = [PipelineStep(**each) for each in json.loads((folder / "steps.json").read_text())]
    torch = require_torch()
    torch.set_num_threads(1)
    ranks = len(steps[0].devices)
    store = torch.distributed.FileStore(str(folder / "store"), ranks)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    from ringwright_lab.models.parallel import ordered

    wrong = [
        ordered.differing(
            folder / each.order if each.order else None, each.devices[rank], each.stages, each.micro_batches
        )
        for each in steps
    ]
    (folder / f"{rank}.json").write_text(json.dumps(wrong))
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
