"""The event engine: every message under way, resources served first come, first served (see ``event_loop``).

Left out: packets, congestion control and buffers (a waiting message delays nobody upstream), host memory copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.engines import loops
from ringwright.engines.event_loop import simulate_events
from ringwright.engines.machine import FOREVER
from ringwright.engines.result import Run
from ringwright.ground.errors import NeverArrivesError
from ringwright.ground.units import PS

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph

LEFT_OUT = ("packets and congestion control", "switch buffers and back-pressure", "memory copies within a rank")


def run(flat: MessageGraph, machine: Machine, *, native: bool = True) -> Run:
    """Run a program laid out on a machine; raise NeverArrivesError where a message can never arrive."""
    simulate = loops.events if native else simulate_events
    start, end = simulate(flat, machine)
    n = flat.n_messages
    stuck = int((end[:n] >= FOREVER).sum())
    if stuck:
        report_stuck(flat, machine, start, end)
    return Run(start[:n], end[:n], int(end[:n].max(initial=0)), flat.n_hops, "events", LEFT_OUT)


def report_stuck(flat: MessageGraph, machine: Machine, start: np.ndarray, end: np.ndarray) -> None:
    """Raise NeverArrivesError that names the first message without an end, in the order of time."""
    import numpy as np

    late = np.flatnonzero(end[: flat.n_messages] >= FOREVER)
    first = int(late[start[late].argmin()])
    top, due_ps = machine.topology, int(start[first])
    src, dst = int(flat.src[first]), int(flat.dst[first])
    raise NeverArrivesError(
        f"{len(late)} of {flat.n_messages} messages never arrive",
        where=f"first: step {flat.step[first]}, {top.label(src)} to {top.label(dst)}",
        remedy="end the fault (until 2s), or choose an algorithm that avoids the dead link",
        src=src,
        dst=dst,
        due_s=due_ps / PS if due_ps < FOREVER else 0.0,
    )
