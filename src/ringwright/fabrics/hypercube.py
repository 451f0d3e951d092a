"""A hypercube: ranks whose numbers differ in one bit are joined."""

from __future__ import annotations

from ringwright.fabrics._lattices import LATENCY_S, ORIGIN, RATE
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Rate, Seconds
from ringwright.model.topology import Topology
from ringwright.model.wiring import Dimension, lattice


def hypercube(n: int, *, rate: Rate = RATE, latency_s: Seconds = LATENCY_S) -> Topology:
    """Return n ranks, a power of two; bytes/s and seconds of each directed link.

    Routes correct the lowest bit first. Raises UsageError where n is no power of two.
    Defaults: 50 GiB/s, 0.5 us (the homogeneous grids of the TACOS examples).
    """
    if n < 1 or n & (n - 1):
        raise UsageError(f"a hypercube of {n} ranks does not exist", remedy="a power of two, for example hypercube:16")
    bits = max(1, n.bit_length() - 1)
    dimensions = [Dimension("line", min(n, 2), rate, latency_s, f"bit{bit}") for bit in range(bits)]
    return lattice(f"hypercube:{n}", dimensions, provenance=ORIGIN)
