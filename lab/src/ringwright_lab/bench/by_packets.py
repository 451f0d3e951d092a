"""What the packet engine says of rounds in the laboratory: Linux's TCP on links that are token buckets, in both directions.

Nothing of the machine that measures is in it. A time is that of rounds on the same connections, the first of which is warm-up.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.choose import simulate
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.rounds import round_times_s
from ringwright.ground.errors import DeclinedError
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.topology import Fault
from ringwright_lab.network.script import LEAST_LATENCY_S
from ringwright_lab.network.shaping import BURST_BYTES, QUEUE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.program import Program
    from ringwright.model.topology import Topology
    from ringwright_lab.network.script import Flow

SEEDS = 20
MOST_HOPS = 12_000_000  # packets at ports of all seeds together: some seconds
LEAD_S = (0.5, 2.5)  # so long before the rounds a competing flow begins, by lot: ranks start and are probed meanwhile
LASTS = 8.0  # a competing flow has bytes for so many times what the rounds take, on a link of its own
SHORT_BYTES = 1 << 20
WITHIN_S = 100.0  # in which the first round begins, by lot: what comes and goes is met anywhere


def of_lab(fabric: Topology, tcp: str) -> Topology:
    """Return a fabric as the laboratory builds it: its TCP, the latency of namespaces, the queues of its ports."""
    rows = [Fault(0.0, "link", link, "buffer_bytes", float(QUEUE_BYTES)) for link in range(fabric.n_links)]
    return replace(
        fabric,
        transport="tcp",
        protocol=f"tcp-{tcp}",
        latency_s=np.maximum(fabric.latency_s, LEAST_LATENCY_S),
        faults=(*rows, *fabric.faults),
    )


def flow_programs(flows: Sequence[Flow], program: Program, on: Topology, rounds: int) -> list[Program]:
    """Return competing flows of a lab as programs of one message that lasts longer than ``rounds`` of ``program``.

    Raises DeclinedError for a flow with a rate of its own, and for one that begins later or ends: it takes another share of
    each round.
    """
    other = next((flow for flow in flows if flow.rate or flow.start_s or flow.end_s < math.inf), None)
    if other is not None:
        raise DeclinedError(
            "only flows that last and take what TCP gives are followed by packets",
            where=f"fault '{other.text}'",
            remedy=f"flow {other.src}>{other.dst}",
        )
    _, send, knobs = algorithm("linear")
    lasts_s = LASTS * (rounds + 1) * simulate(program, on).time_s
    programs = []
    for flow in flows:
        short = send(Collective("broadcast", (flow.src, flow.dst), SHORT_BYTES), on, **knobs)
        size = max(1, round(lasts_s / simulate(short, on).time_s)) * SHORT_BYTES
        programs.append(send(Collective("broadcast", (flow.src, flow.dst), size), on, **knobs))
    return programs


def rounds_s(program: Program, on: Topology, rounds: int, beside: Sequence[Program] = ()) -> np.ndarray:
    """Return how long rounds take on a fabric ``of_lab`` with its faults, in seconds. float64 of shape (seeds, rounds).

    ``beside``: what goes on as long as they do, on connections of its own, and began some time before, by lot. Raises
    DeclinedError for more packets than can be followed, InfeasibleError where a connection is given up.
    """
    draw = np.random.default_rng(0)
    times = []
    for seed in range(SEEDS):
        begin_s = float(draw.uniform(0.0, WITHIN_S))
        options = PacketOptions(seed=seed, duplex=True, burst_bytes=BURST_BYTES, most_hops=MOST_HOPS // SEEDS)
        lead_s = float(draw.uniform(*LEAD_S)) if beside else 0.0
        told = round_times_s(program, on.starting_at(begin_s), options, rounds + 1, beside, lead_s=lead_s)
        times.append(told[1:])
    return np.array(times)
