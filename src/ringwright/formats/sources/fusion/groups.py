"""Which communicator of one source is which of another."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace


def match(parts: Sequence[Trace], claims: list[Row]) -> tuple[list[Row], list[dict[int, int]]]:
    """Return the communicators of all parts together, and for each part old number -> common number.

    Communicators of one part are never merged. A match that is not by identity is a claim.
    """
    common: list[Row] = []
    numbers: list[dict[int, int]] = []
    for part in parts:
        number: dict[int, int] = {}
        taken: set[int] = set()
        mine = part.table("communicators").to_dicts()
        sizes = Counter(row["size"] for row in mine)
        for row in mine:
            index, how = _find(row, common, taken, alone=sizes[row["size"]] == 1)
            if index is None:
                index = len(common)
                common.append(dict(row))
            else:
                common[index] = _joined(common[index], row)
                if how != "identity":
                    claims.append(_claim(part, row, index, how))
            taken.add(index)
            number[row["communicator"]] = index
        for index in set(number.values()):
            parent = common[index].get("parent")
            if parent is not None and parent in number:
                common[index]["parent"] = number[parent]
        numbers.append(number)
    return [row | {"communicator": index} for index, row in enumerate(common)], numbers


def _find(row: Row, common: list[Row], taken: set[int], *, alone: bool) -> tuple[int | None, str]:
    """Return the communicator that a row is, and by what: its identity, its members, or as the only one of its size."""
    free = [index for index in range(len(common)) if index not in taken]
    for key in ("comm_id", "name"):
        same = [index for index in free if row[key] and common[index][key] == row[key] and _may_be(row, common[index])]
        if len(same) == 1:
            return same[0], "identity"
    members = _known(row)
    if members:
        same = [index for index in free if _known(common[index]) == members]
        if len(same) == 1:
            return same[0], "members"
    same = [index for index in free if common[index]["size"] == row["size"] and _may_be(row, common[index])]
    others = Counter(other["size"] for other in common)[row["size"]]
    if alone and row["size"] and len(same) == others == 1:
        return same[0], "size"
    return None, ""


def _known(row: Row) -> tuple[int, ...]:
    """Return the members where all are known."""
    members = tuple(row["members"] or ())
    return () if not members or -1 in members else members


def _may_be(row: Row, other: Row) -> bool:
    """Say whether nothing speaks against two rows being one communicator."""
    if row["size"] and other["size"] and row["size"] != other["size"]:
        return False
    both = (_known(row), _known(other))
    return not all(both) or both[0] == both[1]


def _joined(row: Row, further: Row) -> Row:
    """Return a row with what only the further source knows."""
    joined = {key: further[key] if value in (None, "", []) else value for key, value in row.items()}
    if not _known(row) and _known(further):
        joined["members"] = further["members"]
    joined["ranks_seen"] = max(row["ranks_seen"] or 0, further["ranks_seen"] or 0)
    return joined


def _claim(part: Trace, row: Row, index: int, how: str) -> Row:
    name = row["name"] or row["comm_id"] or f"number {row['communicator']}"
    return {
        "field": f"communicator {index}",
        "value": str(name),
        "source": str(part.meta.get("source", "")),
        "ground": "inferred",
        "confidence": 0.95 if how == "members" else 0.7,
        "note": f"taken for the same group by its {how}",
    }
