"""Peak rates of a GPU's links in one direction: NVLink or Infinity Fabric, and PCIe; GB/s of 10^9 B, all links together.

Rates are those of the vendors' data sheets, which print both directions together: half of them stands here. A GPU of an older
PCIe card reaches less; none reaches more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

PCIE3, PCIE4, PCIE5, PCIE6 = 15.75, 31.5, 63.0, 126.0  # x16, after 128b/130b coding


@dataclass(frozen=True, slots=True)
class Links:
    """Rates of one model: ``fabric_gbs`` to other GPUs (0: PCIe only), ``pcie_gbs`` to NICs and host.

    ``reduces`` where the fabric's switches can add (NVLink SHARP), ``spans_nodes`` where one fabric may join several nodes.
    """

    name: str
    fabric_gbs: float
    pcie_gbs: float
    source: str
    reduces: bool = False
    spans_nodes: bool = False

    @property
    def gpu_gbs(self) -> float:
        """GB/s between two GPUs of a node over the faster of fabric and PCIe."""
        return max(self.fabric_gbs, self.pcie_gbs)


_LIST = (
    Links("P100", 80, PCIE3, "NVIDIA P100 data sheet: NVLink 160 GB/s"),
    Links("V100", 150, PCIE3, "NVIDIA V100 data sheet: NVLink 300 GB/s"),
    Links("T4", 0, PCIE3, "NVIDIA T4 data sheet"),
    Links("A100", 300, PCIE4, "NVIDIA A100 data sheet: NVLink 600 GB/s"),
    Links("A800", 200, PCIE4, "NVIDIA A800 data sheet: NVLink 400 GB/s"),
    Links("A30", 100, PCIE4, "NVIDIA A30 data sheet: NVLink 200 GB/s"),
    Links("A40", 56.25, PCIE4, "NVIDIA A40 data sheet: NVLink 112.5 GB/s"),
    Links("A10", 0, PCIE4, "NVIDIA A10 data sheet"),
    Links("A16", 0, PCIE4, "NVIDIA A16 data sheet"),
    Links("A2", 0, PCIE4, "NVIDIA A2 data sheet"),
    Links("A6000", 56.25, PCIE4, "NVIDIA RTX A6000 data sheet: NVLink 112.5 GB/s"),
    Links("L4", 0, PCIE4, "NVIDIA L4 data sheet"),
    Links("L40", 0, PCIE4, "NVIDIA L40 data sheet"),
    Links("L40S", 0, PCIE4, "NVIDIA L40S data sheet"),
    Links("2080TI", 50, PCIE3, "NVIDIA GeForce RTX 2080 Ti: NVLink 100 GB/s"),
    Links("3090", 56.25, PCIE4, "NVIDIA GeForce RTX 3090: NVLink 112.5 GB/s"),
    Links("4090", 0, PCIE4, "NVIDIA GeForce RTX 4090"),
    Links("5090", 0, PCIE5, "NVIDIA GeForce RTX 5090"),
    Links("H20", 450, PCIE5, "NVIDIA H20 data sheet: NVLink 900 GB/s", reduces=True),
    Links("H100", 450, PCIE5, "NVIDIA H100 data sheet: NVLink 900 GB/s", reduces=True),
    Links("H800", 200, PCIE5, "NVIDIA H800 data sheet: NVLink 400 GB/s", reduces=True),
    Links("H200", 450, PCIE5, "NVIDIA H200 data sheet: NVLink 900 GB/s", reduces=True),
    Links("GH200", 450, PCIE5, "NVIDIA GH200 data sheet: NVLink 900 GB/s", reduces=True, spans_nodes=True),
    Links("B100", 900, PCIE5, "NVIDIA Blackwell architecture: NVLink 1.8 TB/s", reduces=True),
    Links("B200", 900, PCIE5, "NVIDIA DGX B200 data sheet: NVLink 1.8 TB/s", reduces=True),
    Links("B300", 900, PCIE6, "NVIDIA DGX B300 data sheet: NVLink 1.8 TB/s", reduces=True),
    Links("GB200", 900, PCIE6, "NVIDIA GB200 NVL72 data sheet: NVLink 1.8 TB/s", reduces=True, spans_nodes=True),
    Links("GB300", 900, PCIE6, "NVIDIA GB300 NVL72 data sheet: NVLink 1.8 TB/s", reduces=True, spans_nodes=True),
    Links("MI100", 138, PCIE4, "AMD MI100 data sheet: 3 Infinity Fabric links of 92 GB/s"),
    Links("MI210", 150, PCIE4, "AMD MI210 data sheet: 3 Infinity Fabric links of 100 GB/s"),
    Links("MI250", 400, PCIE4, "AMD MI250 data sheet: Infinity Fabric 800 GB/s"),
    Links("MI250X", 400, PCIE4, "AMD MI250X data sheet: Infinity Fabric 800 GB/s"),
    Links("MI300A", 448, PCIE5, "AMD MI300A data sheet: Infinity Fabric 896 GB/s at most"),
    Links("MI300X", 448, PCIE5, "AMD MI300X data sheet: Infinity Fabric 896 GB/s"),
    Links("MI325X", 448, PCIE5, "AMD MI325X data sheet: Infinity Fabric 896 GB/s"),
    Links("MI350X", 538, PCIE5, "AMD MI350X data sheet: Infinity Fabric 1075 GB/s"),
    Links("MI355X", 538, PCIE5, "AMD MI355X data sheet: Infinity Fabric 1075 GB/s"),
)
LINKS = {links.name: links for links in _LIST}
FASTEST = Links("any GPU known", 900, PCIE6, "the fastest of all", reduces=True, spans_nodes=True)
_TOKEN = re.compile(r"[A-Z]*\d+[A-Z]*")


@lru_cache(256)
def links_of(spelled: str) -> Links | None:
    """Return the links of a GPU by any usual spelling (``NVIDIA A100-SXM4-40GB``, ``a100-40g``), None where it is not known."""
    bare = re.sub(r"\b(RTX|TESLA|GEFORCE|INSTINCT)\s*", " ", spelled.upper()).replace("2080 TI", "2080TI")
    return next((LINKS[token] for token in _TOKEN.findall(bare) if token in LINKS), None)
