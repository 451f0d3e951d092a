"""A job whose ranks have further networks beside the fabric: what operations take on each, and how ranks lie on all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ringwright.costs.networks import NetworkCosts, require_network
from ringwright.ground.errors import UsageError
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.jobs.pricing.places import places
from ringwright.model.program import Program
from ringwright.model.stages import Stage, network_of
from ringwright.model.topology import Topology
from ringwright.model.workload import Mesh

FABRIC = "fabric"  # what the usual network is called
NAME = re.compile(r"[A-Za-z][\w.-]*")


@dataclass(frozen=True, eq=False)
class NetworkedFabrics(FabricCosts):
    """Costs on a fabric and on the networks beside it: rank i of the job is rank i of each. No network slows another.

    Faults, and other jobs, are the fabric's.
    """

    further: Mapping[str, FabricCosts] = field(default_factory=dict)

    @property
    def networks(self) -> tuple[str, ...]:
        """Their names, the fabric's first."""
        return FABRIC, *self.further

    @cached_property
    def places(self) -> np.ndarray | None:
        """A number for each rank, int64 of shape (ranks,), equal where they lie alike on every network; None: all do."""
        listed = [places(self.healthy, self.mesh), *(each.places for each in self.further.values())]
        told = [each for each in listed if each is not None]
        return np.unique(np.stack(told, axis=1), axis=0, return_inverse=True)[1].astype(np.int64) if told else None

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases of an operation on its network; UsageError for a network that is not there."""
        kind, network = network_of(op)
        if network in ("", FABRIC):
            return super().stages(kind, size_bytes, ranks, role)
        return NetworkCosts({FABRIC: self, **self.further}).stages(op, size_bytes, ranks, role)

    def programs(self, op: str, size_bytes: int, ranks: tuple[int, ...]) -> list[list[Program]]:
        """Return the programs that are at work at once in each phase of an operation, on its network."""
        kind, network = network_of(op)
        if network in ("", FABRIC):
            return super().programs(kind, size_bytes, ranks)
        require_network(self, network, kind)
        return self.further[network].programs(kind, size_bytes, ranks)

    def sent_bytes(self, op: str, size_bytes: int, ranks: tuple[int, ...]) -> float:
        """Return the bytes that all ranks of a group together put on wires in one operation, on its network."""
        kind, network = network_of(op)
        if network in ("", FABRIC):
            return super().sent_bytes(kind, size_bytes, ranks)
        require_network(self, network, kind)
        return self.further[network].sent_bytes(kind, size_bytes, ranks)

    def told(self) -> list[str]:
        """Return sentences about faults and algorithms, as far as they were met, of all networks."""
        more = [f"network {name}: {each}" for name, costs in self.further.items() for each in costs.told()]
        return [*super().told(), *more]


def on_networks(
    networks: Mapping[str, Topology],
    topology: Topology,
    mesh: Mesh,
    stages_along: frozenset[str],
    algorithms: Mapping[str, str],
    others: tuple[Program, ...] = (),
) -> FabricCosts:
    """Return what operations take on a fabric and on ``networks`` beside it, where the same algorithms do them."""
    if not networks:
        return FabricCosts(topology, mesh, stages_along, algorithms, others=others)
    further = {name: FabricCosts(each, mesh, stages_along, algorithms) for name, each in networks.items()}
    return NetworkedFabrics(topology, mesh, stages_along, algorithms, others=others, further=further)


def named(spellings: Sequence[str]) -> dict[str, str]:
    """Return fabric by name of ``ethernet=switch:8,rate=25Gb/s`` ...; UsageError for one that names none, or a name twice."""
    listed: dict[str, str] = {}
    for each in spellings:
        name, equals, spelling = each.partition("=")
        if not (equals and spelling and NAME.fullmatch(name)):
            raise UsageError(
                f"'{each}' names no network and its fabric", remedy="--network ethernet=switch:8,rate=25Gb/s"
            )
        if name == FABRIC or name in listed:
            what = f"'{FABRIC}' is what --fabric is called" if name == FABRIC else f"network '{name}' is given twice"
            raise UsageError(what, where=each, remedy="a name of its own for each network")
        listed[name] = spelling
    return listed


def said_of(networks: Mapping[str, Topology]) -> tuple[str, ...]:
    """Return what is assumed of networks beside a fabric, a sentence each."""
    return tuple(
        f"network {name}: {each.name}, beside the fabric; neither slows the other" for name, each in networks.items()
    )
