"""Camdoop: exploiting in-network aggregation for big data applications.

Idea: in a torus of servers without switches every server on the way combines the records that it forwards. Each root collects on
    six trees that share no link, one for each of its links; a tree carries a sixth of the data, which shrinks at every hop.
Cost: one root: n/(6B) and (height - 1) (alpha + piece/B); all roots: (N-1)/N n/(6B), as every link carries as many arcs; an
    all-reduce does it twice, up the trees and down again. A switch with links of B takes (N-1) n/B and (N-1)/N n/B.
Knobs: trees (disjoint: one for each link of a server; shortest: one tree of shortest ways, lower and for small data);
    pieces, one behind the other on each tree (none: for one root by the size of the data and the latency of a link; for
    all roots 1, as the trees of one fill the gaps of another).
Holds: trees of a root share no directed link (each server leaves by another link in each), whatever the sizes of the torus;
    with all roots every link carries the same, to an element.
Figure: up to two orders of magnitude faster than over a switch, 27 servers, one root (reviews of the paper).
Source: Costa, Donnelly, Rowstron, O'Shea: Camdoop, NSDI 2012. Which trees they grew is not published: ours are explicit.
Declines: machines that are no torus, groups that are not all of it, rings of 2 beside longer ones, more than 2,000,000 moves,
    servers that died (theirs are played by others of the key space).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from ringwright.algorithms.innetwork.torus_trees import TorusTrees, disjoint_trees, shortest_tree, sides
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.searching import Pieces
from ringwright.algorithms.tree_moves import TreeMoves
from ringwright.algorithms.tree_rounds import TreeRounds
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.model.collective import split
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("reduce", "reduce-scatter", "all-reduce")
FABRICS = ("ring", "torus:3x3x3", "torus:2x2x2", "torus:4x3")
NEEDS = ("topology.torus",)
MOST_MOVES = 2_000_000
MOST_PIECES = 512


def camdoop(
    collective: Collective,
    topology: Topology | None = None,
    *,
    trees: Literal["disjoint", "shortest"] = "disjoint",
    pieces: Pieces | None = None,
) -> Program:
    """Return the program in which the servers of a torus add what they forward."""
    require_op("camdoop", collective, OPS)
    require_commutative("camdoop", collective)
    if collective.p == 1:
        return nothing("camdoop", collective)
    topology, torus, seats = _torus(collective, topology)
    grown = disjoint_trees(torus) if trees == "disjoint" else shortest_tree(torus)
    is_rooted = collective.op == "reduce"
    roots = [collective.root] if is_rooted else list(range(collective.p))
    blocks = _blocks(collective)
    count = len(grown.parents)
    smallest = max(int(blocks.min()) // collective.unit_bytes // count, 1)
    chosen = min(pieces or (_pieces(grown, collective.size_bytes, topology) if is_rooted else 1), smallest)
    _require_few(collective, len(roots) * count * (collective.p - 1) * chosen)
    up = _moves(grown, seats, roots)
    phases = (up,) if collective.op != "all-reduce" else (up, _turned_round(up))
    ends = {root: [part / count for part in range(count + 1)] for root in roots}
    labels = ("collect", "spread")[: len(phases)]
    rounds = TreeRounds(collective, phases, ends, (1,) * chosen, 1, blocks, labels=labels)
    return Program(
        "camdoop",
        collective,
        rounds.layout,
        rounds.steps,
        rounds.n_steps,
        rounds.cost(),
        knobs={"trees": count, "height": grown.height, "pieces": chosen},
    )


def _torus(collective: Collective, topology: Topology | None) -> tuple[Topology, tuple[int, ...], np.ndarray]:
    """Return the machine, the sides of its torus, and the place in the group of each of its ranks: int64 of shape (ranks,)."""
    sizes = None if topology is None else sides(topology)
    if topology is None or sizes is None:
        raise UsageError("camdoop: servers are linked in rings, in every dimension", remedy="--fabric torus:3x3x3")
    ranks = np.asarray(collective.group, np.int64)
    if len(ranks) != topology.n_ranks:
        raise DeclinedError(
            f"camdoop: {len(ranks):,} of the {topology.n_ranks:,} servers of {topology.name}",
            remedy="a group of all of them",
        )
    seats = np.empty_like(ranks)
    seats[ranks] = np.arange(len(ranks))
    return topology, sizes, seats


def _blocks(collective: Collective) -> np.ndarray:
    """Return the bytes that each root collects, int64 of shape (roots,)."""
    if collective.op == "all-reduce":
        return split(collective.size_bytes, collective.p, collective.unit_bytes)
    return collective.block_bytes


def _pieces(trees: TorusTrees, size_bytes: int, topology: Topology) -> int:
    """Return in how many pieces a tree's share takes least: (pieces + height - 1) (alpha + share / (pieces B))."""
    wire_s = size_bytes / len(trees.parents) / float(topology.rate.min())
    alpha_s = max(float(topology.latency_s.max()), 1e-9)
    return max(1, min(MOST_PIECES, round(math.sqrt((trees.height - 1) * wire_s / alpha_s))))


def _require_few(collective: Collective, moves: int) -> None:
    if moves > MOST_MOVES:
        raise DeclinedError(
            f"camdoop: {moves:,} moves are more than are listed ({MOST_MOVES:,})",
            where=collective.label,
            remedy="fewer pieces or servers, trees=shortest, or one root (reduce)",
        )


def _moves(trees: TorusTrees, seats: np.ndarray, roots: list[int]) -> TreeMoves:
    """Return the arcs of all roots' trees, as those of trees that collect."""
    tree, offset = np.nonzero(trees.parents >= 0)
    parent, depth = trees.parents[tree, offset], trees.depths[tree, offset] - 1
    at = np.argsort(seats)  # the rank of each place
    src = np.concatenate([seats[trees.turned(parent, int(at[root]))] for root in roots])
    dst = np.concatenate([seats[trees.turned(offset, int(at[root]))] for root in roots])
    tree, depth = (np.tile(each, len(roots)) for each in (tree, depth))
    return TreeMoves(src, dst, np.repeat(roots, len(parent)), tree, tree, depth, collects=True)


def _turned_round(up: TreeMoves) -> TreeMoves:
    """Return the same trees as those that spread."""
    return TreeMoves(up.src, up.dst, up.root, up.part, up.tree, up.depth)
