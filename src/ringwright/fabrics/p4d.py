"""AWS p4d.24xlarge: 8 A100 on NVSwitch, two GPUs and one 100 Gb/s EFA adapter below each PCIe switch."""

from __future__ import annotations

from typing import Annotated, Any

from ringwright.costs.transports import OF_PRODUCTS
from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, join
from ringwright.fabrics._switched import sharing, switched
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology


def p4d(
    boxes: int = 1,
    *,
    nvlink_rate: Rate = 300e9,
    nvlink_latency_s: Seconds = NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[4],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, 8)] = 4,
    nic_rate: Rate = 12.5e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return instances on one non-blocking switch (layout=switch), as an EC2 UltraCluster promises.

    Rates in bytes/s each way: NVLink3 12 x 25 GB/s a GPU, PCIe Gen4 x16, EFA 4 x 100 Gb/s an instance (AWS p4d page and
    the topology file of aws-ofi-nccl). Further knobs: those of the network (layout, per_leaf, spines, routing, ...).
    """
    chassis = switched(
        8,
        nvlink_rate=nvlink_rate,
        nvlink_latency_s=nvlink_latency_s,
        pcie_rate=pcie_rate,
        pcie_latency_s=pcie_latency_s,
        nic_rate=nic_rate,
        nic_latency_s=nic_latency_s,
        per_nic=sharing(8, nics),
    )
    return join(
        "p4d",
        chassis,
        boxes,
        options,
        layout="switch",
        transport=OF_PRODUCTS["p4d"],
        provenance="AWS p4d instance page; times of the TE-CCL inputs",
    )
