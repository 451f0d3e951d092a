"""MI300X platform: 8 GPUs, every two joined by an Infinity Fabric (xGMI) link, one 400 Gb/s NIC per GPU."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any

from ringwright.costs.transports import OF_PRODUCTS
from ringwright.fabrics._chassis import NIC_S, NVLINK_S, PCIE_RATE, PCIE_S, Chassis, Link, join
from ringwright.fabrics._switched import pcie_tree
from ringwright.ground.knobs import Range, Rate, Seconds
from ringwright.model.topology import Topology

GPUS = 8


def mi300(
    boxes: int = 1,
    *,
    xgmi_rate: Rate = 64e9,
    xgmi_latency_s: Seconds = 2 * NVLINK_S,
    pcie_rate: Rate = PCIE_RATE[5],
    pcie_latency_s: Seconds = PCIE_S,
    nics: Annotated[int, Range(1, 8)] = 8,
    nic_rate: Rate = 50e9,
    nic_latency_s: Seconds = NIC_S,
    **options: Any,
) -> Topology:
    """Return boxes on a rail-optimised network (layout=rails): NIC k of every box below the same leaves, 32 boxes each.

    Rates in bytes/s each way: 64 GB/s a link (AMD MI300X platform data sheet: seven links of 128 GB/s both ways), PCIe Gen5
    x16, 400 Gb/s a NIC. Further knobs: those of the network (layout, per_leaf, spines, oversubscription, routing, ...).
    """
    links: list[Link] = [(*pair, xgmi_rate, xgmi_latency_s, "xgmi") for pair in combinations(range(GPUS), 2)]
    tree, switches = pcie_tree(GPUS, nics, GPUS + nics, pcie_rate, pcie_latency_s)
    nic_of = tuple(gpu * nics // GPUS for gpu in range(GPUS))
    links += tree
    chassis = Chassis(GPUS, nic_of, switches, tuple(links), nic_rate, nic_latency_s, is_symmetric=nics == GPUS)
    return join(
        "mi300",
        chassis,
        boxes,
        options,
        transport=OF_PRODUCTS["mi300"],
        provenance="AMD MI300X platform data sheet; times of the TE-CCL inputs",
    )
