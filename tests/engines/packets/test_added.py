"""What losses and small buffers add to programs, followed or carried over from a smaller size."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest

from ringwright.engines.packets.carriage import without_losses
from ringwright.engines.packets.concurrent_packets import laid_out
from ringwright.engines.packets.loss_penalty import MOST_HOPS, MOST_SEEDS, added
from ringwright.engines.packets.options import PacketOptions
from ringwright.fabrics import fabric, faults
from ringwright.ground.errors import DeclinedError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.registry import algorithm
from ringwright.model.topology import Topology

pytestmark = pytest.mark.once  # millions of packets: with the compiled loops alone

RING = fabric("switch:8,rate=100Gb/s,transport=roce")


def rings(top: Topology, count: int = 1) -> Callable[[int], list[Program]]:
    _, build, knobs = algorithm("ring")

    def make(size_bytes: int) -> list[Program]:
        return [build(Collective("all-reduce", range(top.n_ranks), size_bytes), top, **knobs) for _ in range(count)]

    return make


def test_what_can_be_followed_is_the_mean_of_the_seeds() -> None:
    lossy = faults.apply(RING, ["link rank3 loss 1%"])
    told = added(rings(RING), 1 << 20, lossy)
    calm = laid_out(rings(RING)(1 << 20), without_losses(lossy), PacketOptions())
    wild = laid_out(rings(RING)(1 << 20), lossy, PacketOptions())
    first = calm.run(PacketOptions())
    seeds = min(MOST_SEEDS, MOST_HOPS // first.met.hops)
    more = [wild.run(PacketOptions(seed=seed)).ends_ps[-1] - first.ends_ps[-1] for seed in range(seeds)]
    assert seeds > 12
    assert told.size_bytes == told.asked_bytes == 1 << 20
    assert told.seconds == pytest.approx(sum(more) / seeds / 1e12)
    assert told.middle_s == pytest.approx(median(more) / 1e12)
    assert 0 < told.low_s <= told.middle_s <= told.seconds <= told.high_s


def test_what_is_over_or_mended_adds_nothing_at_any_size() -> None:
    """What was carried from a smaller size has a time-out as its most, but where nothing can be lost meanwhile."""
    for line in ("link rank3 ber 1e-5", "link rank3 loss 1% from 1s"):
        told = added(rings(RING), 64 << 20, faults.apply(RING, [line]), most_hops=200_000)
        assert told.size_bytes < told.asked_bytes
        assert (told.seconds, told.middle_s, told.high_s) == (0.0, 0.0, 0.0)


def test_what_is_too_large_lies_between_as_long_and_as_much_longer_as_the_size() -> None:
    lossy = faults.apply(RING, ["link rank3 loss 1%"])
    large = added(rings(RING), 64 << 20, lossy, most_hops=200_000)
    assert large.asked_bytes == 64 << 20
    small = added(rings(RING), large.size_bytes, lossy)
    assert large.size_bytes < 16 << 20
    assert large.low_s <= small.high_s
    assert large.high_s >= 4 * small.seconds
    truth = added(rings(RING), 64 << 20, lossy, most_hops=40_000_000)
    assert truth.size_bytes == 64 << 20
    assert large.low_s <= truth.seconds <= large.high_s


def test_programs_that_pass_nothing_that_acts_are_not_followed() -> None:
    top = fabric("switch:8,rate=100Gb/s,transport=roce")
    lossy = faults.apply(top, ["link rank7 loss 1%"])
    _, build, knobs = algorithm("ring")
    told = added(
        lambda size: [build(Collective("all-reduce", range(4), size), top, **knobs)], 1 << 30, lossy, most_hops=1
    )
    assert (told.seconds, told.high_s) == (0.0, 0.0)
    with pytest.raises(DeclinedError, match="more than 1 packets"):
        added(rings(top), 1 << 30, lossy, most_hops=1)


def test_programs_together_share_their_queues() -> None:
    alone, both = (
        laid_out(rings(RING, count)(1 << 20), RING, PacketOptions()).run(PacketOptions()).ends_ps for count in (1, 2)
    )
    assert both.shape == (2,)
    assert both.max() == pytest.approx(2 * alone[0], rel=0.1)
