"""Machines of papers that no family of fabrics describes: nodes whose ranks share one network port."""

from __future__ import annotations

from functools import cache

from ringwright.model.topology import NIC, RANK, SWITCH, Topology


@cache
def one_port(
    nodes: int,
    ranks: int,
    *,
    inside_rate: float,
    port_rate: float,
    inside_s: float = 1e-6,
    network_s: float = 2e-6,
    reduce_rate: float = float("inf"),
) -> Topology:
    """Return ``nodes`` of ``ranks`` each on a switch of their own, one port a node, all ports on one non-blocking switch.

    Rates in bytes/s each way, ``inside_s`` and ``network_s`` seconds a link and a crossing of the network; ``reduce_rate`` is
    what a rank adds up.
    """
    import numpy as np

    p = nodes * ranks
    port, inner, wide = p, p + nodes, p + 2 * nodes
    links = [(rank, inner + rank // ranks, inside_rate, inside_s) for rank in range(p)]
    links += [(inner + node, port + node, 4 * port_rate, inside_s / 2) for node in range(nodes)]
    links += [(port + node, wide, port_rate, network_s / 2) for node in range(nodes)]
    one, two, rate, latency = (np.array(column) for column in zip(*links, strict=True))
    return Topology(
        f"nodes:{nodes}x{ranks}",
        p,
        np.repeat(np.array([RANK, NIC, SWITCH], np.uint8), [p, nodes, nodes + 1]),
        np.concatenate((one, two)),
        np.concatenate((two, one)),
        np.tile(rate, 2),
        np.tile(latency, 2),
        np.zeros(2 * len(one), np.int64),
        ("link",),
        hosts=np.arange(p) // ranks,
        reduce_rate=reduce_rate,
    )
