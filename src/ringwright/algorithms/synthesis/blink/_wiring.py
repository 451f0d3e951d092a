"""What a job's own GPUs are joined by: arcs that pass no other GPU, host by host, and the GPUs by which hosts meet.

A GPU that the job was not given carries none of its data where the job's own links join all of it; else the machine's routes are
taken as they are.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.bounds.arcs import arcs, arcs_of
from ringwright.bounds.cuts import goodput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.bounds.arcs import Arcs
    from ringwright.model.topology import Topology

SLOW = ("pcie", "upi")  # classes of links that trees of their own are packed on
FEWEST = 1 << 20  # pairs whose routes are looked up


@dataclass(frozen=True)
class JobHost:
    """The job's part of one host: ranks as places in the group, its arcs by number, those over PCIe apart."""

    ranks: tuple[int, ...]
    quick: tuple[int, ...]
    slow: tuple[int, ...] = ()

    @property
    def every(self) -> tuple[int, ...]:
        """All its arcs, rising."""
        return tuple(sorted((*self.quick, *self.slow)))


@dataclass(frozen=True)
class JobWiring:
    """Arcs of a job; ``gates``: of each host the ranks that meet their like of the other hosts, as many for all.

    Without gates all is one host, whatever the machine calls it.
    """

    arcs: Arcs
    hosts: tuple[JobHost, ...]
    gates: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def number(self) -> dict[tuple[int, int], int]:
        """Number of the arc between two places."""
        return {ends: at for at, ends in enumerate(zip(self.arcs.src.tolist(), self.arcs.dst.tolist(), strict=True))}

    @cached_property
    def host_of(self) -> dict[int, int]:
        """Host of each place."""
        return {rank: number for number, host in enumerate(self.hosts) for rank in host.ranks}

    def turned_round(self) -> JobWiring:
        """Return the wiring from the receiver's side: trees on it collect."""
        return dataclasses.replace(self, arcs=self.arcs.turned_round())

    @cached_property
    def back(self) -> list[int]:
        """The arc the other way of each, -1 where there is none."""
        return [int(arc) for arc in self.arcs.back()]


def job_wiring(topology: Topology, group: Sequence[int]) -> JobWiring:
    """Return what joins the ranks of a group: host by host with gates, where every host is joined in itself and has some."""
    ranks = np.asarray(group, np.int64)
    if len(ranks) * (len(ranks) - 1) > FEWEST:
        return _as_one(topology, ranks)
    src, dst = (each.ravel() for each in np.meshgrid(ranks, ranks, indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    passes, slow = _passes(topology, src, dst)
    hosts = np.zeros(topology.n_ranks, np.int64) if topology.hosts is None else np.asarray(topology.hosts, np.int64)
    inside = hosts[src] == hosts[dst]
    if inside.all():
        made = _joined(topology, ranks, src[~passes], dst[~passes], slow[~passes])
        return _as_one(topology, ranks) if made is None else made
    return _of_hosts(topology, ranks, (src[~passes], dst[~passes], slow[~passes]), hosts) or _as_one(topology, ranks)


def _passes(topology: Topology, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return of each pair whether its route meets a third rank or a dead link, and whether it goes over PCIe. Both bool."""
    starts, links = topology.routes(src, dst)
    owner = np.repeat(np.arange(len(src)), np.diff(starts))
    through = topology.dst[links]
    passes, slow = np.zeros(len(src), bool), np.zeros(len(src), bool)
    passes[owner[(through < topology.n_ranks) & (through != dst[owner])]] = True
    passes[owner[goodput(topology)[links] <= 0]] = True
    classes = np.array([name in SLOW for name in topology.classes])
    slow[owner[classes[topology.link_class[links]]]] = True
    return passes, slow


def _joined(
    topology: Topology, ranks: np.ndarray, src: np.ndarray, dst: np.ndarray, slow: np.ndarray
) -> JobWiring | None:
    """Return the wiring of ranks on one host by their own arcs; None where those do not join all."""
    made = arcs_of(topology, ranks.tolist(), src, dst)
    if not is_joined(made, range(len(ranks)), range(made.count)):
        return None
    return JobWiring(made, (_host(made, tuple(range(len(ranks))), np.arange(made.count), slow),))


def _host(made: Arcs, ranks: tuple[int, ...], numbers: np.ndarray, slow: np.ndarray) -> JobHost:
    """Return a host with its arcs over PCIe apart where the others join it, else together."""
    quick = numbers[~slow[numbers]].tolist()
    if not is_joined(made, ranks, quick):
        return JobHost(ranks, tuple(numbers.tolist()))
    return JobHost(ranks, tuple(quick), tuple(numbers[slow[numbers]].tolist()))


def _of_hosts(
    topology: Topology, ranks: np.ndarray, pairs: tuple[np.ndarray, np.ndarray, np.ndarray], hosts: np.ndarray
) -> JobWiring | None:
    """Return the wiring of several hosts with gates; None where a host is not joined in itself, or two do not meet."""
    src, dst, slow = pairs
    inside = hosts[src] == hosts[dst]
    meets = {(int(a), int(b)) for a, b in zip(src[~inside], dst[~inside], strict=True)}
    by_host = [ranks[hosts[ranks] == host].tolist() for host in np.unique(hosts[ranks]).tolist()]
    gates = _gates(by_host, meets)
    if not gates[0]:
        return None
    at = {rank: number for number, rank in enumerate(ranks.tolist())}
    ends = [(a, b) for row in zip(*gates, strict=True) for a in row for b in row if a != b]
    cross = np.array(ends, np.int64).T
    src, dst = np.concatenate((src[inside], cross[0])), np.concatenate((dst[inside], cross[1]))
    made = arcs_of(topology, ranks.tolist(), src, dst)
    slow = np.concatenate((slow[inside], np.zeros(len(ends), bool)))
    rows = []
    for members in by_host:
        own = np.flatnonzero(np.isin(src, members) & np.isin(dst, members))
        if not is_joined(made, [at[rank] for rank in members], own.tolist()):
            return None
        rows.append(_host(made, tuple(at[rank] for rank in members), own, slow))
    return JobWiring(made, tuple(rows), tuple(tuple(at[rank] for rank in row) for row in gates))


def _gates(by_host: list[list[int]], meets: set[tuple[int, int]]) -> list[list[int]]:
    """Return of each host the ranks that meet their like of every other host both ways: one a host, as often as there are some.

    Each rank of the smallest host asks all others for one that is still free, the nearest by its number within the host.
    """
    first = min(range(len(by_host)), key=lambda host: (len(by_host[host]), host))
    gates: list[list[int]] = [[] for _ in by_host]
    for seat, rank in enumerate(by_host[first]):
        row = {first: rank}
        for host, members in enumerate(by_host):
            if host == first:
                continue
            wanted = seat * len(members) // len(by_host[first])
            free = [each for each in members if each not in gates[host]]
            free.sort(key=lambda each: (abs(members.index(each) - wanted), each))
            fits = (one for one in free if all({(one, each), (each, one)} <= meets for each in row.values()))
            row[host] = next(fits, -1)
            if row[host] < 0:
                break
        if len(row) == len(by_host) and -1 not in row.values():
            for host, rank_there in row.items():
                gates[host].append(rank_there)
    return gates


def is_joined(made: Arcs, ranks: Sequence[int], numbers: Sequence[int]) -> bool:
    """Return whether arcs of these numbers lead from each of some places to all of them."""
    own = list(ranks)
    for ends in ((made.src, made.dst), (made.dst, made.src)):
        leaving: dict[int, list[int]] = {}
        for arc in numbers:
            leaving.setdefault(int(ends[0][arc]), []).append(int(ends[1][arc]))
        seen, front = {own[0]}, [own[0]]
        while front:
            front = [there for here in front for there in leaving.get(here, ()) if there not in seen]
            seen.update(front)
        if not set(own) <= seen:
            return False
    return True


def _as_one(topology: Topology, ranks: np.ndarray) -> JobWiring:
    """Return the wiring by the machine's routes as they are, through whom they may lead."""
    made = arcs(topology, ranks.tolist(), turning=False)
    return JobWiring(made, (JobHost(tuple(range(len(ranks))), tuple(range(made.count))),))
