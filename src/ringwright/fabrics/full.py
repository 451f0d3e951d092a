"""Fully connected: a link of its own between every two ranks, in each direction."""

from __future__ import annotations

from ringwright.fabrics._lattices import LATENCY_S, RATE, grid
from ringwright.ground.knobs import Rate, Seconds
from ringwright.model.topology import Topology


def full(n: int, *, rate: Rate = RATE, latency_s: Seconds = LATENCY_S) -> Topology:
    """Return n ranks with n(n-1) links; bytes/s and seconds of each.

    Defaults: 50 GiB/s, 0.5 us (the homogeneous grids of the TACOS examples). Raises UsageError beyond 2,896 ranks.
    """
    return grid("full", "full", (n,), rate, latency_s)
