"""Where the ranks of a halving-doubling sit, so that the flows of a step never share a link.

A BiGraph has two sides of edge switches, every upper one linked to every lower one, with hosts below both. A rank whose bits
have even parity sits above, odd below: partners, who differ in one bit, always sit on opposite sides, and between an upper
and a lower switch there is one route. Of the other bits x of a rank, an upper rank's switch is the front ones and a lower
rank's switch the back ones; as long as a switch has no more hosts than links, the two switches of a flow tell x, so that no
two flows of a step have the same two switches.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.model.topology import AGGREGATOR, NIC, SWITCH

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

UPPER, LOWER = 0, 1


def node_order(
    collective: Collective, topology: Topology | None, places: list[int], mapping: str = "hdrm"
) -> list[int]:
    """Return which of ``places`` takes each rank of the halving-doubling between them."""
    n = len(places)
    kind, _, seed = mapping.partition("-")
    if kind == "random" and (seed or "0").isdecimal():
        return [int(node) for node in np.random.default_rng(int(seed or 0)).permutation(n)]
    if mapping not in ("hdrm", "rank"):
        raise UsageError(f"'{mapping}' is no rank mapping", remedy="mapping=hdrm, mapping=rank or mapping=random-SEED")
    if mapping == "rank" or topology is None or n == 1:
        return list(range(n))
    edge = edge_switches(topology, [collective.group[index] for index in places])
    below: dict[int, list[int]] = {}
    for node, switch in enumerate(edge):
        below.setdefault(switch, []).append(node)
    order = _on_bigraph(topology, below)
    # Elsewhere: switch by switch, so that the exchanges of most bytes stay below one.
    return order or [node for switch in sorted(below) for node in below[switch]]


def edge_switches(topology: Topology, ranks: list[int]) -> list[int]:
    """Return each rank's first switch on its way to another one: the one behind its NIC, where it has one; else -1."""
    there = np.roll(np.asarray(ranks, np.int64), -1)
    starts, links = topology.routes(np.asarray(ranks, np.int64), there)
    edges = []
    for first, last in pairwise(starts.tolist()):
        nodes = topology.dst[links[first:last]]
        kinds = topology.kinds[nodes]
        nic = np.flatnonzero(kinds == NIC)
        behind = int(nic[0]) if len(nic) else 0
        switches = nodes[behind:][np.isin(kinds[behind:], (SWITCH, AGGREGATOR))]
        edges.append(int(switches[0]) if len(switches) else -1)
    return edges


def _on_bigraph(topology: Topology, below: dict[int, list[int]]) -> list[int] | None:
    """Return the mapping, where the edge switches are a BiGraph with powers of two of switches and hosts."""
    sides = two_sides(topology, sorted(below))
    ports = {len(nodes) for nodes in below.values()}
    if sides is None or len(ports) > 1 or not _is_power(len(sides[UPPER])) or not _is_power(min(ports)):
        return None
    switch_bits, port_bits = len(sides[UPPER]).bit_length() - 1, min(ports).bit_length() - 1
    seats = (seat(rank, switch_bits, port_bits) for rank in range(2 << switch_bits + port_bits))
    return [below[sides[side][switch]][port] for side, switch, port in seats]


def seat(rank: int, switch_bits: int, port_bits: int) -> tuple[int, int, int]:
    """Return (side, switch of that side, port) of a rank on a BiGraph."""
    rest = rank >> 1
    if rank.bit_count() % 2 == 0:
        return UPPER, rest >> port_bits, rest & ((1 << port_bits) - 1)
    return LOWER, rest & ((1 << switch_bits) - 1), rest >> switch_bits


def two_sides(topology: Topology, switches: list[int]) -> tuple[list[int], list[int]] | None:
    """Return upper and lower switches, where each upper one has links to all lower ones and to no upper one."""
    if len(switches) < 2 or switches[0] < 0:
        return None
    index_of = {switch: i for i, switch in enumerate(switches)}
    among = np.isin(topology.src, switches) & np.isin(topology.dst, switches)
    linked = np.zeros((len(switches), len(switches)), bool)
    for one, two in zip(topology.src[among].tolist(), topology.dst[among].tolist(), strict=True):
        linked[index_of[one], index_of[two]] = True
    is_lower = linked[0]
    if is_lower.sum() * 2 != len(switches) or not np.array_equal(linked, is_lower[:, None] ^ is_lower[None, :]):
        return None
    pick = np.asarray(switches)
    return [int(s) for s in pick[~is_lower]], [int(s) for s in pick[is_lower]]


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0
