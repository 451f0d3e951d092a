"""Several jobs whose packets share one pool of slots by a hash, with a server for what finds its slot taken (after ATP).

A packet takes the slot that job and number hash to, if it is free, until all workers have given theirs and the server's answer
has passed back. Where another packet is in it, the server adds all contributions of this one: n come in over its link where
one sum would. Each job has a server on a link of its own.

What is under way waits before the link that is short, and that is behind the slot: the server's, or a slow worker's, for which
the others' contributions wait. So a packet holds its slot for its whole trip but the way to the switch and back, w x - a for a
window of w and a packet each x. k jobs then offer A = k (w - a / x) packets to M slots, and the share f of packets misses:

    f = A / (M + A),    x = max(b, b' (1 - f + f n), trip / w)

with b on the slowest worker's link and b' on the server's. They hold together at one x.
"""

from __future__ import annotations

from dataclasses import dataclass

NEAR = 1e-9


@dataclass(frozen=True)
class HashedPool:
    """What jobs that share a pool are like; times in ps.

    Parameters
    ----------
    jobs, workers
        k jobs of n workers.
    slots, window
        M slots of all jobs, and w packets that one worker has under way.
    packet_ps, server_ps
        One packet on the slowest worker's link, and on the server's.
    trip_ps, outside_ps
        The round trip of a packet by way of the server, without queues, and what of it is spent outside of the slot.
    """

    jobs: int
    workers: int
    slots: int
    window: int
    packet_ps: float
    server_ps: float
    trip_ps: float
    outside_ps: float


def packet_time_ps(pool: HashedPool) -> float:
    """Return the ps from one packet of a job to the next."""
    low = max(pool.packet_ps, pool.trip_ps / pool.window)
    high = max(low, pool.server_ps * pool.workers)
    while high - low > NEAR * high:
        middle = (low + high) / 2
        share = missed(pool, middle)
        short = pool.server_ps * (1 - share + share * pool.workers) > middle
        low, high = (middle, high) if short else (low, middle)
    return high


def missed(pool: HashedPool, packet_time: float) -> float:
    """Return the share of packets that find their slot taken, where each job has one in ``packet_time`` ps."""
    offered = pool.jobs * max(0.0, pool.window - pool.outside_ps / packet_time)
    return offered / (pool.slots + offered)
