"""Boxes of GPUs and what joins n of them: every product is a Chassis, and ``join`` puts boxes on a network.

Ranks come first (box after box), then NICs, then what else is in the boxes (NVSwitch, PCIe switches, CPUs), then leaves
and spines. Within a chassis messages take the fewest hops, the wider link where equal; between boxes they leave by a NIC.
Times: 0.35 us an NVLink hop through a switch, 0.7 us direct, and 0.15 us PCIe + 0.5 us NIC, cable and switch, so that two
GPUs are 1.3 us apart through one switch: the figures of the public TE-CCL inputs (NDv2 and DGX-2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.fabrics._endpoints import aggregating, axes_of
from ringwright.fabrics._network import Clos, clos, network
from ringwright.ground.errors import UsageError
from ringwright.model.shortest_paths import ShortestPaths
from ringwright.model.topology import NIC, RANK, SWITCH, Capability, Topology
from ringwright.model.wiring import MOST_LINKS, Names, Wires, packed

if TYPE_CHECKING:
    import numpy as np

NVLINK_S = 0.35e-6  # GPU to NVSwitch; a direct link is twice that
PCIE_S = 0.15e-6
NIC_S = 0.5e-6
PCIE_RATE = {3: 15.75e9, 4: 31.5e9, 5: 63.0e9, 6: 121.0e9}  # x16, bytes/s each way (PCI-SIG, after line coding)
MOST_BOXES = 1 << 17

Link = tuple[int, int, float, float, str]  # local nodes, bytes/s, seconds, class; laid in both directions


@dataclass(frozen=True)
class Chassis:
    """One chassis: GPUs, then NICs, then the rest, in local numbers; ``nic_of`` is the NIC by which a GPU leaves."""

    gpus: int
    nic_of: tuple[int, ...]
    rest: tuple[str, ...]
    links: tuple[Link, ...]
    nic_rate: float
    nic_latency_s: float = NIC_S
    aggregators: Mapping[int, Capability] = field(default_factory=dict)  # local nodes
    is_symmetric: bool = False  # whether GPU i may be called i + 1 without a difference

    @property
    def nics(self) -> int:
        """NICs of a chassis."""
        return max(self.nic_of) + 1


@dataclass(frozen=True)
class ChassisPaths:
    """Routes between GPUs of boxes: tables within a chassis, the network's own between boxes.

    ``base`` and ``stride`` turn a local node of box a into ``base + stride * a``.
    """

    gpus: int
    nics: int
    base: np.ndarray
    stride: np.ndarray
    inside: np.ndarray  # (gpus, gpus, longest)
    out: np.ndarray  # (gpus, nics, longest)
    into: np.ndarray  # (nics, gpus, longest)
    nic_of: np.ndarray
    changes_rail: bool  # in the source's box
    network: Clos | None

    def __call__(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route of each pair."""
        import numpy as np

        (a, i), (b, j) = np.divmod(src, self.gpus), np.divmod(dst, self.gpus)
        inside = self._at(self.inside[i, j], a)
        if self.network is None or (a == b).all():
            return packed(inside)
        arrives = self.nic_of[j]
        leaves = arrives if self.changes_rail else self.nic_of[i]
        between = self.network.between(a * self.nics + leaves, b * self.nics + arrives)
        away = np.concatenate((self._at(self.out[i, leaves], a), between, self._at(self.into[arrives, j], b)), axis=1)
        width = max(inside.shape[1], away.shape[1])
        return packed(np.where((a == b)[:, None], _wide(inside, width), _wide(away, width)))

    def _at(self, local: np.ndarray, chassis: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.where(local < 0, -1, self.base[local] + self.stride[local] * chassis[:, None])


def _wide(nodes: np.ndarray, width: int) -> np.ndarray:
    import numpy as np

    return np.pad(nodes, ((0, 0), (0, width - nodes.shape[1])), constant_values=-1)


def join(
    name: str,
    chassis: Chassis,
    boxes: int,
    options: Mapping[str, Any],
    *,
    layout: str = "rails",
    host: str = "node",
    gpus_per_host: int | None = None,
    transport: str = "infiniband",
    provenance: str = "",
) -> Topology:
    """Return ``boxes`` boxes on a network; ``layout`` and ``transport`` are what the product comes with.

    ``rails``: NIC k of every box below the same leaves, spines above. ``leaf-spine``: all NICs of a chassis below one leaf.
    ``switch``: one non-blocking switch. Raises UsageError for no boxes or options that make no sense.
    """
    import numpy as np

    if not 1 <= boxes <= MOST_BOXES or boxes * chassis.gpus > MOST_LINKS // 4:
        raise UsageError(f"{name} of {boxes} boxes does not exist", remedy=f"{name}:1 to {name}:{MOST_BOXES}")
    chosen, n, nics = network(**options), boxes * chassis.gpus, boxes * chassis.nics
    base, stride = _numbers(chassis, boxes)
    wires = Wires()
    _wire_boxes(wires, chassis, boxes, base, stride)
    net, first = None, n + nics + boxes * len(chassis.rest)
    layout = chosen.layout or layout
    if boxes > 1:
        rails, together = {"rails": (chassis.nics, 1), "leaf-spine": (1, chassis.nics)}.get(layout, (1, 1))
        net = clos(nics, rails, layout, chosen, first, together)
        net.wire(wires, n + np.arange(nics), chassis.nic_rate, chassis.nic_latency_s, chosen)
    switches = (net.leaves, net.spines) if net else (0, 0)
    kinds = np.repeat(np.array([RANK, NIC, SWITCH], np.uint8), (n, nics, first + sum(switches) - n - nics))
    paths = _paths(chassis, base, stride, net, changes_rail=layout == "rails" and chosen.pxn)
    plain = (("gpu", chassis.gpus), (host, boxes))
    return wires.topology(
        f"{name}:{boxes}",
        n,
        kinds,
        names=_names(chassis, boxes, host, switches),
        paths=paths,
        axes=(axes_of(net, plain) if net and layout == "rails" else plain) if boxes > 1 else plain[:1],
        hosts=np.arange(n) // (gpus_per_host or chassis.gpus),
        aggregators=_aggregators(chassis, boxes, base, stride, net, chosen),
        is_symmetric=chassis.is_symmetric and (net is None or (net.is_symmetric and layout != "leaf-spine")),
        transport=transport,
        **chosen.framing,
        provenance=provenance,
    )


def _numbers(chassis: Chassis, boxes: int) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    counts = (chassis.gpus, chassis.nics, len(chassis.rest))
    starts = np.cumsum([0, *(boxes * count for count in counts)])
    base = np.concatenate([start + np.arange(count) for start, count in zip(starts, counts, strict=False)])
    return base.astype(np.int64), np.repeat(np.array(counts, np.int64), counts)


def _wire_boxes(wires: Wires, chassis: Chassis, boxes: int, base: np.ndarray, stride: np.ndarray) -> None:
    import numpy as np

    number = np.arange(boxes)[:, None]
    for link_class in dict.fromkeys(link[4] for link in chassis.links):
        rows = [link[:4] for link in chassis.links if link[4] == link_class]
        here, there = np.array([row[:2] for row in rows], np.int64).T
        rate, latency_s = np.tile(np.array([row[2:] for row in rows]).T, boxes)
        ends = ((base[local] + stride[local] * number).reshape(-1) for local in (here, there))
        wires.there_and_back(next(ends), next(ends), rate, latency_s, link_class)


def _names(chassis: Chassis, boxes: int, host: str, switches: tuple[int, int]) -> Names:
    return Names(
        (host + "{}/gpu{}", (boxes, chassis.gpus)),
        (host + "{}/nic{}", (boxes, chassis.nics)),
        (host + "{}/{}", (boxes, chassis.rest)),
        ("leaf{}", switches[:1]),
        ("spine{}", switches[1:]),
    )


def _aggregators(
    chassis: Chassis, boxes: int, base: np.ndarray, stride: np.ndarray, net: Clos | None, options: Any
) -> dict[int, Capability]:
    capabilities = {
        int(base[local] + stride[local] * number): what
        for local, what in chassis.aggregators.items()
        for number in range(boxes)
    }
    return capabilities | (aggregating(net, options) if net else {})


def _paths(
    chassis: Chassis, base: np.ndarray, stride: np.ndarray, net: Clos | None, *, changes_rail: bool
) -> ChassisPaths:
    import numpy as np

    single = Wires()
    _wire_boxes(single, chassis, 1, np.arange(len(base)), stride)
    inside = single.topology("box", chassis.gpus, np.zeros(len(base), np.uint8))
    search = ShortestPaths(inside.n_nodes, inside.src, inside.dst, inside.rate)
    gpus, nics = np.arange(chassis.gpus), chassis.gpus + np.arange(chassis.nics)
    nearest = np.array(chassis.nic_of)
    return ChassisPaths(
        chassis.gpus,
        chassis.nics,
        base,
        stride,
        _table(search, gpus, gpus),
        _table(search, gpus, nics),
        _table(search, nics, gpus),
        nearest,
        changes_rail,
        net,
    )


def _table(search: ShortestPaths, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    import numpy as np

    paths = search.paths(np.repeat(src, len(dst)), np.tile(dst, len(src)))
    return paths.reshape(len(src), len(dst), -1)
