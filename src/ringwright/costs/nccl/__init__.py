"""NCCL's own choice of algorithm, protocol, channels and threads, for releases 2.5 to 2.30.

``choose("all-reduce", 64 << 20, named_system("dgx-h100", nodes=4), "2.21.5")``. The formulas are in ``latency`` and
``bandwidth``, the numbers in ``constants.json``; what a node's search would find is estimated in ``nodes``.
"""

from __future__ import annotations

from ringwright.costs.nccl.bandwidth import knows
from ringwright.costs.nccl.chunking import Chunking, chunking
from ringwright.costs.nccl.constants import ALGORITHMS, OPS, PROTOCOLS, constants, releases
from ringwright.costs.nccl.graphs import Graph, Graphs, NcclSystem
from ringwright.costs.nccl.model import TuningTables, predict_us, tables
from ringwright.costs.nccl.names import algorithm_named, protocol_named
from ringwright.costs.nccl.node_types import NODE_TYPES, NodeType, named_system, nvls_channels, placed, search
from ringwright.costs.nccl.selection import NcclChoice, algorithm_2_4, choose, costs, cut, sweep, tree_threshold_bytes
from ringwright.costs.nccl.trees import NcclTree, binary_tree, double_tree, rank_trees
from ringwright.costs.nccl.tuner import TunerRule, first_match, rules_from_choices

__all__ = [
    "ALGORITHMS",
    "NODE_TYPES",
    "OPS",
    "PROTOCOLS",
    "Chunking",
    "Graph",
    "Graphs",
    "NcclChoice",
    "NcclSystem",
    "NcclTree",
    "NodeType",
    "TunerRule",
    "TuningTables",
    "algorithm_2_4",
    "algorithm_named",
    "binary_tree",
    "choose",
    "chunking",
    "constants",
    "costs",
    "cut",
    "double_tree",
    "first_match",
    "knows",
    "named_system",
    "nvls_channels",
    "placed",
    "predict_us",
    "protocol_named",
    "rank_trees",
    "releases",
    "rules_from_choices",
    "search",
    "sweep",
    "tables",
    "tree_threshold_bytes",
]
