"""BlueConnect's figure: 192 GPUs as 48 nodes of 4 P100 with one port each."""

from __future__ import annotations

from ringwright_lab.papers.figures.collectives import taken_us
from ringwright_lab.papers.figures.machines import one_port

NODES, GPUS = 48, 4
NVLINK, PORT = 40e9, 12.5e9
GRADIENTS = 100_000_000  # bytes of ResNet-50 in single precision


def saved(algorithm: str = "blueconnect:factors=4x48", baseline: str = "ring-allreduce:order=random-1") -> float:
    """Return the share of ``baseline``'s time that ``algorithm`` does without."""
    machine = one_port(NODES, GPUS, inside_rate=NVLINK, port_rate=PORT)
    mine, other = (taken_us("all-reduce", machine, GRADIENTS, each) for each in (algorithm, baseline))
    return 1 - mine / other
