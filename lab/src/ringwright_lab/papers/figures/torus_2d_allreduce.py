"""The 2D torus's figure: how much of a step of ResNet-50 on 1,088 GPUs is compute."""

from __future__ import annotations

from ringwright_lab.papers.figures.collectives import time_us

FABRIC = "rail-optimised:272,gpus=4,nvlink_rate=50GB/s,nic_rate=50Gb/s,nic_latency_s=2us,layout=switch"  # ABCI
COMPUTE_S = 0.046  # 32 images at about 700 images/s of a V100 in half precision: assumed
GRADIENTS = "51000000"  # bytes of ResNet-50 in half precision


def efficiency(algorithm: str = "torus-2d-allreduce:x=4") -> float:
    """Return compute against compute and one all-reduce of all gradients after it."""
    return COMPUTE_S / (COMPUTE_S + time_us("all-reduce", FABRIC, GRADIENTS, algorithm) / 1e6)
