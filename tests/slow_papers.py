"""Which rows of papers a campaign alone computes anew: those that take seconds, of papers whose other rows run each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from campaigns import few

SLOW_MEASURES = {
    "allreduce-switch": {"cascade_in_cycles"},
    "blink": {"largest_gain", "average_gain", "least_share"},
    "centauri": {"gain_over_none"},
    "collective-einsum-overlap": {"async_tp"},
    "lynx": {"gain_over_full"},
    "oases": {"gain"},
    "p2": {"average_gain"},
    "sccl": {"largest_gain"},
    "taccl": {"largest_gain"},
    "tictac": {"largest_gain"},
}


def quick(slug: str, rows: Sequence[Mapping[str, Any]], n: int) -> list[Any]:
    """Return ``n`` rows of a paper that take less."""
    return few([row for row in rows if row.get("measure") not in SLOW_MEASURES.get(slug, ())], n)
