"""What an engine answers: the time, who moved when, what each resource carried, and on what ground."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.critical import Path, critical
from ringwright.ground.notebook import card, line
from ringwright.ground.units import format_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.costs.probable_time import Probable
    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph
    from ringwright.engines.packets.run import Packets

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Run:
    """One simulated program.

    ``start_ps`` and ``end_ps`` go with the messages of ``flat``, each of which stands for ``flat.weight`` equal ones (in the
    mean ``parts``; 1: nothing was folded, and ``unfolded_because`` says why). ``bytes`` and ``busy_ps`` go with the resources of
    ``machine``: links, shared capacities, reduction units; busy is what the bytes take at the healthy rate. Engines without
    messages leave these empty.
    ``title`` says which program ran on which machine.

    Attributes
    ----------
    start_ps, end_ps
        When each simulated message began and ended: int64 of shape (messages,), picoseconds from the start.
    time_s
        Seconds from the first start to the last end; exact in ``time_ps``.
    bytes, busy_ps
        What each resource carried and how long it was busy: int64 of shape (resources,).
    left_out
        Effects that the engine knows nothing of.
    base_ps
        Software before the first message, which ``time_ps`` holds.
    come_ps, last_ps
        When each node of the machine came, where ranks came at different times (int64 of shape (nodes,), ps, else None), and when
        the last rank did.
    ask
        Who knows the most probable time, where the run answers a question (see ``probable_time``).
    packets
        What packets met on their way, where the packet engine ran.

    Examples
    --------
    >>> import ringwright
    >>> run = ringwright.simulate("all-gather", "switch:4,rate=50GB/s", size="1M")
    >>> run.start_ps.dtype, run.start_ps.shape == run.end_ps.shape
    (dtype('int64'), True)
    >>> run.path()
    '3 messages one after the other: 100 % on link links'
    """

    start_ps: np.ndarray
    end_ps: np.ndarray
    time_ps: int
    events: int
    engine: str
    left_out: tuple[str, ...] = ()
    parts: int = 1
    unfolded_because: str = ""
    flat: MessageGraph | None = field(default=None, repr=False)
    machine: Machine | None = field(default=None, repr=False)
    bytes: np.ndarray = field(default_factory=lambda: _NONE, repr=False)
    busy_ps: np.ndarray = field(default_factory=lambda: _NONE, repr=False)
    title: str = ""
    base_ps: int = 0
    come_ps: np.ndarray | None = field(default=None, repr=False)
    last_ps: int = 0
    ask: Callable[[], Probable] | None = field(default=None, repr=False)
    packets: Packets | None = None

    def __repr__(self) -> str:
        return line(f"Run({self.title + ': ' if self.title else ''}{format_us(self.time_s)}, {self.engine})")

    def _repr_html_(self) -> str:
        facts = {
            "time": f"{self.time_s * 1e6:,.6g} us",
            "engine": self.engine,
            "after the last rank came": f"{self.after_last_s * 1e6:,.6g} us" if self.last_ps else "",
            "messages simulated": f"{len(self.start_ps):,}, each for {self.parts:,}" if len(self.start_ps) else "none",
            "busiest": f"{self.bottleneck}, {self.utilisation:.0%} of the time" if self.bottleneck else "",
            "why": self.path(),
            "left out": "; ".join(self.left_out),
        }
        return card(f"Run: {self.title}" if self.title else "Run", facts)

    @property
    def time_s(self) -> float:
        """Seconds from the first start to the last end."""
        return self.time_ps / 1e12

    @cached_property
    def probable(self) -> Probable | None:
        """The most probable time with its 90 % interval, beside this engine's; None for a run that answers no question."""
        return None if self.ask is None else self.ask()

    @property
    def after_last_s(self) -> float:
        """Seconds from the arrival of the last rank to the last end."""
        return (self.time_ps - self.last_ps) / 1e12

    @property
    def folded(self) -> bool:
        """Whether each message stands for several."""
        return self.parts > 1

    @property
    def bottleneck(self) -> str:
        """Name of the busiest resource, or nothing."""
        busiest = self.load(1)
        return busiest[0][0] if busiest else ""

    @property
    def utilisation(self) -> float:
        """Share of the time that the busiest resource is busy."""
        busiest = self.load(1)
        return busiest[0][1] if busiest else 0.0

    @property
    def waited(self) -> float:
        """Share of the critical path spent before busy resources."""
        path = self._critical
        return sum(path.waiting_ps.values()) / max(path.total_ps, 1) if path else 0.0

    def load(self, most: int = 1000) -> list[tuple[str, float, float]]:
        """Return (name, share of the time busy, bytes) of the resources that carried anything, the busiest first."""
        if self.machine is None or not self.time_ps:
            return []
        used = np.flatnonzero((self.bytes > 0) & ~self.machine.sends)
        order = used[np.lexsort((used, -self.busy_ps[used]))][:most]
        return [
            (self.machine.label(at), float(self.busy_ps[at]) / self.time_ps, float(self.bytes[at]))
            for at in order.tolist()
        ]

    def path(self) -> str:
        """Return what the time was spent on, in words."""
        if self.packets is not None:
            return self.packets.sentence()
        return self._critical.sentence() if self._critical else f"the {self.engine} engine follows no single message"

    @cached_property
    def _critical(self) -> Path | None:
        if self.flat is None or self.machine is None or self.packets is not None:
            return None
        return critical(self.flat, self.machine, self.start_ps, self.end_ps, self.base_ps, self.come_ps)

    def with_loads(self, machine: Machine, carried: np.ndarray) -> Run:
        """Return the run with what each resource of the whole machine carried."""
        return replace(self, machine=machine, bytes=carried, busy_ps=busy_ps(carried, machine).astype(np.int64))


def loads(flat: MessageGraph, resources: int) -> np.ndarray:
    """Return the bytes over each resource, int64. Of shape (resources,)."""
    sizes = np.repeat(flat.size_bytes, np.diff(flat.hop_starts))
    return np.bincount(flat.hops, weights=sizes, minlength=resources).astype(np.int64)


def busy_ps(carried: np.ndarray, machine: Machine) -> np.ndarray:
    """Return how long each resource is busy with the bytes that it carried, at its healthy rate.

    float64 of shape (resources,); a dead link carries nothing, or only after a fault has ended.
    """
    with np.errstate(invalid="ignore"):
        busy: np.ndarray = np.where(carried > 0, carried * machine.ps_per_byte, 0.0)
    busy[~np.isfinite(busy)] = 0.0
    return busy
