"""A mesh of any dimension: a torus without the links that wrap around."""

from __future__ import annotations

from ringwright.fabrics._lattices import LATENCY_S, RATE, grid
from ringwright.ground.knobs import Rate, Seconds
from ringwright.model.topology import Topology


def mesh(*sizes: int, rate: Rate = RATE, latency_s: Seconds = LATENCY_S) -> Topology:
    """Return an n-dimensional mesh, the first dimension fastest; bytes/s and seconds of each directed link.

    Routes are dimension-ordered. Ranks at the rim have fewer links, so that the mesh is not symmetric.
    Defaults: 50 GiB/s, 0.5 us (the homogeneous grids of the TACOS examples).
    """
    return grid("mesh", "line", sizes, rate, latency_s)
