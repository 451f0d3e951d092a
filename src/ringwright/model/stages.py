"""What one operation of a job takes: its phases, one after another, each in its own queue, and what they load meanwhile.

The simple models are here: one link of a given rate, a ring on such a link, a parameter server. Times on a fabric come from
the engines, through the same interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ringwright.model.workload import ON, SHIFTS

if TYPE_CHECKING:
    import numpy as np

LINK = (("link.tx", 1.0), ("link.rx", 1.0))


@dataclass(frozen=True)
class Stage:
    """One phase of an operation: ``latency_s``, which others of its queue overlap, then ``wire_s``, in which none of them moves.

    ``loads`` are (resource of each rank that takes part, share of it in use); ``sms`` the share of the compute units that
    it holds; ``phase`` tells queues apart (push, server, pull). ``links`` are (link or shared capacity, share of it in use),
    where it is known which carry it: whoever uses one shares it; there are no loads then, but for measured times.
    """

    wire_s: float
    latency_s: float = 0.0
    phase: str = ""
    loads: tuple[tuple[str, float], ...] = LINK
    sms: float = 0.0
    links: tuple[tuple[int, float], ...] = ()


class Costs(Protocol):
    """What schedulers and the engine of jobs ask."""

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases of an operation of ``size_bytes`` (the nccl-tests size) among ``ranks``, when it runs alone.

        A shift or copy from further than the next rank says from where: ``shift@3`` (``hops_of``).
        """


@runtime_checkable
class PlacedCosts(Costs, Protocol):
    """Costs of a machine on which ranks that do the same may lie differently: who does not say so is simulated as if none did."""

    @property
    def places(self) -> np.ndarray | None:
        """A number for each rank, int64 of shape (ranks,), equal where they lie alike; None: all do."""


@runtime_checkable
class NetworkedCosts(Costs, Protocol):
    """Costs of ranks with several networks: an operation may name the one that carries it, as in ``all-reduce on rdma``."""

    @property
    def networks(self) -> tuple[str, ...]:
        """Their names, the one that is usual first."""


def network_of(op: str) -> tuple[str, str]:
    """Return an operation without its network, and the network, empty where it names none."""
    kind, _, network = op.partition(ON)
    return kind, network


def hops_of(op: str) -> tuple[str, int]:
    """Return an operation without its hops, and from how many ranks further on a shift brings what it brings."""
    kind, _, hops = op.partition("@")
    return kind, int(hops or 1)


def seconds(costs: Costs, op: str, size_bytes: int, ranks: tuple[int, ...], role: str = "dp") -> float:
    """Return how long an operation takes alone, all phases."""
    return sum(stage.latency_s + stage.wire_s for stage in costs.stages(op, size_bytes, ranks, role))


VOLUME = {  # bytes that leave the busiest rank, as a share of the nccl-tests size, for p ranks (bandwidth-optimal algorithms)
    "all-reduce": lambda p: 2 * (p - 1) / p,
    "reduce-scatter": lambda p: (p - 1) / p,
    "all-gather": lambda p: (p - 1) / p,
    "all-to-all": lambda p: (p - 1) / p,
    "push-pull": lambda p: 2 * (p - 1) / p,
}


@dataclass(frozen=True)
class LinkCosts:
    """One link: ``latency_s`` + ``overhead_s`` + bytes / ``rate``; ``ring`` counts the volume of a ring and its steps.

    ``latency_s`` of an operation overlaps with its predecessor's transfer where the window lets several start,
    ``overhead_s`` does not. ``rate`` is in bytes/s.
    """

    rate: float
    latency_s: float = 0.0
    overhead_s: float = 0.0
    ring: bool = False

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        p = len(ranks)
        if not self.ring:
            return (Stage(self.overhead_s + size_bytes / self.rate, self.latency_s),)
        if p < 2:
            return (Stage(0.0),)
        rounds = {"all-reduce": 2 * (p - 1), **dict.fromkeys(("send-recv", *SHIFTS), 1)}.get(hops_of(op)[0], p - 1)
        volume = VOLUME[op](p) if op in VOLUME else 1.0
        return (Stage(self.overhead_s + rounds * self.latency_s + volume * size_bytes / self.rate),)


@dataclass(frozen=True)
class ServerCosts:
    """A parameter server: push over one direction, the server's sums, pull over the other, each a queue of its own.

    ``rate`` (bytes/s) is that of one direction as the payload sees it. ``server_rate`` (bytes/s, inf: free) is what the
    server's processor adds up, one payload after another: without it P3's gain from slicing alone at 30 Gb/s cannot be.
    """

    rate: float
    overhead_s: float = 0.0
    server_rate: float = float("inf")
    latency_s: float = 0.0

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return push, server (where it takes time) and pull."""
        moved = self.overhead_s + size_bytes / self.rate
        push = Stage(moved, self.latency_s, "push", (("link.tx", 1.0),))
        pull = Stage(moved, self.latency_s, "pull", (("link.rx", 1.0),))
        if self.server_rate == float("inf"):
            return (push, pull)
        return (push, Stage(size_bytes / self.server_rate, 0.0, "server", (("server", 1.0),)), pull)
