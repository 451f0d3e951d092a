"""What a library would choose for a collective, size by size, with the time it predicts where it predicts one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ringwright.errors import UsageError
from ringwright.studies.registry import find, systems
from ringwright.studies.simulate import sizes

__all__ = ["choices", "sizes"]
SCHEMA = "ringwright.library/1"


def choices(
    spelling: str, op: str, ranks: int, nodes: int, wanted: Sequence[int], fabric: str | None = None
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.library/1``; raise UsageError for what is no library."""
    slug, _, release = spelling.partition("@")
    system = find(slug)
    if system.kind != "library":
        libraries = [other.slug for other in systems() if other.kind == "library"]
        raise UsageError(f"{slug} is no library: it does not choose", remedy=f"one of: {', '.join(libraries)}")
    if ranks < 1 or nodes < 1 or nodes > ranks:
        raise UsageError(f"{ranks} ranks on {nodes} nodes", remedy="give at least one node, and one rank per node")
    rows = import_module(f"{system.module}.choices").choices(op, ranks, nodes, wanted, release=release, fabric=fabric)
    return {
        "schema": SCHEMA,
        "library": slug,
        "release": release,
        "collective": op,
        "ranks": ranks,
        "nodes": nodes,
        "rows": rows,
    }
