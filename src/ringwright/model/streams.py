"""Streams: how a program uses the nodes of the network that add, and the closed lists of what it may say about that.

A *slot* is room for one packet of ``payload_bytes`` (in each of its versions). A packet keeps its slot from its first
contribution until its result has left the node, so no sender has more than its slots under way: a round trip moves
``slots * payload_bytes`` at the most. A chunk of a program is many packets, which pass through the slots one after the other;
the places that a program names at a node are no more than the slots it has there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.model.topology import Capability


@dataclass(frozen=True, slots=True)
class Stream:
    """What a program leases of one aggregating node.

    Parameters
    ----------
    node
        A topology node, one of the program's ``aggregators``.
    slots
        Packets that the node has room for; 0: an equal share of what other streams leave of its memory.
    versions
        Copies of a slot, as many as the loss rule needs or more.
    window
        Packets that one sender may have under way; 0: as many as there are slots.
    payload_bytes
        Data in a packet; 0: as much as the node takes.
    codec, loss
        Number format on the wire and who mends a loss: names of ``ringwright.model.codecs.formats.codecs`` and of ``LOSS_RULES``.
    timeout_s
        Seconds after which a sender sends a packet anew, where the loss rule has a timer; the least of it where that adapts.
    fallback
        Program node (a rank, or p and on: an aggregating node) that finishes what this one could not; where jobs share slots,
        by a server on a link of its own, as fast as that of this node.
    jobs
        Jobs like this one whose packets share the slots by a hash, this one among them; 0: the slots are its own.
    channels
        Channels whose moves at the node are this stream's; none: all of them.
    """

    node: int
    slots: int = 0
    versions: int = 1
    window: int = 0
    payload_bytes: int = 0
    codec: str = "native"
    loss: str = "reliable"
    timeout_s: float = 0.0
    fallback: int | None = None
    jobs: int = 0
    channels: tuple[int, ...] = ()

    def takes(self, channel: int) -> bool:
        """Say whether the moves of a channel at the node are this stream's."""
        return not self.channels or channel in self.channels


@dataclass(frozen=True, slots=True)
class LossRule:
    """Who mends a loss, and what that takes: copies of each slot, a timer at the senders, a node that finishes the rest.

    ``owner``: the ``links`` below (a lossy link is a thinner one), the ``hosts``, the ``transport`` of their connections, or a
    ``server``. ``adapts``: the timer follows the round trip from ``Stream.timeout_s`` on.
    """

    owner: str
    versions: int
    has_timer: bool = False
    has_fallback: bool = False
    adapts: bool = False


LOSS_RULES = {
    # Link level, or connections that nothing of the sums goes through.
    "reliable": LossRule("links", 1),
    # A bitmap, and the last result of a slot beside the one under way (SwitchML, algorithms 3 and 4).
    "host-timer": LossRule("hosts", 2, has_timer=True),
    # The same with a timer that follows the round trip and doubles (RFC 6298), as ``ringwright switch`` has it.
    "adaptive-timer": LossRule("hosts", 2, has_timer=True, adapts=True),
    # Connections in a ring that go back to the first missing packet; the node puts a stored sum into a copy (NetReduce).
    "go-back-n": LossRule("transport", 1),
    # What is sent anew evicts the slot and goes on to a server (ATP, NSDI 2021).
    "resend-to-server": LossRule("server", 1, has_timer=True, has_fallback=True),
}


def payload_bytes(stream: Stream, able: Capability) -> int:
    """Return the data of a packet of a stream at a node."""
    return stream.payload_bytes or able.payload_bytes


def leased_bytes(stream: Stream, able: Capability) -> int:
    """Return the memory that a stream with slots of its own takes of a node."""
    return stream.slots * stream.versions * payload_bytes(stream, able)


def granted(streams: Sequence[Stream], able: Capability) -> list[int]:
    """Return the slots of each of the streams at one node: its own, or an equal share of the memory that is left."""
    left = able.memory_bytes - sum(leased_bytes(each, able) for each in streams)
    sharing = sum(not each.slots for each in streams)
    slots = []
    for each in streams:
        size = max(1, each.versions * payload_bytes(each, able))
        slots.append(each.slots or max(0, left // sharing // size))
    return slots
