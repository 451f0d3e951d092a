"""SwitchML's figures: elements a second through a pool of slots, and what a training step gains."""

from __future__ import annotations

import dataclasses
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.choose import simulate
from ringwright.engines.pools.loop import simulate_pool
from ringwright.engines.pools.of_program import slot_pool
from ringwright.fabrics import fabric
from ringwright.ground.units import PS
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

HEADERS = 78  # bytes beside a packet's elements: preamble and gap 20, Ethernet 18, IP 20, UDP 8, SwitchML 10, two spare
TIMER_S = 10e-3
ELEMENT_BYTES = 4


def payload_share(elements: int) -> float:
    """Return the share of a packet's bytes on the wire that are elements."""
    return elements * ELEMENT_BYTES / (elements * ELEMENT_BYTES + HEADERS)


def elements_per_s(
    workers: int,
    rate: str,
    latency: str,
    size_bytes: int,
    elements: int = 256,
    slots: int = 0,
    system: str = "switchml",
) -> float:
    """Return the elements/s that every worker of a rack has summed, headers on the wire."""
    spec = f"leaf-spine:{workers},layout=switch,rate={rate},latency_s={latency},switches=tofino"
    machine = fabric(f"{spec},packet_bytes={elements * ELEMENT_BYTES},header_bytes={HEADERS}")
    pool = f"{system}:payload={elements}" + (f":slots={slots}" if slots else "")
    _, make, knobs = algorithm(pool if system == "switchml" else system)
    collective = Collective("all-reduce", range(workers), size_bytes)
    return size_bytes / ELEMENT_BYTES / simulate(make(collective, machine, **knobs), machine, engine="flows").time_s


def growth(few: int, many: int, rate: str, latency: str, size_bytes: int) -> float:
    """Return the elements/s of many workers over those of few."""
    return elements_per_s(many, rate, latency, size_bytes) / elements_per_s(few, rate, latency, size_bytes)


def share_of_line(slots: int, rate: str, latency: str, size_bytes: int, workers: int = 8) -> float:
    """Return the elements/s of so many slots over those of four times as many as the round trip needs."""
    few, plenty = (elements_per_s(workers, rate, latency, size_bytes, slots=each) for each in (slots, 2048))
    return few / plenty


def training_gain(workers: int, communicating: float) -> float:
    """Return how many times faster a step is, of which a ring takes the share ``communicating`` and nothing overlaps."""
    ring_over_switch = 2 * (workers - 1) / workers * payload_share(256)
    return 1 / (1 - communicating + communicating / ring_over_switch)


def _lossy(workers: int, rate: str, loss: float) -> Topology:
    """Return a rack whose links all lose that share of packets."""
    plain = fabric(
        f"leaf-spine:{workers},layout=switch,rate={rate},latency_s=20us,switches=tofino,packet_bytes=1024,header_bytes=52"
    )
    return dataclasses.replace(plain, loss=np.full(plain.n_links, loss))


def _pool(collective: Collective, machine: Topology, slots: int) -> Program:
    _, make, knobs = algorithm(f"switchml:slots={slots}:timeout_s={TIMER_S}")
    return make(collective, machine, **knobs)


def packets_over_form(workers: int, rate: str, loss: float, slots: int, size_bytes: int) -> float:
    """Return the seconds of packets through the pool, in the mean of eight seeds, over those of the closed form."""
    machine = _lossy(workers, rate, loss)
    collective = Collective("all-reduce", range(workers), size_bytes)
    program = _pool(collective, machine, slots)
    calm_s = simulate(program, _lossy(workers, rate, 0.0), engine="events").time_s
    pool = slot_pool(program, machine, "pipelined")
    calm_ps = simulate_pool(pool.without_losses()).time_ps
    added = mean(simulate_pool(pool, seed).time_ps - calm_ps for seed in range(8))
    return (calm_s + added / PS) / simulate(program, machine, engine="events").time_s
