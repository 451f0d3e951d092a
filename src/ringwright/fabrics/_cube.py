"""The hybrid cube mesh of eight V100, as in DGX-1V and Azure's NDv2, with its PCIe tree."""

from __future__ import annotations

from ringwright.fabrics._chassis import Chassis, Link
from ringwright.ground.errors import UsageError

# NVLinks between each pair: six to a GPU (NVIDIA DGX-1 white paper, V100 system).
NVLINKS = {
    (0, 1): 2,
    (0, 2): 1,
    (0, 3): 1,
    (0, 4): 2,
    (1, 2): 1,
    (1, 3): 2,
    (1, 5): 1,
    (2, 3): 2,
    (2, 6): 2,
    (3, 7): 1,
    (4, 5): 2,
    (4, 6): 1,
    (4, 7): 1,
    (5, 6): 1,
    (5, 7): 2,
    (6, 7): 2,
}
# Four to a GPU, 20 GB/s each way (NVIDIA DGX-1 white paper, P100 system).
NVLINKS_P100 = {
    **{(first + a, first + b): 1 for first in (0, 4) for a in range(4) for b in range(a + 1, 4)},
    **{(gpu, gpu + 4): 1 for gpu in range(4)},
}
GPUS = 8
UPI_RATE = 19.2e9  # QPI at 9.6 GT/s, bytes/s each way
UPI_S = 0.1e-6


def cube(
    nic_on: tuple[int, ...],
    *,
    nvlink_rate: float,
    nvlink_latency_s: float,
    pcie_rate: float,
    pcie_latency_s: float,
    nic_rate: float,
    nic_latency_s: float,
) -> Chassis:
    """Return the chassis: ``nic_on`` names the PCIe switch (0 to 3, two GPUs each) of every NIC; rates are of one link."""
    nics = len(nic_on)
    pcie, cpu = GPUS + nics, GPUS + nics + 4
    links: list[Link] = [
        (here, there, count * nvlink_rate, nvlink_latency_s, "nvlink") for (here, there), count in NVLINKS.items()
    ]
    tree = [(gpu, pcie + gpu // 2) for gpu in range(GPUS)]
    tree += [(GPUS + nic, pcie + where) for nic, where in enumerate(nic_on)]
    tree += [(pcie + number, cpu + number // 2) for number in range(4)]
    links += [(here, there, pcie_rate, pcie_latency_s, "pcie") for here, there in tree]
    links.append((cpu, cpu + 1, UPI_RATE, UPI_S, "upi"))
    nearest = tuple(_nearest(nic_on, gpu) for gpu in range(GPUS))
    rest = (*(f"pcie{number}" for number in range(4)), "cpu0", "cpu1")
    return Chassis(GPUS, nearest, rest, tuple(links), nic_rate, nic_latency_s)


def nic_places(nics: int) -> tuple[int, ...]:
    """Return the PCIe switches of so many NICs: one on each CPU before there are two; UsageError where that cannot be."""
    if 4 % nics:
        raise UsageError(f"{GPUS} GPUs do not share {nics} NICs evenly", remedy="nics= one of 1, 2, 4")
    return tuple(range(0, 4, 4 // nics))


def _nearest(nic_on: tuple[int, ...], gpu: int) -> int:
    """Return the NIC of a GPU: on its PCIe switch, else on its CPU, else the first."""
    switch = gpu // 2
    if switch in nic_on:
        return nic_on.index(switch)
    return next((nic for nic, where in enumerate(nic_on) if where // 2 == switch // 2), 0)
