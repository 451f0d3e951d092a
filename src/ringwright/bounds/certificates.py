"""Proofs of lower bounds as plain data, and a check that knows nothing but the machine's links.

A certificate is what ``lower_bounds`` came upon: a set of nodes that data must leave or enter, parts of the machine that
data must enter, or two ends that are far apart. ``proved_s`` adds up anew what must cross and what can, from the collective's
definition and the capacities alone; no search and no synthesiser has a part in it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import goodput
from ringwright.ground.errors import UsageError
from ringwright.model.collective import PREFIXES

if TYPE_CHECKING:
    from ringwright.bounds.lower_bounds import Bound
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

Certificate = Mapping[str, object]


def certificate(bound: Bound) -> Certificate:
    """Return a bound as a plain object: what it is, its node numbers, what must cross, and what can."""
    return {
        "kind": "set" if bound.crossing and bound.kind != "parts" else bound.kind,
        "by": bound.kind,
        "nodes": [list(each) for each in bound.sets],
        "crossing": bound.crossing,
        "demand_bytes": bound.demand_bytes,
        "capacity_bytes_per_s": bound.capacity,
        "time_us": bound.time_s * 1e6,
    }


def proved_s(proof: Certificate, collective: Collective, topology: Topology) -> float | None:
    """Return the seconds that a certificate proves on a machine; None for a kind whose proof is a formula, not a set.

    Raises UsageError for node numbers that the machine does not have.
    """
    sets = [frozenset(map(int, each)) for each in _lists(proof.get("nodes"))]
    if any(not 0 <= node < topology.n_nodes for nodes in sets for node in nodes):
        raise UsageError(f"{topology.name} has {topology.n_nodes:,} nodes: a certificate names another one")
    kind = proof.get("kind")
    if kind == "set" and len(sets) == 1:
        inside = [rank in sets[0] for rank in collective.group]
        out, into = _must_cross(collective, inside)
        wanted = out if proof.get("crossing") == "out of" else into
        return wanted / _crossing(topology, sets[0], out=proof.get("crossing") == "out of") if wanted else 0.0
    if kind == "parts" and collective.op == "all-reduce":
        held = [part for part in sets if any(rank in part for rank in collective.group)]
        if sum(map(len, held)) != len(frozenset().union(*held)) or not set(collective.group) <= frozenset().union(
            *held
        ):
            return 0.0  # parts that overlap, or leave ranks out, prove nothing
        capacity = sum(_crossing(topology, part, out=False) for part in held)
        return 2.0 * (len(held) - 1) * collective.size_bytes / capacity
    if kind == "distance" and len(sets) == 2:
        (start,), (end,) = sets
        return _latency_s(topology, start, end)
    return None


def _lists(nodes: object) -> Sequence[Sequence[int]]:
    return nodes if isinstance(nodes, Sequence) else ()


def _must_cross(collective: Collective, inside: Sequence[bool]) -> tuple[float, float]:
    """Return the bytes that must leave and enter a set that holds some places of the group and not the others."""
    here = [at for at, is_in in enumerate(inside) if is_in]
    there = [at for at, is_in in enumerate(inside) if not is_in]
    if not here or not there:
        return 0.0, 0.0
    return _wanted(collective, here, there), _wanted(collective, there, here)


def _wanted(collective: Collective, giving: Sequence[int], taking: Sequence[int]) -> float:
    """Return the least bytes that places must get from other places: what they must hold and do not, or its sums."""
    op, size, p = collective.op, float(collective.size_bytes), collective.p
    if op == "send-recv":
        return size * sum(1 for at in taking if (at - 1) % p in set(giving))
    if op in PREFIXES:
        return size if min(giving) < max(taking) else 0.0
    if op == "all-to-all":
        blocks, gets = collective.block_bytes, 0.0
        for source in giving:
            gets += sum(float(blocks[(source * p + at) % len(blocks)]) for at in taking)
        return gets
    if op in ("all-reduce", "broadcast", "reduce", "barrier"):
        is_wanted = {"broadcast": collective.root in giving, "reduce": collective.root in taking}.get(op, True)
        return size if is_wanted else 0.0
    of_giving = op in ("all-gather", "gather")
    if op in ("gather", "scatter") and collective.root not in (taking if op == "gather" else giving):
        return 0.0
    return float(sum(int(collective.block_bytes[at]) for at in (giving if of_giving else taking)))


def _crossing(topology: Topology, nodes: frozenset[int], *, out: bool) -> float:
    """Return the bytes/s out of, or into, a set: its links, none of a group more than the group has."""
    rates, crossing = goodput(topology).tolist(), set()
    for link, (src, dst) in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
        if (src in nodes and dst not in nodes) if out else (dst in nodes and src not in nodes):
            crossing.add(link)
    total = float(sum(rates[link] for link in crossing))
    for group in topology.groups:
        total -= max(0.0, sum(rates[link] for link in group.links.tolist() if link in crossing) - group.rate)
    return total


def _latency_s(topology: Topology, start: int, end: int) -> float:
    """Return the seconds of the shortest way between two nodes over links that work (Dijkstra)."""
    out: dict[int, list[tuple[int, float]]] = {}
    rows = zip(topology.src.tolist(), topology.dst.tolist(), topology.rate, topology.latency_s, strict=True)
    for src, dst, rate, latency_s in rows:
        if rate > 0:
            out.setdefault(src, []).append((dst, float(latency_s)))
    best, front = {start: 0.0}, [(0.0, start)]
    while front:
        far, node = heapq.heappop(front)
        if node == end:
            return far
        for there, more in out.get(node, ()):
            if far + more < best.get(there, float("inf")):
                best[there] = far + more
                heapq.heappush(front, (best[there], there))
    return float("inf")
