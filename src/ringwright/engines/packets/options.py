"""What may be asked of packets."""

from __future__ import annotations

from dataclasses import dataclass

STARTS = ("delivered", "acknowledged")  # when what waits for a message may begin
MOST_HOPS = 1_000_000_000  # that are followed where packets are asked for: minutes
BIN_PS = 10_000_000  # of samples of queues: 10 us


@dataclass(frozen=True)
class PacketOptions:
    """What may be asked of packets: when a step starts (``STARTS``), ``trains`` of packets as one event, the seed of losses.

    As sockets between hosts may be, and as the laboratory is: ``duplex``, both directions of a pair are one connection of TCP,
    whose data carry its answers; ``burst_bytes``, links between hosts are token buckets of that size.
    """

    start: str = "delivered"
    trains: bool = True
    seed: int = 0
    bin_ps: int = BIN_PS
    most_hops: int = MOST_HOPS
    duplex: bool = False
    burst_bytes: int = 0
