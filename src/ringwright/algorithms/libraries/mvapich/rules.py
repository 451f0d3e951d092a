"""How MVAPICH2 sizes a two-level collective: leaders per node, the algorithm among leaders, the way through a node.

The thresholds in ``rules.json`` are assumed, not read: the library ships tables per machine that are not public. Every
choice says so in its ``ground``. Source of the mechanism: DPML (Bayatpour et al., SC 2017), doi 10.1145/3126908.3126954.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ringwright.ground.errors import UsageError

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class TwoLevel:
    """``leaders`` per node (each has 1/leaders of the vector), the algorithm among them, and whether one copy suffices."""

    leaders: int
    outer: str
    single_copy: bool
    ground: str = "assumed thresholds"


@dataclass(frozen=True, slots=True)
class Staging:
    """How a GPU buffer reaches the network: directly, or through host memory in blocks of ``block_bytes``."""

    direct: bool
    block_bytes: int
    ground: str = "assumed thresholds"


@cache
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(Path(__file__).with_name("rules.json").read_text())
    return facts


def two_level(op: str, node_sizes: Sequence[int], size_bytes: int, *, leaders: int | None = None) -> TwoLevel:
    """Return the plan for an operation over nodes with ``node_sizes`` ranks each; ``leaders`` overrides the rule.

    The rule takes no more leaders than the smallest node has ranks. An override may: in a smaller node a rank then leads
    several parts.
    """
    if not node_sizes or min(node_sizes) < 1:
        raise UsageError(
            f"nodes of {list(node_sizes)} ranks: each needs one at least", remedy="give each node one rank or more"
        )
    if leaders is not None and leaders < 1:
        raise UsageError(f"{leaders} leaders per node", remedy="give one leader or more")
    if op not in _facts()["outer"]:
        raise UsageError(f"no two-level form of {op}", remedy=f"one of {', '.join(_facts()['outer'])}")
    by_rule = min(up_to(_facts()["leaders"], size_bytes), *node_sizes)
    return TwoLevel(
        leaders=by_rule if leaders is None else leaders,
        outer=up_to(_facts()["outer"][op], size_bytes),
        single_copy=size_bytes > _facts()["single_copy_above_bytes"],
    )


def staging(size_bytes: int) -> Staging:
    """Return how ``size_bytes`` of GPU memory reach the network."""
    return Staging(size_bytes <= _facts()["gpu_direct_up_to_bytes"], _facts()["gpu_block_bytes"])


def up_to(rows: Sequence[tuple[int | None, _Value]], size_bytes: int) -> _Value:
    """Return the value of the first row whose end is not below ``size_bytes``."""
    return next(value for end, value in rows if end is None or size_bytes <= end)
