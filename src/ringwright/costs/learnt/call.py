"""A call of NCCL as the learnt model sees it: the closed form's time, how it follows each number of the machine, its kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from ringwright.costs.nccl.timing import COLUMNS, NcclOverride, stages
from ringwright.costs.transports import MEDIA, TRANSPORTS

if TYPE_CHECKING:
    from ringwright.costs.nccl.graphs import NcclSystem
    from ringwright.costs.nccl.node_types import NodeType

LEARNT_OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv")
NUMBERS = len(COLUMNS) - 1  # of a machine: hop, message and rate, inside and outside
STEP = 0.1  # of the logarithm of a number, in which the closed form's answer to it is measured
WHERE = {name: at for at, name in enumerate(TRANSPORTS)}
MEDIUM = {name: MEDIA.index(each.medium) for name, each in TRANSPORTS.items()}


@dataclass(frozen=True)
class LibraryCall:
    """One operation of NCCL on one machine at several sizes (bytes, the nccl-tests size column)."""

    op: str
    sizes_bytes: tuple[int, ...]
    kind: NodeType
    system: NcclSystem
    release: str
    transport: str  # between nodes; what joins the GPUs of one is ``nvlink``
    forced: NcclOverride | None = None
    owner: str = ""  # system that was measured; calls of one have parts of the factor in common
    setting: str = ""
    table: str = ""

    @property
    def carrier(self) -> str:
        """The transport that decides: ``nvlink`` where all ranks are in one node."""
        return self.transport if self.system.nodes > 1 else "nvlink"


@dataclass(frozen=True)
class Points:
    """Calls size by size: arrays of one length n.

    int64: ``medium``, ``transport``, ``op``, ``owner``, ``setting``, ``table``; float64: ``size`` (ln bytes), ``nodes`` (ln
    nodes; in one node, of its ranks), ``base_s`` (the closed form), ``follows`` (n, numbers): the power of each
    of the machine's numbers with which the time grows.
    """

    medium: np.ndarray
    transport: np.ndarray
    op: np.ndarray
    size: np.ndarray
    nodes: np.ndarray
    base_s: np.ndarray
    follows: np.ndarray
    owner: np.ndarray
    setting: np.ndarray
    table: np.ndarray

    def __len__(self) -> int:
        return len(self.size)

    def at(self, which: np.ndarray | slice) -> Points:
        """Return some of the points; ``which`` is bool or int64 of shape (points,)."""
        return Points(**{each.name: getattr(self, each.name)[which] for each in fields(self)})


def of_calls(calls: Sequence[LibraryCall]) -> Points:
    """Return the points of calls, one a size, in order; UsageError for an operation that has no closed form."""
    parts: list[dict[str, np.ndarray]] = []
    owners, settings, tables = (_numbers(calls, name) for name in ("owner", "setting", "table"))
    for at, call in enumerate(calls):
        base, follows = _followed(call)
        count, nodes = len(call.sizes_bytes), call.system.nodes
        spread = math.log(nodes) if nodes > 1 else math.log(max(call.system.ranks, 1)) - 2.0
        same = {
            "medium": MEDIUM[call.carrier],
            "transport": WHERE[call.carrier],
            "op": LEARNT_OPS.index(call.op),
            "owner": owners[at],
            "setting": settings[at],
            "table": tables[at],
        }
        parts.append(
            {
                **{name: np.full(count, number, np.int64) for name, number in same.items()},
                "size": np.log(np.maximum(np.array(call.sizes_bytes, float), 1.0)),
                "nodes": np.full(count, spread),
                "base_s": base,
                "follows": follows,
            }
        )
    return Points(**{each.name: np.concatenate([part[each.name] for part in parts]) for each in fields(Points)})


def _numbers(calls: Sequence[LibraryCall], name: str) -> list[int]:
    """Return a number for each call, equal where they are of one owner (and one of its settings)."""
    keys = [(call.owner, getattr(call, name)) for call in calls]
    known = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    return [known[key] for key in keys]


def _followed(call: LibraryCall) -> tuple[np.ndarray, np.ndarray]:
    """Return the closed form at each size in s (n,), and its power of each number of the machine (n, numbers); float64."""
    asked = call.kind, call.system, call.release, call.forced, call.transport
    rows = [stages(call.op, size, *asked) for size in call.sizes_bytes]
    serial = np.array([row.serial for row in rows]).reshape(-1, len(COLUMNS))
    most = max((len(row.parallel) for row in rows), default=0)
    none = (0.0,) * len(COLUMNS)
    parallel = np.array([(*row.parallel, *[none] * (most - len(row.parallel))) for row in rows])
    machine = usual(call.kind, call.transport)
    moved = np.concatenate([np.zeros((1, NUMBERS)), STEP * np.eye(NUMBERS), -STEP * np.eye(NUMBERS)])
    machines = np.concatenate([np.ones((len(moved), 1)), machine * np.exp(moved)], axis=1)
    seconds = serial @ machines.T + (parallel @ machines.T).max(axis=1)
    logs = np.log(seconds)
    return seconds[:, 0], (logs[:, 1 : 1 + NUMBERS] - logs[:, 1 + NUMBERS :]) / (2 * STEP)


def usual(kind: NodeType, transport: str) -> np.ndarray:
    """Return what a machine of this node and transport has usually: s and s/byte by the columns of the closed form but the first.

    float64 of shape (numbers,).
    """
    near, far = TRANSPORTS["nvlink"], TRANSPORTS[transport]
    nics = kind.nics * kind.nic_gbs * 1e9 * far.efficiency
    inside = max(kind.gpu_gbs, 20.0) * 1e9 * near.efficiency
    return np.array([near.hop_s, near.message_s, 1 / inside, far.hop_s, far.message_s, 1 / nics])
