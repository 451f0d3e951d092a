"""A box being put together from a file, and several of them side by side.

Files tell rates, seldom times. Where they do not: 0.7 us a direct NVLink or xGMI link, half of it to an NVSwitch, 0.15 us a
PCIe link, 0.1 us between sockets, 0.5 us for NIC, cable and switch (the public TE-CCL inputs: 0.7 us and 1.3 us in all).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.ground.errors import InputError
from ringwright.model.topology import NIC, RANK, SWITCH, Topology
from ringwright.model.wiring import Wires

if TYPE_CHECKING:
    import numpy as np

LATENCY_S = {"nvlink": 0.7e-6, "xgmi": 0.7e-6, "c2c": 0.7e-6, "pcie": 0.15e-6, "upi": 0.1e-6, "nic": 0.5e-6}
MOST_PARTS = 200_000


@dataclass
class Parts:
    """Nodes by key and links between them, in the order of the file."""

    name: str
    keys: dict[Hashable, int] = field(default_factory=dict)
    kinds: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    hosts: list[int] = field(default_factory=list)
    links: list[tuple[int, int, float, float, str]] = field(default_factory=list)
    nic_rates: dict[int, float] = field(default_factory=dict)

    def node(self, key: Hashable, kind: int, name: str, host: int = 0) -> int:
        """Return the node of that key, adding it where it is new."""
        if key not in self.keys:
            if len(self.kinds) >= MOST_PARTS:
                raise InputError(f"more than {MOST_PARTS:,} parts", where=self.name)
            self.keys[key] = len(self.kinds)
            self.kinds.append(kind)
            self.names.append(name)
            self.hosts.append(host)
        return self.keys[key]

    def one_way(self, here: int, there: int, rate: float, link_class: str, latency_s: float | None = None) -> None:
        """Add a link of bytes/s and seconds."""
        time_s = LATENCY_S[link_class] if latency_s is None else latency_s
        self.links.append((here, there, rate, time_s, link_class))

    def there_and_back(
        self, here: int, there: int, rate: float, link_class: str, latency_s: float | None = None
    ) -> None:
        """Add links in both directions."""
        self.one_way(here, there, rate, link_class, latency_s)
        self.one_way(there, here, rate, link_class, latency_s)

    def topology(self, boxes: int, provenance: str, nic_latency_s: float | None = None) -> Topology:
        """Return the machine: ranks first; NICs of several boxes or hosts hang on one switch, ``network``."""
        import numpy as np

        kinds = np.array(self.kinds, np.uint8)
        ranks = int((kinds == RANK).sum())
        if not ranks:
            raise InputError(
                f"{self.name} names no GPU", where=self.name, remedy="NCCL_TOPO_DUMP_FILE of a running job"
            )
        if boxes * len(kinds) > MOST_PARTS:
            raise InputError(f"{boxes} boxes of {len(kinds)} parts are too many", where=self.name)
        order = np.argsort(kinds != RANK, kind="stable")
        new_number = np.empty_like(order)  # of each node in its box, ranks first
        new_number[order] = np.arange(len(order))
        wires = Wires()
        numbers = [_number(new_number, ranks, len(kinds) - ranks, box, boxes) for box in range(boxes)]
        for here, there, rate, latency_s, link_class in self.links:
            ends = ([number[end] for number in numbers] for end in (here, there))
            wires.one_way(next(ends), next(ends), rate, latency_s, link_class)
        hosts = np.array(self.hosts)[order][:ranks]
        spread = (hosts + (hosts.max() + 1) * np.arange(boxes)[:, None]).reshape(-1)
        all_kinds = [kinds[order][:ranks]] * boxes + [kinds[order][ranks:]] * boxes
        names = self._names(order, ranks, boxes)
        if len(np.unique(spread)) > 1 and self.nic_rates:
            nodes = sum(map(len, all_kinds))
            for nic, rate in self.nic_rates.items():
                seconds = LATENCY_S["nic"] if nic_latency_s is None else nic_latency_s
                wires.there_and_back([number[nic] for number in numbers], nodes, rate, seconds, "nic")
            all_kinds.append(np.array([SWITCH], np.uint8))
            names.append("network")
        axes = (("gpu", ranks), ("node", boxes)) if boxes > 1 else (("gpu", ranks),)
        return wires.topology(
            self.name,
            ranks * boxes,
            np.concatenate(all_kinds),
            names=names,
            hosts=spread,
            axes=axes,
            provenance=provenance,
        )

    def _names(self, order: np.ndarray, ranks: int, boxes: int) -> list[str]:
        unique = distinct(self.names)
        sorted_names = [unique[node] for node in order]
        if boxes == 1:
            return sorted_names
        parts = (sorted_names[:ranks], sorted_names[ranks:])
        return [f"node{box}/{name}" for part in parts for box in range(boxes) for name in part]


def _number(local: np.ndarray, ranks: int, others: int, box: int, boxes: int) -> np.ndarray:
    import numpy as np

    numbers: np.ndarray = np.where(local < ranks, box * ranks + local, boxes * ranks + box * others + local - ranks)
    return numbers


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names, a repeated one with a number behind."""
    seen: dict[str, int] = {}
    spelled = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        spelled.append(f"{name}.{seen[name]}" if seen[name] else name)
    return spelled if len(set(spelled)) == len(spelled) else [f"{name}#{index}" for index, name in enumerate(spelled)]


__all__ = ["LATENCY_S", "NIC", "RANK", "SWITCH", "Parts", "distinct"]
