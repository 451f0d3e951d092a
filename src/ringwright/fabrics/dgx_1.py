"""DGX-1V: 8 V100 in a hybrid cube mesh of NVLinks, four 100 Gb/s NICs, one below each PCIe switch."""

from __future__ import annotations

from typing import Annotated, Any

from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, join
from ringwright.fabrics._cube import cube, nic_places
from ringwright.ground.knobs import Range, Rate, RateOrNoLink, Seconds
from ringwright.model.topology import Topology


def dgx_1(
    boxes: int = 1,
    *,
    nvlink_rate: Rate = 25e9,
    nvlink_latency_s: Seconds = 2 * NVLINK_S,
    pcie_rate: RateOrNoLink = PCIE_RATE[3],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, 4)] = 4,
    nic_rate: Rate = 12.5e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return boxes on one non-blocking switch (layout=switch).

    Rates in bytes/s each way: 25 GB/s an NVLink (pairs have one or two), PCIe Gen3 x16, EDR 100 Gb/s a NIC
    (NVIDIA DGX-1 white paper). GPUs without a link between them go through a third GPU. Further knobs: those of
    the network (layout, per_leaf, spines, oversubscription, routing, seed, sharp).
    """
    chassis = cube(
        nic_places(nics),
        nvlink_rate=nvlink_rate,
        nvlink_latency_s=nvlink_latency_s,
        pcie_rate=pcie_rate,
        pcie_latency_s=pcie_latency_s,
        nic_rate=nic_rate,
        nic_latency_s=nic_latency_s,
    )
    return join(
        "dgx-1",
        chassis,
        boxes,
        options,
        layout="switch",
        provenance="NVIDIA DGX-1 white paper; times of the TE-CCL inputs",
    )
