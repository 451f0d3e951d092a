"""A pool of slots as packets see it: workers, the tree of switches above them, the links between, and who mends a loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST_TIMER_PS = 10**12  # of a timer that doubles: a second


@dataclass(frozen=True)
class PoolLink:
    """One direction of the link between a node and the switch above it.

    Parameters
    ----------
    packet_ps
        How long one packet occupies it.
    latency_ps
        From its last bit sent to its last bit received.
    loss
        Shares of packets that are lost, as (from ps on, share) in order of time; none: nothing is lost.
    """

    packet_ps: int
    latency_ps: int
    loss: tuple[tuple[int, float], ...] = ()

    def lost(self, at_ps: int) -> float:
        """Return the share that is lost of what is sent at a time."""
        return next((share for since, share in reversed(self.loss) if since <= at_ps), 0.0)


@dataclass(frozen=True)
class Mending:
    """Who sends a lost packet again, and when.

    Parameters
    ----------
    timeout_ps
        Of a worker's timer, or of a transport's: the least where it adapts.
    adapts
        Whether the timer follows the round trip, srtt + 4 rttvar, and doubles for each further copy of a packet (RFC 6298).
    first_ps
        The timer before any round trip was measured, where it adapts.
    goes_back
        Whether a transport asks for all packets from the first missing one on; else each slot has a timer of its own.
    """

    timeout_ps: int
    adapts: bool = False
    first_ps: int = 0
    goes_back: bool = False


@dataclass(frozen=True)
class SlotPool:
    """Workers 0, 1, ... and the switches above them, the root last.

    Parameters
    ----------
    parents
        The switch above each node; -1 at the root.
    up, down
        The link above each node, each way; of the root nothing.
    packets
        Of each worker, those of exponents alone included.
    slots
        Packets that each switch has room for, in two versions.
    mending
        Who sends a lost packet again.
    starts_ps
        When each worker begins; none: all at 0.
    """

    parents: tuple[int, ...]
    up: tuple[PoolLink, ...]
    down: tuple[PoolLink, ...]
    packets: int
    slots: int
    mending: Mending
    starts_ps: tuple[int, ...] = ()

    @property
    def workers(self) -> int:
        """How many nodes are no switches: no node is below them."""
        return min(parent for parent in self.parents if parent >= 0)

    @property
    def hops(self) -> int:
        """Packets that leave a port where nothing is lost."""
        return 2 * self.packets * (len(self.parents) - 1)

    def without_losses(self) -> SlotPool:
        """Return the pool whose links lose nothing."""
        up, down = (tuple(replace(leg, loss=()) for leg in legs) for legs in (self.up, self.down))
        return replace(self, up=up, down=down)
