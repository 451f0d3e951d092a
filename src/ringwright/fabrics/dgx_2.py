"""DGX-2: 16 V100 on NVSwitch, two GPUs and one 100 Gb/s NIC below each PCIe Gen3 switch."""

from __future__ import annotations

from typing import Annotated, Any

from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, join
from ringwright.fabrics._switched import sharing, switched
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology


def dgx_2(
    boxes: int = 1,
    *,
    nvlink_rate: Rate = 150e9,
    nvlink_latency_s: Seconds = NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[3],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, 16)] = 8,
    nic_rate: Rate = 12.5e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return boxes on one non-blocking switch (layout=switch).

    Rates in bytes/s each way: NVLink2 6 x 25 GB/s a GPU, PCIe Gen3 x16, ConnectX-5 EDR 100 Gb/s a NIC (NVIDIA DGX-2 data
    sheet). Further knobs: those of the network (layout, per_leaf, spines, oversubscription, routing, seed, pxn, sharp).
    """
    chassis = switched(
        16,
        nvlink_rate=nvlink_rate,
        nvlink_latency_s=nvlink_latency_s,
        pcie_rate=pcie_rate,
        pcie_latency_s=pcie_latency_s,
        nic_rate=nic_rate,
        nic_latency_s=nic_latency_s,
        per_nic=sharing(16, nics),
    )
    return join(
        "dgx-2",
        chassis,
        boxes,
        options,
        layout="switch",
        provenance="NVIDIA DGX-2 data sheet; times of the TE-CCL inputs",
    )
