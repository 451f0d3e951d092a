"""ACCL: the hybrid all-reduce of Alibaba's library, with halving-doubling whose ranks are mapped onto the fabric.

Idea: use every interconnect of a server at once. Inside a node reduce-scatter over NVLink; then g all-reduces between the nodes
    side by side, each on its own NIC, by halving and doubling with ranks placed so that no two flows of a step share a
    link; all-gather inside. In pieces, so that NVLink and NICs work at the same time.
Cost: 2 alpha_1 + 2(g-1)/g n/C beta_1 + 2 lg N alpha_2 + 2(N-1)/N n/g beta_2 for C pieces, where the NICs are the slower part.
Knobs: pieces (of 4 MiB, 16 at the most); paths, the rates of parallel paths: path i carries r_i / sum r on channels of its own;
    mapping=hdrm (rank; random-SEED); inner=direct, outer=rabenseifner.
Holds: on a BiGraph of powers of two, each directed link has at most one flow a step; paths end within 1 % of n / sum r.
Figure: linear scaling on EFLOPS clusters (abstract; no number given).
Source: Dong et al., IEEE Micro 41(5), 2021, doi 10.1109/MM.2021.3091475; EFLOPS, HPCA 2020.
Declines: all but all-reduce. Paths bound to links: two ranks have one route here on every channel, so that paths share the
    vector by their rates, but none can take NVLink while another takes PCIe. Where nodes differ in size, every rank counts as a
    node. A rank's side is the parity of its bits (said to be bit 0 in the papers), which is
    what puts partners on opposite sides in every step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ringwright.algorithms.blocks.direct import direct
from ringwright.algorithms.blocks.rabenseifner import rabenseifner
from ringwright.algorithms.compose import Algorithm, embed
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.placement import by_host, is_regular
from ringwright.algorithms.published.accl.mapping import node_order
from ringwright.algorithms.strips import Strips
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import RANDOM, Choices, Range, Segments
from ringwright.model.collective import split
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
PIECE_BYTES = 4 << 20
MOST_PIECES = 16


def accl(
    collective: Collective,
    topology: Topology | None = None,
    *,
    pieces: Segments | None = None,
    paths: Sequence[Annotated[float, Range(1e-3, 1e12)]] = (1.0,),
    mapping: Annotated[str, Choices(("hdrm", "rank")), RANDOM] = "hdrm",
    inner: Algorithm = direct,
    outer: Algorithm = rabenseifner,
) -> Program:
    """Return the hybrid program over the nodes of the topology; without nodes, every rank is one."""
    require_op("accl", collective, OPS)
    require_commutative("accl", collective)
    if collective.p == 1:
        return nothing("accl", collective)
    nodes = _nodes(collective, topology)
    g, n = len(nodes[0]), len(nodes)
    if g == 1 or n == 1:
        pieces = pieces or 1  # one network: nothing to overlap
    count = pieces or max(1, min(MOST_PIECES, collective.size_bytes // PIECE_BYTES))
    shares = path_shares(collective.size_bytes, paths, collective.unit_bytes)
    strips = [split(int(share), count, collective.unit_bytes) for share in shares]
    plan = Strips("accl", collective, strips, [g, n] if g > 1 else [n], [inner, outer] if g > 1 else [outer])
    knobs: dict[str, object] = {"pieces": count, "mapping": mapping, "nodes": n}
    if is_regular(nodes):
        knobs["factors"] = (g, n) if g > 1 else (n,)
    made = dataclasses.replace(plan.program(), knobs=knobs)
    table = _table(collective, topology, nodes, mapping)
    if table == list(range(collective.p)):
        return made
    return dataclasses.replace(made, make_steps=lambda: embed(plan.steps(), table))


def path_shares(total_bytes: int, rates: Sequence[float], unit: int = 1) -> np.ndarray:
    """Cut bytes between paths in proportion to their rates, so that all end together: f_i = r_i / sum r.

    int64 bytes of shape (paths,), which add up to ``total_bytes``.
    """
    if not len(rates) or min(rates) <= 0:
        raise UsageError("the rate of a path must be above 0", remedy="paths=(150e9, 12.5e9)")
    ends = np.rint(np.cumsum(rates) / np.sum(rates) * (total_bytes // unit)).astype(np.int64) * unit
    ends[-1] = total_bytes
    shares: np.ndarray = np.diff(ends, prepend=0)
    return shares


def _nodes(collective: Collective, topology: Topology | None) -> list[list[int]]:
    if topology is not None and topology.hosts is not None:
        hosts = by_host(collective, topology)
        if len({len(host) for host in hosts}) == 1:
            return hosts
        return [[index] for host in hosts for index in host]
    return [[index] for index in range(collective.p)]


def _table(collective: Collective, topology: Topology | None, nodes: list[list[int]], mapping: str) -> list[int]:
    """Return the place of each rank of the plan, whose ranks are j + g * node; each NIC's nodes are mapped on their own."""
    g = len(nodes[0])
    orders = [node_order(collective, topology, [node[j] for node in nodes], mapping) for j in range(g)]
    return [nodes[orders[j][i]][j] for i in range(len(nodes)) for j in range(g)]
