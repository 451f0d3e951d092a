"""The flow engine: messages are fluids that share every resource of their route max-min fair (see ``flow_loop``).

Left out: packets, congestion control and its slow convergence, buffers, order within a link.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.engines import loops
from ringwright.engines.events import report_stuck
from ringwright.engines.flow_loop import simulate_flows
from ringwright.engines.machine import FOREVER
from ringwright.engines.result import Run
from ringwright.errors import DeclinedError

if TYPE_CHECKING:
    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph

LEFT_OUT = (
    "packets and how congestion control converges",
    "switch buffers and back-pressure",
    "store and forward at adders",
    "memory copies within a rank",
)


def run(flat: MessageGraph, machine: Machine, *, native: bool = True) -> Run:
    """Run a program laid out on a machine; raise InfeasibleError where a message can never arrive."""
    if flat.branches is not None:
        raise DeclinedError("a multicast shares links: the flow engine copies nothing on the route")
    simulate = loops.flows if native else simulate_flows
    start, end = simulate(delayed(flat, machine), machine)
    n = flat.n_messages
    if (end[:n] >= FOREVER).any():
        report_stuck(flat, machine, end)
    left_out: tuple[str, ...] = LEFT_OUT
    if machine.holds[~machine.sends].any():
        left_out += ("that links are busy during their latency",)
    if machine.sends.any():
        left_out += ("that a rank sends one message after the other",)
    return Run(start[:n], end[:n], int(end[:n].max(initial=0)), 2 * n, "flows", left_out)


def delayed(flat: MessageGraph, machine: Machine) -> MessageGraph:
    """Return the program with the time of senders as delay in front of the route."""
    import numpy as np

    sent = machine.sends[flat.hops]
    if not sent.any():
        return flat
    before = np.concatenate(([0], np.cumsum(sent)))
    route = np.repeat(np.arange(flat.n_messages), np.diff(flat.hop_starts))[sent]
    delay = flat.delay.copy()
    delay[route] += machine.latency[flat.hops[sent]]
    return replace(flat, hop_starts=flat.hop_starts - before[flat.hop_starts], hops=flat.hops[~sent], delay=delay)
