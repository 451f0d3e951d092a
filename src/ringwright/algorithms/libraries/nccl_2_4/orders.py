"""In which order each channel passes the ranks: around behind a switch, by the search where GPUs are joined link by link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.placement import is_regular
from ringwright.costs.nccl.ring_search import MOST_GPUS, Widths, closed_rings, open_rings
from ringwright.model.topology import NIC

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

DIRECT = ("nvlink", "xgmi")  # classes of links that NCCL's rings follow
HostPaths = tuple[
    tuple[tuple[int, ...], ...], bool
]  # a host's GPUs per channel; whether the next host is passed backwards
NARROWEST = 1 / 8  # of the widest link of a host: less is a broken link, no unit


@dataclass(frozen=True, slots=True)
class Orders:
    """The order of the places of a group per channel; channels beyond the last repeat them from the first.

    ``paths`` holds, per channel and host, the places of that host in order. With ``alternates`` every other host is passed
    the other way round, so that a ring leaves a host by the GPU that it enters the next one at. ``block`` is the number of
    places after which all rings repeat themselves, 0 where they do not. ``firsts``, where hosts are passed in the order of
    their ranks: the GPU of a host at which each channel begins.
    """

    paths: tuple[tuple[tuple[int, ...], ...], ...]
    alternates: bool = False
    block: int = 0
    firsts: tuple[int, ...] = ()

    def ring(self, channel: int) -> list[int]:
        """Return the places in the order of a channel's ring."""
        hosts = self.paths[channel % len(self.paths)]
        return [
            member
            for number, path in enumerate(hosts)
            for member in (reversed(path) if self.alternates and number % 2 else path)
        ]

    def chain(self, channel: int) -> list[int]:
        """Return the places host by host, each from the GPU at which the channel enters it."""
        return [member for path in self.paths[channel % len(self.paths)] for member in path]


@dataclass(frozen=True, slots=True)
class Entrances:
    """How channels come into a host: by its ``nics``; those after the ``searched`` ones are copies of them (0: none are)."""

    nics: int
    searched: int = 0

    def gpu(self, channel: int, gpus: int) -> int:
        """Return the GPU at which a channel enters a host: channels take the NICs in turn, then the GPUs of a NIC."""
        turn = channel % self.searched if self.searched else channel
        apart = max(1, gpus // max(self.nics, 1))
        return (turn * apart + turn * apart // gpus) % gpus


def around(hosts: list[list[int]], channels: int, entrances: Entrances) -> Orders:
    """Return rings through hosts whose GPUs are all alike: each from the GPU at which the ring enters it, in rank order."""
    block = len(hosts[0]) if is_regular(hosts) else 0
    if (
        len(hosts) == 1
    ):  # A ring inside one host passes its ranks as it would as many hosts of one: one pattern for all.
        hosts, block = [[rank] for rank in hosts[0]], 1
    paths = tuple(
        tuple(_from(host, entrances.gpu(channel, len(host))) for host in hosts) for channel in range(channels)
    )
    firsts = tuple(entrances.gpu(channel, block) for channel in range(channels)) if block else ()
    return Orders(paths, False, block, firsts)


def _from(host: list[int], first: int) -> tuple[int, ...]:
    return (*host[first:], *host[:first])


def rank_orders(
    collective: Collective,
    topology: Topology | None,
    hosts: list[list[int]],
    *,
    channels: int,
    searched: int,
    entrances: Entrances,
) -> Orders:
    """Return the order of each of ``channels``; ``searched`` of them the search looked for, the others are their copies.

    Hosts whose GPUs are not joined by links of their own, or where no ring passes all of them, are passed around.
    """
    plain = around(hosts, channels, entrances)
    if topology is None or topology.hosts is None or not 2 <= max(map(len, hosts)) <= MOST_GPUS:
        return plain
    ranks = [np.array([collective.group[member] for member in host]) for host in hosts]
    per_host = _of_hosts(topology, ranks, max(1, searched))
    if not all(paths for paths, _ in per_host):
        return plain
    turning = {reversing for paths, reversing in per_host if len(paths[0]) > 1}
    if len(turning) > 1:
        return plain
    copies = min(len(paths) for paths, _ in per_host)
    paths = tuple(
        tuple(tuple(host[gpu] for gpu in local[channel]) for host, (local, _) in zip(hosts, per_host, strict=True))
        for channel in range(copies)
    )
    alternates, alike = turning.pop(), len({local for local, _ in per_host}) == 1
    period = len(hosts[0]) * (2 if alternates else 1)
    repeats = is_regular(hosts) and alike and collective.p % period == 0
    return Orders(paths, alternates, period if repeats else 0)


def _of_hosts(topology: Topology, ranks: list[np.ndarray], searched: int) -> list[HostPaths]:
    """Return what the search finds for each host; hosts that are alike are looked at once."""
    per_host: list[HostPaths] = [((), False)] * len(ranks)
    for size in {len(here) for here in ranks}:
        numbers = [number for number, here in enumerate(ranks) if len(here) == size]
        stacked = np.stack([ranks[number] for number in numbers])
        widths, _ = link_widths(topology, stacked)
        nics = np.zeros_like(stacked)
        if len(ranks) > 1:
            nics = _nearest_nics(topology, stacked, np.array([ranks[number - 1][0] for number in numbers]))
        kinds, of_kind = np.unique(np.concatenate((widths, nics), axis=1), axis=0, return_inverse=True)
        answers = [_searched(kind, size, len(ranks) > 1, searched) for kind in kinds.tolist()]
        for number, kind in zip(numbers, of_kind.reshape(-1).tolist(), strict=True):
            per_host[number] = answers[kind]
    return per_host


def _searched(kind: list[int], size: int, between: bool, searched: int) -> HostPaths:
    if size == 1:
        return ((0,),) * searched, False
    widths = matrix(kind[: size * size])
    if not between:
        return closed_rings(widths), False
    return open_rings(widths, tuple(nic if nic >= 0 else None for nic in kind[size * size :]), searched)


def link_widths(topology: Topology, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the links between each two ranks of hosts in units of the host's narrowest whole one, and bytes/s of a unit.

    ``ranks`` has the shape (hosts, GPUs); the widths are int64 of shape (hosts, GPUs * GPUs), row by row, the units float64 of
    shape (hosts,). Only
    links of their own count, not the way through a switch; without any the widths are 0.
    """
    size = ranks.shape[1]
    links = topology.link_ids(np.repeat(ranks, size, axis=1), np.tile(ranks, size))
    direct = [number for number, name in enumerate(topology.classes) if name in DIRECT]
    rates = np.where((links >= 0) & np.isin(topology.link_class[links], direct), topology.rate[links], 0.0)
    whole = rates >= NARROWEST * rates.max(axis=1, keepdims=True)
    units = np.where(whole & (rates > 0), rates, np.inf).min(axis=1)
    units[np.isinf(units)] = 0.0
    counts = np.floor(rates / np.where(units > 0, units, 1.0)[:, None] + 0.5)
    return np.where(whole, counts, 0).astype(np.int64), units


def matrix(widths: list[int]) -> Widths:
    """Return a host's widths as the search takes them, a row a GPU."""
    size = math.isqrt(len(widths))
    return tuple(tuple(widths[first : first + size]) for first in range(0, len(widths), size))


def _nearest_nics(topology: Topology, ranks: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the NIC of its host by which a message from another one comes to each rank; -1 where others are nearer to it.

    int64 of the shape (hosts, GPUs) of ``ranks``; ``others`` is a rank of another host for each.
    """
    starts, links = topology.routes(np.repeat(others, ranks.shape[1]), ranks.reshape(-1))
    nodes = topology.src[links]
    positions = np.where(topology.kinds[nodes] == NIC, np.arange(len(nodes)), -1)
    last = np.maximum.reduceat(positions, starts[:-1]).reshape(ranks.shape)
    hops = starts[1:].reshape(ranks.shape) - last
    nics = np.where(last >= 0, nodes[last], -1)
    shared = nics[:, :, None] == nics[:, None, :]
    nearest = np.where(shared, hops[:, None, :], hops.max(initial=0)).min(axis=2)
    first = np.where(nics >= 0, nics, nics.max(initial=0)).min(axis=1, keepdims=True)
    return np.where((nics >= 0) & (hops == nearest), nics - first, -1)
