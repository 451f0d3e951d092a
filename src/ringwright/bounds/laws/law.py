"""What a law is, the table of them, and how a refusal is written down."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "law "


@dataclass(frozen=True, slots=True)
class Law:
    """A name of one or two words and the sentence that must hold."""

    name: str
    statement: str


LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law("algbw", "algorithm bandwidth is size / time, within what the printed digits allow"),
        Law("busbw", "bus bandwidth is algorithm bandwidth x the factor of the operation and its ranks"),
        Law("correct", "what a benchmark computed is right: no element is wrong, no value out of bounds"),
        Law("columns", "the words of a row stand under the words of its header"),
        Law("time", "what was measured took time: above 0, and a number"),
        Law("ranks", "no more ranks are seen than are expected, and the rows are those of so many ranks"),
        Law("alone", "what one rank does alone moves nothing between ranks: it has a time and no bandwidth"),
        Law("records", "sequence numbers of a group have no gaps: each operation left a record"),
        Law("ceiling", "nothing moves faster than the links of the named GPU and NIC, in-network reduction included"),
        Law("transport", "a connection goes by one of NCCL's transports, spelled as NCCL spells it"),
        Law("series", "times are compared over calls of known size, seen on two ranks or more, from step to step"),
    )
}


def reason(law: str, detail: str = "") -> str:
    """Return how the ledger names a refusal: ``law busbw: 12.3 printed, 45.6 by size, time and ranks``.

    Raises KeyError for a law that is not in :data:`LAWS`.
    """
    return f"{PREFIX}{LAWS[law].name}: {detail or LAWS[law].statement}"


def told_by(said: str) -> tuple[str, str]:
    """Return the law and the detail that :func:`reason` put into words; empty words for what it did not."""
    name, colon, detail = said.removeprefix(PREFIX).partition(": ")
    return (name, detail) if said.startswith(PREFIX) and colon and name in LAWS else ("", "")


@dataclass
class Refusals:
    """Counts of what an analysis refused, by law, with the first example of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def refuse(self, law: str, example: str, count: int = 1) -> None:
        """Note that ``count`` values broke a law; KeyError for a law that is not in :data:`LAWS`."""
        self.counts[LAWS[law].name] += count
        self.examples.setdefault(law, example)

    def rows(self) -> list[dict[str, Any]]:
        """Return what ``summary.laws`` holds: ``law``, ``refused``, ``example``."""
        return [{"law": name, "refused": count, "example": self.examples[name]} for name, count in self.counts.items()]


def wrong_results(laws: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the row of ``summary.laws`` that says that a benchmark computed wrong values; None where it did not."""
    return next((row for row in laws if row["law"] == "correct"), None)


def of_ledger(ledger: Iterable[Mapping[str, Any]]) -> Refusals:
    """Return the refusals by law that stand in the rows of a Trace's ledger."""
    refused = Refusals()
    for row in ledger:
        name, detail = told_by(row["reason"] or "")
        if name and row["outcome"] in ("refused", "missing"):
            refused.refuse(name, row["example"] or detail, row["lines"] or 0)
    return refused
