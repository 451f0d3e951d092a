"""Leaf and spine: two tiers of switches, with oversubscription at the leaf."""

from __future__ import annotations

from typing import Annotated

from ringwright.fabrics._capabilities import SWITCHES
from ringwright.fabrics._endpoints import EndpointPaths, axes_of, switches_of
from ringwright.fabrics._network import HOP_S, ROUTINGS, HeaderBytes, PacketBytes, clos, network
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Ports, Rate, Ratio, Seconds, Seed
from ringwright.model.topology import Topology
from ringwright.model.wiring import MOST_NODES, Wires

LAYOUTS = ("leaf-spine", "switch")


# long, parameters: they are the knobs of the fabric, by the names that --fabric has
def leaf_spine(
    n: int,
    *,
    rate: Rate = 50e9,
    latency_s: Seconds = 0.5e-6,
    layout: Annotated[str, Choices(LAYOUTS)] = "leaf-spine",
    per_leaf: Ports | None = None,
    spines: Ports | None = None,
    oversubscription: Ratio = 1.0,
    routing: Annotated[str, Choices(ROUTINGS)] = "d-mod-k",
    seed: Seed = 0,
    spine_latency_s: Seconds = HOP_S,
    sharp: bool = False,
    switches: Annotated[str, Choices(SWITCHES)] = "plain",
    packet_bytes: PacketBytes = 4096,
    header_bytes: HeaderBytes = 0,
    store_and_forward: bool = False,
) -> Topology:
    """Return n ranks below leaves; ``rate`` (bytes/s) and ``latency_s`` are those of a rank's port.

    ``per_leaf``: 32, fewer for small n. ``spines`` (one uplink each): per_leaf / oversubscription. ``routing``: d-mod-k (the
    target's place below its leaf chooses the spine) or ecmp (seeded hash of source and target). ``layout`` switch: one
    switch instead. The rate of an uplink is per_leaf * rate / (oversubscription * spines). Defaults: 400 Gb/s ports
    (ConnectX-7), 0.5 us for NIC, cable and switch, 32 ports down (half of Quantum-2's 64); no headers, cut-through. Raises
    UsageError for sizes below 1.
    """
    import numpy as np

    if not 1 <= n <= MOST_NODES:
        raise UsageError(f"leaf-spine of {n} ranks does not exist", remedy="leaf-spine:512")
    chosen = network(
        layout=layout,
        per_leaf=per_leaf,
        spines=spines,
        oversubscription=oversubscription,
        routing=routing,
        seed=seed,
        spine_latency_s=spine_latency_s,
        sharp=sharp,
        switches=switches,
        packet_bytes=packet_bytes,
        header_bytes=header_bytes,
        store_and_forward=store_and_forward,
    )
    below = clos(n, 1, layout, chosen, n)
    wires = Wires()
    below.wire(wires, np.arange(n), rate, latency_s, chosen)
    kinds, names, aggregators = switches_of(below, chosen, n)
    return wires.topology(
        f"leaf-spine:{n}",
        n,
        kinds,
        names=names,
        aggregators=aggregators,
        paths=EndpointPaths(below),
        axes=axes_of(below, (("rank", n),)),
        hosts=np.arange(n),
        is_symmetric=below.is_symmetric,
        **chosen.framing,
        provenance="400 Gb/s ports (ConnectX-7 data sheet), 0.5 us a port and 0.2 us a leaf-spine hop, unless given",
    )
