"""A GPU as the costs of this folder see it: multiprocessors, their clock, the memory behind them.

The counts and the memory's bytes/s are the data sheet's (``costs.gpus``). What a multiprocessor does in a cycle was measured on
an H100 and is taken to hold for GPUs with the same multiprocessors: H100, H800 and H200.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ringwright.costs.gpus import gpu
from ringwright.ground.errors import UsageError

ALIKE = ("h100", "h800", "h200")  # multiprocessors of compute capability 9.0
BOOST_HZ = 1.98e9  # the highest clock of each of them
# Beside a long product, which takes all the power that the board may have: at 700 W the clock falls to this.
SUSTAINED_HZ = 1.4e9
CACHE_BYTES = {"h100": 50 << 20, "h800": 50 << 20, "h200": 60 << 20}  # as each says of itself


@dataclass(frozen=True)
class Multiprocessors:
    """``sms`` multiprocessors at ``clock_hz``, ``memory`` bytes/s at most behind ``cache_bytes`` of cache."""

    name: str
    sms: int
    memory: float
    clock_hz: float = SUSTAINED_HZ
    cache_bytes: int = 50 << 20

    @property
    def clock_share(self) -> float:
        """The share of the highest clock at which it runs."""
        return self.clock_hz / BOOST_HZ

    def at(self, clock_hz: float) -> Multiprocessors:
        """Return the same at another clock; UsageError for none above 0."""
        if not clock_hz > 0:
            raise UsageError(
                f"no clock runs at {clock_hz} Hz", remedy=f"{SUSTAINED_HZ:.3g} under load, {BOOST_HZ:.3g} cool"
            )
        return replace(self, clock_hz=clock_hz)


def multiprocessors(name: str, clock_hz: float = SUSTAINED_HZ) -> Multiprocessors:
    """Return those of a GPU by its name, at the clock of sustained load; UsageError for a GPU that these costs do not know."""
    known = gpu(name)
    if known.name not in ALIKE:
        raise UsageError(f"what {known.name} does in a cycle was not measured", remedy=f"one of: {', '.join(ALIKE)}")
    return Multiprocessors(known.name, known.units, known.memory, cache_bytes=CACHE_BYTES[known.name]).at(clock_hz)
