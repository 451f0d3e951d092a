"""A ring: every rank has a link to each of its two neighbours."""

from __future__ import annotations

from ringwright.fabrics._lattices import LATENCY_S, RATE, grid
from ringwright.ground.knobs import Rate, Seconds
from ringwright.model.topology import Topology


def ring(n: int, *, rate: Rate = RATE, latency_s: Seconds = LATENCY_S) -> Topology:
    """Return n ranks in a ring; bytes/s and seconds of each directed link.

    Routes take the shorter way, upwards where both are equal. Defaults: 50 GiB/s, 0.5 us (ASTRA-sim's ring example).
    """
    return grid("ring", "ring", (n,), rate, latency_s)
