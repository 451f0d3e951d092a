"""NCCL's figures: trees against rings on the largest machine of its time, and the tables that public logs print."""

from __future__ import annotations

from ringwright.costs.nccl import tables
from ringwright.costs.nccl.graphs import RING, TREE, Graph, Graphs, NcclSystem
from ringwright.costs.nccl.model import predict_us

EARLIEST = "2.5"  # the first release with a cost model; 2.4 chose trees by size alone
PER_NODE = 6  # Summit: 6 V100 a node, NVLink to Power hosts, 2 x 100 Gb/s
CHANNELS, CHANNEL_GBS = 2, 12.0
PROTOCOLS = ("ll", "ll128", "simple")

# A log of 2 nodes of 8 H100 in NVIDIA/nccl issue 1519, which prints the graphs and the latency table made of them.
LOGGED = NcclSystem(
    Graphs(Graph(RING, 2, 10.0, 10.0, "NVL", "PHB"), Graph(TREE, 2, 10.0, 10.0, "NVL", "PHB")),
    nodes=2,
    ranks=16,
    capability=90,
    nvswitch=True,
)
LOGGED_RELEASE = "2.20.5"


def summit(gpus: int) -> NcclSystem:
    """Return so many GPUs of Summit, a channel for each network port."""
    inside = {"type_intra": "NVL", "type_inter": "SYS"}
    return NcclSystem(
        Graphs(
            Graph(RING, CHANNELS, CHANNEL_GBS, CHANNEL_GBS, **inside),  # type: ignore[arg-type]
            Graph(TREE, CHANNELS, CHANNEL_GBS, CHANNEL_GBS, **inside),  # type: ignore[arg-type]
        ),
        nodes=gpus // PER_NODE,
        ranks=gpus,
        capability=70,
        cpu_vendor="other",
        cpu_arch="power",
    )


def all_reduce_us(gpus: int, size_bytes: int, algorithm: str) -> float:
    """Return the microseconds that the earliest model gives an algorithm with its best protocol."""
    times = (predict_us("all-reduce", algorithm, each, size_bytes, summit(gpus), EARLIEST) for each in PROTOCOLS)
    return min(time for time in times if time is not None)


def tree_over_ring(gpus: int, size_bytes: int, algorithm: str = "tree") -> float:
    """Return how many times longer a ring takes than ``algorithm``."""
    return all_reduce_us(gpus, size_bytes, "ring") / all_reduce_us(gpus, size_bytes, algorithm)


def logged_us(op: str, algorithm: str, protocol: str) -> float:
    """Return the latency that the release of the log prints, to a tenth of a microsecond."""
    return round(tables(LOGGED, LOGGED_RELEASE).latency_us[op, algorithm, protocol], 1)
