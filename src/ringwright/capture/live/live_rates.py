"""How fast a running job communicates: what is new between two looks, by operation, class of sizes and NIC."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ringwright.formats.exports.prometheus import bucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringwright.analysis.document import Summary


class LiveOperation(TypedDict):
    """An operation: its calls and bytes from the beginning, and what is new since the look before.

    ``bytes`` are of the nccl-tests size; None where no call says its size. ``gbs`` is bytes a second in 1e9, None where unknown.
    """

    op: str
    count: int
    bytes: int | None
    new: int
    per_s: float | None
    new_bytes: int | None
    gbs: float | None


class LiveSize(TypedDict):
    """The new calls of an operation in one class of sizes, named as NCCL Inspector's exporter names it."""

    op: str
    message_size: str
    new: int
    per_s: float | None
    gbs: float | None


class LiveNic(TypedDict):
    """What a NIC carried by the account of the algorithms: from the beginning, and in 1e9 bytes a second since the last look."""

    host: str
    nic: str
    sent_bytes: int
    received_bytes: int
    sent_gbs: float | None
    received_gbs: float | None


class LiveRates:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        self._operations: dict[str, tuple[int, int]] = {}
        self._sizes: dict[tuple[str, str], tuple[int, int]] = {}
        self._nics: dict[tuple[str, str], tuple[int, int]] = {}
        self._at_s: float | None = None

    def look(
        self, summary: Summary, at_s: float, *, is_caught_up: bool = True
    ) -> tuple[list[LiveOperation], list[LiveSize], list[LiveNic]]:
        """Return operations, classes of sizes and NICs with their rates since the look before.

        There are no rates where that look left something unread (``is_caught_up`` false).
        """
        passed_s = at_s - self._at_s if self._at_s is not None and is_caught_up else 0.0
        operations = [self._operation(row["op"], row["count"], row["bytes"], passed_s) for row in summary["operations"]]
        sizes = self._classes(summary, passed_s)
        nics = [
            self._nic(row["host"], row["nic"], row["sent_bytes"], row["received_bytes"], passed_s)
            for row in summary["nic_bytes"]
        ]
        self._operations = {row["op"]: (row["count"], row["bytes"] or 0) for row in operations}
        self._nics = {(row["host"], row["nic"]): (row["sent_bytes"], row["received_bytes"]) for row in nics}
        # Without an operation there is nothing to compare with: a first call is not new in so many seconds.
        self._at_s = at_s if operations else None
        return operations, sizes, nics

    def still(self, operations: Iterable[LiveOperation], at_s: float) -> list[LiveOperation]:
        """Return operations of a look at which nothing was new."""
        if self._at_s is not None:
            self._at_s = at_s
        return [
            {**row, "new": 0, "per_s": 0.0, "new_bytes": 0, "gbs": None if row["bytes"] is None else 0.0}
            for row in operations
        ]

    def _operation(self, op: str, count: int, amount: int | None, passed_s: float) -> LiveOperation:
        before, before_bytes = self._operations.get(op, (0, 0))
        # A file that was begun anew may say less than before.
        new = max(0, count - before)
        new_bytes = None if amount is None else max(0, amount - before_bytes)
        return {
            "op": op,
            "count": count,
            "bytes": amount,
            "new": new,
            "per_s": _per_s(new, passed_s),
            "new_bytes": new_bytes,
            "gbs": _gbs(new_bytes, passed_s),
        }

    def _classes(self, summary: Summary, passed_s: float) -> list[LiveSize]:
        now: dict[tuple[str, str], tuple[int, int]] = {}
        for row in summary["operations"]:
            for each in row["size_histogram"]:
                size, count = each["size_bytes"], each["count"]
                key = (row["op"], bucket(size))
                calls, amount = now.get(key, (0, 0))
                now[key] = (calls + count, amount + count * (size or 0))
        sizes: list[LiveSize] = []
        for (op, name), (count, amount) in now.items():
            before, before_bytes = self._sizes.get((op, name), (0, 0))
            new, new_bytes = max(0, count - before), max(0, amount - before_bytes)
            if new:
                gbs = _gbs(new_bytes, passed_s) if name != "unknown" else None
                sizes.append({"op": op, "message_size": name, "new": new, "per_s": _per_s(new, passed_s), "gbs": gbs})
        self._sizes = now
        return sizes

    def _nic(self, host: str, nic: str, sent: int, received: int, passed_s: float) -> LiveNic:
        before = self._nics.get((host, nic), (0, 0))
        return {
            "host": host,
            "nic": nic,
            "sent_bytes": sent,
            "received_bytes": received,
            "sent_gbs": _gbs(max(0, sent - before[0]), passed_s),
            "received_gbs": _gbs(max(0, received - before[1]), passed_s),
        }


def _per_s(new: int, passed_s: float) -> float | None:
    return new / passed_s if passed_s > 0 else None


def _gbs(new_bytes: int | None, passed_s: float) -> float | None:
    return new_bytes / passed_s / 1e9 if passed_s > 0 and new_bytes is not None else None
