"""NCCL's choices size by size, for a kind of node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringwright.algorithms.libraries.nccl_2_4.system import SPELLINGS, shaped
from ringwright.costs.nccl import NODE_TYPES, choose
from ringwright.ground.errors import UsageError

NEWEST = "2.30"
DEFAULT_NODE_TYPE = "dgx-h100"
FAMILIES = {"dgx1": "dgx-1", "dgx2": "dgx-2"}  # of fabrics with another name


def fabric_of(fabric: str | None, nodes: int) -> str:
    """Return the spelling of the fabric that so many nodes of a kind make, ``dgx-h100:2``."""
    name = fabric or DEFAULT_NODE_TYPE
    kind = NODE_TYPES.get(SPELLINGS.get(name, name))
    return f"{FAMILIES.get(name, name)}:{-(-nodes // (kind.domain if kind else 1))}"


def choices(
    op: str, ranks: int, nodes: int, sizes: Sequence[int], *, release: str = "", fabric: str | None = None
) -> list[dict[str, Any]]:
    """Return size_bytes, algorithm, protocol, channels and predicted time_us for each size."""
    name = SPELLINGS.get(fabric or DEFAULT_NODE_TYPE, fabric or DEFAULT_NODE_TYPE)
    if name not in NODE_TYPES:
        raise UsageError(
            f"NCCL's search is not known for '{fabric}'", remedy=f"--fabric {', '.join(sorted(NODE_TYPES))}"
        )
    system = shaped(name, nodes, ranks)
    rows = []
    for size in sizes:
        chosen = choose(op, max(size, 1), system, release or NEWEST)
        rows.append(
            {
                "size_bytes": size,
                "algorithm": chosen.algorithm,
                "protocol": chosen.protocol,
                "channels": chosen.channels_used,
                "time_us": chosen.time_us,
            }
        )
    return rows
