"""The expected time that losses add to a pool of slots, in closed form.

N packets of each worker go through s slots, K = N / s through each; one takes b on the busiest link and r for a round trip
without queues. The share q loses a packet on some link. A timer R mends it, and w is what a loss makes its slot wait: R, and
more where a copy is lost too. While a slot waits, others use its turns of the link, so that a mean slot is late by nothing until
the waits of all leave the link idle:

    T = max(N b (1 + q), K (r + q w)) + D (r + q w) / max(s b, r + q w),    D = E[max of s slots' waits] - K q w

Every worker sends a copy of what is late (N b q). D is how far the unluckiest slot lags behind the mean; when the others have
ended its turns come round in r, not in s b. Losses of a slot are Poisson in number. A timer that adapts is the longer of its
least and of a round trip with queues, s b, and doubles with each copy.

A transport that goes back to the first missing packet is late by a round trip and a request each time, and by its time-out where
the copy is lost too; that copies of a whole window hold up others is left out: true while q s is below 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ringwright.engines.pools.pool_machine import MOST_TIMER_PS

MOST_COPIES = 40
MOST_LOSSES = 400
LEAST_CHANCE = 1e-9


@dataclass(frozen=True)
class PoolTimes:
    """What the closed form knows of a pool, in ps.

    Parameters
    ----------
    packets, slots
        N and s.
    packet_ps, trip_ps
        b and r.
    links, depth
        One-way links of the tree in all, and those between a worker and the root.
    timeout_ps, adapts, goes_back
        Who sends again: see ``Mending``.
    """

    packets: int
    slots: int
    packet_ps: float
    trip_ps: float
    links: int
    depth: int
    timeout_ps: float
    adapts: bool = False
    goes_back: bool = False


def late_ps(pool: PoolTimes, lost: float) -> float:
    """Return the ps that losses add, where the share ``lost`` of packets is lost on some link of the tree."""
    if not lost or not pool.packets:
        return 0.0
    lost = min(lost, 1 - 1e-12)
    if pool.goes_back:
        # A round trip until the gap shows, half of one for the request.
        return pool.packets * lost / (1 - lost) * (1.5 * pool.trip_ps + _again(pool, lost) * pool.timeout_ps)
    slots = min(pool.slots, pool.packets)
    turns, burst = pool.packets / slots, slots * pool.packet_ps
    timeout = max(pool.timeout_ps, burst) if pool.adapts else pool.timeout_ps
    waits = _waits(pool, timeout, _again(pool, lost))
    mean = sum(number * share for number, share in waits) * timeout  # of what a loss makes its slot wait
    turn = pool.trip_ps + lost * mean
    behind = _longest(slots, turns * lost, waits) * timeout - turns * lost * mean
    together = max(pool.packets * pool.packet_ps * (1 + lost), turns * turn)
    without = max(pool.packets * pool.packet_ps, turns * pool.trip_ps)
    return float(together + behind * turn / max(burst, turn) - without)


def _again(pool: PoolTimes, lost: float) -> float:
    """Return the chance that a copy is lost too: of a contribution, with the results that follow it, or of a result."""
    kept = 1 - lost
    contribution, result = (1 - math.pow(kept, share + more) for share, more in _legs(pool))
    return (contribution + result) / 2


def _legs(pool: PoolTimes) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the parts of all links that a copy of a contribution needs, and one of a result, each there and back."""
    part = pool.depth / pool.links
    return (part, 0.5), (part, part)


def _waits(pool: PoolTimes, timeout_ps: float, again: float) -> list[tuple[int, float]]:
    """Return how many timers a slot waits for a loss, and in which share of losses, the shares in all 1."""
    most = max(1, round(MOST_TIMER_PS / timeout_ps))
    waits: list[tuple[int, float]] = []
    waited, chance = 0, 1.0
    while chance > LEAST_CHANCE and len(waits) < MOST_COPIES:
        waited += min(1 << len(waits), most) if pool.adapts else 1
        waits.append((waited, chance * (1 - again)))
        chance *= again
    number, share = waits[-1]
    return [*waits[:-1], (number, share + chance)]


def _longest(slots: float, losses: float, waits: list[tuple[int, float]]) -> float:
    """Return the expected longest of all slots' waits, in timers, where each slot has so many losses in the mean.

    A slot's wait in all is a compound Poisson number, of which Panjer's recursion (1981) gives the shares.
    """
    mean = losses * sum(number * share for number, share in waits)
    if losses > MOST_LOSSES:  # a normal distribution is near, and the shares would vanish
        deviation = math.sqrt(losses * sum(number * number * share for number, share in waits))
        return mean + deviation * math.sqrt(2 * math.log(slots))
    shares, below, longest = [math.exp(-losses)], math.exp(-losses), 0.0
    while True:
        more = 1 - math.pow(below, slots)
        longest += more
        is_far = len(shares) > 10 * (mean + waits[-1][0] + 50)  # what is left then is the rounding of the sum
        if (len(shares) > mean and more < LEAST_CHANCE) or is_far:
            return longest
        number = len(shares)
        total = sum(wait * share * shares[number - wait] for wait, share in waits if wait <= number)
        shares.append(losses / number * total)
        below = min(1.0, below + shares[-1])
