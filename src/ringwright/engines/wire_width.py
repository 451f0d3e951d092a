"""What number formats of streams make of the bytes on the wire: a number is as wide as its format says, each way its own width.

What a packet says once (an exponent, a range) goes with its headers, which the fabric counts. Between the nodes that add, sums go
up as wide as they go down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.codecs.formats import number_bytes

if TYPE_CHECKING:
    from ringwright.model.program import Program

WireShares = Mapping[int, tuple[float, float]]  # topology node -> bytes to it and from it, of a byte of data


def wire_shares(program: Program) -> WireShares:
    """Return what a byte of data takes on the way to each node that adds, and back; nodes where it is a byte are left out."""
    item_bytes = program.collective.unit_bytes
    shares: dict[int, tuple[float, float]] = {}
    for stream in program.streams:
        to, back = (each / item_bytes for each in number_bytes(stream.codec, item_bytes))
        if (to, back) != (1.0, 1.0):
            shares[stream.node] = to, back
    return shares


def narrowest(program: Program) -> float:
    """Return the least that a byte of data takes on its way through nodes that add; 1 at the most."""
    return min((1.0, *(share for shares in wire_shares(program).values() for share in shares)))


def coded(shares: WireShares, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return what a byte of data takes of each message between topology nodes; float64 of their shape."""
    factor = np.ones(len(src))
    for node, (to, _) in shares.items():
        factor[dst == node] = to
    for node, (_, back) in shares.items():
        factor[src == node] = back
    return factor
