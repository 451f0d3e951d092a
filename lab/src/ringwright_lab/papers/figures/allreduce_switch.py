"""AllReduce-Switch's figures: the device beside a ring on 8 workers, in a cascade, and with an adder that is too narrow."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from ringwright.algorithms.innetwork.summing_pipeline import SummingPipeline, aggregated, cascaded, summed
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm as typed_algorithm
from ringwright.model.topology import Topology


def _seconds(machine: Topology, spelling: str, size_bytes: int) -> float:
    _, make, knobs = typed_algorithm(spelling)
    collective = Collective("all-reduce", range(machine.n_ranks), size_bytes)
    return simulate(make(collective, machine, **knobs), machine, engine="events").time_s


def over_ring(workers: int, rate: str, size_bytes: int, algorithm: str = "allreduce-switch") -> float:
    """Return how many times the all-reduce bandwidth of a ring an algorithm has, the device's unless another is named."""
    machine = fabric(f"switch:{workers},rate={rate},latency_s=1us,switches=fpga")
    return _seconds(machine, "ring", size_bytes) / _seconds(machine, algorithm, size_bytes)


def cascade(workers: int, per_device: int, rate: str, size_bytes: int) -> float:
    """Return the time of a cascade of devices over that of one."""
    tree = fabric(f"leaf-spine:{workers},per_leaf={per_device},rate={rate},latency_s=1us,switches=fpga")
    one = fabric(f"switch:{per_device},rate={rate},latency_s=1us,switches=fpga")
    return _seconds(tree, "allreduce-switch", size_bytes) / _seconds(one, "allreduce-switch", size_bytes)


def narrow(workers: int, rate: str, share: float, size_bytes: int) -> float:
    """Return the time with an adder that takes ``share`` of what the ports bring, over that with a whole one."""
    machine = fabric(f"switch:{workers},rate={rate},latency_s=1us,switches=fpga")
    able = {
        node: dataclasses.replace(each, reduce_rate=each.reduce_rate * share)
        for node, each in machine.aggregators.items()
    }
    less = dataclasses.replace(machine, aggregators=able)
    return _seconds(less, "allreduce-switch", size_bytes) / _seconds(machine, "allreduce-switch", size_bytes)


def compute_for(gain: float, workers: int, rate: str, size_bytes: int) -> float:
    """Return the compute of a step, over its exchange by a ring, with which it gains so many times where nothing overlaps."""
    whole = over_ring(workers, rate, size_bytes)
    return (1 - gain / whole) / (gain - 1)


def plain_gain(overlapped: float, workers: int, rate: str, size_bytes: int) -> float:
    """Return what a step gains without overlap that gains ``overlapped`` with its backward pass over the exchange.

    The backward pass is two thirds of the compute; it is taken to hide all of the switch's exchange and a part of the ring's.
    """
    whole, compute = over_ring(workers, rate, size_bytes), 1 / (overlapped - 1 / 3)
    assert 1 / whole <= compute * 2 / 3 <= 1  # noqa: S101 - else another share is hidden
    return (compute + 1) / (compute + 1 / whole)


def stalled_cycles(width_bits: int, words: int, queue_words: int = 16) -> float:
    """Return the cycles that lines of 8 ports of 10 Gb/s stand still before an adder of so many bits at 156.25 MHz."""
    device = SummingPipeline(width_bits=width_bits, queue_words=queue_words)
    return float(aggregated(device, device.arrivals(words)).stalled.sum())


def cycles_over_wide(width_bits: int, size_bytes: int) -> float:
    """Return the seconds of an adder of so many bits over those of one of 512, of as many bytes of each port."""
    taken = []
    for width in (width_bits, 512):
        device = SummingPipeline(width_bits=width)
        taken.append(float(aggregated(device, device.arrivals(8 * size_bytes // width)).done[-1]))
    return taken[0] / taken[1]


def least_queue(depth: int) -> float:
    """Return the least words of a queue with which no line of 8 ports stands still before an adder so deep."""
    for queue in range(1, 8 * depth):
        device = SummingPipeline(depth=depth, queue_words=queue)
        if not aggregated(device, device.arrivals(64 * depth)).stalled.any():
            return float(queue)
    return float("nan")


def wrong_words(words: int, *, waits: bool) -> float:
    """Return how many words of whole numbers have a wrong sum, with additions to one slot that wait for each other or do not."""
    device = SummingPipeline(waits=waits)
    values = np.random.default_rng(1).integers(-1000, 1000, (8, words, 16)).astype(np.float32)
    sums = summed(device, aggregated(device, device.arrivals(words)), values)
    return float((sums != values.sum(axis=0)).any(axis=1).sum())


def different_sums(orders: int, order: Literal["arrival", "fixed"]) -> float:
    """Return how many different sums, bit for bit, the same floats have over lines that are late in drawn ways."""
    device, draw = SummingPipeline(), np.random.default_rng(2)
    values = draw.normal(size=(8, 32, 16)).astype(np.float32)
    sums = [
        summed(device, aggregated(device, device.arrivals(32, draw.permutation(8) * 9)), values, order).tobytes()
        for _ in range(orders)
    ]
    return float(len(set(sums)))


def cascade_in_cycles(words: int, hop_cycles: int) -> float:
    """Return the cycles of 64 workers below nine devices over those of 8 below one."""
    device = SummingPipeline()
    one = aggregated(device, device.arrivals(words))
    runs = cascaded(device, np.broadcast_to(device.arrivals(words), (8, 8, words)), hop_cycles)
    return float(runs[-1].done[-1] / one.done[-1])
