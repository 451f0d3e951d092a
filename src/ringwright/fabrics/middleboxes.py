"""Servers that add beside the switches of a tree: racks, pods of racks and a core, each with agg boxes where it is said."""

from __future__ import annotations

import math
from typing import Annotated

from ringwright.fabrics._capabilities import SERVER
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Ports, Rate, Ratio, Seconds
from ringwright.model.topology import AGGREGATOR, RANK, SWITCH, Topology
from ringwright.model.wiring import MOST_NODES, Names, Wires

TIERS = ("rack", "pod", "core")
PLACES = (*TIERS, "all", "none")


def middleboxes(
    *sizes: int,
    rate: Rate = 1.25e8,
    latency_s: Seconds = 10e-6,
    oversubscription: Ratio = 1.0,
    at: Annotated[str, Choices(PLACES)] = "all",
    per_switch: Ports = 1,
    middlebox_rate: Rate = 1.25e9,
) -> Topology:
    """Return servers of a rack, racks of a pod and pods (fewer sizes: fewer tiers), with ``per_switch`` agg boxes at each switch.

    ``rate`` (bytes/s) and ``latency_s`` are those of a server's port, ``middlebox_rate`` of a box's link; ``at``: the switches
    that have boxes. A switch has one uplink, of all that its servers can send, over ``oversubscription`` in racks and above.
    Defaults: 1 Gb/s for servers, 10 Gb/s for boxes (Mai et al., CoNEXT 2014), 10 us a link (assumed). Raises UsageError for
    more than three sizes and sizes below 1.
    """
    import numpy as np

    n = math.prod(sizes)
    if not 1 <= len(sizes) <= len(TIERS) or min(sizes) < 1 or n > MOST_NODES:
        raise UsageError(
            f"middleboxes of {'x'.join(map(str, sizes)) or 'nothing'} do not exist", remedy="middleboxes:8x4x2"
        )
    wires = Wires()
    below, base, ports = np.arange(n), n, 1
    marked: list[np.ndarray] = []  # switches with boxes
    names: list[tuple[str, tuple[int, ...]]] = [("server{}", (n,))]
    for tier, size in zip(TIERS, sizes, strict=False):
        above = base + np.arange(n // (ports * size))
        up = rate * ports / (oversubscription if ports > 1 else 1.0)
        wires.there_and_back(below, np.repeat(above, size), up, latency_s, "uplink" if ports > 1 else "link")
        if at in (tier, "all"):
            marked.append(above)
        names.append((f"{tier}{{}}", (len(above),)))
        below, base, ports = above, base + len(above), ports * size
    switches = base - n
    hosts = np.repeat(np.concatenate(marked), per_switch) if marked else np.zeros(0, np.int64)
    every = base + np.arange(len(hosts))
    if len(every):
        wires.there_and_back(every, hosts, middlebox_rate, latency_s, "box")
        names.append(("box{}", (len(every),)))
    return wires.topology(
        f"middleboxes:{'x'.join(map(str, sizes))}",
        n,
        np.repeat(np.array([RANK, SWITCH, AGGREGATOR], np.uint8), [n, switches, len(every)]),
        names=Names(*names),
        aggregators=dict.fromkeys(every.tolist(), SERVER),
        axes=tuple((tier, size) for tier, size in zip(("server", "rack", "pod"), sizes, strict=False)),
        hosts=np.arange(n),
        provenance="1 Gb/s a server and 10 Gb/s a box (Mai et al., CoNEXT 2014), 10 us a link assumed, unless given",
    )
