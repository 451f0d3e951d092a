"""NCCL where NVLink joins several hosts: its node is the rack, channels leave it by NICs of several trays, 32 GPUs are heads."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ringwright.algorithms.blocks.nvls import nvls
from ringwright.algorithms.blocks.nvls_tree import nvls_tree
from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.algorithms.libraries.nccl_2_4.orders import Entrances, around
from ringwright.algorithms.libraries.nccl_2_4.rings import LoopCounts, rings
from ringwright.algorithms.libraries.nccl_2_4.system import system_of
from ringwright.bounds.lower_bounds import bounds
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.program import Op, Program
from ringwright.model.software import Software
from ringwright.model.topology import NIC, Topology
from small_fabrics import wrong

pytestmark = pytest.mark.once  # nothing here is compiled
GIB = 1 << 30


def nics_of(program: Program, top: Topology) -> set[int]:
    """Return the NICs that messages between racks leave by."""
    assert top.domains is not None
    crossing = set()
    for step in program.steps():
        for block in step.blocks:
            if block.op in (Op.SEND, Op.REDUCE):
                src, dst = block.arrays()[:2]
                away = top.domains[src] != top.domains[dst]
                crossing |= {*zip(src[away].tolist(), dst[away].tolist(), strict=True)}
    src, dst = np.array(sorted(crossing)).T
    _, links = top.routes(src, dst)
    left = top.src[links]
    return set(left[(top.kinds[left] == NIC) & (top.kinds[top.dst[links]] != 0)].tolist())


@pytest.mark.parametrize("algorithm", ["ring", "tree", "nvls_tree"])
def test_channels_leave_a_rack_by_nics_of_different_trays(algorithm: str) -> None:
    """The search finds 16 channels of 45.1 GB/s: 16 NICs, of four trays. NVLS-Tree has 32 heads, each with a NIC of its own."""
    top = fabric("gb200-nvl72:2")
    program = nccl_2_4(Collective("all-reduce", range(144), 1 << 22), top, release="2.26", algorithm=algorithm)
    names = [top.label(nic) for nic in sorted(nics_of(program, top))]
    wanted = 32 if algorithm == "nvls_tree" else 16
    leaving = [name for name in names if name.startswith("rack0")]
    assert [int(name.removeprefix("rack0/nic")) for name in leaving] == [*range(wanted)]
    assert len({int(name.removeprefix("rack0/nic")) // 4 for name in leaving}) == wanted // 4


def test_a_node_is_what_nvlink_joins() -> None:
    top = fabric("gb200-nvl72:2")
    for ranks, nodes, mnnvl in (
        (range(144), 2, True),
        (range(8), 1, True),  # two trays
        (range(4), 1, False),  # one
        ([*range(4), *range(72, 76)], 2, False),
        (range(68, 76), 2, False),
        (range(0, 144, 72), 2, False),
    ):
        system = system_of(Collective("all-reduce", ranks, 8), top)
        assert (system.nodes, system.ranks, system.mnnvl) == (nodes, len(ranks), mnnvl)
    graphs = system_of(Collective("all-reduce", range(72), 8), top).graphs
    assert (graphs.nvls.channels, graphs.ring.channels) == (32, 16)


@pytest.mark.parametrize(("trays", "published_gbs"), [(1, 196.7), (2, 393.7)])
def test_rings_of_three_parts_of_racks_are_as_fast_as_published(trays: int, published_gbs: float) -> None:
    """NVIDIA/nccl issue 1801: three NVLink partitions of 4 or 8 GPUs in different racks, rings, 16 GiB, NCCL 2.27.3."""
    top = fabric("gb200-nvl72:3")
    ranks = [72 * rack + gpu for rack in range(3) for gpu in range(4 * trays)]
    wanted = Collective("all-reduce", ranks, 16 * GIB)
    program = nccl_2_4(wanted, top, release="2.27", algorithm="ring", protocol="simple")
    busbw_gbs = 2 * (len(ranks) - 1) / len(ranks) * wanted.size_bytes / simulate(program, top).time_s / 1e9
    assert busbw_gbs == pytest.approx(published_gbs, rel=0.1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("release", ["2.26", "2.30"])
@pytest.mark.parametrize("racks", [1, 2, 3])
def test_larger_all_reduces_take_longer_and_none_less_than_the_bound(racks: int, release: str) -> None:
    top = fabric(f"gb200-nvl72:{racks}")
    times_s = []
    for power in (10, 20, 28, 32, 33):
        wanted = Collective("all-reduce", range(top.n_ranks), 1 << power)
        times_s.append(simulate(nccl_2_4(wanted, top, release=release), top).time_s)
        assert times_s[-1] > bounds(wanted, top, in_network=True)[0].time_s
    assert times_s == sorted(times_s)
    assert times_s[-1] / times_s[-2] < 2.2  # nothing is 14 times as slow as half of it


@pytest.mark.parametrize(
    ("racks", "ranks", "size", "published_us"),
    [
        (1, 72, 4 * GIB, 10094),  # coreweave/nccl-tests, README: GB200, NCCL 2.26.2
        (1, 72, 8 * GIB, 20299),
        (2, 144, 4 * GIB, 11469),
        (2, 144, 16 * GIB, 42067),
        (1, 64, 16 * GIB, 36350),  # Oracle's quick start: GB300, NCCL 2.28.7
        (1, 8, 16 * GIB, 35722),
    ],
)
def test_all_reduces_of_racks_are_near_published_times(racks: int, ranks: int, size: int, published_us: float) -> None:
    """With rates of data sheets: no slower than published by a tenth, no faster by a fifth; NVLS was twice as fast."""
    top = fabric(f"gb200-nvl72:{racks}")
    wanted = Collective("all-reduce", range(ranks), size)
    time_us = simulate(nccl_2_4(wanted, top, release="2.26" if ranks > 64 else "2.28"), top).time_s * 1e6
    assert 0.8 < time_us / published_us < 1.1


def test_fewer_heads_than_ranks() -> None:
    rack, racks = fabric("gb200-nvl72:1"), fabric("gb200-nvl72:2")
    for program in (
        nvls(Collective("all-reduce", range(12), 4 * 997), rack, heads=5),
        nvls_tree(Collective("all-reduce", [*range(6), *range(72, 78)], 4 * 997), racks, heads=5, segments=2),
    ):
        assert not validity.check(program)
        assert wrong(program) == ""
        assert program.knobs["heads"] == 5
    with pytest.raises(UsageError, match="heads its own block"):
        nvls(Collective("all-gather", range(12), 12 * 4), rack, heads=5)


def test_grouped_messages_of_a_rack_have_a_sender_each() -> None:
    program = nccl_2_4(Collective("all-to-all", range(144), 144 * 1024), fabric("gb200-nvl72:2"))
    assert program.software.sharing == 1.0


def test_links_are_no_faster_than_the_software_that_fills_them() -> None:
    top = fabric("dgx-h100:1")
    program = nvls(Collective("all-reduce", range(8), 1 << 28), top)
    slow, slower = (
        dataclasses.replace(program, software=Software(most_rate={"nvlink": rate})) for rate in (450e9, 45e9)
    )
    assert simulate(slow, top).time_ps == simulate(program, top).time_ps
    assert simulate(slower, top).time_s == pytest.approx(10 * simulate(program, top).time_s, rel=0.01)
    elsewhere = dataclasses.replace(program, software=Software(most_rate={"nic": 1e9}))
    assert simulate(elsewhere, top).time_ps == simulate(program, top).time_ps


@pytest.mark.parametrize("op", ["all-reduce", "reduce-scatter", "all-gather"])
def test_rings_through_large_nodes_are_patterns(op: str) -> None:
    nodes = [[*range(18)], [*range(18, 36)]]
    program = rings(Collective(op, range(36), 36 * 4 * 97), around(nodes, 3, Entrances(18, 2)), 3, LoopCounts(2, 1))
    assert max(len(step.blocks) for step in program.steps()) <= 3 * 3
    assert not validity.check(program)
    assert wrong(program) == ""
