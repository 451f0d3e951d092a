"""One switch that all ranks hang on, non-blocking unless a backplane is given."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from ringwright.fabrics._capabilities import SWITCHES, adding
from ringwright.fabrics._lattices import LATENCY_S, ORIGIN, RATE
from ringwright.ground.knobs import Choices, Rate, Seconds
from ringwright.model.topology import Topology
from ringwright.model.wiring import Dimension, lattice, shared


def switch(
    n: int,
    *,
    rate: Rate = RATE,
    latency_s: Seconds = LATENCY_S,
    backplane: Rate | None = None,
    sharp: bool = False,
    switches: Annotated[str, Choices(SWITCHES)] = "plain",
) -> Topology:
    """Return n ranks on one switch; a message takes two links of ``latency_s`` seconds and ``rate`` bytes/s each.

    ``backplane``: bytes/s through the switch in all, for switches that block. ``sharp``: the switch can add and multicast, as
    one of ``switches`` quantum-2 can.
    Defaults: 50 GiB/s, 0.5 us a hop, as ASTRA-sim's Switch counts them.
    """
    dimension = Dimension("switch", n, rate, latency_s, "rank")
    able = adding(switches, sharp=sharp)
    star = lattice(f"switch:{n}", [dimension], aggregator=able, provenance=ORIGIN)
    if backplane is None or n == 1:  # one rank has no links that could share it
        return star
    return dataclasses.replace(star, groups=(shared("switch backplane", backplane, range(n)),))
