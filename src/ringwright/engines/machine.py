"""The machine as engines see it: numbered resources that serve one message at a time, and the way of each pair over them.

A resource is a directed link, a capacity that links share, or a rank's adder. Times are integer picoseconds; a resource's
speed is picoseconds per byte. ``whole`` resources take a message only when its last byte has come (store and forward).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.program import Program
    from ringwright.topology import Topology

PS = 1e12
ALPHAS = ("pipelined", "busy")
FOREVER = 1 << 62


@dataclass(frozen=True)
class Machine:
    """Resources: links first, then shared capacities, then (where adding takes time) one adder per rank.

    ``pace`` is ps/byte and ``latency`` ps, each of length n. ``changes`` holds what faults do: (resource, ps, new pace), sorted.
    ``holds_latency`` says that a resource is busy for latency + bytes instead of bytes alone.
    """

    topology: Topology
    pace: np.ndarray
    latency: np.ndarray
    whole: np.ndarray
    adder: int  # first adder, or -1
    holds_latency: bool
    changes: tuple[tuple[int, int, float], ...] = ()
    software: Mapping[str, float] = field(default_factory=dict)  # seconds per message, by class of link
    wire_factor: float = 1.0  # bytes on a link per byte of data

    def carrying(self, program: Program) -> Machine:
        """Return the machine as this program uses it: what was measured on it comes before a library's own tables."""
        software = {**program.overheads, **self.topology.message_s}
        return dataclasses.replace(self, software=software, wire_factor=program.wire_factor)

    @property
    def n(self) -> int:
        """Resources."""
        return len(self.pace)

    def label(self, resource: int) -> str:
        """Return a name a network engineer recognises."""
        top = self.topology
        if resource < top.n_links:
            return f"{top.label(int(top.src[resource]))} > {top.label(int(top.dst[resource]))}"
        if resource < top.n_links + len(top.groups):
            return top.groups[resource - top.n_links].name
        return f"adder of {top.label(resource - self.adder)}"


def machine(topology: Topology, alpha: str = "pipelined") -> Machine:
    """Return the resources of a topology; ``alpha``: a link is busy during its latency (busy) or not (pipelined)."""
    import numpy as np

    if alpha not in ALPHAS:
        raise UsageError(f"'{alpha}' is no latency model", remedy=f"one of: {', '.join(ALPHAS)}")
    adds = np.isfinite(topology.reduce_rate)
    lossless = 1.0 if topology.loss is None else 1.0 - topology.loss
    with np.errstate(divide="ignore"):
        rates = np.concatenate(
            (
                topology.rate * lossless,
                np.array([group.rate for group in topology.groups]),
                np.full(topology.n_ranks if adds else 0, topology.reduce_rate),
            )
        )
        pace = PS / rates
    latency = np.zeros(len(pace), np.int64)
    latency[: topology.n_links] = np.rint(topology.latency_s * PS)
    whole = np.zeros(len(pace), bool)
    adder = topology.n_links + len(topology.groups)
    whole[adder:] = True
    return Machine(topology, pace, latency, whole, adder if adds else -1, alpha == "busy", _changes(topology))


def _changes(topology: Topology) -> tuple[tuple[int, int, float], ...]:
    """Return how paces change over time; a factor of 0 is a dead link."""
    adder = topology.n_links + len(topology.groups)
    rows: list[tuple[int, int, float]] = []
    for fault in topology.faults:
        time_ps = round(fault.time_s * PS)
        if fault.kind == "link" and fault.field == "rate_factor":
            rate = float(topology.rate[fault.target]) * fault.value
            rows.append((fault.target, time_ps, PS / rate if rate > 0 else float("inf")))
        elif fault.kind == "link" and fault.field == "loss":
            rate = float(topology.rate[fault.target]) * (1 - fault.value)
            rows.append((fault.target, time_ps, PS / rate if rate > 0 else float("inf")))
        elif fault.kind == "rank" and topology.reduce_rate < float("inf"):
            rows.append((adder + fault.target, time_ps, PS / (topology.reduce_rate * fault.value)))
    return tuple(sorted(rows))
