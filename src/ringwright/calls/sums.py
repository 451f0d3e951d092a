"""What the sums of an algorithm are worth where switches make them in a number format of their own: run on numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.calls import spelled
from ringwright.calls.numerics import measured
from ringwright.ground.errors import RingwrightError

if TYPE_CHECKING:
    from ringwright.calls.simulated_document import SimulatedRow
    from ringwright.calls.simulation_spec import SimulationSpec

MOST_NUMBERS = 1 << 16  # over all ranks


@dataclass(frozen=True, slots=True)
class SumsOf:
    """How far an algorithm's sums of normal numbers are from exact ones; ``size_bytes``: of what was added, no more than asked.

    ``relative_rms`` of the results; what happened at nodes: registers that overflowed, sums that a larger number overwrote,
    packets sent anew as floats.
    """

    algorithm: str
    codecs: list[str]
    size_bytes: int
    relative_rms: float
    overflows: int
    overwrites: int
    resent: int
    results: int


def sums(question: SimulationSpec, rows: Sequence[SimulatedRow]) -> list[SumsOf]:
    """Return the sums of each algorithm whose rows go through switches that add in a format of their own."""
    named = dict.fromkeys(row.algorithm for row in rows if _is_encoded(row))
    return [told for name in named for told in _of(question, name, (row for row in rows if row.algorithm == name))]


def _is_encoded(row: SimulatedRow) -> bool:
    return row.stream is not None and row.stream.codec != "native"


def _of(question: SimulationSpec, name: str, rows: Iterable[SimulatedRow]) -> list[SumsOf]:
    largest = question.collective(max(row.size_bytes for row in rows if _is_encoded(row)))
    most = max(MOST_NUMBERS // largest.p, 1) * largest.unit_bytes
    collective = replace(largest, size_bytes=min(largest.size_bytes, most))
    try:
        worth = measured(spelled.algorithm(name)(collective, question.topology), question.topology)
    except RingwrightError:
        return []  # a smaller one may be declined where the larger was not
    if worth is None:
        return []
    return [
        SumsOf(
            algorithm=name,
            codecs=list(worth.codecs),
            size_bytes=collective.size_bytes,
            relative_rms=worth.deviation.relative_rms,
            overflows=worth.overflows,
            overwrites=worth.overwrites,
            resent=worth.resent,
            results=worth.results,
        )
    ]
