"""The traffic matrix: bytes by pair of ranks, by pair of hosts and by NIC, from operations, algorithms and paths.

Where the source says which algorithm ran, its edges carry the bytes; elsewhere a ring is assumed and said to be, with the
range of the total over the algorithms that the library may have chosen.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.costs import traffic

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

RING_OPS, DIRECT_OPS = traffic.RING_OPS, traffic.DIRECT_OPS
MAX_ASSUMED_RANKS = 4096
ASSUMED = "assumed: ring"
SIDES = ("send", "receive")  # each end of a connection has a NIC of its own


@dataclass
class Paths:
    """Rings, trees and NICs of one communicator, in ranks of it."""

    size: int
    members: list[int]
    rings: list[list[int]] = field(default_factory=list)
    trees: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    nics: dict[tuple[int, int], dict[str, list[str]]] = field(default_factory=dict)  # by side: send, receive


@dataclass
class Matrix:
    """Bytes by pair of global ranks; ``unplaced`` bytes are those between ranks whose global rank is unknown."""

    pairs: dict[tuple[int, int], float] = field(default_factory=dict)
    nics: dict[tuple[int, int], dict[tuple[str, str], float]] = field(default_factory=dict)  # (side, NIC) -> bytes
    unplaced_bytes: float = 0.0
    total_bytes: float = 0.0
    declared_bytes: float = 0.0
    low_bytes: float = 0.0
    high_bytes: float = 0.0
    algorithms: set[str] = field(default_factory=set)
    assumed: bool = False

    @property
    def conserved(self) -> bool:
        """Say whether the edges carry exactly what the algorithms send."""
        return abs(self.total_bytes - self.declared_bytes) <= 1e-6 * max(1.0, self.declared_bytes)


def matrix(trace: Trace, operations: pl.DataFrame, points: pl.DataFrame) -> Matrix:
    """Return the matrix of ``operations`` (see ``operations.logical``) and point-to-point rows."""
    import polars as pl

    paths = paths_of(trace)
    chosen = chosen_algorithms(trace)
    result = Matrix()
    collective = operations.filter(pl.col("op").is_in(sorted(RING_OPS | DIRECT_OPS)))
    wanted = collective.select("communicator", "op", "size_bytes", "root", "operations").rows()
    loads: dict[tuple[int, str, int, str], float] = defaultdict(float)
    for number, op, size, root, count in wanted:
        if number is None or number not in paths or not size:
            continue
        algorithm = chosen.get((op, size), "")
        loads[number, op, root or 0, algorithm] += float(size) * count
    for (number, op, root, algorithm), amount in sorted(loads.items()):
        _load(result, paths[number], op, root, algorithm, amount)
    _points(result, points, paths)
    return result


def _load(matrix: Matrix, paths: Paths, op: str, root: int, algorithm: str, amount: float) -> None:
    p = paths.size or 0  # 0: not known
    if p < 2 or p > MAX_ASSUMED_RANKS:
        return
    edges, name = edges_of(paths, op, root, algorithm, amount)
    matrix.algorithms.add(name)
    matrix.assumed = matrix.assumed or name == ASSUMED
    total = traffic.sent_total(op, amount, p)
    matrix.declared_bytes += total
    low, high = (total, total) if algorithm or op in DIRECT_OPS else traffic.legal_range(op, amount, p)
    matrix.low_bytes += low
    matrix.high_bytes += high
    _add_edges(matrix, paths, edges)


def edges_of(paths: Paths, op: str, root: int, algorithm: str, amount: float) -> tuple[traffic.Edges, str]:
    """Return the bytes of each edge, in ranks of the communicator, and by which algorithm: ASSUMED where none was read."""
    if op in DIRECT_OPS:
        return traffic.pairwise_edges(op, amount, paths.size, root), "direct"
    if algorithm == "tree" and paths.trees:
        return traffic.tree_edges(op, amount, paths.trees), "tree"
    edges = traffic.ring_edges(op, amount, paths.rings or [list(range(paths.size))], root)
    return edges, "ring" if algorithm == "ring" and paths.rings else ASSUMED


def _add_edges(matrix: Matrix, paths: Paths, edges: traffic.Edges) -> None:
    for (src, dst), amount in edges.items():
        matrix.total_bytes += amount
        known = len(paths.members)
        a, b = (paths.members[end] if end < known else -1 for end in (src, dst))
        if a < 0 or b < 0:
            matrix.unplaced_bytes += amount
            continue
        matrix.pairs[a, b] = matrix.pairs.get((a, b), 0.0) + amount
        for side, nics in paths.nics.get((src, dst), {}).items():
            by_nic = matrix.nics.setdefault((a, b), {})
            for nic in nics:
                by_nic[side, nic] = by_nic.get((side, nic), 0.0) + amount / len(nics)


def _points(matrix: Matrix, points: pl.DataFrame, paths: dict[int, Paths]) -> None:
    """Sends add to their pair; receives are the same bytes seen from the other end, used where no send was logged."""
    import polars as pl

    rows = points.filter(pl.col("op").is_in(["send", "recv"]))
    both: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    wanted = rows.select("communicator", "comm_rank", "op", "peer", "size_bytes", "operations").rows()
    for number, rank, op, peer, size, count in wanted:
        if number is None or number not in paths or rank is None or peer is None or not size:
            continue
        key = (number, rank, peer) if op == "send" else (number, peer, rank)
        both[key][op == "recv"] += float(size) * count
    for (number, src, dst), (sent, received) in sorted(both.items()):
        amount = max(sent, received)
        if src == dst or not 0 <= src < paths[number].size or not 0 <= dst < paths[number].size:
            continue
        matrix.declared_bytes += amount
        matrix.low_bytes += amount
        matrix.high_bytes += amount
        matrix.algorithms.add("point to point")
        _add_edges(matrix, paths[number], {(src, dst): amount})


def paths_of(trace: Trace) -> dict[int, Paths]:
    """Return the paths of each communicator whose size is known, by its number."""
    import polars as pl

    table = trace.table("communicators").select("communicator", "size", "members").rows()
    paths = {number: Paths(size, members or []) for number, size, members in table if size is not None}
    topology = trace.table("topology")
    order: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    columns = ("communicator", "channel", "src", "dst")
    for number, channel, src, dst in topology.filter(pl.col("kind") == "ring").select(columns).rows():
        order[number, channel][src] = dst
    for (number, _), after in sorted(order.items()):
        ring = [0]
        while len(ring) < len(after) and after.get(ring[-1], 0) != 0:
            ring.append(after[ring[-1]])
        if number in paths and len(ring) == paths[number].size:
            paths[number].rings.append(ring)
    for number, channel, src, dst in topology.filter(pl.col("kind") == "tree").select(columns).rows():
        if number in paths:
            paths[number].trees.setdefault(channel, []).append((src, dst))
    net = topology.filter((pl.col("kind") == "connection") & pl.col("nic").is_not_null())
    for number, _, src, dst, nic, side in net.select(*columns, "nic", "value").rows():
        for end in (side,) if side in SIDES else SIDES:
            if number in paths:
                paths[number].nics.setdefault((src, dst), {}).setdefault(end, []).append(nic)
    return paths


def chosen_algorithms(trace: Trace) -> dict[tuple[str, int], str]:
    """Return the algorithm of (op, size) where the tuning lines name one and only one."""
    seen: dict[tuple[str, int], set[str]] = defaultdict(set)
    for row in algorithms(trace):
        seen[row["op"], row["size_bytes"]].add(row["algorithm"])
    return {key: next(iter(names)) for key, names in seen.items() if len(names) == 1}


def algorithms(trace: Trace) -> list[dict[str, Any]]:
    """Return algorithm, protocol and channels per (op, size) as the tuning lines say, with their count."""
    import polars as pl

    keys = ("op", "size_bytes", "algorithm", "protocol", "channels")
    frame = trace.scan("events").filter((pl.col("kind") == "tuning") | pl.col("algorithm").is_not_null())
    grouped = frame.group_by(keys).agg(pl.col("multiplicity").sum().alias("count")).sort(keys).collect()
    return grouped.to_dicts()


def ranks_of(trace: Trace) -> list[dict[str, Any]]:
    """Return rank, host, pid, device and bus id of every device seen, in order of rank."""
    import polars as pl

    devices = trace.table("topology").filter(pl.col("kind") == "device")
    rows = devices.select("rank", "host", "pid", "device", "bus_id").sort("rank", "host", "device", nulls_last=True)
    return rows.to_dicts()


def host_pairs(pairs: dict[tuple[int, int], float], host_of: dict[int, str]) -> list[dict[str, Any]]:
    """Return bytes between different hosts, largest first."""
    totals: dict[tuple[str, str], float] = defaultdict(float)
    for (src, dst), amount in pairs.items():
        a, b = host_of.get(src), host_of.get(dst)
        if a and b and a != b:
            totals[a, b] += amount
    largest_first = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    return [{"src": a, "dst": b, "bytes": round(amount)} for (a, b), amount in largest_first]


def nic_loads(matrix: Matrix, host_of: dict[int, str]) -> list[dict[str, Any]]:
    """Return bytes sent and received per (host, NIC) where an edge between hosts names the NIC of that end."""
    totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (src, dst), by_nic in matrix.nics.items():
        a, b = host_of.get(src), host_of.get(dst)
        if not a or not b or a == b:
            continue
        for (side, nic), amount in by_nic.items():
            totals[(a, b)[SIDES.index(side)], nic][SIDES.index(side)] += amount
    return [
        {"host": host, "nic": nic, "sent_bytes": round(sent), "received_bytes": round(received)}
        for (host, nic), (sent, received) in sorted(totals.items())
    ]
