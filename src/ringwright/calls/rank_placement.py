"""Where the ranks of a simulated run lie, as rows of a Trace: host, nearest NIC, and the parts of the network around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.run_tables import devices
from ringwright.model.topology import NIC

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.topology import Topology

MOST_NODES = 4096  # of a fabric whose distances are looked for


def hosts_of(ranks: Sequence[int], topology: Topology) -> list[str]:
    """Return the host of each rank, named as the fabric names it; of a fabric without hosts all are of one."""
    if topology.hosts is None:
        return ["host0"] * len(ranks)
    return [topology.label(int(rank)).partition("/")[0] for rank in ranks]


def device_rows(ranks: Sequence[int], topology: Topology) -> pl.DataFrame:
    """Return a row for each of some ranks. ``value`` names the parts of the network that it lies in, the widest first: ``1/0/3``.

    Ranks of one part are nearer to each other, in hops, than to all others; those of a fabric in which all lie alike are of
    one part. Of a ring, a torus and the like, where each rank has neighbours of its own, no parts are told.
    """
    import polars as pl

    rows = _on_hosts(ranks, topology)
    if topology.n_nodes > MOST_NODES:
        return rows
    hops = _hops(ranks, topology)
    parts, nics = _parts(hops[:, list(ranks)], is_nested=topology.hosts is not None), _nics(hops, topology)
    return rows.with_columns(value=pl.Series(parts, dtype=pl.String), nic=pl.Series(nics, dtype=pl.String))


def _on_hosts(ranks: Sequence[int], topology: Topology) -> pl.DataFrame:
    """Return a row for each rank with its host and which device of that it is; neither where the fabric has no hosts."""
    import polars as pl

    numbers: Counter[str] = Counter()
    hosts, numbered = hosts_of(ranks, topology), []
    for host in hosts:
        numbered.append(numbers[host])
        numbers[host] += 1
    rows = devices(list(ranks), hosts, numbered)
    if topology.hosts is not None:
        return rows
    return rows.with_columns(host=pl.lit(None, pl.String), device=pl.lit(None, pl.Int64))


def _hops(ranks: Sequence[int], topology: Topology) -> np.ndarray:
    """Return how many links lie between some ranks and each node. int64 of shape (ranks, nodes), -1 where there is no way."""
    import rustworkx

    graph = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(topology.n_nodes))
    graph.add_edges_from_no_data([*zip(topology.src.tolist(), topology.dst.tolist(), strict=True)])
    hops: np.ndarray = rustworkx.digraph_distance_matrix(graph, null_value=-1.0)[list(ranks)].astype(np.int64)
    return hops


def _parts(hops: np.ndarray, *, is_nested: bool) -> list[str | None]:
    """Return by rank the parts that it lies in: at each distance, what is joined by no more; ``0`` where all are alike.

    None where parts hold ranks that are further from each other, so that distances nest in no parts; ``is_nested`` fabrics, whose
    hosts are parts whatever joins them, have those that there are.
    """
    paths: list[list[str]] = [[] for _ in hops]
    for distance in sorted({int(each) for each in np.unique(hops) if each > 0}, reverse=True):
        part = np.array(_joined((hops >= 0) & (hops <= distance)))
        if not is_nested and (hops[part[:, None] == part] > distance).any():
            return [None] * len(hops)
        if 1 < len(set(part.tolist())) < len(part):
            for path, number in zip(paths, part.tolist(), strict=True):
                path.append(str(number))
    return ["/".join(path) or "0" for path in paths]


def _joined(near: np.ndarray) -> list[int]:
    """Return the number of the part of each rank, where ranks that are near are in one part."""
    import rustworkx

    graph = rustworkx.PyGraph()
    graph.add_nodes_from(range(len(near)))
    graph.add_edges_from_no_data([(int(a), int(b)) for a, b in np.argwhere(near) if a < b])
    part = [0] * len(near)
    for number, members in enumerate(sorted(map(sorted, rustworkx.connected_components(graph)))):
        for rank in members:
            part[rank] = number
    return part


def _nics(hops: np.ndarray, topology: Topology) -> list[str | None]:
    """Return the NIC nearest to each rank, by its name in its host; None where the fabric draws none."""
    nics = np.flatnonzero(np.asarray(topology.kinds) == NIC)
    if not len(nics):
        return [None] * len(hops)
    far = np.where(hops[:, nics] < 0, np.iinfo(np.int64).max, hops[:, nics])
    return [topology.label(int(nics[at])).rpartition("/")[2] for at in far.argmin(axis=1)]
