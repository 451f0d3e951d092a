"""Arcs between ranks with the resources of the event engine: what a search needs to follow messages as the engine will."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import delays, routes
from ringwright.model.wiring import Dimension, lattice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.bounds.arcs import Arcs
    from ringwright.engines.machine import Machine
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class ArcNetwork:
    """Arcs between ``p`` ranks, and the resources that a message on each passes in order.

    ``src``, ``dst`` (int32) and ``delay`` (int64 ps) are by arc, ``hop_starts`` (int64) cuts ``hops`` (int32) by arc;
    ``ps_per_byte`` (float64), ``latency`` (int64 ps) and ``holds`` (uint8) are by resource.
    """

    p: int
    src: np.ndarray
    dst: np.ndarray
    hop_starts: np.ndarray
    hops: np.ndarray
    delay: np.ndarray
    ps_per_byte: np.ndarray
    latency: np.ndarray
    holds: np.ndarray

    def turned_round(self) -> ArcNetwork:
        """Return the arcs the other way, over the same resources backwards."""
        owner = np.repeat(np.arange(len(self.src)), np.diff(self.hop_starts))
        hops = self.hops[np.lexsort((-np.arange(len(self.hops)), owner))]
        return dataclasses.replace(self, src=self.dst, dst=self.src, hops=hops)


def network(made: Machine, arcs: Arcs, group: Sequence[int]) -> ArcNetwork:
    """Return the arcs of a group with the resources of the engine; arcs turned round pass the same ones backwards."""
    ranks = np.asarray(group, np.int64)
    src, dst = (arcs.dst, arcs.src) if arcs.reversed else (arcs.src, arcs.dst)
    forwards = network_of(made, ranks, src, dst, np.zeros(arcs.count, bool))
    return forwards.turned_round() if arcs.reversed else forwards


def network_of(made: Machine, ranks: np.ndarray, src: np.ndarray, dst: np.ndarray, adds: np.ndarray) -> ArcNetwork:
    """Return arcs between places of a group with the resources of the engine; ``adds``: for messages that are added.

    ``ranks`` are those of the places, int64 of shape (places,); ``src`` and ``dst`` int64, ``adds`` bool of shape (arcs,).
    """
    starts, hops = routes(made, ranks[src], ranks[dst], adds)
    late, _ = delays(made, starts, hops)
    passed = np.isin(np.arange(made.n), hops)
    return ArcNetwork(
        len(ranks),
        src.astype(np.int32),
        dst.astype(np.int32),
        starts.astype(np.int64),
        hops.astype(np.int32),
        late.astype(np.int64),
        np.where(passed, made.ps_per_byte, 0.0),  # what no arc passes may be dead
        made.latency.astype(np.int64),
        made.holds.view(np.uint8),
    )


def machine_of(collective: Collective, topology: Topology | None) -> Topology:
    """Return the machine as it is at the start; without one, ranks that are joined pair by pair."""
    if topology is None:
        return lattice("full", [Dimension("full", collective.p, 1e9, 1e-6, "rank")])
    return topology.at(0.0) if topology.faults else topology
