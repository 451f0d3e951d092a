"""The small tables: communicators and the processes seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.kineto.groups import KinetoCommunicator, KinetoCommunicators, role_of
from ringwright.formats.sources.kineto.ranks import FileOrigin
from ringwright.ground.trace_tables import rows

if TYPE_CHECKING:
    import polars as pl


def communicators(groups: KinetoCommunicators, places: list[FileOrigin], world: int | None) -> pl.DataFrame:
    """Return the communicators of all files; sizes that nothing gives are assumed to be the world's."""
    return rows("communicators", [_row(group, places, world) for group in groups.groups.values()])


def _row(group: KinetoCommunicator, places: list[FileOrigin], world: int | None) -> dict[str, Any]:
    seen = sorted({places[file].rank for file in group.files})
    members = group.members
    size, ground = group.size, group.ground
    confidence = {"read": 1.0, "inferred": 0.9, "assumed": 0.4}[ground]
    if not group.is_mixed:
        size, members, ground, confidence = _assumed(group, seen, world, confidence)
    members = members or (-1,) * min(size or 0, 1 << 16)
    role = role_of(group.text) if group.text else None
    if role == "world" and world is not None and size != world:
        role = None
    return {
        "communicator": group.number,
        "comm_id": group.comm_id,
        "name": f"{group.comm_id} {group.text}".strip(),
        "size": size,
        "members": list(members),
        "ranks_seen": len(seen),
        "role": role,
        "role_evidence": f"described as {group.text}" if role else None,
        "ground": ground,
        "confidence": confidence,
    }


def _assumed(
    group: KinetoCommunicator, seen: list[int], world: int | None, confidence: float
) -> tuple[int, tuple[int, ...], str, float]:
    """Return size, members, ground and confidence of a group, from the world and the ranks seen where it does not say them."""
    size, members, ground = group.size, group.members, group.ground
    if size is None:
        size, ground, confidence = world or len(seen) or 1, "assumed", 0.3
    if not members and len(seen) == size and (group.size or world):
        members, ground, confidence = tuple(seen), "inferred", max(confidence, 0.6)
    return size, members, ground, confidence


def devices(places: list[FileOrigin]) -> list[dict[str, Any]]:
    """Return one row per process seen."""
    rows = {
        (where.rank, where.host, where.pid): {
            "kind": "device",
            "rank": where.rank,
            "host": where.host,
            "pid": where.pid,
            "device": where.device,
            "ground": where.ground,
        }
        for where in places
    }
    return list(rows.values())
