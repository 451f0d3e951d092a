"""Boxes whose GPUs hang on one NVSwitch plane, each GPU with a NIC of its own or two sharing one."""

from __future__ import annotations

from ringwright.fabrics._capabilities import nvls
from ringwright.fabrics._chassis import NVLINK_S, PCIE_S, Chassis, Link
from ringwright.ground.errors import UsageError

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
    tree, switches = pcie_tree(gpus, nics, nvswitch + 1, pcie_rate, pcie_latency_s)
    return Chassis(
        gpus,
        tuple(gpu // per_nic for gpu in range(gpus)),
        ("nvswitch", *switches),
        (*links, *tree),
        nic_rate,
        nic_latency_s,
        {nvswitch: nvls(gpus)} if adds else {},
        is_symmetric=per_nic == 1,
    )


def sharing(gpus: int, nics: int) -> int:
    """Return how many GPUs of a box share each of its NICs; UsageError where they cannot do so evenly."""
    if not 1 <= nics <= gpus or gpus % nics:
        even = [str(count) for count in range(1, gpus + 1) if gpus % count == 0]
        raise UsageError(
            f"{gpus} GPUs do not share {nics} NICs evenly",
            remedy=f"nics= one of {', '.join(even)}; several NICs of a GPU are one of their rate together: nic_rate=",
        )
    return gpus // nics


def pcie_tree(gpus: int, nics: int, first: int, rate: float, latency_s: float) -> tuple[list[Link], tuple[str, ...]]:
    """Return the links from GPUs to NICs, and the names of the PCIe switches between them, which are local nodes from ``first``.

    A PCIe switch that gives every GPU a NIC of its own limits nothing and is left out.
    """
    each = sharing(gpus, nics)
    if each == 1:
        return [(gpu, gpus + gpu, rate, latency_s, "pcie") for gpu in range(gpus)], ()
    links: list[Link] = [(gpu, first + gpu // each, rate, latency_s, "pcie") for gpu in range(gpus)]
    links += [(gpus + nic, first + nic, rate, latency_s, "pcie") for nic in range(nics)]
    return links, tuple(f"pcie{nic}" for nic in range(nics))
