"""Claims of papers as a report reads them: schema ``ringwright.reproduce/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringwright.ground.documents import keyed, read_json


@dataclass(frozen=True, slots=True)
class ReproducedRow:
    """A claim beside what was got; ``because``: why it cannot be predicted."""

    figure: str
    kind: str
    claimed: object
    got: object = None
    tolerance: object = None
    note: str = ""
    because: str = ""
    passes: bool = keyed("pass")


@dataclass(frozen=True, slots=True)
class ReproducedPaper:
    """The claim of a paper, and its rows as they are told."""

    slug: str
    figure: str
    source: str
    note: str
    rows: list[Mapping[str, Any]]

    @property
    def claims(self) -> list[ReproducedRow]:
        """The rows."""
        return [read_json(ReproducedRow, each) for each in self.rows]


@dataclass(frozen=True, slots=True)
class KindCount:
    """A kind of rows."""

    kind: str


@dataclass(frozen=True, slots=True)
class Reproduced:
    """All papers, and the kinds of their rows."""

    papers: list[ReproducedPaper]
    kinds: list[KindCount]
