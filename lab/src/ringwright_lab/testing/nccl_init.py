"""The lines of a communicator's birth: bootstrap, network, Init START, graphs, connections, Init COMPLETE."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ringwright_lab.testing.nccl_dialect import Dialect
from ringwright_lab.testing.nccl_job import NcclJob
from ringwright_lab.testing.nccl_placement import JobPlacement, RankProcess, ring_order, tree_of

Timed = tuple[float, RankProcess, str, str]  # moment in seconds, who, text, kind (info or bare)
_NICS = 4


def start_lines(
    job: NcclJob, words: Dialect, placement: JobPlacement, subsystems: set[str], channels: int, draw: random.Random
) -> Iterator[Timed]:
    """Yield every line from process start to the last communicator, in the order of each process."""
    for process in placement.processes:
        yield from _process_start(job, words, process, subsystems, draw)
    for index, comm in enumerate(job.communicators):
        group = sum(1 for other in job.communicators[:index] if set(other.members) & set(comm.members))
        for rank, member in enumerate(comm.members):
            start_s = 1.0 + 1.5 * group + draw.random() * 0.2
            texts = list(_birth(job, words, placement, index, rank, subsystems, channels))
            for number, text in enumerate(texts):
                # Ranks advance at their own pace, so their lines interleave in a merged stream.
                moment_s = start_s + (number + draw.random()) / (len(texts) + 1)
                yield moment_s, placement.processes[member], text, "info"


def _process_start(
    job: NcclJob, words: Dialect, process: RankProcess, subsystems: set[str], draw: random.Random
) -> Iterator[Timed]:
    moment_s = draw.random() * 0.3 + (0.0 if process.rank == 0 else 0.2)
    texts: list[str] = []
    if "ENV" in subsystems:
        texts.append(words.environment("NCCL_SOCKET_IFNAME", "ib0"))
    if "INIT" in subsystems:
        network = "IB" if job.hosts > 1 else "Socket"
        texts += words.network_lines(network, process.address, "ib0", _NICS)
        if words.version >= (2, 14):
            texts.insert(0, "cudaDriverVersion 12040")
    if process.rank == 0:
        yield moment_s, process, words.version_line(), "bare"
    for number, text in enumerate(texts):
        yield moment_s + 0.001 + 0.002 * number, process, text, "info"


# branches: a line for each subsystem and release that prints it
def _birth(
    job: NcclJob, words: Dialect, placement: JobPlacement, index: int, rank: int, subsystems: set[str], channels: int
) -> Iterator[str]:
    comm, who = job.communicators[index], placement.identities[index][rank]
    init, graph = "INIT" in subsystems, "GRAPH" in subsystems
    if init and words.version >= (2, 18):
        yield words.init_lines(who, complete=False)
    if init:
        yield f"Setting affinity for GPU {who.device} to ffffffff"
    if init and words.version >= (2, 20):
        local = [one for one, member in enumerate(comm.members) if job.host_of(member) == _host(job, index, rank)]
        yield words.layout_line(who, placement.nodes[index], len(local), local.index(rank))
    if graph and rank == 0:
        for channel in range(channels):
            yield words.ring_line(channel, channels, ring_order(job, index, channel))
    if graph and words.version >= (2, 4):
        trees = [tree_of(job, index, channel)[rank] for channel in range(channels)]
        yield words.trees_line(trees, who)
    if init and words.version >= (2, 14):
        yield "P2P Chunksize set to 131072"
    late = words.version >= (2, 22)  # connections are made at the first operation since 2.22
    connections = list(_connections(job, words, placement, index, rank, subsystems, channels))
    if not late:
        yield from connections
    if init:
        yield from words.channels_lines(channels)
        yield words.init_lines(who, complete=True)
        if words.version >= (2, 22):
            yield words.timings_line(who, 0.9)
    if late:
        yield from connections


def _host(job: NcclJob, index: int, rank: int) -> int:
    return job.host_of(job.communicators[index].members[rank])


def _connections(
    job: NcclJob, words: Dialect, placement: JobPlacement, index: int, rank: int, subsystems: set[str], channels: int
) -> Iterator[str]:
    """Ring edges, then tree edges: the peer's host decides between P2P (INIT) and NET lines."""
    if not {"INIT", "GRAPH", "NET"} & subsystems or job.communicators[index].size == 1:
        return
    connected = words.connected_lines() if "INIT" in subsystems else []
    for channel in range(channels):
        order = ring_order(job, index, channel)
        at = order.index(rank)
        yield from _edge(job, words, placement, index, channel, order[at - 1], rank, rank)
        yield from _edge(job, words, placement, index, channel, rank, order[(at + 1) % len(order)], rank)
    yield from connected[:1]
    if words.version >= (2, 4):
        for channel in range(channels):
            parent, children = tree_of(job, index, channel)[rank]
            for peer in [*children, *([parent] if parent >= 0 else [])]:
                yield from _edge(job, words, placement, index, channel, peer, rank, rank)
                yield from _edge(job, words, placement, index, channel, rank, peer, rank)
    yield from connected[1:]


def _edge(
    job: NcclJob,
    words: Dialect,
    placement: JobPlacement,
    index: int,
    channel: int,
    source: int,
    target: int,
    printer: int,
) -> Iterator[str]:
    """Inside a host the sender prints one line; across hosts both ends print, with the direction."""
    ends = placement.identities[index]
    if _host(job, index, source) == _host(job, index, target):
        if printer == source:
            yield words.connection_line(channel, ends[source], ends[target], via=words.peer_via(), side="")
        return
    via = f"NET/IB/{ends[printer].device % _NICS}/GDRDMA"
    side = "send" if printer == source else "receive"
    yield words.connection_line(channel, ends[source], ends[target], via=via, side=side)
