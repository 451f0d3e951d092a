"""Orders of a pipeline for torch.distributed.pipelining: what each rank computes, one row a rank, as its schedules load it.

``0F1`` is the forward pass of stage 0 for micro-batch 1, ``B`` a backward pass, ``I`` and ``W`` its halves (PyTorch 2.13:
``_PipelineScheduleRuntime._load_csv(file, format="compute_only")``, which adds the messages).
"""

from __future__ import annotations

from ringwright.graph.pipelines.stages import PipelineStages, passes_in_order, stages_of
from ringwright.ground.errors import UsageError
from ringwright.model.workload import Workload

EXPORTS = {"pipeline-csv": "as_csv"}
NAME = "pipeline-csv"


def as_csv(workload: Workload) -> bytes:
    """Return the order of a workload's passes, a row for each device of the pipeline, ASCII.

    Raises WorkloadError where there is no pipeline, UsageError for an order in which passes are not whole, and for a pipeline
    that is fed from both ends.
    """
    stages = stages_of(workload, NAME)
    if stages.sides > 1:
        what = "PyTorch's runtime of schedules has no pipeline with two copies of the model, fed from both ends"
        raise UsageError(what, where=workload.name, remedy="--schedule dualpipe-v with vp2 and half as many stages")
    rows = (actions(workload, stages, device) for device in range(stages.shape.devices))
    return "".join(",".join(row) + "\n" for row in rows).encode()


def actions(workload: Workload, stages: PipelineStages, device: int) -> list[str]:
    """Return what a device computes, one pass after another."""
    of = stages.devices[device]
    done = [each for each, _ in passes_in_order(workload, of)]
    if any(batch < 0 for _, _, batch in done):
        raise UsageError(
            "passes of one step run in the next one: no order of a single step holds them",
            where=f"class {of}",
            remedy="a schedule that ends its steps: --schedule 1f1b",
        )
    counts = {each: done.count(each) for each in done}
    torn = next((each for each, count in counts.items() if count > 1), None)
    if torn is not None:
        phase, chunk, batch = torn
        raise UsageError(
            f"pass {phase} of virtual stage {chunk}, micro-batch {batch}, is not done in one go",
            where=f"class {of}",
            remedy="an order of whole passes, such as --policy breadth-first-pp or ooo-backprop",
        )
    return [f"{stages.shape.stage(device, chunk)}{phase}{batch}" for phase, chunk, batch in done]
