"""NCCL on machines without a switch between their GPUs: every channel in an order of its own."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.algorithms.libraries.nccl_2_4.orders import Entrances, rank_orders
from ringwright.algorithms.placement import by_host
from ringwright.bounds.lower_bounds import bound
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import NIC, Topology
from small_fabrics import wrong

SIZE = 256 << 20


def all_reduce(topology: Topology, size: int = SIZE) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size)


def link_bytes(program: Program, topology: Topology, of: tuple[str, ...] = ("nvlink", "xgmi")) -> dict[int, float]:
    """Return the bytes that each link of the named classes carries."""
    carried: Counter[int] = Counter()
    for step in program.steps():
        for block in step.blocks:
            src, dst, chunk, _ = block.arrays()
            starts, links = topology.routes(src, dst)
            for number, link in zip(np.repeat(np.arange(len(src)), np.diff(starts)), links, strict=True):
                carried[int(link)] += int(program.layout.bytes_of(chunk)[number])
    direct = {number for number, name in enumerate(topology.classes) if name in of}
    return {int(link): carried[int(link)] for link in range(topology.n_links) if topology.link_class[link] in direct}


@pytest.mark.parametrize("name", ["ndv2:1", "dgx-1:1", "mi300:1", "polaris:1"])
def test_every_link_of_one_host_carries_as_much_as_its_width(name: str) -> None:
    topology = fabric(name)
    carried = link_bytes(nccl_2_4(all_reduce(topology), topology, algorithm="ring"), topology)
    per_rate = np.array([count / topology.rate[link] for link, count in carried.items()])
    assert per_rate.min() > 0.99 * per_rate.max()


@pytest.mark.parametrize(
    ("name", "share"),
    [("ndv2:1", 0.85), ("dgx-1:1", 0.85), ("mi300:1", 0.9), ("mi250:1", 0.7), ("mi300:2", 0.7), ("ndv2:2", 0.9)],
)
def test_a_large_all_reduce_is_near_the_bound(name: str, share: float) -> None:
    topology = fabric(name)
    collective = all_reduce(topology)
    taken = simulate(nccl_2_4(collective, topology), topology).time_s
    assert share < bound(collective, topology).time_s / taken <= 1


@pytest.mark.parametrize("name", ["dgx-1:2", "ndv2:3", "mi300:2", "mi300:3", "polaris:2", "mi250:2"])
def test_a_channel_enters_and_leaves_a_host_next_to_one_nic(name: str) -> None:
    """What goes from host to host passes no other GPU, and stays below one leaf where a NIC has GPUs of its own."""
    topology = fabric(name)
    collective = all_reduce(topology)
    hosts = by_host(collective, topology)
    orders = rank_orders(
        collective, topology, hosts, channels=8, searched=8, entrances=Entrances(topology.nics_per_node)
    )
    for channel in range(8):
        ring = orders.ring(channel)
        assert sorted(ring) == list(range(topology.n_ranks))
        crossing = [
            (a, b) for a, b in pairwise(ring) if topology.hosts is not None and topology.hosts[a] != topology.hosts[b]
        ]
        assert len(crossing) == len(hosts) - 1
        for a, b in crossing:
            _, links = topology.routes(np.array([a]), np.array([b]))
            nodes = topology.src[links[1:]]
            assert (nodes >= topology.n_ranks).all()
            first, last = (int(nodes[topology.kinds[nodes] == NIC][end]) for end in (0, -1))
            assert (first - last) % topology.nics_per_node == 0


@pytest.mark.parametrize("name", ["dgx-1:2", "mi300:2"])
def test_channels_between_hosts_share_no_unit_of_a_link(name: str) -> None:
    topology = fabric(name)
    collective = all_reduce(topology)
    hosts = by_host(collective, topology)
    nics = topology.nics_per_node
    orders = rank_orders(collective, topology, hosts, channels=nics, searched=nics, entrances=Entrances(nics))
    used = Counter(hop for channel in range(nics) for hop in pairwise(orders.ring(channel)))
    inside = {hop: count for hop, count in used.items() if hop[0] // 8 == hop[1] // 8}
    links = topology.link_ids(*(np.array([hop[end] for hop in inside]) for end in (0, 1)))
    assert (links >= 0).all()
    narrowest = topology.rate[[topology.classes[number] in ("nvlink", "xgmi") for number in topology.link_class]].min()
    assert (np.array(list(inside.values())) <= topology.rate[links] / narrowest).all()


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("ndv2:1", range(8)),
        ("mi300:3", range(24)),
        ("dgx-1:2", [*range(4), *range(12, 16)]),
        ("dgx-1:2", [0, 1, 2, 8]),
        ("dgx-1:1", [0, 5]),
        ("dgx-1:1", [5, 1, 2, 3, 0]),
        ("mi300:4", [0, 9, 18, 27]),
    ],
)
def test_results_are_those_of_numpy(name: str, group: list[int], algorithm: str) -> None:
    topology = fabric(name)
    program = nccl_2_4(Collective("all-reduce", group, 4 * 4999), topology, algorithm=algorithm)
    assert not validity.check(program)
    assert wrong(program) == ""


@pytest.mark.parametrize(
    ("op", "algorithm"),
    [("all-reduce", "tree"), *((op, "ring") for op in ("all-reduce", "broadcast", "reduce", "all-gather"))],
)
def test_no_message_passes_a_third_gpu(op: str, algorithm: str) -> None:
    topology = fabric("dgx-1:1")
    program = nccl_2_4(Collective(op, range(8), 8 * 4 * 4999), topology, algorithm=algorithm, channels=12)
    assert wrong(program) == ""
    assert all((topology.link_ids(*block.arrays()[:2]) >= 0).all() for step in program.steps() for block in step.blocks)


@pytest.mark.parametrize("name", ["mi300:4", "ndv2:4", "dgx-1:3", "mi300:3"])
def test_folded_or_not_the_time_is_the_same(name: str) -> None:
    topology = fabric(name)
    program = nccl_2_4(all_reduce(topology, 4 << 20), topology, algorithm="ring")
    folded, whole = simulate(program, topology), simulate(program, topology, fold_symmetry=False)
    assert folded.time_ps == whole.time_ps
    assert not whole.folded


def test_gpus_without_links_between_them_go_around() -> None:
    topology = fabric("dgx-a100:1")
    collective = all_reduce(topology)
    orders = rank_orders(
        collective, topology, by_host(collective, topology), channels=4, searched=4, entrances=Entrances(8)
    )
    assert orders.ring(3) == list(range(8))
    assert orders.block == 1
