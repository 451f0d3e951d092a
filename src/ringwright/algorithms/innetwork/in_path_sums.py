"""A device on the way of a ring's connections: it puts the sum of all hosts into each packet and changes nothing else of it.

Host i sends to host i + 1 by a reliable connection; packet k of every connection is one reduction. The device counts a packet
where it is the next of its connection, holds it, and when the last host's has come sends all of them on to where they were going,
the sum in place of what they carried. Numbers, lengths and acknowledgements stay as they are, so a loss is mended by the
connection itself, which sends all again from the lost packet on:

- a packet that was counted is not added again; where its sum is whole it takes the sum, else it is held in place of the first;
- a packet ahead of its connection goes on as it is, for its receiver is behind too, throws it away and asks for the lost one;
- a packet whose room still holds a sum that some receiver has not acknowledged is dropped: sent on as it was it would be taken.

Acknowledgements pass through the device too; from them it knows who has what. So room for one window of messages is enough.
Mechanism: Liu et al., arXiv 2009.09736 and ASPLOS 2023; fields and rules are this project's reading of the abstracts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True)
class RingPacket:
    """A packet on the wire: which ``connection`` (of its sending host), its ``number`` there, and int64 ``payload``."""

    connection: int
    number: int
    payload: np.ndarray


@dataclass
class PacketSum:
    """What the device holds for one packet of the window.

    Parameters
    ----------
    number
        The packet, from 0 on in each connection.
    total
        Sum of those that came, int64 like a payload.
    held
        By connection, what waits for the sum: a device needs its header alone. Nothing once the sum is whole.
    counted
        Connections whose packet is in the sum.
    """

    number: int
    total: np.ndarray
    held: dict[int, RingPacket] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)


class InPathDevice:
    """The device of one ring of ``hosts``, with room for the sums of ``room`` packets.

    ``first_numbers`` are those of each connection's first packet, as the private header of a first packet tells them.
    ``most_sums`` is the most that it held at a time, ``again`` counts packets that were in a sum already, ``refused`` those that
    found no room.
    """

    def __init__(self, hosts: int, room: int, first_numbers: np.ndarray) -> None:
        self.hosts, self.room, self.first = hosts, room, first_numbers
        self.most_sums = self.again = self.refused = 0
        self._next = [0] * hosts
        self._acknowledged = [0] * hosts
        self._sums: dict[int, PacketSum] = {}

    def take(self, packet: RingPacket) -> list[RingPacket]:
        """Return what goes on for a packet that came: nothing, itself, or one of every host with the sum."""
        host, at = packet.connection, packet.number - int(self.first[packet.connection])
        if at > self._next[host]:
            return [packet]
        if at < self._next[host]:
            return self._take_again(packet, at)
        return self._count(packet, at)

    def acknowledge(self, connection: int, number: int) -> None:
        """Note that a connection's receiver has all before ``number``, as an acknowledgement that passes says."""
        have = number - int(self.first[connection])
        self._acknowledged[connection] = max(self._acknowledged[connection], have)

    def _take_again(self, packet: RingPacket, at: int) -> list[RingPacket]:
        self.again += 1
        mine = self._sums.get(at % self.room)
        if mine is None or mine.number != at:
            return [packet]  # every receiver has it, and throws it away
        if len(mine.counted) == self.hosts:
            return [replace(packet, payload=mine.total)]
        mine.held[packet.connection] = packet
        return []

    def _count(self, packet: RingPacket, at: int) -> list[RingPacket]:
        mine = self._sums.get(at % self.room)
        if mine is not None and mine.number < at:
            if min(self._acknowledged) <= mine.number:
                self.refused += 1
                return []
            mine = None
        if mine is None:
            mine = self._sums[at % self.room] = PacketSum(at, np.zeros_like(packet.payload))
            self.most_sums = max(self.most_sums, len(self._sums))
        mine.total = mine.total + packet.payload
        mine.counted.add(packet.connection)
        mine.held[packet.connection] = packet
        self._next[packet.connection] = at + 1
        if len(mine.counted) < self.hosts:
            return []
        out = [replace(mine.held[host], payload=mine.total) for host in sorted(mine.held)]
        mine.held = {}
        return out
