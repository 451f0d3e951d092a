"""Azure NDv2: 8 V100 in a hybrid cube mesh of NVLinks, one 100 Gb/s NIC on the PCIe switch of GPUs 0 and 1."""

from __future__ import annotations

from typing import Annotated

from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, join
from ringwright.fabrics._cube import cube
from ringwright.fabrics._network import HOP_S, LAYOUTS, ROUTINGS
from ringwright.ground.knobs import Choices, Ports, Rate, Ratio, Seconds, Seed
from ringwright.model.topology import Topology


# parameters: they are the knobs of the fabric, by the names that --fabric has
def ndv2(
    boxes: int = 1,
    *,
    nvlink_rate: Rate = 25e9,
    nvlink_latency_s: Seconds = 2 * NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[3],
    pcie_latency_s: Seconds = PCIE_S,
    nic_rate: Rate = 12.5e9,
    nic_latency_s: Seconds = NIC_S,
    layout: Annotated[str, Choices(LAYOUTS)] = "switch",
    per_leaf: Ports | None = None,
    spines: Ports | None = None,
    oversubscription: Ratio = 1.0,
    routing: Annotated[str, Choices(ROUTINGS)] = "d-mod-k",
    seed: Seed = 0,
    spine_latency_s: Seconds = HOP_S,
    sharp: bool = False,
) -> Topology:
    """Return boxes on one non-blocking switch (layout=switch).

    Rates in bytes/s each way: 25 GB/s an NVLink (pairs have one or two), PCIe Gen3 x16, EDR 100 Gb/s a NIC (Azure NDv2
    page; the NIC is placed where TACCL's profiling found it). GPUs without a link between them go through a third GPU, and
    so does who is far from the NIC. A box has one NIC, so that no message can change its rail: there is no pxn.
    """
    chassis = cube(
        (0,),
        nvlink_rate=nvlink_rate,
        nvlink_latency_s=nvlink_latency_s,
        pcie_rate=pcie_rate,
        pcie_latency_s=pcie_latency_s,
        nic_rate=nic_rate,
        nic_latency_s=nic_latency_s,
    )
    options = {
        "layout": layout,
        "per_leaf": per_leaf,
        "spines": spines,
        "oversubscription": oversubscription,
        "routing": routing,
        "seed": seed,
        "spine_latency_s": spine_latency_s,
        "sharp": sharp,
    }
    return join(
        "ndv2",
        chassis,
        boxes,
        options,
        provenance="Azure NDv2 page; NIC placed as TACCL found by profiling; times of the TE-CCL inputs",
    )
