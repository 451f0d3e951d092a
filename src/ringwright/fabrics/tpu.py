"""TPU slices: a torus of chips joined by inter-chip links."""

from __future__ import annotations

from typing import Annotated

from ringwright.fabrics._lattices import axis
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Rate, Seconds
from ringwright.model.topology import Topology
from ringwright.model.wiring import Dimension, lattice

# Generation: bytes/s each way of a link, and the dimension sizes that wrap around (Google Cloud TPU pages: 2,400 Gb/s a
# chip over 6 links in v4, 1,600 over 4 in v5e, 4,800 over 6 in v5p, 3,200 over 4 in v6e).
GENERATIONS = {"v4": (50e9, 4), "v5e": (50e9, 16), "v5p": (100e9, 4), "v6e": (100e9, 16)}


def tpu(
    *sizes: int,
    generation: Annotated[str, Choices(tuple(GENERATIONS))] = "v4",
    rate: Rate | None = None,
    latency_s: Seconds = 1e-6,
) -> Topology:
    """Return a slice of chips; v4 and v5p have three dimensions, v5e and v6e two.

    A dimension wraps around where its size is a multiple of 4 (v4, v5p) or is 16 (v5e, v6e); others are open. ``rate`` is
    bytes/s of a directed link; 1 us a hop is assumed. Routes are dimension-ordered. Raises UsageError for an unknown
    generation.
    """
    if generation not in GENERATIONS:
        raise UsageError(f"no TPU is called {generation}", remedy=f"one of: {', '.join(GENERATIONS)}")
    per_link, unit = GENERATIONS[generation]
    dimensions = [
        Dimension("ring" if size % unit == 0 else "line", size, rate or per_link, latency_s, axis(i, len(sizes)), "ici")
        for i, size in enumerate(sizes)
    ]
    name = f"tpu:{'x'.join(map(str, sizes))},generation={generation}"
    return lattice(name, dimensions, provenance="Google Cloud TPU pages; 1 us a hop assumed")
