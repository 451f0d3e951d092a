"""For each knob that random spellings rarely wake: a question whose answer it changes.

Most of these knobs bind with a companion alone: segments where a tree is forced, a seed where something is drawn, a rate of
memory where experts are packed. A question is a command; ``without`` and ``with_it`` are what ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# What says how a system was spelled, how long the answer took, or the same in words.
NAMES = ("algorithm", "policy", "engine_s", "name", "fabric", "engine", "provenance", "why", "spelling", "assumptions")


@dataclass(frozen=True)
class Witness:
    """``question`` is a command up to its last word; that is ``without`` the knob, or ``with_it``."""

    knob: str
    question: tuple[str, ...]
    without: str
    with_it: str

    def changes(self, ask: Callable[[list[str]], Any]) -> bool:
        """Whether the answers differ in a figure; ``ask`` runs a command and returns its JSON, None where it has none."""
        plain, knobbed = (ask([*self.question, last]) for last in (self.without, self.with_it))
        return plain is not None and knobbed is not None and figures(plain) != figures(knobbed)


def figures(tree: Any) -> Any:
    """Return a document without what says how it was spelled or how long it took."""
    if isinstance(tree, dict):
        return {key: figures(value) for key, value in tree.items() if key not in NAMES}
    return [figures(each) for each in tree] if isinstance(tree, list) else tree


def _collective(op: str, size: str, *more: str, fabric: str = "switch:16") -> tuple[str, ...]:
    return ("simulate", op, "--fabric", fabric, "-b", size, *more, "--algorithm")


def _on(op: str, size: str, algorithm: str) -> tuple[str, ...]:
    return ("simulate", op, "-b", size, "--algorithm", algorithm, "--fabric")


_TRAINED = (
    "simulate",
    "--model",
    "mixtral",
    "--gpus",
    "16",
    "--parallel",
    "ep8,dp16",
    "--seq",
    "512",
    "--fabric",
    "dgx-h100:2",
    "--policy",
)
_SERVED = (
    "simulate",
    "--model",
    "mixtral",
    "--gpus",
    "8",
    "--parallel",
    "ep8",
    "--seq",
    "512",
    "--mode",
    "prefill",
    "--fabric",
    "dgx-h100:1",
    "--policy",
)
_VGG = ("simulate", "--model", "vgg16", "--gpus", "8", "--fabric", "switch:8,rate=10Gb/s", "--policy")
_FAULTY = _collective("all-reduce", "16M", "--fault", "nic node1/nic0 rate 20%", fabric="dgx-h100:2")
# Whose packets take headers: a packet's size alone changes nothing.
_PACKETS = (
    "dgx-1",
    "dgx-2",
    "dgx-a100",
    "dgx-b200",
    "dgx-h100",
    "gb200-nvl72",
    "leaf-spine",
    "mi250",
    "mi300",
    "p4d",
    "polaris",
    "rail-optimised",
)
_RAILS = "rail-optimised:4,pxn=false"  # messages change the rail in the spines

_SPLIT = _collective("all-reduce", "64K", fabric="switch:8,switches=fpisa")

WITNESSES = (
    # What sums are worth, which no time tells.
    Witness("fpisa:variant", _SPLIT, "fpisa", "fpisa:variant=approximate"),
    Witness("fpisa:shift", _SPLIT, "fpisa:variant=approximate", "fpisa:variant=approximate:shift=1"),
    Witness("fpisa:overflow", _SPLIT, "fpisa:variant=approximate", "fpisa:variant=approximate:overflow=saturate"),
    # Of libraries: what a forced algorithm is given.
    Witness(
        "nccl-2-4:buffer_bytes",
        _collective("all-reduce", "256M", fabric="dgx-h100:2"),
        "nccl-2-4:algorithm=ring:protocol=simple",
        "nccl-2-4:algorithm=ring:protocol=simple:buffer_bytes=64K",
    ),
    Witness("mpich2:paper", _collective("all-reduce", "1K"), "mpich2", "mpich2:paper=true"),
    Witness("mpich2:builtin", _collective("all-reduce", "1M"), "mpich2", "mpich2:builtin=false"),
    Witness(
        "mpich2:radix",
        _collective("all-reduce", "1K"),
        "mpich2:algorithm=recursive_multiplying",
        "mpich2:algorithm=recursive_multiplying:radix=4",
    ),
    Witness(
        "mpich2:fanout", _collective("all-reduce", "1M"), "mpich2:algorithm=tree", "mpich2:algorithm=tree:fanout=4"
    ),
    Witness(
        "mpich2:segment_bytes",
        _collective("all-reduce", "1M"),
        "mpich2:algorithm=tree",
        "mpich2:algorithm=tree:segment_bytes=64K",
    ),
    Witness(
        "open-mpi:segment_bytes",
        _collective("broadcast", "1M"),
        "open-mpi:algorithm=pipeline",
        "open-mpi:algorithm=pipeline:segment_bytes=64K",
    ),
    Witness(
        "open-mpi:fanout",
        _collective("broadcast", "1M"),
        "open-mpi:algorithm=chain",
        "open-mpi:algorithm=chain:fanout=2",
    ),
    Witness(
        "mvapich:block_bytes",
        _collective("all-reduce", "16M", fabric="dgx-h100:2"),
        "mvapich:buffers=gpu",
        "mvapich:buffers=gpu:block_bytes=1M",
    ),
    Witness("plink:window", _FAULTY, "plink:adapt=watch", "plink:adapt=watch:window=9"),
    Witness("plink:threshold", _FAULTY, "plink:adapt=watch", "plink:adapt=watch:threshold=100"),
    # Of schedulers: one server's dense traffic is what factors cost less than.
    Witness("poseidon:servers", _VGG, "poseidon:batch=1000", "poseidon:batch=1000:servers=1"),
    Witness("poseidon:pair_mb", _VGG, "poseidon:dense=push-pull", "poseidon:dense=push-pull:pair_mb=0.5"),
    Witness("lina:pipelining", _TRAINED, "lina:partition_mb=4", "lina:partition_mb=4:pipelining=false"),
    Witness("lina:packing", _TRAINED, "none,lina", "none,lina:packing=2"),
    Witness("lina:memory_gb", _TRAINED, "none,lina:packing=2", "none,lina:packing=2:memory_gb=250"),
    Witness("lina:skew", _SERVED, "lina", "lina:skew=5"),
    Witness("lina:plan", _SERVED, "lina:skew=5", "lina:skew=5:plan=even"),
    Witness("lina:accuracy", _SERVED, "lina:skew=5:plan=estimate", "lina:skew=5:plan=estimate:accuracy=1"),
    Witness("lina:seed", _SERVED, "lina:skew=5:plan=estimate", "lina:skew=5:plan=estimate:seed=3"),
    # Of fabrics: with one spine a group's leaves share the way out that four had.
    Witness(
        "dragonfly-plus,spines",
        _on("all-to-all", "4M", "pairwise"),
        "dragonfly-plus:1x4x4",
        "dragonfly-plus:1x4x4,spines=1",
    ),
    Witness(
        "dragonfly-plus,spine_latency_s",
        _on("all-to-all", "1M", "pairwise"),
        "dragonfly-plus:2x2x2",
        "dragonfly-plus:2x2x2,spine_latency_s=5us",
    ),
    Witness(
        "fat-tree,seed",
        _on("all-to-all", "1M", "pairwise"),
        "fat-tree:16,routing=ecmp",
        "fat-tree:16,routing=ecmp,seed=3",
    ),
    Witness("rail-optimised,routing", _on("all-to-all", "4M", "pairwise"), _RAILS, f"{_RAILS},routing=ecmp"),
    Witness(
        "rail-optimised,seed",
        _on("all-to-all", "4M", "pairwise"),
        f"{_RAILS},routing=ecmp",
        f"{_RAILS},routing=ecmp,seed=4",
    ),
    *(
        Witness(f"{name},packet_bytes", _on("all-reduce", "1M", "ring"), plain, f"{plain},packet_bytes=256")
        for name, plain in ((name, f"{name}:2,header_bytes=64") for name in _PACKETS)
    ),
    Witness("switch,sharp", _on("all-reduce", "1M", "ring,collnet-chain"), "switch:16", "switch:16,sharp=true"),
)

WITNESS = {each.knob: each for each in WITNESSES}
