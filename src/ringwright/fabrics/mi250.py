"""A box of 8 MI250 modules: 16 dies (GCDs) joined by Infinity Fabric (xGMI) links, one 200 Gb/s NIC per module."""

from __future__ import annotations

from typing import Annotated, Any

from ringwright.costs.transports import OF_PRODUCTS
from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, Chassis, Link, join
from ringwright.fabrics._switched import pcie_tree
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology

# xGMI links between each pair of dies: four within a module (RCCL's topology models, box with 16 dies).
XGMI = {
    (0, 1): 4,
    (0, 4): 2,
    (0, 8): 1,
    (1, 5): 1,
    (1, 9): 1,
    (1, 10): 1,
    (2, 3): 4,
    (2, 6): 1,
    (2, 9): 1,
    (2, 10): 1,
    (3, 7): 2,
    (3, 11): 1,
    (4, 5): 4,
    (4, 6): 1,
    (5, 6): 1,
    (5, 7): 1,
    (6, 7): 4,
    (8, 9): 4,
    (8, 12): 2,
    (9, 13): 1,
    (10, 11): 4,
    (10, 14): 1,
    (11, 15): 2,
    (12, 13): 4,
    (12, 14): 1,
    (13, 14): 1,
    (13, 15): 1,
    (14, 15): 4,
}
DIES = 16


def mi250(
    boxes: int = 1,
    *,
    xgmi_rate: Rate = 50e9,
    xgmi_latency_s: Seconds = 2 * NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[4],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, 8)] = 8,
    nic_rate: Rate = 25e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return boxes of 16 ranks (one a die) on a rail-optimised network (layout=rails), one rail a module.

    Rates in bytes/s each way: 50 GB/s an xGMI link (AMD MI250 data sheet: 100 GB/s both ways), PCIe Gen4 x16, HDR 200 Gb/s
    a NIC, shared by the two dies of a module. Dies without a link between them go through others. Further knobs: those
    of the network; pxn is off unless asked for.
    """
    links: list[Link] = [(*pair, count * xgmi_rate, xgmi_latency_s, "xgmi") for pair, count in XGMI.items()]
    tree, switches = pcie_tree(DIES, nics, DIES + nics, pcie_rate, pcie_latency_s)
    nic_of = tuple(die * nics // DIES for die in range(DIES))
    chassis = Chassis(DIES, nic_of, switches, (*links, *tree), nic_rate, nic_latency_s)
    options = {"pxn": False, **options}
    return join(
        "mi250",
        chassis,
        boxes,
        options,
        transport=OF_PRODUCTS["mi250"],
        provenance="AMD MI250 data sheet and RCCL's models; TE-CCL times",
    )
