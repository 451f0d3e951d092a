"""The simulator's pool of slots beside the protocol that real workers and switches speak, on the same links in made-up time."""

from __future__ import annotations

from random import Random
from statistics import median
from typing import Any

import numpy as np
import pytest

from ringwright.engines.pools.loop import simulate_pool
from ringwright.engines.pools.pool_machine import Mending, PoolLink, SlotPool
from ringwright.execute.switched.frames import DATA
from ringwright.execute.switched.worker import FIRST_RTO_S, LEAST_RTO_S
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.units import PS
from ringwright_lab.bench import BenchSpec
from ringwright_lab.bench.by_slots import median_s, pool_of
from switched_network import Network

pytestmark = pytest.mark.once
FRAME_S, LATENCY_S = 1e-4, 2e-4
SLOTS, CHUNKS = 16, 300


class Links:
    """One link each way between a worker and its switch: a frame a time, in order, some lost by lot."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self.draw = share, Random(seed)
        self.free_s: dict[Any, float] = {}
        self.network: Network | None = None

    def __call__(self, source: Any, target: Any, frame: np.ndarray) -> list[float]:
        if self.network is None or frame[0] >> 4 != DATA:
            return [LATENCY_S]
        now_s = self.network.now_s
        sent_s = max(now_s, self.free_s.get((source, target), 0.0)) + FRAME_S
        self.free_s[source, target] = sent_s
        return [] if self.draw.random() < self.share else [sent_s - now_s + LATENCY_S]


def executed_s(tree: list[int], share: float, seed: int) -> float:
    """Return when the last worker has its sum, by the workers and switches that real ranks have."""
    links = Links(share, seed)
    network = Network(tree, links, slots=SLOTS, payload_bytes=128, codec="none")
    links.network = network
    began_s = network.now_s
    done_s: dict[Any, float] = {}

    def look(net: Network) -> None:
        for name, worker in net.workers.items():
            if worker.done:
                done_s.setdefault(name, net.now_s)

    network.all_reduce([np.ones(32 * CHUNKS, np.int32)] * sum(tree), look)
    return max(done_s.values()) - began_s


def pool(tree: list[int], share: float) -> SlotPool:
    """Return the same workers, switches and links for the simulator."""
    workers = sum(tree)
    parents = tuple(workers + leaf for leaf, count in enumerate(tree) for _ in range(count))
    parents += (workers + len(tree),) * len(tree) if len(tree) > 1 else ()
    leg = PoolLink(round(FRAME_S * PS), round(LATENCY_S * PS), ((0, share),) if share else ())
    mending = Mending(round(LEAST_RTO_S * PS), adapts=True, first_ps=round(FIRST_RTO_S * PS))
    return SlotPool((*parents, -1), (leg,) * len(parents), (leg,) * len(parents), CHUNKS, SLOTS, mending)


@pytest.mark.parametrize("tree", [[3], [2, 1]])
def test_without_loss_both_take_the_same_time(tree: list[int]) -> None:
    assert simulate_pool(pool(tree, 0.0)).time_ps / PS == pytest.approx(executed_s(tree, 0.0, 0), rel=1e-6)


def test_with_loss_both_take_as_long() -> None:
    """Both draw in the order in which frames leave, so that most seeds lose the same frames."""
    simulated = [simulate_pool(pool([3], 0.01), seed).time_ps / PS for seed in range(5)]
    executed = [executed_s([3], 0.01, seed) for seed in range(5)]
    ratios = [one / other for one, other in zip(simulated, executed, strict=True)]
    assert median(ratios) == pytest.approx(1.0, abs=0.05)
    assert min(executed) > 1.3 * CHUNKS * FRAME_S


def test_the_pool_of_a_bench_is_that_of_its_switches() -> None:
    top = apply(fabric("leaf-spine:4,per_leaf=2,spines=1,rate=50Mb/s"), ["link rank1>leaf0 loss 2%"])
    question = BenchSpec("all-reduce", 4, [4000], algorithms=["switchml:slots=4:codec=int8:loss=0.01"])
    asked = question.through_switch[question.algorithms[0]]
    made = pool_of(asked, top, 4000, "float32", asked.loss)
    assert made.parents == (5, 5, 4, 4, 6, 6, -1) or made.parents == (4, 4, 5, 5, 6, 6, -1)
    assert made.packets == 2  # 1,000 elements are a frame, which a round of exponents precedes
    assert pool_of(asked, top, 4000, "int32", 0.0).packets == 4
    assert made.up[0].packet_ps == pytest.approx((1024 + 18 + 42) * 8 / 50e6 * PS, rel=1e-6)
    assert [leg.lost(0) for leg in made.up] == pytest.approx([0.01, 1 - 0.99 * 0.98, *[0.01] * 4])
    assert median_s(made) > 4 * made.up[0].packet_ps / PS
