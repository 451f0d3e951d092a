"""A product cut into equal pieces along m, n or k, one after another: what smaller products lose.

Pieces along m or n waste their last turns each and start each; pieces along k write the result each, and all but the first read
it, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ringwright.costs.contention.multiprocessors import Multiprocessors
from ringwright.costs.contention.products import Product, product_s
from ringwright.ground.errors import UsageError

Along = Literal["m", "n", "k"]
ALONG: tuple[Along, ...] = ("m", "n", "k")


def cut(product: Product, along: Along, pieces: int) -> tuple[Product, ...]:
    """Return the pieces, sides as equal as whole numbers are; UsageError for a side that is none, or shorter than that."""
    if along not in ALONG:
        raise UsageError(f"a product has no side '{along}'", remedy=f"one of: {', '.join(ALONG)}")
    side = getattr(product, along)
    if not 1 <= pieces <= side:
        raise UsageError(f"{along} = {side} has no {pieces} pieces", remedy=f"1 to {side} pieces")
    sides = [side // pieces + (each < side % pieces) for each in range(pieces)]
    return tuple(
        replace(product, **{along: each}, accumulates=product.accumulates or (along == "k" and number > 0))
        for number, each in enumerate(sides)
    )


def pieces_s(product: Product, along: Along, pieces: int, on: Multiprocessors) -> float:
    """Return seconds of all pieces, one after another, never below the whole product's; UsageError as of ``cut``."""
    parts = cut(product, along, pieces)
    return max(sum(product_s(part, on) for part in parts), product_s(product, on))


def efficiency(product: Product, along: Along, pieces: int, on: Multiprocessors) -> float:
    """Return the whole product's time over that of its pieces: at most 1."""
    return product_s(product, on) / pieces_s(product, along, pieces, on)
