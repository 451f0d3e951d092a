"""What may be asked of packets."""

from __future__ import annotations

from dataclasses import dataclass

STARTS = ("delivered", "acknowledged")  # when what waits for a message may begin
MOST_HOPS = 1_000_000_000  # that are followed where packets are asked for: minutes
BIN_PS = 10_000_000  # of samples of queues: 10 us


@dataclass(frozen=True)
class PacketOptions:
    """What may be asked of packets: when a step starts (``STARTS``), ``trains`` of packets as one event, the seed of losses."""

    start: str = "delivered"
    trains: bool = True
    seed: int = 0
    bin_ps: int = BIN_PS
    most_hops: int = MOST_HOPS
