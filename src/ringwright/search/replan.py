"""Re-plan, or live with it? The program found for the healthy machine beside the one found for the machine with its faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import distances
from ringwright.engines.choose import simulate
from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

WORTH = 0.02  # part of the time that a new plan must save to pay
NO_WAY_ROUND = "routes stay as they are, so nothing goes round what is dead"


@dataclass(frozen=True)
class TimedFind:
    """A program that a method found, and what it takes on the machine that it was found for."""

    method: str
    program: Program
    time_us: float
    bound_us: float

    @property
    def gap(self) -> float:
        """Time over bound, less one."""
        return self.time_us / self.bound_us - 1 if self.bound_us else 0.0


@dataclass(frozen=True)
class Replanned:
    """What a fault costs, and what a new plan saves of that; times in microseconds, gaps over the bound of the same machine.

    ``kept_us`` is the healthy machine's program on the faulty one, None where it never ends there: ``refused`` says why.
    ``saves`` is the part of that time that the new plan saves, and ``pays`` whether it is as much as ``worth``.
    """

    size_bytes: int
    healthy_method: str
    healthy_us: float
    healthy_bound_us: float
    healthy_gap: float
    kept_us: float | None
    kept_gap: float | None
    refused: str
    replanned_method: str
    replanned_us: float
    bound_us: float
    replanned_gap: float
    saves: float | None
    worth: float
    pays: bool

    @property
    def verdict(self) -> str:
        """What to do, in a sentence."""
        new, old = f"{self.replanned_us:,.2f} us", f"{self.healthy_us:,.2f} us without the fault"
        if self.kept_us is None:
            return (
                f"re-plan: the healthy machine's program never ends here ({self.refused}); a new one takes {new}, {old}"
            )
        kept, saves = f"{self.kept_us:,.2f} us", self.saves or 0.0
        if self.pays:
            return f"re-plan: {new} instead of {kept} saves {saves:.1%} ({old})"
        if saves <= 0:
            return f"live with it: {kept}, and no new plan was found that is faster ({old})"
        return f"live with it: {kept}, and a new plan saves {saves:.1%}, less than {self.worth:.0%} ({old})"

    def document(self) -> dict[str, object]:
        """Return the fields and the verdict, for JSON."""
        return {**asdict(self), "verdict": self.verdict}


def replanned(healthy: TimedFind, anew: TimedFind, faulty: Topology, alpha: str) -> Replanned:
    """Return what a fault costs a collective: the program that was found without it runs with it, beside a new one."""
    kept_us, refused = None, ""
    try:
        kept_us = simulate(healthy.program, faulty, alpha=alpha).time_s * 1e6
    except InfeasibleError as error:
        refused = "; ".join(each for each in (error.what, error.where, NO_WAY_ROUND) if each)
    saves = None if kept_us is None else 1 - anew.time_us / kept_us if kept_us else 0.0
    return Replanned(
        healthy.program.collective.size_bytes,
        healthy.method,
        healthy.time_us,
        healthy.bound_us,
        healthy.gap,
        kept_us,
        None if kept_us is None else (kept_us / anew.bound_us - 1 if anew.bound_us else 0.0),
        refused,
        anew.method,
        anew.time_us,
        anew.bound_us,
        anew.gap,
        saves,
        WORTH,
        saves is None or saves >= WORTH,
    )


def cut_off(collective: Collective, faulty: Topology, error: InfeasibleError) -> InfeasibleError:
    """Return what to say where a fault cuts ranks off, which no plan helps: it names those that still reach each other."""
    left = together(faulty, collective.group)
    lost = sorted(set(collective.group) - set(left))
    if not lost:
        return error
    names = ", ".join(faulty.label(rank) for rank in lost[:8]) + (" ..." if len(lost) > 8 else "")
    return InfeasibleError(
        f"no plan helps: the fault cuts {names} off from the other {len(left):,} ranks",
        where=error.what,
        remedy=f"leave out what is cut off: --ranks {spelled(left)}",
    )


def together(faulty: Topology, group: Sequence[int]) -> list[int]:
    """Return the most ranks of a group that reach each other with the faults that hold from the start."""
    import numpy as np

    now = faulty.at(0.0)
    ranks = np.asarray(group, np.int64)
    reach = np.isfinite(distances(now, ranks, now.latency_s)[:, ranks])
    both = reach & reach.T
    return [int(rank) for rank in ranks[both[both.sum(axis=1).argmax()]]]


def spelled(ranks: Sequence[int]) -> str:
    """Return ranks as ``--ranks`` takes them: ``0-2,4-15``."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ",".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in parts)
