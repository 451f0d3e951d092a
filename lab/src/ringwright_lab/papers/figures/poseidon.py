"""Poseidon's figures: VGG19-22K on 1 to 32 machines, and where factors stop being smaller."""

from __future__ import annotations

from functools import cache

from ringwright.costs.nic import NicCosts
from ringwright.engines.job.run import simulate
from ringwright.schedulers.fifo.poseidon import best_scheme, poseidon
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model

ALONE_S = 18.5 / 20  # of one machine, in the authors' plotting script: 18.5 s for 20 iterations
DISTRIBUTED_S = 0.05  # what a step takes longer as soon as there are several machines, whatever they send: fitted
RATE_GBPS = 14.0  # what a card of 40 Gb/s gave them: fitted to the times of the servers
BATCH = 32
MACHINES = range(2, 33)
LINEAR = {"fc6": (4096, 25088), "fc7": (4096, 4096), "fc8": (21841, 4096)}


@cache
def step_s(machines: int, scheme: str, rate_gbps: float = RATE_GBPS) -> float:
    """Return the seconds of a step of VGG19-22K, without what several machines add."""
    made = layerwise(model("vgg-19-22k"), ALONE_S, machines, op="push-pull")
    costs = NicCosts(rate_gbps * 1e9 / 8)
    return simulate(poseidon(made, costs, scheme=scheme, batch=BATCH), costs).step_s


def iterations_20(machines: int, scheme: str) -> float:
    """Return the seconds of 20 iterations at 40 Gb/s: ``dense`` (wait-free over servers) or ``best`` (with factors)."""
    return 20 * (step_s(machines, scheme) + (DISTRIBUTED_S if machines > 1 else 0.0))


def speedup(machines: int, scheme: str, rate_gbps: float) -> float:
    """Return images/s over those of one machine, on a card of ``rate_gbps`` used in full, nothing else added."""
    return machines * ALONE_S / step_s(machines, scheme, rate_gbps)


INCEPTION_S = 32 / 43.2  # 32 images at the images/s of one Titan X with TensorFlow: from memory


def inception_speedup(machines: int, scheme: str, rate_gbps: float) -> float:
    """Return Inception-V3's images/s over those of one machine, on a card used in full."""
    made = layerwise(model("inception-v3"), INCEPTION_S, machines, op="push-pull")
    costs = NicCosts(rate_gbps * 1e9 / 8)
    return machines * INCEPTION_S / simulate(poseidon(made, costs, scheme=scheme, batch=BATCH), costs).step_s


def factors_chosen(batch: int) -> int:
    """Return in how many of 93 cases (fc6, fc7, fc8 on 2 to 32 machines) factors are chosen."""
    return sum(
        best_scheme(*shape, batch, machines, machines) == "factors"
        for shape in LINEAR.values()
        for machines in MACHINES
    )


def largest_batch(layer: str, machines: int) -> int:
    """Return the largest batch for which factors are chosen, found by asking for each."""
    batch = 1
    while best_scheme(*LINEAR[layer], batch, machines, machines) == "factors":
        batch += 1
    return batch - 1
