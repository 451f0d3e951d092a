"""NetReduce's figures: what its packets gain over SwitchML's, when it beats a flat ring, and its time beside one."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np

from ringwright.algorithms.innetwork.ring_connections import RingRun, ring_through_device
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.topology import Topology
from ringwright_lab.papers.figures.fit import crossing
from ringwright_lab.papers.figures.machines import one_port

HEADERS = 78  # bytes beside a packet's data, as in SwitchML's figures
NIC = 12.5e9
SHORT = {"inside_s": 1e-9, "network_s": 2e-9}  # wires, so that bytes alone count


def over_ring(workers: int, size_bytes: int) -> float:
    """Return how many times shorter it takes than a ring of single-port hosts at 100 Gb/s."""
    machine = fabric(f"switch:{workers},rate=100Gb/s,latency_s=1us,sharp=true")
    return _seconds("ring", machine, size_bytes) / _seconds("netreduce", machine, size_bytes)


def gain_of_switchml(netreduce_gain: float, workers: int, packet_bytes: int) -> float:
    """Return SwitchML's gain over a ring where NetReduce's is known, by the share of a packet that is data.

    The gain says which share of a step a ring takes where nothing overlaps; packets of NetReduce carry 1,024 B as those of the
    ring do, those of SwitchML ``packet_bytes``.
    """
    whole = 2 * (workers - 1) / workers
    less = whole * (packet_bytes / (packet_bytes + HEADERS)) / (1024 / (1024 + HEADERS))
    ring_share = (1 - 1 / (1 + netreduce_gain)) / (1 - 1 / whole)
    return 1 / (1 - ring_share + ring_share / less) - 1


def order_kept(packet_bytes: int, workers: int) -> float:
    """Return at how many of the three published gains of NetReduce small packets gain less, and by a margin that shrinks."""
    less = [each - gain_of_switchml(each, workers, packet_bytes) for each in (0.45, 0.202, 0.049)]
    return float(sum(margin > 0 for margin in less)) if less == sorted(less, reverse=True) else 0.0


def crossover(gpus: int, machines: int, size_bytes: int, spelling: str) -> float:
    """Return the rate inside a machine over its NIC's from which the hierarchical form beats a flat ring over all GPUs.

    Simulated on machines of one NIC of 100 Gb/s each, at rates inside from half of the NIC's to eight times it.
    """
    return crossing(lambda inside: hierarchical_over_flat(gpus, machines, size_bytes, spelling, inside), 1, 0.5, 8)


def phases_crossover(gpus: int, machines: int, size_bytes: int) -> float:
    """Return the same where reduce-scatter, NetReduce and all-gather are simulated each by itself, one after the other."""
    return crossing(lambda inside: _phases_over_flat(gpus, machines, size_bytes, inside), 1, 0.5, 8)


def _phases_over_flat(gpus: int, machines: int, size_bytes: int, inside: float) -> float:
    inside_one = fabric(f"switch:{gpus},rate={inside * NIC:.0f},latency_s=1e-9")
    between = fabric(f"switch:{machines},rate={NIC:.0f},latency_s=1e-9,sharp=true")
    inner = sum(_seconds("ring", inside_one, size_bytes, op) for op in ("reduce-scatter", "all-gather"))
    flat = _seconds("ring", one_port(machines, gpus, inside_rate=inside * NIC, port_rate=NIC, **SHORT), size_bytes)
    return (inner + _seconds("netreduce", between, size_bytes)) / flat


def hierarchical_over_flat(gpus: int, machines: int, size_bytes: int, spelling: str, inside: float) -> float:
    """Return the time of the hierarchical form over a flat ring's, machines of one NIC, a rate inside in NICs."""
    plain = one_port(machines, gpus, inside_rate=inside * NIC, port_rate=NIC, **SHORT)
    network = plain.n_nodes - 1
    machine = dataclasses.replace(plain, aggregators={network: fabric("switch:2,sharp=true").aggregators[2]})
    flat, levels = (_seconds(each, machine, size_bytes) for each in ("ring", spelling))
    return levels / flat


def _seconds(spelling: str, machine: Topology, size_bytes: int, op: str = "all-reduce") -> float:
    _, make, knobs = algorithm(spelling)
    program = make(Collective(op, range(machine.n_ranks), size_bytes), machine, **knobs)
    return simulate(program, machine, engine="events").time_s


@cache
def _connected(hosts: int, loss: float, packets: int = 800, window: int = 4) -> tuple[np.ndarray, RingRun]:
    data = np.random.default_rng(5).integers(-(1 << 30), 1 << 30, (hosts, packets, 2))
    return data, ring_through_device(data, loss=loss, window=window)


def wrong_packets(hosts: int, loss: float) -> float:
    """Return how many packets of results are wrong at any host where links lose packets and acknowledgements."""
    data, run = _connected(hosts, loss)
    return float((run.results != data.sum(axis=0)).any(axis=2).sum())


def numbers_out_of_order(hosts: int, loss: float) -> float:
    """Return how many of the packets that hosts took are not the next of their connection by number."""
    _, run = _connected(hosts, loss)
    return float((np.diff(run.numbers, axis=1) != 1).sum())


def messages_outstanding(hosts: int, loss: float, window: int) -> float:
    """Return the most messages that a host had posted without a result, of a window of so many."""
    return float(_connected(hosts, loss, window=window)[1].most_messages)


def lossy_over_whole(hosts: int, loss: float) -> float:
    """Return the time with losses over that without."""
    return _connected(hosts, loss)[1].ticks / _connected(hosts, 0.0)[1].ticks


def many_over_few(many: int, few: int) -> float:
    """Return the time of many hosts over that of few, without losses."""
    return _connected(many, 0.0)[1].ticks / _connected(few, 0.0)[1].ticks
