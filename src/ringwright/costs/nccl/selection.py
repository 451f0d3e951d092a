"""What NCCL would run: the fastest combination that it may use, with its channels, threads and chunks.

Combinations are compared in NCCL's order (Tree, Ring, CollNet-Direct, CollNet-Chain, NVLS, NVLS-Tree, PAT; LL, LL128,
Simple); the first of equals wins. Release 2.4 had no model: a size limit, NCCL_TREE_THRESHOLD, chose the tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringwright.costs.nccl.availability import not_forced
from ringwright.costs.nccl.chunking import Chunking, chunking
from ringwright.costs.nccl.constants import ALGORITHMS, PROTOCOLS, constants
from ringwright.costs.nccl.graphs import NcclSystem
from ringwright.costs.nccl.model import predict_us
from ringwright.costs.nccl.occupancy import channels_used, occupancy
from ringwright.ground.errors import InfeasibleError, UsageError

ALWAYS_TREE = 0x7FFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class NcclChoice:
    """One decision: ``channels`` is what NCCL allows, ``channels_used`` what an operation alone in a launch ends on.

    ``time_us`` is NCCL's own prediction; ``release`` is the one whose constants were used; ``buffer_bytes`` is what NCCL_BUFFSIZE
    makes the buffer of Simple (0: as shipped), which the prediction does not look at.
    """

    op: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int
    threads: int
    time_us: float
    channels_used: int
    nodes: int
    ranks: int
    release: str
    buffer_bytes: int = 0


def costs(
    op: str, size_bytes: int, system: NcclSystem, release: str, *, pipelined: int = 1, fp8: bool = False
) -> dict[tuple[str, str], float]:
    """Return microseconds per (algorithm, protocol) that may be used, in NCCL's order."""
    times = {}
    for pair in ((algorithm, protocol) for algorithm in ALGORITHMS for protocol in PROTOCOLS):
        time_us = predict_us(op, *pair, size_bytes, system, release, pipelined=pipelined, fp8=fp8)
        if time_us is not None:
            times[pair] = time_us
    return times


def choose(
    op: str, size_bytes: int, system: NcclSystem, release: str, *, pipelined: int = 1, fp8: bool = False
) -> NcclChoice:
    """Return what NCCL ``release`` would run for ``op`` of ``size_bytes`` (nccl-tests size column) on ``system``.

    Raises UsageError for a release, operation or size that the model does not know, and InfeasibleError if no
    combination is left.
    """
    held = constants(release)
    times = costs(op, size_bytes, system, release, pipelined=pipelined, fp8=fp8)
    if system.ranks == 1:
        times = {("ring", "simple"): 0.0}
    if not times:
        raise InfeasibleError(
            f"NCCL {held.release} has no algorithm for {op} on this system",
            remedy="check the graphs: each needs channels and a speed above 0",
        )
    (algorithm, protocol), time_us = min(times.items(), key=lambda item: item[1])
    channels, threads = occupancy(held, system, algorithm, protocol, size_bytes)
    used = channels_used(held, system, op, protocol, size_bytes, channels)
    return NcclChoice(
        op, size_bytes, algorithm, protocol, channels, threads, time_us, used, system.nodes, system.ranks, held.release
    )


def forced_pair(
    choice: NcclChoice, system: NcclSystem, release: str, algorithm: str | None, protocol: str | None
) -> tuple[str, str]:
    """Return the combination that NCCL would take where algorithm or protocol are forced; UsageError with its own reason.

    What it takes by itself where that is left, else the one that it predicts to be the fastest of those that are.
    """
    held = constants(release)
    wanted = [(a, p) for a in ALGORITHMS for p in PROTOCOLS if algorithm in (None, a) and protocol in (None, p)]
    why = {pair: not_forced(held, system, choice.op, *pair) for pair in wanted}
    left = [pair for pair, reason in why.items() if reason is None]
    if not left:
        reason = next(filter(None, reversed(why.values())), "NCCL has no such name")
        asked = " with ".join(each for each in (algorithm, protocol) if each)
        raise UsageError(f"NCCL {release} cannot be forced to {asked} for this {choice.op}: {reason}")
    return taken(choice, left, system, release)


def taken(choice: NcclChoice, left: Sequence[tuple[str, str]], system: NcclSystem, release: str) -> tuple[str, str]:
    """Return what is taken of the combinations that are left: the choice's own, or what NCCL predicts to be the fastest."""
    if (choice.algorithm, choice.protocol) in left:
        return choice.algorithm, choice.protocol

    def order(pair: tuple[str, str]) -> tuple[float, bool]:
        predicted_us = predict_us(choice.op, *pair, choice.size_bytes, system, release)
        return math.inf if predicted_us is None else predicted_us, pair[1] != "simple"

    return min(left, key=order)


def sweep(
    op: str, sizes: Iterable[int], system: NcclSystem, release: str, *, pipelined: int = 1, fp8: bool = False
) -> list[NcclChoice]:
    """Return the choice for each size."""
    return [choose(op, size, system, release, pipelined=pipelined, fp8=fp8) for size in sizes]


def cut(choice: NcclChoice, system: NcclSystem) -> Chunking:
    """Return how a choice is cut into chunks and loops."""
    return chunking(
        choice.op,
        choice.algorithm,
        choice.protocol,
        choice.size_bytes,
        choice.channels_used,
        system,
        choice.release,
        buffer_bytes=choice.buffer_bytes,
    )


def tree_threshold_bytes(nodes: int, ranks: int, channels: int, *, nvlink: bool) -> int:
    """Return the size up to which NCCL 2.4 all-reduces over trees: 0 never, :data:`ALWAYS_TREE` for every size.

    Its default for NCCL_TREE_THRESHOLD weighs 6 us per ring hop against 15 us per level and 4 us per GPU of a node,
    with 5 GB/s per channel and three quarters of it (without NVLink two thirds) for a tree. Source:
    ``src/init.cc`` of NVIDIA/nccl 2.4.
    """
    if not 1 <= nodes <= ranks or channels < 1:
        raise UsageError(f"{ranks} ranks on {nodes} nodes over {channels} channels", remedy="give at least one of each")
    ring_bytes_per_us = 5000.0 * (channels if nvlink else 1)
    tree_bytes_per_us = ring_bytes_per_us * (3 / 4 * (2 if nodes == 2 else 1) if nvlink else 2 / 3)
    ring_us = 6.0 * (ranks - 1)
    tree_us = 15.0 * (nodes.bit_length() - 1) + 4.0 * (ranks // nodes - 1)
    if nodes < 2 or ring_us <= tree_us:
        return 0
    if tree_bytes_per_us > ring_bytes_per_us:
        return ALWAYS_TREE
    slower = ring_bytes_per_us * tree_bytes_per_us / (ring_bytes_per_us - tree_bytes_per_us)
    return int(slower * (ring_us - tree_us))


def algorithm_2_4(op: str, size_bytes: int, threshold_bytes: int) -> str:
    """Return what NCCL 2.4 runs: a tree for all-reduce up to the threshold, a ring for all else."""
    return "tree" if op == "all-reduce" and size_bytes <= threshold_bytes else "ring"
