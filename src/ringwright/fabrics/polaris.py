"""Nodes of the Polaris kind (HPE Cray EX, Slingshot 11): 4 A100 with four NVLinks to each other, 2 NICs of 200 Gb/s."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any

from ringwright.costs.transports import OF_PRODUCTS
from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, Chassis, Link, join
from ringwright.fabrics._switched import sharing
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology

GPUS, NICS = 4, 2


def polaris(
    boxes: int = 1,
    *,
    nvlink_rate: Rate = 100e9,
    nvlink_latency_s: Seconds = 2 * NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[4],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, GPUS)] = NICS,
    nic_rate: Rate = 25e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return nodes on one non-blocking switch (layout=switch); the real network is a dragonfly of several hundred.

    Rates in bytes/s each way: four NVLink3 of 25 GB/s a pair, PCIe Gen4 x16, 200 Gb/s a NIC; GPUs and NICs hang on the
    one CPU, two GPUs to a NIC (ALCF's public description of the machine). Further knobs: those of the network.
    """
    cpu, each = GPUS + nics, sharing(GPUS, nics)
    links: list[Link] = [(*pair, nvlink_rate, nvlink_latency_s, "nvlink") for pair in combinations(range(GPUS), 2)]
    links += [(node, cpu, pcie_rate, pcie_latency_s, "pcie") for node in range(GPUS + nics)]
    chassis = Chassis(GPUS, tuple(gpu // each for gpu in range(GPUS)), ("cpu",), tuple(links), nic_rate, nic_latency_s)
    return join(
        "polaris",
        chassis,
        boxes,
        options,
        layout="switch",
        transport=OF_PRODUCTS["polaris"],
        provenance="ALCF Polaris pages; times of the TE-CCL inputs",
    )
