"""Other traffic on the fabric, as one line: ``congestion from all-to-all 64MiB on 0-7 by pairwise``.

The other job repeats its collective without a pause, each time when all of its ranks are done. ``on``: its ranks, all if left
out; ``by``: its algorithm, the usual one if left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringwright.ground.errors import UsageError
from ringwright.ground.units import parse_size
from ringwright.model.collective import OPS

WORD = "congestion"
HELP = "congestion from all-to-all 64MiB on 0-7, or --beside 'all-reduce 256MiB on 8-15 by ring'"
MODELS = "a whole model beside a collective is not simulated; name the collective that it repeats"
_CARRY_NOTHING = ("barrier",)


@dataclass(frozen=True)
class Congestion:
    """A collective that another job repeats; ``group`` None: of all ranks, ``algorithm`` empty: by the usual one."""

    op: str
    size_bytes: int
    group: tuple[int, ...] | None
    algorithm: str
    text: str


def is_congestion(line: str) -> bool:
    """Say whether a line of faults is one of congestion."""
    return line.partition("#")[0].split()[:1] == [WORD]


def split(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the lines of congestion and all others."""
    listed = list(lines)
    return [line for line in listed if is_congestion(line)], [line for line in listed if not is_congestion(line)]


def congestion(line: str, ranks: int) -> Congestion:
    """Return what a line says of a fabric of so many ranks, its first two words left out or not.

    Raises UsageError for what is no collective, no size or no rank of the fabric, and for a model.
    """
    text = " ".join(line.partition("#")[0].split())
    words, where = text.split(), f"'{text}'"
    if words[:1] == [WORD]:
        if words[1:2] != ["from"]:
            raise UsageError("'from' is missing", where=where, remedy=HELP)
        words = words[2:]
    if len(words) < 2:
        raise UsageError("a collective and its size are missing", where=where, remedy=HELP)
    op, size = words[:2]
    if op not in OPS or op in _CARRY_NOTHING:
        raise UsageError(f"'{op}' is no collective that carries data: {MODELS}", where=where, remedy=HELP)
    size_bytes = parse_size(size)
    if size_bytes <= 0:
        raise UsageError("a job that moves nothing is in nobody's way", where=where, remedy=HELP)
    told = {"on": "", "by": ""}
    rest = words[2:]
    while rest:
        name, value, rest = rest[0], rest[1:2], rest[2:]
        if name not in told or not value or told[name]:
            raise UsageError(f"'{' '.join([name, *value])}' is not understood", where=where, remedy=HELP)
        told[name] = value[0]
    return Congestion(op, size_bytes, _group(told["on"], ranks, where), told["by"], text.removeprefix(f"{WORD} from "))


def _group(text: str, ranks: int, where: str) -> tuple[int, ...] | None:
    """Return the ranks of ``0-7,16``; None for the empty text."""
    if not text:
        return None
    group: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise UsageError(f"'{part}' is no rank", where=where, remedy=HELP)
        begin, end = int(first), int(last or first)
        if begin > end or end >= ranks:
            raise UsageError(f"'{part}' names no ranks of 0 to {ranks - 1}", where=where, remedy=HELP)
        group += range(begin, end + 1)
    _require_several(group, where)
    return tuple(group)


def _require_several(group: Sequence[int], where: str) -> None:
    if len(set(group)) < len(group):
        raise UsageError("a rank is named twice", where=where, remedy=HELP)
    if len(group) < 2:
        raise UsageError("one rank alone sends to nobody", where=where, remedy=HELP)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
