"""Where a job runs: host names, process and thread numbers, devices, bus ids, and every pointer NCCL would print."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from ringwright_lab.testing.nccl_fields import CommunicatorRank
from ringwright_lab.testing.nccl_job import NcclJob

_BUS_IDS = (0x1A000, 0x40000, 0x53000, 0x66000, 0x9C000, 0xC0000, 0xD2000, 0xE4000)


@dataclass(frozen=True)
class RankProcess:
    """One process with one GPU: the subject of a log line."""

    rank: int
    host: str
    address: str
    pid: int
    tid: int  # the thread that initialises
    issue_tid: int  # the thread that issues collectives
    device: int
    bus_id: int
    stream: int

    @property
    def file_name(self) -> str:
        """The name under ``NCCL_DEBUG_FILE=nccl.%h.%p.log``."""
        return f"nccl.{self.host}.{self.pid}.log"


@dataclass
class JobPlacement:
    """Processes by global rank, identities by (communicator, rank in communicator), ring orders by channel."""

    processes: list[RankProcess]
    identities: list[list[CommunicatorRank]]
    nodes: list[int] = field(default_factory=list)


def place(job: NcclJob, host_prefix: str = "node") -> JobPlacement:
    """Give a job its places and pointers; the same job and seed give the same ones."""
    draw = random.Random(f"placement {job.seed}")  # noqa: S311
    processes = []
    first_pid = [draw.randrange(20_000, 900_000) for _ in range(job.hosts)]
    for rank in range(job.ranks):
        host, device = job.host_of(rank), rank % job.gpus_per_host
        pid = first_pid[host] + device
        bus_id = _BUS_IDS[device % 8] + 0x100000 * (device // 8)
        process = RankProcess(
            rank,
            f"{host_prefix}{host + 1:03d}",
            f"10.4.{host // 250}.{host % 250 + 2}",
            pid,
            pid + 311 + device,
            pid + 640 + 2 * device,
            device,
            bus_id,
            _heap(draw),
        )
        processes.append(process)
    placement = JobPlacement(processes, [], [job.nodes_of(comm) for comm in job.communicators])
    for index, comm in enumerate(job.communicators):
        parent = placement.identities[0] if comm.split and index else None
        placement.identities.append(_identify(job, index, processes, parent, draw))
    return placement


def _identify(
    job: NcclJob, index: int, processes: list[RankProcess], parent: list[CommunicatorRank] | None, draw: random.Random
) -> list[CommunicatorRank]:
    comm = job.communicators[index]
    comm_id, color = draw.getrandbits(64), draw.randrange(1, 2**31)
    before = sum(1 for other in job.communicators[:index] if other.split and set(other.members) & set(comm.members))
    identities = []
    for rank, member in enumerate(comm.members):
        where = processes[member]
        above = parent[job.communicators[0].members.index(member)].pointer if parent else 0
        identities.append(
            CommunicatorRank(
                _heap(draw), rank, comm.size, where.device, where.bus_id, comm_id, above, color, before + 1
            )
        )
    return identities


def _heap(draw: random.Random) -> int:
    return 0x55_0000_0000_00 + draw.randrange(2**36) * 16


def ring_order(job: NcclJob, communicator: int, channel: int) -> list[int]:
    """Return the ring of one channel: hosts in order, inside a host rotated by the channel and reversed on odd ones."""
    comm = job.communicators[communicator]
    by_host: dict[int, list[int]] = {}
    for rank, member in enumerate(comm.members):
        by_host.setdefault(job.host_of(member), []).append(rank)
    order: list[int] = []
    for ranks in by_host.values():
        inside = ranks if channel % 2 == 0 else [ranks[0], *reversed(ranks[1:])]
        turn = (channel // 2) % len(inside) if len(by_host) > 1 else 0
        order += inside[turn:] + inside[:turn]
    first = order.index(0)  # a ring has no beginning, and rank 0 prints it from itself on
    return order[first:] + order[:first]


def tree_of(job: NcclJob, communicator: int, channel: int) -> dict[int, tuple[int, list[int]]]:
    """Return (parent, children) per rank: a chain inside each host, a binary tree over the hosts' first ranks."""
    order = ring_order(job, communicator, channel)
    members = job.communicators[communicator].members
    by_host: dict[int, list[int]] = {}
    for rank in order:
        by_host.setdefault(job.host_of(members[rank]), []).append(rank)
    chains = list(by_host.values())
    if channel % 2:
        chains.reverse()
    tree: dict[int, tuple[int, list[int]]] = {rank: (-1, []) for rank in order}
    for number, chain in enumerate(chains):
        for above, below in pairwise(chain):
            _hang(tree, below, above)
        if number:
            _hang(tree, chain[0], chains[(number - 1) // 2][0])
    return tree


def _hang(tree: dict[int, tuple[int, list[int]]], child: int, parent: int) -> None:
    tree[child] = (parent, tree[child][1])
    tree[parent][1].append(child)
