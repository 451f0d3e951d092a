"""Which rank wrote a file, and which ranks there are, where only file names and their number say so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NAMED = re.compile(r"rank[^0-9a-z]{0,2}(\d{1,6})(?!\d)", re.IGNORECASE)
_ENDINGS = re.compile(r"(?:\.(?:json|et|gz|zst|txt|log|sqlite|pt|csv|trace|out))+$", re.IGNORECASE)
_LAST = re.compile(r"(?:^|[._\-])(\d{1,6})$")


def rank_in_name(name: str) -> int | None:
    """Return the rank that a file name gives: ``x.rank3.json``, ``prefix.3.et``, ``trace_3.json``, ``3.json``."""
    title = re.split(r"[/\\!:]", name)[-1]  # a path, or a path within an archive
    named = _NAMED.search(title)
    if named:
        return int(named[1])
    last = _LAST.search(_ENDINGS.sub("", title))
    return int(last[1]) if last else None


def distinct(names: Sequence[str]) -> list[int] | None:
    """Return a rank per name where every name gives one and no two agree, else None."""
    numbers = [rank_in_name(name) for name in names]
    ranks = [rank for rank in numbers if rank is not None]
    return ranks if len(ranks) == len(names) == len(set(ranks)) else None


def world_of(ranks: Iterable[int]) -> int | None:
    """Return the number of ranks where more than one was seen and none below the highest is missing."""
    seen = set(ranks)
    return len(seen) if len(seen) > 1 and seen == set(range(len(seen))) else None
