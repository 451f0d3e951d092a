"""What the plain families share: the defaults of an abstract link, and lattices of one kind of dimension."""

from __future__ import annotations

from ringwright.model.topology import Topology
from ringwright.model.wiring import Dimension, lattice

# The link of the homogeneous grids on which synthesisers are compared (TACOS, ASTRA-sim examples): 50 GiB/s, 0.5 us.
RATE = 50 * 2.0**30
LATENCY_S = 0.5e-6
ORIGIN = "50 GiB/s and 0.5 us a link, as in the ASTRA-sim and TACOS examples, unless given"
AXES = ("x", "y", "z", "u", "v", "w")


def axis(number: int, dimensions: int) -> str:
    """Return the name of an axis: ``rank`` where there is one, else x, y, z, ..."""
    if dimensions == 1:
        return "rank"
    return AXES[number] if dimensions <= len(AXES) else f"d{number}"


def grid(name: str, kind: str, sizes: tuple[int, ...], rate: float, latency_s: float) -> Topology:
    """Return a lattice of dimensions of one kind."""
    dimensions = [Dimension(kind, size, rate, latency_s, axis(i, len(sizes))) for i, size in enumerate(sizes)]
    return lattice(f"{name}:{'x'.join(map(str, sizes))}", dimensions, provenance=ORIGIN)
