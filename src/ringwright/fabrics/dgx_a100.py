"""DGX A100: 8 GPUs on NVSwitch, one 200 Gb/s NIC per GPU over PCIe Gen4."""

from __future__ import annotations

from typing import Annotated, Any

from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, join
from ringwright.fabrics._switched import sharing, switched
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology


def dgx_a100(
    boxes: int = 1,
    *,
    nvlink_rate: Rate = 300e9,
    nvlink_latency_s: Seconds = NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[4],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, 8)] = 8,
    nic_rate: Rate = 25e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return boxes on a rail-optimised network (layout=rails): NIC k of every box below the same leaves, 32 boxes each.

    Rates in bytes/s each way per GPU: NVLink3 12 x 25 GB/s, PCIe Gen4 x16, ConnectX-6 HDR 200 Gb/s (NVIDIA DGX A100 data
    sheet). Further knobs: those of the network (layout, per_leaf, spines, oversubscription, routing, seed, pxn, sharp).
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
        "dgx-a100", chassis, boxes, options, provenance="NVIDIA DGX A100 data sheet; times of the TE-CCL inputs"
    )
