"""Lines of faults that are asked about, laid out for as long as an answer lasts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.fabrics._fault_lines import FaultEffect, effects
from ringwright.fabrics._hashing import ECMP
from ringwright.fabrics.faults import apply

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

HORIZON_S = 1.0  # for how long outages are laid out at first
FURTHER = 4.0  # times an answer that lasts longer than half of that


@dataclass(frozen=True)
class AskedFaults:
    """Lines of faults, the seed of what they leave to chance, and for how long a flapping link's outages are laid out."""

    lines: tuple[str, ...]
    seed: int = 0
    horizon_s: float = HORIZON_S

    def on(self, healthy: Topology) -> Topology:
        """Return the machine with these faults."""
        return apply(healthy, self.lines, horizon_s=self.horizon_s, seed=self.seed) if self.lines else healthy

    def effects(self, healthy: Topology) -> list[FaultEffect]:
        """Return what the lines say of links and ranks; an unlucky hash says nothing of these."""
        rest = ["" if line.split()[:1] == [ECMP] else line for line in self.lines]
        return effects(healthy, rest, horizon_s=self.horizon_s, seed=self.seed)

    def only(self, number: int) -> AskedFaults:
        """Return one of the lines; the others stay as empty ones, for the lottery goes by the number of a line."""
        return replace(self, lines=tuple(line if at == number else "" for at, line in enumerate(self.lines)))

    @property
    def flap(self) -> bool:
        """Whether a line has outages that come again and again."""
        return any("flap" in line.partition("#")[0].split() for line in self.lines)

    def lasting(self, time_s: float) -> AskedFaults:
        """Return the lines with outages for at least twice the time of an answer, whichever moment it starts at."""
        if not self.flap or time_s <= self.horizon_s / 2:
            return self
        return replace(self, horizon_s=FURTHER * time_s)
