"""A Topology as ASTRA-sim's analytical network: one Ring, FullyConnected or Switch per axis, GB = 2^30 bytes, nanoseconds.

The file knows dimensions only. Bandwidth of a Switch is what a rank gets while all ranks send to their next along the axis,
so that shared NICs and oversubscription count; its latency is half of the route's, for ASTRA-sim counts two hops. Lost: link
classes, names, losses, faults, capacities beyond that, aggregation. Refused: machines without axes, and axes that are none
of the three (a mesh has no link that closes the ring) or not everywhere alike.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError
from ringwright.ground.units import GIB

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology

EXPORTS = {"astra-network": "astra_network"}


def astra_network(topology: Topology) -> bytes:
    """Return the yml's bytes; raise UsageError where a dimension cannot be told in it."""
    axes = [(name, size, _stride(topology, index)) for index, (name, size) in enumerate(topology.axes) if size > 1]
    if not axes or math.prod(size for _, size, _ in axes) != topology.n_ranks:
        raise UsageError(f"{topology.name} has no axes to write as dimensions", remedy="--format json")
    rows = [_dimension(topology, name, size, stride) for name, size, stride in axes]
    columns = list(zip(*rows, strict=True))
    lines = [f"# {topology.name}; GB = 2^30 bytes, ns a hop"]
    for key, column in zip(("topology", "npus_count", "bandwidth", "latency"), columns, strict=True):
        lines.append(f"{key}: [ {', '.join(map(str, column))} ]")
    return ("\n".join(lines) + "\n").encode()


def _stride(topology: Topology, index: int) -> int:
    return math.prod(size for _, size in topology.axes[:index])


def _dimension(topology: Topology, name: str, size: int, stride: int) -> tuple[str, int, float, float]:
    """Return kind, size, GiB/s and ns a hop of an axis."""
    import numpy as np

    top, rank = topology, np.arange(topology.n_ranks)
    coordinate = rank // stride % size
    turned = [rank + ((coordinate + by) % size - coordinate) * stride for by in range(1, size)] if size <= 64 else None
    after, before = (
        rank + ((coordinate + 1) % size - coordinate) * stride,
        rank + ((coordinate - 1) % size - coordinate) * stride,
    )
    starts, links = top.routes(rank, after)
    inside = np.setdiff1d(np.arange(len(links)), starts[1:] - 1)
    if (top.dst[links[inside]] < top.n_ranks).any():
        raise UsageError(f"axis {name} of {top.name} goes through other ranks: no Ring, FullyConnected or Switch")
    rate, latency_s = _alike(top, starts, links, name)
    hops = int(starts[1])
    if hops > 1:
        return "Switch", size, rate / GIB, round(latency_s / 2 * 1e9, 6)
    is_full = turned is not None and all((top.link_ids(rank, there) >= 0).all() for there in turned)
    if not is_full and not (top.link_ids(rank, before) >= 0).all():
        raise UsageError(f"axis {name} of {top.name} is a ring in one direction", remedy="links both ways")
    kind = "FullyConnected" if is_full and size > 3 else "Ring"
    return kind, size, rate / GIB, round(latency_s * 1e9, 6)


def _alike(top: Topology, starts: np.ndarray, links: np.ndarray, name: str) -> tuple[float, float]:
    """Return bytes/s and seconds of every rank's route to its next; raise UsageError where they differ."""
    import numpy as np

    load = np.bincount(links, minlength=top.n_links)
    rates = np.minimum.reduceat(top.rate[links] / load[links], starts[:-1])
    times = np.add.reduceat(top.latency_s[links], starts[:-1])
    if not (np.allclose(rates, rates[0], rtol=1e-9) and np.allclose(times, times[0], rtol=1e-9)):
        raise UsageError(
            f"axis {name} of {top.name} is not everywhere alike: {rates.min() / 1e9:.4g} to {rates.max() / 1e9:.4g} GB/s",
            remedy="--format json",
        )
    return float(rates[0]), float(times[0])
