"""How far an engine's time of a program that no table has is from measured ones on GPUs: a factor and its spread.

There are four kinds: programs without a library's software on a transport's usual costs, or on a calibration's; and NCCL's, with
its own software, on a fabric as it comes, or on a calibrated one. Both numbers follow how many times longer a program takes
than its latencies alone, so that programs bound by latency and by rates have each their own.

``engines.json`` is made by ``scripts/learn-engines`` from open tables: at each knot the mean and the standard deviation, over
systems, of ln(measured / simulated). Between knots both are interpolated in the logarithm. The mean falls by less than the time
rises (``STEEPEST``), so that no more bytes take less time.
"""

from __future__ import annotations

import math
from functools import cache

import msgspec

from ringwright.costs.learnt.packaged import learnt_file

SCHEMA = "ringwright.engine-factors/1"
USUAL, CALIBRATED, OF_LIBRARY, CALIBRATED_LIBRARY = KINDS = ("usual", "calibrated", "library", "calibrated-library")
STEEPEST = 0.9


class EngineFactors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Logarithms by ``longer``, ln(time / its latencies alone), rising from 0: ``mean`` and ``sigma`` of one length with it."""

    longer: tuple[float, ...]
    mean: tuple[float, ...]
    sigma: tuple[float, ...]
    systems: tuple[str, ...]

    def at(self, time_s: float, latency_s: float) -> tuple[float, float]:
        """Return mean and standard deviation of ln(measured / simulated); beyond the knots those of the last one."""
        longer = math.log(max(time_s / latency_s, 1.0)) if latency_s > 0 else math.inf
        above = next((at for at, knot in enumerate(self.longer) if knot >= longer), None)
        if above is None or above == 0:
            at = 0 if above == 0 else -1
            return self.mean[at], self.sigma[at]
        low, high = self.longer[above - 1], self.longer[above]
        share = (longer - low) / (high - low)
        mean, sigma = (
            values[above - 1] + share * (values[above] - values[above - 1]) for values in (self.mean, self.sigma)
        )
        return mean, sigma


@cache
def factors(of: str) -> EngineFactors:
    """Return the factors of programs of one kind: ``usual``, ``calibrated``, ``library`` or ``calibrated-library``."""
    return msgspec.convert(learnt_file("engines.json", SCHEMA)[of], EngineFactors)
