"""Rail-optimised: boxes of GPUs on a switch of their own, NIC k of every box below the leaves of rail k."""

from __future__ import annotations

from typing import Annotated, Any

from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, join
from ringwright.fabrics._switched import switched
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology


def rail_optimised(
    boxes: int,
    *,
    gpus: Annotated[int, Range(1, 256)] = 8,
    gpus_per_nic: Annotated[int, Range(1, 256)] = 1,
    nvlink_rate: Rate = 450e9,
    nvlink_latency_s: Seconds = NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[5],
    pcie_latency_s: Seconds = PCIE_S,
    nic_rate: Rate = 50e9,
    nic_latency_s: Seconds = NIC_S,
    adds: bool = False,
    **options: Any,
) -> Topology:
    """Return boxes of ``gpus`` GPUs; ``adds``: the switch within a chassis adds and multicasts.

    ``gpus_per_nic`` GPUs share a NIC, behind a PCIe switch where they are several; there are as many rails as NICs in a box.
    Rates in bytes/s each way per GPU, times in seconds a link; the defaults are those of dgx-h100. Further knobs: those of
    the network (per_leaf=32 boxes, spines, oversubscription, routing, seed, pxn, sharp).
    """
    chassis = switched(
        gpus,
        nvlink_rate=nvlink_rate,
        nvlink_latency_s=nvlink_latency_s,
        pcie_rate=pcie_rate,
        pcie_latency_s=pcie_latency_s,
        nic_rate=nic_rate,
        nic_latency_s=nic_latency_s,
        per_nic=gpus_per_nic,
        adds=adds,
    )
    return join("rail-optimised", chassis, boxes, options, provenance="rates of the DGX H100 data sheet unless given")
