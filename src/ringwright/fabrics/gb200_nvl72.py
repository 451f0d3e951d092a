"""GB200 NVL72: racks of 72 GPUs in one NVLink domain with NVLink SHARP, 18 trays of 4, one 400 Gb/s NIC per GPU."""

from __future__ import annotations

from typing import Annotated, Any

from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, join
from ringwright.fabrics._switched import sharing, switched
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology


def gb200_nvl72(
    boxes: int = 1,
    *,
    nvlink_rate: Rate = 900e9,
    nvlink_latency_s: Seconds = NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[5],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, 72)] = 72,
    nic_rate: Rate = 50e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return racks on a rail-optimised network (layout=rails): NIC k of every rack below the same leaf, spines above.

    Rates in bytes/s each way per GPU: NVLink5 18 x 50 GB/s, PCIe Gen5 x16, ConnectX-7 NDR 400 Gb/s (NVIDIA GB200 NVL72
    data sheet). A host is a tray of 4 GPUs; names are rack0/gpu5. Further knobs: those of the network.
    """
    chassis = switched(
        72,
        nvlink_rate=nvlink_rate,
        nvlink_latency_s=nvlink_latency_s,
        pcie_rate=pcie_rate,
        pcie_latency_s=pcie_latency_s,
        nic_rate=nic_rate,
        nic_latency_s=nic_latency_s,
        per_nic=sharing(72, nics),
        adds=True,
    )
    return join(
        "gb200-nvl72",
        chassis,
        boxes,
        options,
        host="rack",
        gpus_per_host=4,
        provenance="NVIDIA GB200 NVL72 data sheet; times of the TE-CCL inputs",
    )
