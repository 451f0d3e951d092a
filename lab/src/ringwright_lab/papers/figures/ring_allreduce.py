"""Ring all-reduce in use: how well Horovod's rings scale on 128 GPUs over 25 Gb/s Ethernet."""

from __future__ import annotations

from ringwright.engines.job.run import simulate
from ringwright.model.stages import Costs, LinkCosts, Stage
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model

GPUS, PORT = 128, 25e9 / 8  # 32 nodes of 4 Pascal GPUs; a ring enters and leaves each node once
HOP_S = 5e-6  # of a step of the ring: assumed
FUSED_MB = 64  # Horovod's fusion buffer
ALONE_S = {
    "inception-v3": 64 / 142,
    "vgg16": 64 / 154,
}  # 64 images at the images/s of one P100 in TensorFlow's benchmarks


class NaiveAllReduce:
    """The naive all-reduce: one rank receives all vectors, adds them up and sends the sum to each."""

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        return (Stage(2 * (len(ranks) - 1) * (HOP_S + size_bytes / PORT)),)


def efficiency(name: str, algorithm: str = "ring") -> float:
    """Return the step of one GPU against that of 128, gradients fused to 64 MB and sent while backward goes on."""
    made = layerwise(model(name), ALONE_S[name], GPUS, each="tensor")
    costs: Costs = LinkCosts(PORT, HOP_S, ring=True) if algorithm == "ring" else NaiveAllReduce()
    return ALONE_S[name] / simulate(pytorch_ddp(made, costs, bucket_cap_mb=FUSED_MB), costs, steps=3).step_s
