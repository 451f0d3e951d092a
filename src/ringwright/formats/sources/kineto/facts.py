"""What is said of one collective: the metadata on its kernel, on its record, or spelled by an older release."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ringwright.formats.sources import c10d
from ringwright.formats.sources.datatypes import BYTES, datatype
from ringwright.formats.sources.kineto.columns import whole
from ringwright.formats.sources.kineto.names import operation
from ringwright.formats.sources.kineto.records import CommArgs

LARGEST_GROUP = 1 << 22


@dataclass(frozen=True)
class CallFacts:
    """Parsed metadata of a call; None where nothing is said. ``ranks`` may be the beginning of a longer list."""

    op: str | None = None
    said: str | None = None
    datatype: str | None = None
    in_count: int | None = None
    out_count: int | None = None
    group_name: str | None = None
    group_text: str | None = None
    group_size: int | None = None
    ranks: tuple[int, ...] = ()
    is_cut: bool = False
    first_rank: int | None = None
    stride: int | None = None
    rank: int | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    sequence: int | None = None
    root: int | None = None

    def elements(self, op: str) -> int | None:
        """Return the elements handed in, for a receive those that come."""
        sides = (self.out_count, self.in_count) if op == "recv" else (self.in_count, self.out_count)
        return next((side for side in sides if side is not None), None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said that would identify the call."""
        return self.said is None and self.group_name is None


def facts(sources: Iterable[CommArgs | None]) -> CallFacts:
    """Merge what several records say of one call; the first that speaks of a field wins."""
    said = [args for args in sources if args is not None]

    def first(field: str) -> Any:
        return next((value for args in said if (value := getattr(args, field)) is not None), None)

    name = first("group_name")
    if name is None:
        name = first("group_id")
    ranks, is_cut = rank_list(first("group_ranks"))
    size = positive(first("group_size"))
    collective = first("collective")
    return CallFacts(
        operation(collective),
        collective if isinstance(collective, str) else None,
        datatype(first("dtype")),
        positive(first("in_count")),
        positive(first("out_count")),
        str(name)[:200] if isinstance(name, str | int) else None,
        text[:200] if isinstance(text := first("group_text"), str) else None,
        size if size and size <= LARGEST_GROUP else None,
        ranks,
        is_cut or (size is not None and 0 < len(ranks) < size),
        positive(first("first_rank")),
        positive(first("stride")),
        positive(first("rank")),
        positive(first("src_rank")),
        positive(first("dst_rank")),
        positive(first("sequence")),
        positive(first("root")),
    )


def positive(value: Any) -> int | None:
    """Return a whole number from 0 on, or None."""
    number = whole(value)
    return number if number is not None and number >= 0 else None


def rank_list(value: Any) -> tuple[tuple[int, ...], bool]:
    """Return the ranks of ``[0, 1, ..., 63]``, a text or a list, up to where it is cut, and whether it is cut."""
    if isinstance(value, list):
        numbers = [positive(item) for item in value[:LARGEST_GROUP]]
        return tuple(number for number in numbers if number is not None), None in numbers
    if not isinstance(value, str):
        return (), False
    before, dots, _ = value.partition("...")
    return tuple(int(number) for number in re.findall(r"\d{1,9}", before)), bool(dots)


def sizes(op: str, said: CallFacts, nranks: int | None) -> dict[str, int | None]:
    """Return bytes of a call: ``size_bytes`` as nccl-tests counts, ``sent_bytes``, ``received_bytes``, ``element_bytes``.

    The profiler counts elements handed in and out by this rank; what is not said, and cannot be told from the size of the
    group, is unknown.
    """
    width = BYTES[said.datatype] if said.datatype else None
    sent, received = (None if n is None or width is None else n * width for n in (said.in_count, said.out_count))
    held = c10d.sizes(op, sent, received, nranks)
    return {
        "element_bytes": width,
        "sent_bytes": held.sent,
        "received_bytes": held.received,
        "size_bytes": held.size,
    }
