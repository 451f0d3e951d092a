"""The constants of each release, from ``constants.json``: plain data, each release as what it changed.

A question about 2.20.5 is answered by the entry that stands for it (the last one whose first release is not newer).
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import resources
from typing import Any

import msgspec

from ringwright.ground.errors import UsageError

SCHEMA = "ringwright.nccl-constants/1"

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
OPS = ("broadcast", "reduce", "all-gather", "reduce-scatter", "all-reduce")

Row = tuple[float, float, float]
Rows = dict[str, Row]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the formulas a release uses; the names are ours, the reading is in the modules that ask for them."""

    ring_latency: str
    inter_steps: str
    ring_ll_factor: float
    ring_ll_copy_factor: float
    ring_ll128_factor: float
    ring_ll128_one_gpu_factor: float
    tree_factor: float
    tree_total_max_gbs: Rows
    tree_ll_divisor: float
    tree_ll128_factor: tuple[float, float]
    total_max_gbs: dict[str, float]
    capability: str
    collnet: str
    nvls: str
    pat_factor: float
    plain_tree_factor: float
    plateau: str
    latency_inter: str
    ll_intra_multi_node_factor: float
    net_overhead: bool
    tree_correction_below_64: bool
    tree_correction_max_log: int
    nvls_tree_correction: bool
    one_gpu_uses_tree_net: bool
    ll128: str
    power_tree_hop: bool
    mixed_vendor_counts_as_amd: bool
    mnnvl_is_one_node: bool
    pipeline_group: int
    chunk: str
    tree_ll128_chunk: str
    threads: str
    tree_all_threads: bool
    ring_simple_threads_from: str
    max_channels: int
    traffic_per_channel_bytes: int
    quad_channels: bool
    collnet_threads: int
    nvls_threads: int
    collnet_threshold: int
    fp8_ring_last: bool


class Constants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of one release: latencies in us, bandwidths in GB/s.

    A row has three numbers: LL, LL128, Simple where the key is an algorithm; one node, two nodes, three and more where
    the key is a GPU generation.
    """

    release: str
    first: str = msgspec.field(name="from")
    rules: Rules
    base_latency_us: Rows
    hop_latency_us: dict[str, Rows]
    tree_correction: dict[str, tuple[float, ...]]
    ll_max_bw_gbs: Rows = {}
    tree_channel_max_gbs: Rows = {}
    ring_ll128_channel_max_gbs: Rows = {}
    tree_ll128_channel_max_gbs: Rows = {}
    nvls_tree_channel_max_gbs: Rows = {}
    nvls_efficiency: dict[str, float] = {}
    ring_ll128_total_max_by_op_gbs: dict[str, float] = {}
    ring_ll128_channel_max_by_op_gbs: dict[str, float] = {}
    tree_ll128_channel_max_by_op_gbs: dict[str, float] = {}

    def base_us(self, algorithm: str, protocol: str) -> float:
        """Return the fixed latency of one operation."""
        return self.base_latency_us.get(algorithm, (0.0, 0.0, 0.0))[PROTOCOLS.index(protocol)]

    def hop_us(self, hardware: str, algorithm: str, protocol: str) -> float:
        """Return the latency of one hop over ``nvlink``, ``pcie`` or ``net``."""
        return self.hop_latency_us[hardware].get(algorithm, (0.0, 0.0, 0.0))[PROTOCOLS.index(protocol)]

    def beyond_us(self, hardware: str, algorithm: str, protocol: str) -> float:
        """Return by how much a hop of this protocol is slower than one of LL: fences and flags."""
        return max(0.0, self.hop_us(hardware, algorithm, protocol) - self.hop_us(hardware, algorithm, "ll"))


@cache
def releases() -> tuple[str, ...]:
    """Return the releases whose constants are held, oldest first."""
    return tuple(_entries())


@lru_cache(maxsize=128)
def constants(release: str) -> Constants:
    """Return the constants that hold for ``release`` ("2.20.5", "2.20", "v2.20.5-1"); raise UsageError if unknown."""
    wanted = release_numbers(release)
    held = [entry for entry in _entries().values() if release_numbers(entry.first)[:2] <= wanted[:2]]
    newest = release_numbers(releases()[-1])
    if not held or wanted[:2] > newest[:2]:
        known = f"2.5 to {newest[0]}.{newest[1]}"
        raise UsageError(
            f"no NCCL cost constants for release '{release}'", remedy=f"name a release of {known}, for example 2.21.5"
        )
    return held[-1]


def release_numbers(release: str) -> tuple[int, ...]:
    """Return a release's numbers, to compare it by ("v2.20.5-1" is (2, 20, 5)); raise UsageError for what is none."""
    text = release.strip().lower().removeprefix("v").split("+")[0].split("-")[0]
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        raise UsageError(f"'{release}' is not an NCCL release", remedy="write it as in the log, for example 2.21.5")
    return tuple(int(part) for part in parts)


@cache
def _entries() -> dict[str, Constants]:
    text = resources.files("ringwright.costs.nccl").joinpath("constants.json").read_bytes()
    document = msgspec.json.decode(text)
    if document["schema"] != SCHEMA:
        raise UsageError(f"the constants have schema {document['schema']}, not {SCHEMA}", remedy="reinstall ringwright")
    known: dict[str, Constants] = {}
    so_far: dict[str, Any] = {}
    for entry in document["releases"]:
        rules = so_far.get("rules", {}) | entry["rules"]
        so_far = {key: value for key, value in so_far.items() if key not in entry.get("dropped", ())}
        so_far |= {key: value for key, value in entry.items() if key != "dropped"}
        so_far["rules"] = rules
        known[entry["release"]] = msgspec.convert(so_far, Constants)
    return known
