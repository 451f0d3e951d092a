"""The requests of one rank as rows, with phase, layer, stage and ranks of the group; and quantiles of their sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypedDict

from ringwright.workloads.collectives import ROLES, by_layer
from ringwright.workloads.expected.row import ExpectedRow
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parallel import Parallel
from ringwright.workloads.step import StepSpec

PHASES = ("forward", "backward", "optimiser", "prefill", "decode")
ENDS = 2  # stages that share the matrix of embedding and logits

Key = tuple[str, str, str, int]  # phase, role, op, bytes


class RankRequest(TypedDict):
    """Equal calls of one rank in an iteration; ``layer`` is None for buckets of several layers and messages between stages."""

    stage: int
    phase: str
    layer: str | None
    role: str
    op: str
    group_ranks: int
    count: int
    bytes: int


class RequestSizes(TypedDict):
    """The requests of a role and operation: how many, and the sizes that so many per cent of them do not exceed."""

    mode: str
    role: str
    op: str
    count: int
    p50_bytes: int
    p95_bytes: int
    p99_bytes: int


def requests(model: ModelCard, step: StepSpec) -> list[RankRequest]:
    """Return what one rank of a stage asks for in an iteration, phase by phase.

    ``layer`` is the block that asks, "each of N" where N blocks ask alike, and None for buckets of several layers and messages
    between stages. ``count`` is that of all these layers together.
    """
    alike: dict[Key, dict[str, int]] = {}
    for row in by_layer(model, step):
        mine = alike.setdefault(_key(row), {})
        mine[row.layer] = mine.get(row.layer, 0) + row.count
    return [
        {
            "stage": step.place,
            "phase": phase,
            "layer": layer,
            "role": role,
            "op": op,
            "group_ranks": group_ranks(role, step.parallel),
            "count": count,
            "bytes": size,
        }
        for phase, role, op, size in sorted(alike, key=_order)
        for layer, count in _layers(alike[phase, role, op, size])
    ]


def group_ranks(role: str, parallel: Parallel) -> int:
    """Return how many ranks a group of this role has."""
    sizes = {"dp": parallel.replicas, "edp": parallel.edp, "mp": parallel.dp, "embedding": ENDS}
    return sizes[role] if role in sizes else int(getattr(parallel, role))


def request_sizes(rows: Iterable[RankRequest], mode: str) -> list[RequestSizes]:
    """Return, for each role and operation, how many requests there are and quantiles of their sizes in bytes.

    A quantile is the smallest size that this share of the requests does not exceed.
    """
    sizes: dict[tuple[str, str], dict[int, int]] = {}
    for row in rows:
        mine = sizes.setdefault((row["role"], row["op"]), {})
        mine[row["bytes"]] = mine.get(row["bytes"], 0) + row["count"]
    return [
        {
            "mode": mode,
            "role": role,
            "op": op,
            "count": sum(counts.values()),
            "p50_bytes": quantile(counts, 50),
            "p95_bytes": quantile(counts, 95),
            "p99_bytes": quantile(counts, 99),
        }
        for (role, op), counts in sorted(sizes.items(), key=lambda each: (ROLES.index(each[0][0]), each[0][1]))
    ]


def quantile(counts: Mapping[int, int], percent: int) -> int:
    """Return the smallest size that ``percent`` of the requests do not exceed."""
    wanted, seen = math.ceil(sum(counts.values()) * percent / 100), 0
    for size in sorted(counts):
        seen += counts[size]
        if seen >= wanted:
            return size
    raise ValueError("no requests have no quantile")


def _key(row: ExpectedRow) -> Key:
    return row.phase, row.role, row.op, row.size_bytes


def _order(key: Key) -> tuple[int, int, int, str]:
    phase, role, op, size = key
    return PHASES.index(phase), ROLES.index(role), -size, op


def _layers(counts: Mapping[str, int]) -> list[tuple[str | None, int]]:
    """Return (layer, count), layers that ask equally often together; counts are those of all of them."""
    by_count: dict[int, list[str]] = {}
    rows: list[tuple[str | None, int]] = []
    for layer, count in counts.items():
        if layer:
            by_count.setdefault(count, []).append(layer)
        else:
            rows.append((None, count))
    for count, layers in by_count.items():
        rows.append((layers[0] if len(layers) == 1 else f"each of {len(layers)}", count * len(layers)))
    return rows
