"""The law of records: a group numbers its operations in order, so a number that nothing carries is a record that is missing.

Nothing was refused then, and nothing that was read is wrong; but counts and bytes are lower bounds, and that must be said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ringwright.bounds.laws.law import Law

MOST_TIMES = 1000  # as many missing as this times the records that are there: then the numbers are no sequence
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """How many numbers between the first and the last are missing, with the first few of them."""

    first: int
    last: int
    seen: int
    missing: int
    examples: tuple[int, ...]

    def __str__(self) -> str:
        """Return what a ledger's line says of it."""
        listed = ", ".join(map(str, self.examples)) + (", ..." if self.missing > len(self.examples) else "")
        return (
            f"{self.missing:,} of {self.missing + self.seen:,} between {self.first:,} and {self.last:,} (no {listed})"
        )


def gap(numbers: Iterable[int], first: int | None = None) -> Gap | None:
    """Return the gap in sequence numbers given in any order, repeated or not; None without a gap, or where they are no sequence.

    ``first`` is where the numbers should begin, if other ranks of the group show it.
    """
    held = sorted(set(numbers))
    if not held:
        return None
    start = min(held[0], first) if first is not None else held[0]
    missing = held[-1] - start + 1 - len(held)
    if missing <= 0 or missing > MOST_TIMES * len(held):
        return None
    return Gap(start, held[-1], len(held), missing, tuple(_absent(held, start)))


def _absent(held: list[int], start: int) -> list[int]:
    absent: list[int] = []
    expected = start
    for number in held:
        absent += range(expected, min(number, expected + _EXAMPLES - len(absent)))
        if len(absent) >= _EXAMPLES:
            break
        expected = number + 1
    return absent


def _judge(*numbers: int) -> str:
    missing = gap(numbers)
    return "" if missing is None else str(missing)


LAWS = (
    Law(
        "records",
        "sequence numbers of a group have no gaps: each operation left a record",
        "NVIDIA/nccl: opCount grows by one with each operation of a communicator",
        _judge,
        kept=((3, 4, 5), (5, 4, 3, 3), (7,)),
        broken=((3, 5), (0, 1, 4)),
    ),
)
