"""The cost model of a release: its latency and bandwidth tables, and the time that it predicts for a size.

time = latency x count + size / (1000 bandwidth), in us, bytes and GB/s. Trees are corrected by a table over the size;
the latency of a ring over several nodes grows by 1.4 (1.9 before Ampere) once its channels are full. A prediction is
what NCCL compares, not what a wire measures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from ringwright.costs.nccl.availability import not_computed, passed_over, switched_off
from ringwright.costs.nccl.bandwidth import bandwidth_gbs
from ringwright.costs.nccl.constants import ALGORITHMS, OPS, PROTOCOLS, Constants, constants
from ringwright.costs.nccl.graphs import NcclSystem
from ringwright.costs.nccl.latency import latency_us, nodes_seen
from ringwright.costs.nccl.occupancy import communicator_channels
from ringwright.ground.errors import UsageError

Key = tuple[str, str, str]  # operation, algorithm, protocol


@dataclass(frozen=True, slots=True)
class TuningTables:
    """What NCCL prints under TUNING: microseconds and GB/s per (operation, algorithm, protocol).

    A combination that the release does not compute is 0.0 and 0.0, one that it switches off keeps its latency;
    ``why`` says in words what made a bandwidth 0.
    """

    release: str
    latency_us: dict[Key, float]
    bandwidth_gbs: dict[Key, float]
    why: dict[Key, str] = field(default_factory=dict)


@lru_cache(maxsize=256)
def tables(system: NcclSystem, release: str) -> TuningTables:
    """Return the tables of ``release`` for a system; raise UsageError for a release without a model."""
    held = constants(release)
    latency: dict[Key, float] = {}
    bandwidth: dict[Key, float] = {}
    why: dict[Key, str] = {}
    for key in ((op, algorithm, protocol) for op in OPS for algorithm in ALGORITHMS for protocol in PROTOCOLS):
        latency[key] = bandwidth[key] = 0.0
        reason = not_computed(held, system, *key) if system.ranks > 1 else "one rank has nothing to send"
        if reason is None:
            latency[key] = latency_us(held, system, *key)
            reason = switched_off(held, system, *key)
            bandwidth[key] = 0.0 if reason else bandwidth_gbs(held, system, *key)
        if not bandwidth[key]:
            why[key] = reason or "the graph has no channels for it"
    return TuningTables(held.release, latency, bandwidth, why)


def predict_us(
    op: str,
    algorithm: str,
    protocol: str,
    size_bytes: int,
    system: NcclSystem,
    release: str,
    *,
    pipelined: int = 1,
    fp8: bool = False,
) -> float | None:
    """Return the microseconds that NCCL predicts, or None where it would not use the combination.

    ``size_bytes`` is the larger of what a rank sends and receives, the nccl-tests size column. ``pipelined`` is the
    number of operations that one launch carries. Raises UsageError for an unknown operation or a negative size.
    """
    if op not in OPS or size_bytes < 0 or pipelined < 1:
        raise UsageError(
            f"NCCL has no cost for {op} of {size_bytes} bytes in launches of {pipelined}",
            remedy=f"use one of {', '.join(OPS)} and a size from 0",
        )
    held = constants(release)
    tuning = tables(system, release)
    key = (op, algorithm, protocol)
    speed = tuning.bandwidth_gbs.get(key, 0.0)
    if not speed or passed_over(held, system, op, algorithm):
        return None
    speed *= _correction(held, system, op, algorithm, protocol, size_bytes)
    latency = tuning.latency_us[key] * _plateau(held, system, op, algorithm, protocol, size_bytes)
    group = held.rules.pipeline_group
    count = pipelined if algorithm == "ring" else -(-pipelined // group) if group else 1
    time_us = latency * (count if group else 1) + size_bytes / (1000 * speed)
    fp8_last = fp8 and held.rules.fp8_ring_last and algorithm == "ring" and system.ranks > 8
    return time_us * 1024 if fp8_last else time_us


def _correction(held: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str, size_bytes: int) -> float:
    """Return the share of a tree's bandwidth that medium sizes reach, by powers of two from 64 bytes."""
    steps = size_bytes >> 6
    column = max(0, steps.bit_length() - 1)
    if op != "all-reduce" or (steps == 0 and not held.rules.tree_correction_below_64):
        return 1.0
    shares = held.tree_correction[protocol]
    if algorithm == "tree" and column < held.rules.tree_correction_max_log:
        return shares[column]
    blackwell = system.capability >= 100 and system.cpu_arch == "x86" and held.rules.nvls_tree_correction
    return shares[column] if algorithm == "nvls_tree" and blackwell and column < len(shares) else 1.0


def _plateau(held: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str, size_bytes: int) -> float:
    """Return by how much the latency of a ring grows once its channels are full."""
    applies = (op, algorithm, protocol) == ("all-reduce", "ring", "simple") and nodes_seen(held, system) > 1
    rule = held.rules.plateau
    if not applies or rule == "none":
        return 1.0
    if rule == "per-channel":
        if size_bytes // (communicator_channels(system, held.release) * system.ranks) < 64:
            return 1.0
        return 1.9 if system.capability < 80 else 1.4
    if size_bytes < system.ranks / 16 * 65536:
        return 1.0
    return 1.5 if rule == "64k-hopper-1.5" and system.capability >= 90 else 1.9
