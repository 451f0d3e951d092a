"""Boxes whose GPUs hang on one NVSwitch plane, each GPU with a NIC of its own or two sharing one."""

from __future__ import annotations

from ringwright.errors import UsageError
from ringwright.fabrics._capabilities import nvls
from ringwright.fabrics._chassis import NVLINK_S, PCIE_S, Chassis, Link

MOST_GPUS = 1024  # of one NVLink domain; NVL576 is the largest announced


def switched(
    gpus: int,
    *,
    nvlink_rate: float,
    pcie_rate: float,
    nic_rate: float,
    nvlink_latency_s: float = NVLINK_S,
    pcie_latency_s: float = PCIE_S,
    nic_latency_s: float,
    per_nic: int = 1,
    adds: bool = False,
) -> Chassis:
    """Return a chassis; rates are bytes/s each way of one GPU, one PCIe x16 and one NIC, times seconds a link.

    ``per_nic`` GPUs share a NIC behind a PCIe switch (``pcie0``, ...); ``adds``: the NVSwitch adds and multicasts.
    A PCIe switch that gives every GPU a NIC of its own limits nothing and is left out.
    """
    if not 1 <= gpus <= MOST_GPUS or gpus % per_nic:
        raise UsageError(f"a box of {gpus} GPUs with {per_nic} to a NIC does not exist")
    nics = gpus // per_nic
    nvswitch = gpus + nics
    links: list[Link] = [(gpu, nvswitch, nvlink_rate, nvlink_latency_s, "nvlink") for gpu in range(gpus)]
    rest = ["nvswitch"]
    if per_nic == 1:
        links += [(gpu, gpus + gpu, pcie_rate, pcie_latency_s, "pcie") for gpu in range(gpus)]
    else:
        rest += [f"pcie{nic}" for nic in range(nics)]
        links += [(gpu, nvswitch + 1 + gpu // per_nic, pcie_rate, pcie_latency_s, "pcie") for gpu in range(gpus)]
        links += [(gpus + nic, nvswitch + 1 + nic, pcie_rate, pcie_latency_s, "pcie") for nic in range(nics)]
    return Chassis(
        gpus,
        tuple(gpu // per_nic for gpu in range(gpus)),
        tuple(rest),
        tuple(links),
        nic_rate,
        nic_latency_s,
        {nvswitch: nvls(gpus)} if adds else {},
        is_symmetric=per_nic == 1,
    )
