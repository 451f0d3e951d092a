"""Who gets the memory where several ask for more than it has, and what becomes of a product and its neighbour.

The memory gives in proportion to what is asked for, times a weight, and to nobody more than asked: so one that asks for little
is served, and the rest is shared. A product beside a kernel on s multiprocessors loses these, and finds less in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.costs.contention.movers import BUS_SHARE_OF_PRODUCT, asked, fit_of, traffic_rate
from ringwright.costs.contention.multiprocessors import Multiprocessors
from ringwright.costs.contention.products import REACHED, Product, chosen, product_s
from ringwright.costs.contention.waves import TileKernel
from ringwright.ground.errors import UsageError


@dataclass(frozen=True)
class Asker:
    """One that asks for ``wanted`` bytes/s with a ``weight`` a byte, and could use at most ``most`` of them alone."""

    wanted: float
    most: float
    weight: float = 1.0


def given(capacity: float, askers: Sequence[Asker]) -> tuple[float, ...]:
    """Return the bytes/s that each gets of ``capacity``: all that it can use, or its share by wanted bytes times weight."""
    if capacity < 0 or any(each.most < 0 or each.wanted < 0 for each in askers):
        raise UsageError("a rate below 0 was asked for", remedy="bytes/s of 0 and more")
    out = [0.0] * len(askers)
    left, waiting = capacity, [number for number, each in enumerate(askers) if each.most > 0]
    while waiting:
        claims = sum(askers[number].wanted * askers[number].weight for number in waiting)
        level = left / claims
        served = [n for n in waiting if askers[n].most <= level * askers[n].wanted * askers[n].weight]
        for number in served or waiting:
            each = askers[number]
            out[number] = each.most if served else level * each.wanted * each.weight
        if not served:
            break
        left -= sum(askers[number].most for number in served)
        waiting = [number for number in waiting if number not in served]
    return tuple(out)


def together(first: tuple[str, int], second: tuple[str, int], on: Multiprocessors) -> tuple[float, float]:
    """Return the payload bytes/s of two kernels at once, each (job, multiprocessors); UsageError where these are too many."""
    if first[1] + second[1] > on.sms:
        raise UsageError(f"{on.name} has no {first[1] + second[1]} multiprocessors", remedy=f"{on.sms} for both")
    jobs = (first, second)
    capacity = sum(fit_of(job).reached for job, _ in jobs) / 2 * on.memory
    rates = given(capacity, [Asker(asked(*each, on), traffic_rate(*each, on), fit_of(each[0]).weight) for each in jobs])
    return rates[0] / fit_of(first[0]).touches, rates[1] / fit_of(second[0]).touches


@dataclass(frozen=True)
class ProductBeside:
    """A product and its neighbour at once: seconds of the product, payload bytes/s of the neighbour, both alone and together."""

    product_alone_s: float
    product_s: float
    neighbour_alone: float
    neighbour: float

    @property
    def slowdown(self) -> float:
        """How many times as long the product takes."""
        return self.product_s / self.product_alone_s


def beside(
    product: Product, job: str, sms: int, on: Multiprocessors, kernel: TileKernel | None = None
) -> ProductBeside:
    """Return a product beside a kernel that goes on all the while on ``sms`` multiprocessors of its own.

    ``job`` is copy, add, read or write, or hold, which moves nothing. The product is the library's for a GPU of its own.
    UsageError where no multiprocessor is left or the job was not measured.
    """
    kernel = kernel or chosen(product, on)
    alone, waiting = product_s(product, on, 0, kernel), product_s(product, on, sms, kernel)
    if job == "hold" or sms == 0:
        return ProductBeside(alone, waiting, 0.0, 0.0)
    fit, traffic = fit_of(job), product.traffic(kernel, streaming=True)
    most, wanted = traffic_rate(job, sms, on), traffic / waiting
    ours, theirs = given(REACHED * on.memory, [Asker(wanted, wanted), Asker(asked(job, sms, on), most, fit.weight)])
    return ProductBeside(alone, waiting * (wanted / ours), most / fit.touches, theirs / fit.touches)


def beside_bus(product: Product, on: Multiprocessors) -> float:
    """Return seconds of a product beside copies over the bus: a few percent more, however large it is."""
    return product_s(product, on) * (1.0 + BUS_SHARE_OF_PRODUCT)
