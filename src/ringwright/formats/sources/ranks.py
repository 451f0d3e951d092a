"""Which rank wrote a file, and which ranks there are, where only file names and their number say so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from ringwright.ground.errors import UsageError

_NAMED = re.compile(r"rank[^0-9a-z]{0,2}(\d{1,6})(?!\d)", re.IGNORECASE)
_ENDINGS = re.compile(r"(?:\.(?:json|et|gz|zst|txt|log|sqlite|pt|csv|trace|out))+$", re.IGNORECASE)
_LAST = re.compile(r"(?:^|[._\-])(\d{1,6})$")


# The pattern given; one without a slash is of the last name alone.
_said: ContextVar[str | None] = ContextVar("said", default=None)
_LARGEST = 1 << 24
_FORMS = "'worker-{rank}-*.json', or a regular expression with a group: 'worker-(\\d+)'"


@cache
def compiled(said: str) -> re.Pattern[str]:
    """Return the pattern that ``said`` means: a name with ``{rank}`` in it and ``*`` for anything, or a regular expression.

    Raises UsageError for what is no regular expression, or says not which group is the rank.
    """
    text = said
    if "{rank}" in said:
        pieces = (re.escape(piece).replace(r"\*", "[^/]*") for piece in said.split("{rank}"))
        text = r"(?P<rank>\d+)".join(pieces)
        text = f"(?:^|/){text}(?:$|[.])" if "*" not in said[-1:] else f"(?:^|/){text}"
    try:
        made = re.compile(text)
    except re.error as error:
        raise UsageError(f"--rank-from '{said}' is no pattern: {error}", remedy=f"use {_FORMS}") from error
    if text.count("(?P<rank>") > 1 or ("rank" not in made.groupindex and made.groups != 1):
        raise UsageError(f"--rank-from '{said}' says not where the rank stands", remedy=f"use {_FORMS}")
    return made


@contextmanager
def named_by(said: str | None) -> Iterator[None]:
    """Have a pattern tell ranks from the names of files while the body runs; None leaves it to what is usual."""
    if said is not None:
        compiled(said)
    before = _said.set(said if said is not None else _said.get())
    try:
        yield
    finally:
        _said.reset(before)


def told_pattern() -> str | None:
    """Return the pattern given, None for none."""
    return _said.get()


def rank_by_pattern(name: str) -> int | None:
    """Return the rank that the pattern given finds in a file's name, or in its path where it has a slash; None: none."""
    given = _said.get()
    if given is None:
        return None
    pattern = compiled(given)
    match = pattern.search(name.replace("\\", "/") if "/" in given else _title(name))
    if match is None:
        return None
    said = match["rank"] if "rank" in match.re.groupindex else match[1]
    rank = int(said) if said is not None and said.isdecimal() and len(said) < 9 else None
    return rank if rank is not None and rank < _LARGEST else None


def rank_in_name(name: str) -> int | None:
    """Return the rank that a file name gives: by the pattern given, or ``x.rank3.json``, ``trace_3.json``, ``3.json``."""
    if (told := rank_by_pattern(name)) is not None:
        return told
    title = _title(name)
    named = _NAMED.search(title)
    if named:
        return int(named[1])
    last = _LAST.search(_ENDINGS.sub("", title))
    return int(last[1]) if last else None


def _title(name: str) -> str:
    """Return the last name of a path, or of a path within an archive."""
    return re.split(r"[/\\!:]", name)[-1]


def distinct(names: Sequence[str]) -> list[int] | None:
    """Return a rank per name where every name gives one and no two agree, else None."""
    numbers = [rank_in_name(name) for name in names]
    ranks = [rank for rank in numbers if rank is not None]
    return ranks if len(ranks) == len(names) == len(set(ranks)) else None


def world_of(ranks: Iterable[int]) -> int | None:
    """Return the number of ranks where more than one was seen and none below the highest is missing."""
    seen = set(ranks)
    return len(seen) if len(seen) > 1 and seen == set(range(len(seen))) else None
