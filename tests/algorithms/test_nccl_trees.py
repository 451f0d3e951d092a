"""NCCL's double binary tree: what the paper claims for every N, and the trees that logs print."""

from __future__ import annotations

import gzip
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.costs.nccl import NcclTree, binary_tree, double_tree, rank_trees
from ringwright.ground.errors import UsageError
from shared_data import needs_shared_data, real

pytestmark = pytest.mark.once  # takes nothing from compiled loops

NODES = [*range(1, 65), 100, 127, 128, 129, 255, 256, 1000, 1023, 1024, 3072]


def check(tree: NcclTree, size: int) -> None:
    """One root that everyone reaches; a child's parent is its parent."""
    assert Counter(tree.parents)[-1] == 1
    assert sum(map(len, tree.children)) == size - 1
    for node, below in enumerate(tree.children):
        assert all(tree.parents[child] == node for child in below)
    assert max(tree.depth(node) for node in range(size)) < size or size == 1


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("nodes", NODES)
def test_both_trees(nodes: int, mirror: bool) -> None:
    first, second = double_tree(nodes, mirror=mirror)
    for tree in (first, second):
        check(tree, nodes)
        assert all(len(below) <= 2 for below in tree.children)
        assert max(tree.depth(node) for node in range(nodes)) <= nodes.bit_length()
    both = [node for node in range(nodes) if first.children[node] and second.children[node]]
    assert len(both) <= 1


@pytest.mark.parametrize("nodes", NODES[1:])
def test_an_all_reduce_sends_at_most_twice_its_bytes_per_node(nodes: int) -> None:
    """Each tree carries half: up to the parent and down to each child."""
    halves = [0] * nodes
    for tree in double_tree(nodes):
        for node in range(nodes):
            halves[node] += (tree.parents[node] != -1) + len(tree.children[node])
    assert max(halves) / 2 <= 2


def test_the_first_tree_of_small_clusters() -> None:
    assert binary_tree(1).parents == (-1,)
    assert binary_tree(2).parents == (-1, 0)
    assert binary_tree(8).parents == (-1, 2, 4, 2, 0, 6, 4, 6)
    assert binary_tree(6).children == ((4,), (), (1, 3), (), (2, 5), ())
    assert double_tree(4)[1].parents == (1, 3, 1, -1)
    assert double_tree(3)[1].parents == (1, -1, 0)


@given(nodes=st.integers(1, 200), per_node=st.integers(1, 9), pattern=st.sampled_from([1, 2, 3]))
def test_trees_over_ranks(nodes: int, per_node: int, pattern: int) -> None:
    for tree in rank_trees(nodes, per_node, pattern):
        check(tree, nodes * per_node)
        assert all(len(below) <= 3 for below in tree.children)
        between = sum(
            child // per_node != rank // per_node for rank, below in enumerate(tree.children) for child in below
        )
        assert between == nodes - 1


def test_no_tree_over_nothing() -> None:
    for nodes, per_node, pattern in ((0, 1, 1), (1, 0, 1), (1, 1, 4)):
        with pytest.raises(UsageError):
            rank_trees(nodes, per_node, pattern)


PRINTED = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(\d+)->(-?\d+)")


def printed(text: str, channel: int, size: int) -> tuple[dict[int, int], dict[int, set[int]]]:
    """Return parents and children of a channel from the ``Trees`` lines of a log."""
    parents: dict[int, int] = {}
    children: dict[int, set[int]] = {}
    for line in re.findall(r"NCCL INFO Trees (.*)", text):
        for number, *below, rank, parent in PRINTED.findall(line):
            if int(number) == channel and int(rank) < size:
                parents[int(rank)] = int(parent)
                children[int(rank)] = {int(child) for child in below} - {-1}
    return parents, children


def assert_printed(text: str, tree: NcclTree, channel: int) -> None:
    parents, children = printed(text, channel, len(tree.parents))
    assert len(parents) >= len(tree.parents) * 0.9
    assert parents == {rank: tree.parents[rank] for rank in parents}
    assert children == {rank: set(tree.children[rank]) for rank in children}


@needs_shared_data
def test_sixteen_nodes_of_2_7_8_print_plain_trees_shifted_by_one() -> None:
    with gzip.open(real("real/nccl-logs/bigscience_n16_32gb_all_reduce_bench.txt.gz"), "rt") as file:
        text = file.read()
    first, second = rank_trees(16, 4, 3, mirror=False)
    assert_printed(text, first, 0)
    assert_printed(text, second, 2)


@needs_shared_data
def test_four_nodes_of_2_10_3_print_balanced_trees_mirrored() -> None:
    text = real("real/nccl-logs/bigscience_all_reduce_bench-32gb-n4.txt").read_text()
    first, second = rank_trees(4, 4, 1)
    assert_printed(text, first, 0)
    assert_printed(text, second, 2)
