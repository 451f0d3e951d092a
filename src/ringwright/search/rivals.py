"""What every other algorithm takes for the same: blocks, published ones and libraries beside a program that was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.engines.choose import simulate
from ringwright.ground.errors import RingwrightError
from ringwright.model import registry
from ringwright.model.software import NO_SOFTWARE

if TYPE_CHECKING:
    from ringwright.algorithms.searching import Deadline
    from ringwright.model.collective import Collective
    from ringwright.search.question import SynthesisSpec

MOST_RIVAL_RANKS = 128
MOST_RIVAL_BLOCKS = 50_000


@dataclass(frozen=True)
class RivalRow:
    """What another algorithm takes for the same, or why it has no time here."""

    algorithm: str
    kind: str
    size_bytes: int
    time_us: float | None
    ratio: float | None  # over the best that was found
    declined: str = ""


def rivals_for(op: str) -> list[registry.System]:
    """Return every block, published algorithm and library that does an operation."""
    others = ("synthesis", "outside")
    return [each for each in registry.systems() if each.kind not in others and op in each.ops]


def rivals_of(
    question: SynthesisSpec,
    size_bytes: int,
    best_us: float | None,
    person: Deadline,
    timed: Callable[[SynthesisSpec, str, int], tuple[float | None, str]],
) -> list[RivalRow]:
    """Return what every rival takes, the fastest first, those that decline last; ``timed`` says it of each."""
    rows = []
    for system in rivals_for(question.op):
        if person.passed():
            break
        time_us, why = timed(question, system.slug, size_bytes)
        ratio = time_us / best_us if time_us is not None and best_us else None
        rows.append(RivalRow(system.slug, system.kind, size_bytes, time_us, ratio, why))
    return sorted(rows, key=lambda row: (row.time_us is None, row.time_us or 0.0))


def rival_us(question: SynthesisSpec, collective: Collective, slug: str) -> tuple[float | None, str]:
    """Return what an algorithm takes (us), or why it has no time here."""
    system = next(each for each in registry.systems() if each.slug == slug)
    try:
        # The wire alone, as what was found is timed: no library's software on one side of the table.
        program = replace(system.load()(collective, question.topology), software=NO_SOFTWARE)
        if collective.p > MOST_RIVAL_RANKS and program.n_steps * collective.p > MOST_RIVAL_BLOCKS * 100:
            return None, f"more than {MOST_RIVAL_RANKS} ranks and too many steps to compare in passing: simulate"
        return simulate(program, question.topology, alpha=question.alpha).time_s * 1e6, ""
    except RingwrightError as error:
        return None, error.what
