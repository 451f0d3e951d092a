"""Leaf and spine: two tiers of switches, with oversubscription at the leaf."""

from __future__ import annotations

from typing import Any

from ringwright.errors import UsageError
from ringwright.fabrics._endpoints import EndpointPaths, axes_of, switches_of
from ringwright.fabrics._network import clos, network
from ringwright.knobs import Rate, Seconds
from ringwright.topology import Topology
from ringwright.wiring import MOST_NODES, Wires


def leaf_spine(n: int, *, rate: Rate = 50e9, latency_s: Seconds = 0.5e-6, **options: Any) -> Topology:
    """Return n ranks below leaves; ``rate`` (bytes/s) and ``latency_s`` are those of a rank's port.

    Knobs of the network: per_leaf (32, fewer for small n), spines (one uplink each; per_leaf / oversubscription),
    oversubscription=1, routing=d-mod-k (the target's place below its leaf chooses the spine) or ecmp (seeded hash of
    source and target), seed, spine_latency_s=0.2 us, sharp=False. The rate of an uplink is per_leaf * rate /
    (oversubscription * spines). Defaults: 400 Gb/s ports (ConnectX-7), 0.5 us for NIC, cable and switch, 32 ports down
    (half of Quantum-2's 64). Raises UsageError for sizes below 1.
    """
    import numpy as np

    if not 1 <= n <= MOST_NODES:
        raise UsageError(f"leaf-spine of {n} ranks does not exist", remedy="leaf-spine:512")
    chosen = network(**options)
    below = clos(n, 1, "switch" if chosen.layout == "switch" else "leaf-spine", chosen, n)
    wires = Wires()
    below.wire(wires, np.arange(n), rate, latency_s, chosen)
    kinds, names, aggregators = switches_of(below, chosen, n)
    return wires.topology(
        f"leaf-spine:{n}", n, kinds, names=names, aggregators=aggregators, paths=EndpointPaths(below),
        axes=axes_of(below, (("rank", n),)), hosts=np.arange(n), is_symmetric=below.is_symmetric,
        provenance="400 Gb/s ports (ConnectX-7 data sheet), 0.5 us a port and 0.2 us a leaf-spine hop, unless given",
    )  # fmt: skip
