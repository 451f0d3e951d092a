"""NCCL's two trees over N nodes: every node but one at most is a leaf of one of them.

Idea: the children of a node lie half its lowest set bit to both sides, so odd nodes are leaves. The second tree is the
first one mirrored (N even) or shifted by one (N odd), which turns leaves into inner nodes; each tree carries half of
the data. Node 0 is the root and has one child. Inside a node the GPUs form a chain. Source: ``src/graph/trees.cc`` of
NVIDIA/nccl; "Massively Scale Your Deep Learning Training with NCCL 2.4" (2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.costs.nccl.graphs import BALANCED_TREE, SPLIT_TREE, TREE
from ringwright.ground.errors import UsageError

# Which GPU of a node talks to its lower and to its upper child.
_CHILD_HOSTS = {BALANCED_TREE: (1, 0), SPLIT_TREE: (1, 1), TREE: (0, 0)}


@dataclass(frozen=True, slots=True)
class NcclTree:
    """A tree over nodes 0..N-1: ``parents[r]`` is -1 for the root, ``children[r]`` holds at most two nodes.

    Where there are two, the first is the lower one of the first tree; the root's only child is an upper one.
    """

    parents: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]

    @property
    def root(self) -> int:
        """The node without a parent."""
        return self.parents.index(-1)

    def depth(self, node: int) -> int:
        """Return the edges between a node and the root."""
        steps = 0
        while (node := self.parents[node]) != -1:
            steps += 1
        return steps


def binary_tree(nodes: int) -> NcclTree:
    """Return the first tree over ``nodes`` nodes; raise UsageError for none."""
    if nodes < 1:
        raise UsageError(f"a tree over {nodes} nodes does not exist", remedy="give at least one node")
    parents = tuple(_parent(node, nodes) for node in range(nodes))
    return NcclTree(parents, tuple(_children(node, nodes) for node in range(nodes)))


def double_tree(nodes: int, *, mirror: bool = True) -> tuple[NcclTree, NcclTree]:
    """Return both trees over ``nodes`` nodes; release 2.7 shifts for even N as well (``mirror=False``)."""
    first = binary_tree(nodes)
    if nodes % 2 == 0 and mirror:
        return first, _renamed(first, [nodes - 1 - node for node in range(nodes)])
    return first, _renamed(first, [(node - 1) % nodes for node in range(nodes)])


def rank_trees(
    nodes: int, per_node: int, pattern: int = BALANCED_TREE, *, mirror: bool = True
) -> tuple[NcclTree, NcclTree]:
    """Return both trees over ranks, numbered node by node; the GPUs of a node form a chain from the first one.

    The first GPU talks to the parent. ``pattern`` says which one talks to other nodes below: in the plain tree (3) the
    first to both, in the balanced one (1) the first to the upper child and the second to the lower one, in the split
    one (2) the second to both. One GPU per node is plain.
    """
    if per_node < 1 or pattern not in _CHILD_HOSTS:
        raise UsageError(
            f"{per_node} ranks per node, pattern {pattern}", remedy="give at least one; patterns are 1 to 3"
        )
    hosts = _CHILD_HOSTS[pattern if per_node > 1 else TREE]
    first, second = (_with_chains(tree, per_node, hosts) for tree in double_tree(nodes, mirror=mirror))
    return first, second


def _parent(node: int, nodes: int) -> int:
    if node == 0:
        return -1
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return up if up < nodes else node ^ bit


def _children(node: int, nodes: int) -> tuple[int, ...]:
    if node == 0:
        return (1 << ((nodes - 1).bit_length() - 1),) if nodes > 1 else ()
    half = (node & -node) >> 1
    if not half:
        return ()
    after = half
    while after and node + after >= nodes:
        after >>= 1
    return (node - half, node + after) if after else (node - half,)


def _renamed(tree: NcclTree, role: Sequence[int]) -> NcclTree:
    """Return the tree in which node ``n`` plays ``role[n]``."""
    node_of = {played: node for node, played in enumerate(role)}
    parents = tuple(node_of.get(tree.parents[played], -1) for played in role)
    children = tuple(tuple(node_of[child] for child in tree.children[played]) for played in role)
    return NcclTree(parents, children)


def _with_chains(tree: NcclTree, per_node: int, hosts: tuple[int, int]) -> NcclTree:
    parents = [rank - 1 if rank % per_node else -1 for rank in range(len(tree.parents) * per_node)]
    children: list[tuple[int, ...]] = [
        (rank + 1,) if (rank + 1) % per_node else () for rank in range(len(tree.parents) * per_node)
    ]
    for node, below in enumerate(tree.children):
        places = hosts[1:] if tree.parents[node] == -1 else hosts
        for child, host in zip(below, places, strict=False):
            up = node * per_node + host
            parents[child * per_node] = up
            children[up] = (*children[up], child * per_node)
    return NcclTree(tuple(parents), tuple(children))
