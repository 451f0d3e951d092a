"""What losses, bit errors and small buffers add to programs: by packets, or, of large ones, within bounds from a smaller size.

A program on many ranks, or of much data, has more packets than can be followed where many programs are asked about. The packets
of a smaller size of the same program are followed then. With the size, what is added stays at least as long, and becomes at most
as much longer as the size: a time-out costs by the message, a loss by the packet. These are the bounds, and their geometric mean
is the middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.costs.corruption import FULL_PACKET, lost_share
from ringwright.costs.probable_time import NINETY
from ringwright.costs.protocols import ONE
from ringwright.engines.flat import flatten
from ringwright.engines.packets.carriage import PACKETS_ALONE, inside, spoken, without_losses
from ringwright.engines.packets.concurrent_packets import laid_out
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import TooManyPacketsError
from ringwright.engines.switch_slots import is_lossy, machines
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import PS
from ringwright.model.topology import SWITCH

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

MOST_HOPS = 6_000_000  # packets at ports for one question: a second
MOST_SEEDS, LEAST_SEEDS = (
    48,
    4,
)  # as many as the packets allow: a time-out that one operation of thirty meets is seldom drawn
LEAST_BYTES = 1 << 10

NEVER = 1e-12  # share of packets of which none is lost in an operation


@dataclass(frozen=True)
class Added:
    """Seconds that are added, and the least and the most of it.

    Where the size itself was followed (``size_bytes`` is ``asked_bytes``): the mean of the seeds, and below which 5, 50
    (``middle_s``) and 95 % of them stay. Else its bounds from ``size_bytes``, and their geometric mean. ``size_bytes`` 0: packets
    meet nothing, and none were followed.
    """

    seconds: float
    low_s: float
    high_s: float
    size_bytes: int
    asked_bytes: int
    middle_s: float = 0.0

    def towards(self, other: Added, part: float) -> Added:
        """Return what is added at a size between two that were asked about, on a line: ``part`` of the way to the other."""
        low_s, middle_s, high_s, seconds = (
            mine + part * (its - mine)
            for mine, its in (
                (self.low_s, other.low_s),
                (self.middle_s, other.middle_s),
                (self.high_s, other.high_s),
                (self.seconds, other.seconds),
            )
        )
        return replace(self, seconds=seconds, low_s=low_s, middle_s=middle_s, high_s=high_s)


def added(
    make: Callable[[int], Sequence[Program]], size_bytes: int, topology: Topology, *, most_hops: int = MOST_HOPS
) -> Added:
    """Return what the losses and buffers of a fabric add to the last of the programs that ``make`` gives for a size.

    Raises DeclinedError where even the least size has too many packets, or packets do not follow the program, and
    InfeasibleError where a connection is given up.
    """
    if _meets_nothing(make(LEAST_BYTES), topology):
        return Added(0.0, 0.0, 0.0, 0, size_bytes)
    size, lossy = size_bytes, is_lossy(topology)
    while True:
        try:
            calm_s, more = _added_s(make(size), topology, most_hops, lossy=lossy)
        except TooManyPacketsError:
            size //= 2
        else:
            lost_meanwhile = lossy and _loses_before(calm_s * size_bytes / size, topology)
            return _carried(more, size, size_bytes, spoken(topology).rto_s if lost_meanwhile else 0.0)
        if size < LEAST_BYTES:
            raise DeclinedError(f"more than {most_hops:,} packets, even of {LEAST_BYTES} B", remedy="--engine events")


def _loses_before(end_s: float, topology: Topology) -> bool:
    """Return whether packets may be lost until then: none is, where all bit errors are mended or nothing has begun."""
    if topology.loss is not None and bool((topology.loss[~inside(topology)] > 0).any()):
        return True
    begun = {(each.field, each.value) for each in topology.faults if each.time_s <= end_s}
    return any(
        (field == "loss" and value > 0) or (field == "ber" and lost_share(value, FULL_PACKET) > NEVER)
        for field, value in begun
    )


def _meets_nothing(programs: Sequence[Program], topology: Topology) -> bool:
    """Return whether no link on the way of some programs' data or answers loses anything or has a buffer of its own."""
    within, acting = inside(topology), np.zeros(topology.n_links, bool)
    if topology.loss is not None:
        acting |= topology.loss > 0
    acting[[each.target for each in topology.faults if each.field in PACKETS_ALONE and each.value > 0]] = True
    acting &= ~within
    between = (topology.kinds[topology.src] == SWITCH) & (topology.kinds[topology.dst] == SWITCH)
    if spoken(topology).routing != ONE and (acting & between).any():  # packets may take any link between switches
        acting |= between
    for program in programs:
        (made,) = machines([program], without_losses(topology))
        flat = flatten(program, made)
        ends = np.unique(np.stack((flat.dst, flat.src)), axis=1)
        _, back = topology.routes(ends[0], ends[1])
        links = np.concatenate((flat.hops[flat.hops < topology.n_links], back))
        if acting[links].any():
            return False
    return True


def _added_s(
    programs: Sequence[Program], topology: Topology, most_hops: int, *, lossy: bool
) -> tuple[float, np.ndarray]:
    """Return the seconds without, and what is added with each seed: of ``lossy`` links as many draws as packets allow.

    The latter is float64 of shape (seeds,).
    """
    least = LEAST_SEEDS if lossy else 1
    options = PacketOptions(most_hops=most_hops // (least + 1))
    disturbed = laid_out(programs, topology, options)
    calm = laid_out(programs, without_losses(topology), options).run(options)
    seeds = min(MOST_SEEDS, max(least, most_hops // max(calm.met.hops, 1))) if lossy else 1
    ends_ps = np.array([disturbed.run(replace(options, seed=seed)).ends_ps[-1] for seed in range(seeds)])
    more: np.ndarray = np.maximum(ends_ps - calm.ends_ps[-1], 0) / PS
    return calm.ends_ps[-1] / PS, more


def _carried(more_s: np.ndarray, followed_bytes: int, size_bytes: int, timeout_s: float) -> Added:
    """Carry what was added at one size to another; ``timeout_s``: the most has one at least, for a few seeds may not meet any.

    The most grows from as much as the mean of so few draws may be.
    """
    mean_s = float(more_s.mean())
    low_s, middle_s, high_s = (float(each) for each in np.quantile(more_s, (0.05, 0.5, 0.95)))
    times = size_bytes / followed_bytes
    if times <= 1.0:
        return Added(mean_s, low_s, high_s, followed_bytes, size_bytes, middle_s)
    unsure_s = NINETY * float(more_s.std(ddof=1)) / math.sqrt(len(more_s)) if len(more_s) > 1 else 0.0
    return Added(
        mean_s * math.sqrt(times),
        min(low_s, mean_s),
        max(high_s, (mean_s + unsure_s) * times, timeout_s),
        followed_bytes,
        size_bytes,
        middle_s * math.sqrt(times),
    )
