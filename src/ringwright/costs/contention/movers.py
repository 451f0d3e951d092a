"""What a kernel on s multiprocessors moves, and what copies over the bus do.

A multiprocessor moves so much by itself, in proportion to its clock; many of them meet the memory's limit, softly. Copies between
memory and host go by engines of their own: they hold no multiprocessor and what the bus carries is their rate. A copy inside the
memory is another matter: what the driver issues for it waited for registers on an H100, as a kernel does (``TAKES_TURNS``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ringwright.costs.contention.multiprocessors import Multiprocessors
from ringwright.ground.errors import UsageError

Job = Literal["copy", "add", "read", "write"]


@dataclass(frozen=True)
class MoverFit:
    """Kernels of 512 threads: ``touches`` bytes of traffic for a byte of payload, ``one`` bytes/s of traffic of a multiprocessor
    at the highest clock, ``reached`` the share of the memory's peak, ``bend`` how sharply the two meet, ``weight`` of a byte that
    is asked for where others ask as well: reads wait for writes.
    """

    touches: int
    one: float
    reached: float
    bend: float
    weight: float


MOVERS: dict[Job, MoverFit] = {
    "copy": MoverFit(2, 97e9, 0.86, 5.0, 1.0),
    "add": MoverFit(3, 97e9, 0.875, 2.0, 0.8),
    "read": MoverFit(1, 61e9, 0.93, 3.0, 0.55),
    "write": MoverFit(1, 62.5e9, 0.985, 8.0, 1.0),
}
BUS_RATE = 55e9  # bytes/s of a copy to or from the host, one at a time in each direction
BOTH_SHARE = 0.87  # of that, each way, while both directions are in use
BUS_SHARE_OF_PRODUCT = 0.05  # a product beside a copy over the bus takes this much longer
TAKES_TURNS = ("copy-d2d",)  # copies by the driver that get in only where a product's blocks leave


def fit_of(job: str) -> MoverFit:
    """Return the figures of a kernel by what it does; UsageError for what was not measured."""
    for name, fit in MOVERS.items():
        if name == job:
            return fit
    raise UsageError(f"no kernel that was measured does '{job}'", remedy=f"one of: {', '.join(MOVERS)}")


def asked(job: str, sms: int, on: Multiprocessors) -> float:
    """Return bytes/s of traffic that ``sms`` multiprocessors would move without any limit behind them."""
    if not 0 <= sms <= on.sms:
        raise UsageError(f"{on.name} has no {sms} multiprocessors", remedy=f"0 to {on.sms}")
    return fit_of(job).one * sms * on.clock_share


def traffic_rate(job: str, sms: int, on: Multiprocessors) -> float:
    """Return bytes/s of traffic of a kernel on ``sms`` multiprocessors alone: no more than asked for, nor than the memory has."""
    fit = fit_of(job)
    wanted, limit = asked(job, sms, on), fit.reached * on.memory
    met: float = (1.0 + (wanted / limit) ** fit.bend) ** (1.0 / fit.bend)
    return wanted / met


def payload_rate(job: str, sms: int, on: Multiprocessors) -> float:
    """Return bytes/s of payload: a copied byte is read and written, an added one read twice and written."""
    return traffic_rate(job, sms, on) / fit_of(job).touches


def bus_s(size_bytes: float, *, both: bool = False) -> float:
    """Return seconds of a copy between memory and host, ``both`` where as much goes the other direction meanwhile."""
    if size_bytes < 0:
        raise UsageError(f"no copy has {size_bytes} bytes", remedy="0 bytes and more")
    return size_bytes / (BUS_RATE * (BOTH_SHARE if both else 1.0))
