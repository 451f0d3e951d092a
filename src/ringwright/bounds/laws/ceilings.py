"""The law of ceilings: no bus bandwidth exceeds what the links of the named GPU, and the links out of its node, can carry.

Inside a node each of p ranks must move busbw / GB/s of its own over its links, whatever the algorithm; with switches that add
(NVLink SHARP) an all-reduce moves each byte once instead of twice. Between n nodes at least (n-1)/n of the data leaves each
node, through its NICs, and all of that crosses the PCIe links of its GPUs; switches of the network may add, too (SHARP).
"""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.bounds.laws.law import Law
from ringwright.model.links import FASTEST, links_of

SLACK = 1.05  # of a rate: times are rounded, and clocks differ
_LOOSEST = ("all-reduce", "unknown", "")  # and an operation that nobody names may be one
GATHERED = ("all-gather", "reduce-scatter", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that the bus bandwidth of an operation can be, and what sets it."""

    busbw_gbs: float
    why: str


def ceiling(op: str, ranks: int | None, nodes: int | None = None, gpu: str = "", *, nics: int = 0) -> Ceiling | None:
    """Return the ceiling of an operation over ``ranks`` on ``nodes``; None for one rank, which moves nothing.

    What is not known is assumed to allow most: an all-reduce, the fastest GPU, one node, many ranks. ``nics`` NICs are known
    to be in a node, each in a PCIe slot of its GPUs' generation; where that is 0, the GPUs' own PCIe links bound what leaves
    a node.
    """
    if ranks is not None and ranks < 2:
        return None
    links = links_of(gpu) or FASTEST
    named = (gpu.strip() if links is not FASTEST else "") or links.name
    adds = op in _LOOSEST and links.reduces
    inside = links.gpu_gbs * (_twice(ranks) if adds else 1.0)
    how = ", adding switches included" * adds
    limit = Ceiling(inside, f"{links.gpu_gbs:g} GB/s a direction of {named}{how}")
    if not ranks or not nodes or nodes < 2 or ranks % nodes or links.spans_nodes:
        return limit
    slots = min(nics or ranks // nodes, ranks // nodes)
    out = slots * links.pcie_gbs
    what = f"x {named}" if slots == ranks // nodes else f"NIC{'s' * (slots > 1)}"
    why = f"PCIe of {slots} {what} carries {out:g} GB/s out of each of {nodes} nodes"
    return min(limit, Ceiling(out * _outward(op, ranks, nodes), why), key=lambda one: one.busbw_gbs)


def above(busbw_gbs: float | None, limit: Ceiling | None) -> str:
    """Return how a bus bandwidth breaks the law, "" where it holds or is not known."""
    if busbw_gbs is None or limit is None or busbw_gbs <= limit.busbw_gbs * SLACK:
        return ""
    return f"busbw {busbw_gbs:,.2f} GB/s, at most {limit.busbw_gbs:,.1f} GB/s: {limit.why}"


def _twice(ranks: int | None) -> float:
    """Return bus over algorithm bandwidth of an all-reduce, whose bytes cross a link once where a switch adds."""
    return 2 * (ranks - 1) / ranks if ranks else 2.0


def _outward(op: str, ranks: int, nodes: int) -> float:
    """Return the most bus bandwidth for each GB/s out of a node."""
    shared = (ranks - 1) / ranks / ((nodes - 1) / nodes)
    if op in _LOOSEST:
        return _twice(ranks)
    if op == "all-to-all":
        return shared * nodes / ranks
    return shared if op in GATHERED else 1.0


def _judge(busbw_gbs: float, op: str, ranks: int, nodes: int, gpu: str) -> str:
    """Return how a bus bandwidth breaks the law."""
    return above(busbw_gbs, ceiling(op, ranks, nodes, gpu))


LAWS = (
    Law(
        "ceiling",
        "nothing moves faster than the links of the named GPU and NIC, in-network reduction included",
        "data sheets of GPUs and of PCI Express, as ringwright.model.links cites them",
        _judge,
        kept=((480.0, "all-reduce", 8, 1, "H100"), (40.0, "all-gather", 16, 2, "H100")),
        broken=((2000.0, "all-reduce", 8, 1, "H100"), (900.0, "all-gather", 16, 2, "H100")),
    ),
)
