"""Parts of a DGX-1 that jobs get: some of its GPUs, the NVLinks between them, and PCIe for those that have none.

A part is the machine without the other GPUs: data between two GPUs without an NVLink go over PCIe, as the driver has it, and not
through a third GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from ringwright.fabrics._chassis import NVLINK_S, PCIE_RATE, PCIE_S
from ringwright.fabrics._cube import GPUS, NVLINKS, NVLINKS_P100, UPI_RATE, UPI_S
from ringwright.model.shortest_paths import ShortestPaths
from ringwright.model.topology import RANK, SWITCH
from ringwright.model.wiring import Wires, packed

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology

Nvlinks = Mapping[tuple[int, int], int]  # how many between two GPUs, the lower number first
FEWEST, MOST = 3, 8  # GPUs of a part
MACHINES: dict[str, tuple[Nvlinks, float]] = {
    "v100": (NVLINKS, 25e9),
    "p100": (NVLINKS_P100, 20e9),
}  # bytes/s of a link


def between(links: Nvlinks, gpus: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return the NVLinks between some GPUs, which are numbered anew in their order."""
    at = {gpu: number for number, gpu in enumerate(sorted(gpus))}
    return {(at[a], at[b]): count for (a, b), count in links.items() if a in at and b in at}


def connected_parts(links: Nvlinks) -> list[tuple[int, ...]]:
    """Return sets of 3 to 8 GPUs that NVLinks join, one of those that look the same, the smallest first."""
    kept: dict[tuple[tuple[int, ...], ...], list[tuple[int, ...]]] = {}
    for size in range(FEWEST, MOST + 1):
        for gpus in combinations(range(GPUS), size):
            own = between(links, gpus)
            if not _is_joined(own, size):
                continue
            alike = kept.setdefault(_seen(own, size), [])
            if not any(_same(own, between(links, other), size) for other in alike):
                alike.append(gpus)
    return sorted((gpus for alike in kept.values() for gpus in alike), key=lambda gpus: (len(gpus), gpus))


def _beside(links: Nvlinks, size: int) -> list[dict[int, int]]:
    beside: list[dict[int, int]] = [{} for _ in range(size)]
    for (a, b), count in links.items():
        beside[a][b] = beside[b][a] = count
    return beside


def _is_joined(links: Nvlinks, size: int) -> bool:
    beside, seen, front = _beside(links, size), {0}, [0]
    while front:
        front = [there for here in front for there in beside[here] if there not in seen]
        seen.update(front)
    return len(seen) == size


def _seen(links: Nvlinks, size: int) -> tuple[tuple[int, ...], ...]:
    """Return what every GPU sees, whatever its number: its links and those of the GPUs at their ends."""
    beside = _beside(links, size)
    near = [tuple(sorted(each.values())) for each in beside]
    return tuple(
        sorted(
            (*near[gpu], *(n for ends in sorted((c, *near[b]) for b, c in beside[gpu].items()) for n in ends))
            for gpu in range(size)
        )
    )


def _same(one: Nvlinks, other: Nvlinks, size: int) -> bool:
    """Return whether one part becomes the other under new numbers: GPU by GPU, back where no number fits."""
    here, there = _beside(one, size), _beside(other, size)

    def fits(gpu: int, image: int, taken: list[int]) -> bool:
        return all(here[gpu].get(before, 0) == there[image].get(taken[before], 0) for before in range(gpu))

    def extended(taken: list[int]) -> bool:
        gpu = len(taken)
        if gpu == size:
            return True
        free = (image for image in range(size) if image not in taken and len(here[gpu]) == len(there[image]))
        return any(fits(gpu, image, taken) and extended([*taken, image]) for image in free)

    return extended([])


@dataclass(frozen=True)
class PartPaths:
    """Routes of a part: the NVLink where there is one, else the PCIe tree."""

    nvlinks: frozenset[tuple[int, int]]
    pcie: np.ndarray  # (gpus, gpus, longest)

    def __call__(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route of each pair. int64 of shape (pairs, longest)."""
        import numpy as np

        nodes = self.pcie[src, dst].copy()
        for row, ends in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
            if ends in self.nvlinks:
                nodes[row] = -1
                nodes[row, :2] = ends
        return packed(np.where((src == dst)[:, None] & (np.arange(nodes.shape[1]) > 0), -1, nodes))


def part(gpu: str, gpus: Sequence[int], *, nvlink: bool = True) -> Topology:
    """Return a part of a DGX-1 with GPUs of a kind of ``MACHINES``: ranks in the order of their numbers, PCIe switches, CPUs.

    ``nvlink=False``: all data go over PCIe, though NVLinks are there.
    """
    import numpy as np

    links, rate = MACHINES[gpu]
    own, size, chosen = between(links, gpus), len(gpus), sorted(gpus)
    first, cpu = size, size + 4
    tree = [(number, first + each // 2) for number, each in enumerate(chosen)]
    tree += [(first + number, cpu + number // 2) for number in range(4)]
    wires = Wires()
    here, there = np.array(tree).T
    wires.there_and_back(here, there, PCIE_RATE[3], PCIE_S, "pcie")
    wires.there_and_back(cpu, cpu + 1, UPI_RATE, UPI_S, "upi")
    kinds = np.full(cpu + 2, SWITCH, np.uint8)
    kinds[:size] = RANK
    host = wires.topology("pcie", size, kinds)
    every = np.arange(size)
    paths = ShortestPaths(host.n_nodes, host.src, host.dst, host.rate).paths(
        np.repeat(every, size), np.tile(every, size)
    )
    here, there = np.array(list(own)).T
    counts = np.array(list(own.values()))
    wires.there_and_back(here, there, counts * rate, 2 * NVLINK_S, "nvlink")
    nvlinks = frozenset((*own, *((b, a) for a, b in own)) if nvlink else ())
    name = f"dgx-1 {gpu} of GPUs {','.join(map(str, chosen))}"
    return wires.topology(
        name, size, kinds, paths=PartPaths(nvlinks, paths.reshape(size, size, -1)), hosts=np.zeros(size, np.int64)
    )
