"""Which claims of a Trace hold for a benchmark table: those whose source is its name, or the first words of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Told:
    """What one source says of one field: its first claim, where that stands among all, and whether others of it differ."""

    order: int
    value: str
    is_disputed: bool = False


class TableClaims:
    """The claims about some fields, by source, so that a table asks those of its own name and not all of them.

    A name has as many beginnings as words, and to look one up costs its length; but only one as long as a source can be one.
    Measured: the sources of the published recordings, read by folder, have 4 and 7 different lengths, those of 22,000 tables in
    a file of 10 MB have 6, and a table's name has at most 3 words.
    """

    def __init__(self, trace: Trace, fields: Iterable[str]) -> None:
        wanted = frozenset(fields)
        self._told: dict[str, dict[str, Told]] = {}
        self._first: dict[str, Told] = {}
        for order, claim in enumerate(trace.table("claims").to_dicts()):
            field, value = claim["field"], claim["value"]
            if field in wanted and value:
                for told in (self._told.setdefault(str(claim["source"]), {}), self._first):
                    first = told.setdefault(field, Told(order, value))
                    if value != first.value and not first.is_disputed:
                        told[field] = Told(first.order, first.value, is_disputed=True)
        self._asked: dict[tuple[str, str], Told | None] = {}  # a table asks once for each of its rows
        self._lengths = sorted({len(source) for source in self._told})

    def job(self, field: str) -> Told | None:
        """Return what all sources say of a field, as one: a job's claims hold for all of it."""
        return self._first.get(field)

    def table(self, name: str, field: str) -> Told | None:
        """Return what the sources of a table say of a field, as one."""
        if (name, field) not in self._asked:
            self._asked[name, field] = _as_one(
                [told for source in self._sources(name) if (told := self._told[source].get(field))]
            )
        return self._asked[name, field]

    def _sources(self, name: str) -> Iterator[str]:
        for length in self._lengths:
            if length > len(name):
                return
            if length == len(name) or name[length] == " ":
                source = name[:length]
                if source in self._told:
                    yield source


def _as_one(every: list[Told]) -> Told | None:
    if not every:
        return None
    first = min(every, key=lambda told: told.order)
    return Told(first.order, first.value, any(told.is_disputed or told.value != first.value for told in every))
