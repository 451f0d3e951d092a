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
from ringwright.engines.tree_flows import with_carriers
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

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
    n = flat.n_messages
    start, end, joint = _flown(delayed(flat, machine), machine, loops.flows if native else simulate_flows)
    if (end[:n] >= FOREVER).any():
        report_stuck(flat, machine, start, end)
    left_out: tuple[str, ...] = LEFT_OUT
    if joint:
        left_out += ("that switches which add take in a segment before they pass it on",)
    if machine.holds[~machine.sends].any():
        left_out += ("that links are busy during their latency",)
    if machine.sends.any():
        left_out += ("that a rank sends one message after the other",)
    return Run(start[:n], end[:n], int(end[:n].max(initial=0)), 2 * n, "flows", left_out)


def _flown(
    flat: MessageGraph, machine: Machine, simulate: Callable[[MessageGraph, Machine], tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return start and end of every message, both int64 ps, and whether streams of the network are one flow each."""
    if flat.tree is None and flat.branches is None:
        return *simulate(flat, machine), False
    try:
        flows = with_carriers(flat, machine)
    except DeclinedError:
        if flat.branches is not None:
            raise
        return *simulate(flat, machine), False  # each message a flow of its own
    start, end = simulate(flows.graph, flows.machine)
    return start[flows.carrier], end[flows.carriers :], True


def delayed(flat: MessageGraph, machine: Machine) -> MessageGraph:
    """Return the program with the time of senders and receivers as delay in front of the route."""
    import numpy as np

    sent = machine.sends[flat.hops]
    if not sent.any():
        return flat
    before = np.concatenate(([0], np.cumsum(sent)))
    route = np.repeat(np.arange(flat.n_messages), np.diff(flat.hop_starts))[sent]
    delay = flat.delay.copy()
    np.add.at(delay, route, machine.latency[flat.hops[sent]])
    return replace(flat, hop_starts=flat.hop_starts - before[flat.hop_starts], hops=flat.hops[~sent], delay=delay)
