"""How much of a GPU a collective takes: channels of the communicator, channels and threads of one operation.

A communicator opens every channel of the search twice; a small operation gives channels back until each thread has
its threshold of bytes, then halves its threads. Sources: ``src/graph/connect.cc``, ``src/enqueue.cc`` of NVIDIA/nccl.
"""

from __future__ import annotations

from ringwright.costs.nccl.constants import Constants, constants
from ringwright.costs.nccl.graphs import NcclSystem

WARP = 32
THREADS_MAX = 640
PCIE_GBS = 12.0

_LL_BYTES_PER_THREAD = 8
_SIMPLE_BYTES_PER_THREAD = 64


def communicator_channels(system: NcclSystem, release: str) -> int:
    """Return the channels of the communicator: twice those of ring and tree, more where NCCL copies them again."""
    if system.channels is not None:
        return system.channels
    rules = constants(release).rules
    graphs = system.graphs
    channels = min(rules.max_channels, 2 * min(graphs.ring.channels, graphs.tree.channels or graphs.ring.channels))
    chain = graphs.collnet_chain
    if system.collnet and chain.bw_intra_gbs > chain.bw_inter_gbs and system.ranks > system.nodes:
        channels = min(rules.max_channels, channels + channels // 2)
    fast = system.capability >= 90 and system.nodes > 1 and graphs.ring.bw_intra_gbs > 45.0
    if rules.quad_channels and fast and channels < 16:
        channels *= 2
    if system.net_offload and system.nodes > 1 and channels < 16:
        channels *= 2
    return max(1, channels)


def threads_max(held: Constants, system: NcclSystem, algorithm: str, protocol: str) -> int:
    """Return the most threads per channel before the extra warps, as the ``Max NThreads`` line prints them."""
    if protocol == "ll128":
        return THREADS_MAX
    if algorithm == "pat":
        return 0  # left unset by the model: PAT gives no channel back
    if algorithm.startswith("collnet") and protocol == "simple":
        return held.rules.collnet_threads
    if algorithm.startswith("nvls"):
        return held.rules.nvls_threads
    narrow = system.graphs.ring if held.rules.ring_simple_threads_from == "ring" else system.graphs.tree
    slow = narrow.bw_intra_gbs * narrow.channels <= PCIE_GBS
    both = held.rules.ring_simple_threads_from == "tree"
    return 256 if protocol == "simple" and slow and (algorithm == "ring" or both) else 512


def occupancy(held: Constants, system: NcclSystem, algorithm: str, protocol: str, size_bytes: int) -> tuple[int, int]:
    """Return (channels, threads per channel) that NCCL allows an operation of ``size_bytes``."""
    channels = communicator_channels(system, held.release)
    threads = threads_max(held, system, algorithm, protocol)
    each = _threshold(held, system, algorithm, protocol)
    if algorithm == "collnet_direct" and held.rules.collnet.startswith("two"):
        return _collnet_channels(system, channels, threads, each, size_bytes), max(threads, 3 * WARP)
    if algorithm in ("nvls", "nvls_tree"):
        between = algorithm == "nvls" and system.nodes > 1
        return (min(system.nvls_channels, channels) if between else system.nvls_channels), max(threads, 3 * WARP)
    while size_bytes < channels * threads * each and channels >= 2:
        channels -= 1
    while size_bytes < channels * threads * each and threads % 128 == 0:
        threads //= 2
    return channels, _launched(held, algorithm, protocol, threads)


def channels_used(held: Constants, system: NcclSystem, op: str, protocol: str, size_bytes: int, channels: int) -> int:
    """Return the channels that an operation alone in its launch ends on: each gets a minimum of traffic.

    From release 2.22 on the scheduler gives a channel at least 16 KiB of traffic (32 KiB from 2.29); an all-reduce
    counts twice, LL four times. Before, it is ``channels``.
    """
    least = held.rules.traffic_per_channel_bytes
    if not least:
        return channels
    traffic = size_bytes * (2 if op == "all-reduce" else 1) * (4 if protocol == "ll" else 1)
    each = max(least, -(-(traffic // channels) // 16) * 16)
    return max(1, min(channels, -(-traffic // each)))


def _threshold(held: Constants, system: NcclSystem, algorithm: str, protocol: str) -> int:
    """Return the bytes per thread below which channels, then threads, are given back."""
    if protocol == "ll":
        return _LL_BYTES_PER_THREAD * (system.ranks if algorithm == "ring" else 1)
    if protocol == "ll128":
        return _LL_BYTES_PER_THREAD
    return held.rules.collnet_threshold if algorithm.startswith("collnet") else _SIMPLE_BYTES_PER_THREAD


def _collnet_channels(system: NcclSystem, channels: int, threads: int, each: int, size_bytes: int) -> int:
    heads = max(1, system.graphs.collnet_direct.channels)
    step = 16
    short = True
    while step >= 1 and short:
        while True:
            short = size_bytes < channels * threads * heads * each
            if not short or channels <= step:
                break
            if channels == step + step // 2:
                each //= 2
            channels -= 1
        step //= 2
    return channels


def _launched(held: Constants, algorithm: str, protocol: str, threads: int) -> int:
    """Return the threads of the launch: warps that synchronise come on top, trees and PAT take all of them."""
    if algorithm == "pat" or (algorithm == "tree" and held.rules.tree_all_threads):
        return THREADS_MAX
    if protocol == "simple":
        extra = {"ring": 1, "tree": 4} if held.rules.threads == "split" else {"ring": 1, "tree": 1}
        threads += extra.get(algorithm, 0) * WARP
    return max(threads, 3 * WARP)
