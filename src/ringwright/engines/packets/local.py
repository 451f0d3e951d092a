"""What TCP lets wait in front of its own NIC: Linux's small queues (tcp_output.c, ``tcp_small_queue_check``).

Packets that the NIC has not taken yet count with the kernel's memory for them. A connection may have 2^-10 s of its pacing rate
there, two packets at least. That rate is twice the window a round trip while the window is below half of slow start's threshold,
1.2 times afterwards (``tcp_update_pacing_rate``). Answers to the other direction stand behind these packets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringwright.costs.protocols import BBR
from ringwright.engines.packets import control

if TYPE_CHECKING:
    from ringwright.engines.packets.connection import Connection

SHARE_PS = 1e12 / 1024.0
LEAST = 2.0  # packets
MOST_BYTES = 4.0 * (1 << 20)  # sysctl tcp_limit_output_bytes
KERNEL_BYTES = 832  # of a packet besides its data: struct sk_buff, room for headers and fragments
EARLY, LATER = 2.0, 1.2  # sysctl tcp_pacing_ss_ratio and tcp_pacing_ca_ratio


def most(c: Connection, *, again: bool) -> int:
    """Return how many packets may wait in front of the NIC; ``again``: twice as many, of what is sent once more."""
    held = float(c.payload_bytes + KERNEL_BYTES)
    limit = max(LEAST * held, min(_pacing(c) * SHARE_PS * c.payload_bytes, MOST_BYTES))
    return math.ceil((2.0 if again else 1.0) * limit / held)


def waiting(c: Connection, now: int) -> int:
    """Return how many packets wait in front of the NIC."""
    while c.leaving and c.leaving[0] <= now:
        c.leaving.popleft()
    return len(c.leaving)


def add(c: Connection, leaves: int, now: int) -> None:
    """Take in that a packet waits until it begins to leave."""
    if leaves > now:
        waiting(c, now)
        c.leaving.append(leaves)


def _pacing(c: Connection) -> float:
    """Return the rate in packets a ps that Linux would pace at."""
    if c.control == BBR:
        return control.paced(c)
    ratio = EARLY if c.cwnd < c.ssthresh / 2.0 else LATER
    return ratio * max(c.cwnd, float(c.nxt - c.una)) / max(c.srtt, 1.0)
