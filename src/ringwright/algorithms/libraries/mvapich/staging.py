"""What GPU buffers cost between nodes: GPUDirect for short vectors, else copies through the host in blocks beside the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.libraries.mvapich import rules
from ringwright.ground.errors import UsageError
from ringwright.model.software import NO_SOFTWARE, Software

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

COPY_RATE = 24e9  # bytes/s between a GPU and its host: PCIe 4 x16, assumed
BLOCK_S = 5e-6  # what starting one block costs, copy and message together: assumed


def software(
    collective: Collective, topology: Topology | None, nodes: list[list[int]], block_bytes: int | None, leaders: int = 1
) -> tuple[Software, str]:
    """Return what staging adds to each message between nodes, and in words what is done; nothing on one node.

    Each message of n bytes takes n (1 / slower rate + block_s / block) and, once, a block at the faster rate; a leader's is no
    longer than its part of the vector. UsageError where the links between nodes are of no class of their own.
    """
    plan = rules.staging(collective.size_bytes)
    if len(nodes) < 2 or topology is None:
        return NO_SOFTWARE, "one node: CUDA IPC"
    if plan.direct:
        return NO_SOFTWARE, "GPUDirect RDMA"
    block = block_bytes or plan.block_bytes
    names, rate = _network(collective, topology, nodes)
    slower_s = max(0.0, 1 / COPY_RATE - 1 / rate)
    fill_s = min(block, collective.size_bytes / leaders) / max(COPY_RATE, rate)
    once, each = dict.fromkeys(names, fill_s), dict.fromkeys(names, slower_s + BLOCK_S / block)
    return Software(message_s=once, beyond_s=once, byte_s=each), f"staged in blocks of {block} B"


def _network(collective: Collective, topology: Topology, nodes: list[list[int]]) -> tuple[list[str], float]:
    """Return the classes of links that only routes between nodes use, and the least rate on such a route."""
    group = np.asarray(collective.group, np.int64)
    across = topology.routes(group[[nodes[0][0]]], group[[nodes[1][0]]])[1]
    inside = set()
    for node in nodes:
        if len(node) > 1:
            links = topology.routes(group[[node[0]]], group[[node[1]]])[1]
            inside |= {topology.classes[number] for number in topology.link_class[links].tolist()}
    names = [topology.classes[number] for number in dict.fromkeys(topology.link_class[across].tolist())]
    network = [name for name in names if name not in inside]
    if not network:
        raise UsageError(
            f"{topology.name}: links between hosts are of the class of those inside ({', '.join(names)})",
            remedy="a fabric with NICs, such as dgx-h100:4, or buffers=host",
        )
    return network, float(topology.rate[across].min())
