"""ACCL's figure: linear scaling, so each node more leaves the bandwidth of the others as it is."""

from __future__ import annotations

from ringwright_lab.papers.figures.collectives import time_us

FABRIC = "rail-optimised:{nodes},gpus=8,nvlink_rate=150GB/s,nic_rate=100Gb/s,nic_latency_s=1us,layout=switch"


def bandwidth_kept(nodes: int, few: int, size: str, algorithm: str = "accl") -> float:
    """Return the bus bandwidth of an all-reduce on ``nodes`` of 8 GPUs against that on ``few``."""

    def bus(count: int) -> float:
        ranks = 8 * count
        return 2 * (ranks - 1) / ranks / time_us("all-reduce", FABRIC.format(nodes=count), size, algorithm)

    return bus(nodes) / bus(few)
