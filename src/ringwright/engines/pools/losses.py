"""Which share of packets links lose together, from when on: what fabrics are declared to lose, and faults after one another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringwright.ground.units import PS

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology


def lost_on(topology: Topology, links: np.ndarray) -> tuple[tuple[int, float], ...]:
    """Return the share that some of these links lose, as (from ps on, share); nothing where they lose none.

    ``links``: int64 of shape (links,).
    """
    healthy = [0.0] * len(links) if topology.loss is None else topology.loss[links].tolist()
    kept = {link: 1.0 - share for link, share in zip(links.tolist(), healthy, strict=True)}
    lost = {0: 1.0 - math.prod(kept.values())}
    for fault in sorted(topology.faults, key=lambda each: each.time_s):
        if fault.kind == "link" and fault.field == "loss" and fault.target in kept:
            kept[fault.target] = 1.0 - fault.value
            lost[round(fault.time_s * PS)] = 1.0 - math.prod(kept.values())
    return tuple(lost.items()) if any(lost.values()) else ()
