"""How a collective is cut: the chunk that one step moves, the loop over all channels, and the loops of a size.

loop = channels x chunks per loop x chunk; a ring has p chunks per loop, a tree one, NVLS and CollNet-Direct one per
head. Buffers of a connection: LL 512 KiB, LL128 4.8 MB, Simple 4 MiB, each in 8 steps; LL carries 4 data bytes of 8,
LL128 15 of 16. Source: ``src/enqueue.cc`` of NVIDIA/nccl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringwright.costs.nccl.constants import Constants, constants
from ringwright.costs.nccl.graphs import NcclSystem
from ringwright.costs.nccl.latency import nodes_seen
from ringwright.ground.errors import UsageError

BUFFER_STEPS = 8
BUFFER_BYTES = {"ll": 8 * 512 * 16 * BUFFER_STEPS, "ll128": 120 * 640 * 8 * BUFFER_STEPS, "simple": 4 << 20}
NVLS_CHUNK_BYTES = 128 << 10

_GRAIN_BYTES = {"ll": 16, "ll128": 32 * 8 // 16 * 15 * 8, "simple": 512}
_TWICE = ("all-reduce", "all-gather", "reduce-scatter")


@dataclass(frozen=True, slots=True)
class Chunking:
    """The cut of one operation; all sizes are bytes of data, ``steps`` are the proxy's steps over all loops."""

    chunk_bytes: int
    slice_bytes: int
    chunks_per_loop: int
    steps_per_loop: int
    loop_bytes: int
    loops: int
    steps: int


def chunking(
    op: str,
    algorithm: str,
    protocol: str,
    size_bytes: int,
    channels: int,
    system: NcclSystem,
    release: str,
    *,
    buffer_bytes: int = 0,
) -> Chunking:
    """Return the cut of ``size_bytes`` over ``channels``; raise UsageError if there is nothing to cut it with.

    ``buffer_bytes`` replaces the buffer of Simple (NCCL_BUFFSIZE); the other protocols have their own. 0: as shipped.
    """
    if channels < 1 or size_bytes < 0:
        raise UsageError(f"{size_bytes} bytes over {channels} channels", remedy="give at least one channel")
    held = constants(release)
    multi = algorithm == "ring" and protocol == "simple" and op in _TWICE
    chunk_steps, slice_steps = (4, 2) if multi else (1, 1)
    buffers = {**BUFFER_BYTES, "simple": buffer_bytes or BUFFER_BYTES["simple"]}
    chunk = _chunk_bytes(held, system, op, algorithm, protocol, size_bytes, channels, chunk_steps, buffers)
    chunks, ring_steps = _loop(system, op, algorithm)
    loop = channels * chunks * chunk
    loops = -(-size_bytes // loop)
    return Chunking(
        chunk_bytes=chunk,
        slice_bytes=chunk // chunk_steps * slice_steps,
        chunks_per_loop=chunks,
        steps_per_loop=ring_steps,
        loop_bytes=loop,
        loops=loops,
        steps=ring_steps * loops * chunk_steps,
    )


def _loop(system: NcclSystem, op: str, algorithm: str) -> tuple[int, int]:
    """Return (chunks, steps) of one loop."""
    ranks = system.ranks
    if algorithm == "ring" and op in _TWICE:
        return ranks, (2 if op == "all-reduce" else 1) * (ranks - 1)
    if algorithm in ("nvls", "nvls_tree"):
        return max(1, system.graphs.nvls.channels), 1
    if algorithm == "collnet_direct":
        return max(1, system.graphs.collnet_direct.channels), 1
    return 1, 1


def _chunk_bytes(
    held: Constants,
    system: NcclSystem,
    op: str,
    algorithm: str,
    protocol: str,
    size_bytes: int,
    channels: int,
    chunk_steps: int,
    buffers: Mapping[str, int],
) -> int:
    scaled_first = held.rules.chunk == "scaled"
    chunk = buffers[protocol] // BUFFER_STEPS * chunk_steps
    if scaled_first:
        chunk = _data_bytes(chunk, protocol)
    if algorithm == "collnet_chain":
        chunk = min(256 << 10, buffers["simple"] // BUFFER_STEPS)
    for share, least in _halvings(held, system, op, algorithm, protocol):
        while size_bytes // (_parts(system, algorithm) * channels * chunk) < share and chunk > least:
            chunk //= 2
    if algorithm in ("nvls", "nvls_tree"):
        chunk = _nvls_chunk(system, algorithm, size_bytes, channels, chunk)
    if op in ("all-gather", "reduce-scatter") and algorithm == "pat":
        wanted = 32 if op == "all-gather" else 16
        while chunk * channels * wanted > size_bytes and chunk > 65536:
            chunk //= 2
    chunk = chunk if scaled_first else _data_bytes(chunk, protocol)
    return chunk // _GRAIN_BYTES[protocol] * _GRAIN_BYTES[protocol]


def _data_bytes(step_bytes: int, protocol: str) -> int:
    return {"ll": step_bytes // 2, "ll128": step_bytes // 16 * 15, "simple": step_bytes}[protocol]


def _parts(system: NcclSystem, algorithm: str) -> int:
    return max(1, system.graphs.collnet_direct.channels) if algorithm == "collnet_direct" else 1


def _halvings(
    held: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str
) -> tuple[tuple[float, int], ...]:
    """Return (chunks per channel, bytes): halve while there are fewer chunks and the chunk is larger."""
    nodes = nodes_seen(held, system)
    levels = nodes.bit_length() - 1
    depth = system.ranks // nodes
    if algorithm == "collnet_direct":
        return (2 * 64, 131072), (2 * 8, 65536), (2 * 8, 32768)
    if algorithm == "collnet_chain":
        return (depth * 64, 131072), (depth * 8, 65536), (depth, 32768)
    if algorithm != "tree":
        return ()
    if protocol == "ll128":
        per_node = system.ranks / nodes
        steps = 1 + levels + 0.1 * per_node
        old = ((1 + levels) * 4.0, 32768)
        recent = ((steps * 64 / per_node, 131072), (steps * 16 / per_node, 32768))
        return recent if held.rules.tree_ll128_chunk == "ppn" else (old,)
    if protocol == "simple" and op == "all-reduce" and held.rules.chunk == "depth":
        hops = depth - 1 + levels
        return (hops * 8, 131072), (hops * 4, 65536), (hops, 32768)
    return ()


def _nvls_chunk(system: NcclSystem, algorithm: str, size_bytes: int, channels: int, chunk: int) -> int:
    heads = max(1, system.graphs.nvls.channels)
    chunk = min(chunk, NVLS_CHUNK_BYTES)
    if algorithm == "nvls_tree" and system.nodes >= 4:
        chunk = min(chunk, 65536)
    limits: tuple[tuple[int, int], ...] = ((64, 65536), (8, 32768), (2, 16384))
    if algorithm == "nvls_tree":
        limits = ((32, 262144), (16, 131072), (4, 65536), (1, 32768))
    for wanted, smaller in limits:
        if size_bytes < wanted * channels * heads * chunk and chunk > smaller:
            chunk = smaller
    return chunk
