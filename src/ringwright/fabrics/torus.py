"""A torus of any dimension: a ring through every rank in each dimension."""

from __future__ import annotations

from ringwright.fabrics._lattices import LATENCY_S, RATE, grid
from ringwright.ground.knobs import Rate, Seconds
from ringwright.model.topology import Topology


def torus(*sizes: int, rate: Rate = RATE, latency_s: Seconds = LATENCY_S) -> Topology:
    """Return an n-dimensional torus, the first dimension fastest; bytes/s and seconds of each directed link.

    Routes are dimension-ordered and take the shorter way round. Dimensions of 2 have one link each way, not two.
    Defaults: 50 GiB/s, 0.5 us (the homogeneous grids of the TACOS examples).
    """
    return grid("torus", "ring", sizes, rate, latency_s)
