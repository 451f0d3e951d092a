"""What an engine answers: the time, who moved when, what each resource carried, and on what ground."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.engines.flat import Flat
    from ringwright.engines.machine import Machine

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Run:
    """One simulated program.

    ``start_ps`` and ``end_ps`` go with the messages of ``flat``, each of which stands for ``parts`` equal ones (1: nothing was
    folded, and ``unfolded_because`` says why). ``bytes`` and ``busy_ps`` go with the resources of ``machine``: links, shared
    capacities, adders; busy is what the bytes take at the healthy pace. Engines without messages leave these empty.
    """

    start_ps: np.ndarray
    end_ps: np.ndarray
    time_ps: int
    events: int
    engine: str
    left_out: tuple[str, ...] = ()
    parts: int = 1
    unfolded_because: str = ""
    flat: Flat | None = field(default=None, repr=False)
    machine: Machine | None = field(default=None, repr=False)
    bytes: np.ndarray = field(default_factory=lambda: _NONE, repr=False)
    busy_ps: np.ndarray = field(default_factory=lambda: _NONE, repr=False)

    @property
    def time_s(self) -> float:
        """Seconds from the first start to the last end."""
        return self.time_ps / 1e12

    def with_loads(self, machine: Machine, carried: np.ndarray) -> Run:
        """Return the run with what each resource of the whole machine carried."""
        with np.errstate(invalid="ignore"):
            busy = np.where(carried > 0, carried * machine.pace, 0.0)
        busy[~np.isfinite(busy)] = 0.0  # a dead link carries nothing, or only after a fault has ended
        return replace(self, machine=machine, bytes=carried, busy_ps=busy.astype(np.int64))


def loads(flat: Flat, resources: int) -> np.ndarray:
    """Return the bytes over each resource, int64."""
    sizes = np.repeat(flat.size_bytes, np.diff(flat.hop_starts))
    return np.bincount(flat.hops, weights=sizes, minlength=resources).astype(np.int64)
