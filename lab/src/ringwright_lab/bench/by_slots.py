"""What packets through the slots of real switches take: the protocol of ``execute.switched`` on the links of a laboratory.

Nothing of the machine that measures is in it: cores that keep up, and trains of datagrams that pass packet by packet.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.pools.loop import simulate_pool
from ringwright.engines.pools.losses import lost_on
from ringwright.engines.pools.pool_machine import Mending, PoolLink, SlotPool
from ringwright.execute.switched.tree import seats
from ringwright.execute.switched.worker import EXPONENTS, LEAST_RTO_S, Membership
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import PS
from ringwright_lab.network.script import LEAST_LATENCY_S

if TYPE_CHECKING:
    from ringwright.execute.switched.terms import SwitchTerms
    from ringwright.model.topology import Topology

ETHERNET, IP, UDP = 14, 20, 8  # bytes in front of a frame, as the laboratory's token buckets count them
MOST_HOPS = 400_000  # of all seeds together: some seconds
SEEDS = 5


def pool_of(terms: SwitchTerms, top: Topology, size_bytes: int, dtype: str, switch_loss: float) -> SlotPool:
    """Return the pool that a vector goes through on a fabric of switches that add, with the losses of sockets and of links.

    ``switch_loss``: the share that the sockets of switches lose; those of workers lose ``terms.loss``.
    """
    codec = "none" if dtype == "int32" else terms.codec
    member = Membership(0, top.n_ranks, terms.job, terms.slots, codec, terms.payload_bytes, key=b"any")
    chunks = -(-size_bytes // 4 // member.shape.elements)
    frames = chunks + (min(terms.slots, chunks) if codec in EXPONENTS else 0)  # a round of exponents comes first
    above, ranks = seats(top)
    number = {seat.node: top.n_ranks + at for at, seat in enumerate(reversed(above))}  # the root last
    ends = [(rank, seat.node) for rank, seat in enumerate(ranks)]
    ends += [(seat.node, seat.parent) for seat in reversed(above) if seat.parent >= 0]
    wire = member.shape.width + UDP + IP + ETHERNET
    up = [_leg(top, wire, here, there, switch_loss) for here, there in ends]
    down = [_leg(top, wire, there, here, terms.loss if here < top.n_ranks else switch_loss) for here, there in ends]
    # Rounds before have measured the round trip: all slots of a worker one after the other, or an empty way there and back.
    trip_ps = max(
        terms.slots * max(leg.packet_ps for leg in up), sum(leg.packet_ps + leg.latency_ps for leg in (*up, *down))
    )
    least = round(LEAST_RTO_S * PS)
    parents = (*(number[there] for _, there in ends), -1)
    mending = Mending(least, adapts=True, first_ps=max(least, trip_ps))
    return SlotPool(parents, tuple(up), tuple(down), frames, terms.slots, mending)


def median_s(pool: SlotPool) -> float:
    """Return the median over seeds of what a pool takes, in seconds; DeclinedError where it has too many packets."""
    if pool.hops > MOST_HOPS:
        raise DeclinedError(f"{pool.hops:,} packets are more than {MOST_HOPS:,} that are followed", remedy="-e 4M")
    seeds = max(1, min(SEEDS, MOST_HOPS // pool.hops)) if any(leg.loss for leg in (*pool.up, *pool.down)) else 1
    return median(simulate_pool(pool, seed).time_ps for seed in range(seeds)) / PS


def _leg(top: Topology, wire_bytes: int, here: int, there: int, share: float) -> PoolLink:
    """Return one direction between neighbours; ``share``: what the socket at its end loses, of every time."""
    _, links = top.routes(np.array([here]), np.array([there]))
    latency_s = max(float(top.latency_s[links].sum()), LEAST_LATENCY_S)
    of_links = lost_on(top, links) or (((0, 0.0),) if share else ())
    loss = tuple((since, 1 - (1 - share) * (1 - lost)) for since, lost in of_links)
    return PoolLink(round(wire_bytes / float(top.rate[links].min()) * PS), round(latency_s * PS), loss)
