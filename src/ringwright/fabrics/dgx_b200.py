"""DGX B200: 8 GPUs on NVSwitch with NVLink SHARP, one 400 Gb/s NIC per GPU over PCIe Gen5."""

from __future__ import annotations

from typing import Annotated, Any

from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, join
from ringwright.fabrics._switched import sharing, switched
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology


def dgx_b200(
    boxes: int = 1,
    *,
    nvlink_rate: Rate = 900e9,
    nvlink_latency_s: Seconds = NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[5],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, 8)] = 8,
    nic_rate: Rate = 50e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return boxes on a rail-optimised network (layout=rails): NIC k of every box below the same leaves, 32 boxes each.

    Rates in bytes/s each way per GPU: NVLink5 18 x 50 GB/s, PCIe Gen5 x16, ConnectX-7 NDR 400 Gb/s (NVIDIA DGX B200 data
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
        adds=True,
    )
    return join(
        "dgx-b200", chassis, boxes, options, provenance="NVIDIA DGX B200 data sheet; times of the TE-CCL inputs"
    )
