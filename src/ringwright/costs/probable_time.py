"""A most probable time with its interval, as every answer carries it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

PRIOR = "prior"  # whose tables moved a time where none of the machine are given
LEARNT, CORRECTED, CLOSED = "library", "corrected", "closed-form"  # models besides engines
PACKETS = "packets"  # an engine's time with what packets lose: its interval is that of draws
NINETY = 1.6449  # standard deviations within which 90 % of a normal distribution lie


@dataclass(frozen=True)
class Probable:
    """The most probable time of a collective in us, and what is said for it.

    Attributes
    ----------
    p05_us, p50_us, p95_us
        5 % of times are below the first, half below the second, 95 % below the third; the outer two are None where nothing was
        measured on such fabrics.
    calibration
        Whose tables moved it: the name of a calibration, or ``prior``.
    outside
        What nothing was learnt of: ``nodes``, ``size``, ``release``, ``gpu``, ``operation``, ``transport``, ``calibration``
        (measured on other GPUs), ``program`` (no table has it), ``fabric`` (its ranks are no GPUs), ``ranks`` (one alone),
        ``beside`` (another job runs on the fabric).
    witnesses
        What each model says, in us.
    model
        Which of the witnesses it is: ``library`` (learnt from tables of NCCL), ``corrected`` (an engine's time, by what engines
        were off by on GPUs), ``packets`` (the median over seeds of losses), or empty: an engine's own time.
    mean_us
        The mean over draws of what is lost, which many operations one after the other take each; None where nothing is drawn.
    own_software
        Whether the corrected engine ran it with its library's software, else on links with usual or calibrated costs.
    """

    p05_us: float | None
    p50_us: float
    p95_us: float | None
    calibration: str
    outside: tuple[str, ...] = ()
    witnesses: Mapping[str, float] = field(default_factory=dict)
    model: str = ""
    own_software: bool = False
    mean_us: float | None = None

    @property
    def sigma(self) -> float | None:
        """Standard deviation of the time's logarithm, as its upper end has it; None without an interval."""
        return None if self.p95_us is None or not self.p50_us else math.log(self.p95_us / self.p50_us) / NINETY

    def later(self, low_us: float, middle_us: float, high_us: float) -> Probable:
        """Return it with so many us more at 5, 50 and 95 %."""
        low = None if self.p05_us is None else self.p05_us + low_us
        high = None if self.p95_us is None else self.p95_us + high_us
        return dataclasses.replace(self, p05_us=low, p50_us=self.p50_us + middle_us, p95_us=high)

    def at_least(self, bound_us: float) -> Probable:
        """Return it with nothing below a bound."""
        low, high = (None if each is None else max(each, bound_us) for each in (self.p05_us, self.p95_us))
        mean = None if self.mean_us is None else max(self.mean_us, bound_us)
        return dataclasses.replace(self, p05_us=low, p50_us=max(self.p50_us, bound_us), p95_us=high, mean_us=mean)
