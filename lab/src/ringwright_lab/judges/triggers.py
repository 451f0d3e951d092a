"""A product and the copy of its result, which starts on each piece as it is done: by flags of tiles, or by events between pieces.

Two ways for a copy to get in. Where it waits on flags it holds its multiprocessors from the start, so the product does without
them all the while. Where it is started by an event after each piece, the next piece's blocks are there first: a kernel gets in
when the first of these leave, so it is nearly one piece late; copies that are ready by then follow without a gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.costs.contention.movers import BUS_SHARE_OF_PRODUCT
from ringwright.costs.contention.multiprocessors import Multiprocessors
from ringwright.costs.contention.products import Product, chosen
from ringwright.costs.contention.sharing import beside
from ringwright.costs.contention.waves import gets_in
from ringwright.ground.errors import UsageError

DRIVER_COPY_SLOWS = 2.0  # a product while the driver copies inside the memory


@dataclass(frozen=True)
class Carried:
    """What carries the result away: seconds for all of it alone, and how it and the product slow each other down.

    ``product_slowed`` is the factor on the product while it carries, ``slowed`` that on its own time meanwhile. ``gets_in`` is
    the share of a piece of the product that must be over before it may start beside it: 0 for what needs no room, as an engine.
    """

    seconds: float
    product_slowed: float = 1.0
    slowed: float = 1.0
    gets_in: float = 0.0

    def __post_init__(self) -> None:
        """Refuse times below 0, factors below 1 and shares that are none: UsageError."""
        if self.seconds < 0 or min(self.product_slowed, self.slowed) < 1 or not 0 <= self.gets_in <= 1:
            raise UsageError(
                f"a copy of {self.seconds} s that slows by {self.product_slowed} and {self.slowed}, in at {self.gets_in}",
                remedy="seconds of 0 and more, factors of 1 and more, a share from 0 to 1",
            )


def by_kernel(piece: Product, seconds: float, sms: int, on: Multiprocessors) -> Carried:
    """Return a copy of ``seconds`` alone by kernels on ``sms`` multiprocessors beside such pieces; UsageError for too many."""
    both, kernel = beside(piece, "copy", sms, on), chosen(piece, on)
    slowed = both.neighbour_alone / both.neighbour if both.neighbour else 1.0
    return Carried(seconds, both.slowdown, slowed, gets_in(kernel, piece.m, piece.n, on.sms, sms))


def by_bus(seconds: float) -> Carried:
    """Return a copy of ``seconds`` alone by an engine of the bus."""
    return Carried(seconds, 1.0 + BUS_SHARE_OF_PRODUCT)


def by_driver(seconds: float) -> Carried:
    """Return a copy of ``seconds`` alone inside the memory, as the driver does it."""
    return Carried(seconds, DRIVER_COPY_SLOWS)


def by_flags_s(product_s: float, pieces: int, copy: Carried) -> float:
    """Return seconds until all is carried away by a kernel that waits on flags and holds its multiprocessors from the start.

    ``product_s`` is the product alone. Each of ``pieces`` equal stretches may go once its tiles are done. An engine, which
    holds none, does the same as by events.
    """
    _check(product_s, pieces)
    computed = product_s * copy.product_slowed
    each = copy.seconds / pieces
    overlapped = computed / pieces  # until the first stretch is there
    for _ in range(1, pieces):
        overlapped += max(computed / pieces, each * copy.slowed)
    return max(overlapped, computed) + each


def by_events_s(product_s: float, pieces: int, copy: Carried) -> float:
    """Return seconds until all is carried away, ``pieces`` products after each other, each followed by an event and a copy.

    ``product_s`` is all the pieces alone, one after another.
    """
    _check(product_s, pieces)
    return _Events(product_s / pieces, copy.seconds / pieces, copy).run(pieces)


def one_after_another_s(product_s: float, copy: Carried) -> float:
    """Return seconds of the product, then the copy: what any overlap is to be compared with."""
    return product_s + copy.seconds


def _check(product_s: float, pieces: int) -> None:
    if product_s < 0 or pieces < 1:
        raise UsageError(
            f"a product of {product_s} s in {pieces} pieces", remedy="0 seconds and more, 1 piece and more"
        )


@dataclass
class _Events:
    """Where both sides stand: how many copies are ready, what is left of the one that runs."""

    piece_s: float
    copy_s: float
    copy: Carried
    now: float = 0.0
    ready: int = 0
    left: float = 0.0  # seconds alone of the copy in progress; 0: none is

    def run(self, pieces: int) -> float:
        early = self.piece_s * self.copy.gets_in
        for _ in range(pieces):
            self._compute(early)
            self._start()
            self._compute(self.piece_s - early)
            self.ready += 1
        return self.now + self.left + self.ready * self.copy_s

    def _start(self) -> None:
        if self.ready and not self.left:
            self.ready, self.left = self.ready - 1, self.copy_s

    def _compute(self, work: float) -> None:
        """Go on with the piece, beside copies as long as one is ready when another ends."""
        while work > 0:
            if not self.left:
                self.now += work
                return
            ends = self.left * self.copy.slowed
            if ends >= work * self.copy.product_slowed:
                took = work * self.copy.product_slowed
                self.left, self.now = max(self.left - took / self.copy.slowed, 0.0), self.now + took
                return
            self.now, work, self.left = self.now + ends, work - ends / self.copy.product_slowed, 0.0
            self._start()
