"""How a fabric carries packets: by which protocol, on which links, and what other engines see of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.costs.protocols import PROTOCOLS, Protocol, protocol

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology

INSIDE = ("nvlink", "xgmi", "pcie", "upi", "c2c")  # classes of links inside a host or an NVLink domain
PACKETS_ALONE = ("loss", "ber", "buffer_bytes")  # fields of faults that act on packets, between hosts


def without_losses(top: Topology) -> Topology:
    """Return a fabric whose links between hosts lose nothing and have the usual buffers; they keep their whole rate.

    What NVLink and PCIe lose they send again by themselves: such a link is a thinner one, as for other engines.
    """
    import numpy as np

    within = inside(top)
    kept = tuple(each for each in top.faults if each.field not in PACKETS_ALONE or within[each.target])
    loss = None if top.loss is None else np.where(within, top.loss, 0.0)
    return replace(top, loss=loss, faults=kept)


def inside(top: Topology) -> np.ndarray:
    """Return which links lie inside a host or an NVLink domain. bool of shape (links,)."""
    import numpy as np

    within: np.ndarray = np.array([name in INSIDE for name in top.classes])[top.link_class]
    return within


def carriers(top: Topology) -> dict[str, str]:
    """Return what carries each class of links: the fabric's protocol between hosts, the link itself inside."""
    return {name: name if name in INSIDE else spoken(top).name for name in top.classes}


def spoken(top: Topology) -> Protocol:
    """Return the protocol that a fabric's packets follow."""
    return framed(PROTOCOLS[top.protocol] if top.protocol else protocol(top.transport), top)


def acts_on_packets(top: Topology) -> bool:
    """Return whether links between hosts lose something, have bit errors, or a buffer of their own."""
    within = inside(top)
    if top.loss is not None and bool((top.loss[~within] > 0).any()):
        return True
    acting = (each for each in top.faults if each.field in PACKETS_ALONE and each.value > 0)
    return any(not within[each.target] for each in acting)


def wire_rates(top: Topology) -> Topology:
    """Return a fabric whose links between hosts carry headers too, where its rates leave them out (``header_bytes``)."""
    import numpy as np

    if not top.header_bytes:
        return top
    within = inside(top)
    share = top.packet_bytes / (top.packet_bytes + top.header_bytes)
    return replace(top, rate=np.where(within, top.rate, top.rate / share))


def framed(used: Protocol, top: Topology) -> Protocol:
    """Return the protocol with the packets that the fabric says, where it says any."""
    if top.packet_bytes:
        used = replace(used, payload_bytes=top.packet_bytes)
    if top.header_bytes:
        used = replace(used, header_bytes=top.header_bytes, ack_bytes=top.header_bytes)
    return used
