"""The rings of a host whose GPUs are joined link by link: Hamiltonian, within the links, and those that NCCL's logs print."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shared_data
from ringwright.costs.nccl.node_types import named_system
from ringwright.costs.nccl.ring_search import Widths, closed_rings, open_rings, smallest_cut
from ringwright.fabrics._cube import NVLINKS
from ringwright.fabrics.mi250 import XGMI

# Links of the machine whose log is below: a DGX-1V in the order of its PCI buses.
LOGGED = {(0, 3): 2, (2, 3): 2, (1, 2): 2, (1, 5): 2, (5, 6): 2, (6, 7): 2, (4, 7): 2, (0, 4): 2}
LOGGED |= dict.fromkeys([(0, 1), (1, 3), (3, 7), (5, 7), (4, 5), (4, 6), (2, 6), (0, 2)], 1)


def mesh(gpus: int, links: dict[tuple[int, int], int]) -> Widths:
    return tuple(tuple(links.get((min(i, j), max(i, j)), 0) for j in range(gpus)) for i in range(gpus))


def full(gpus: int, width: int = 1) -> Widths:
    return mesh(gpus, dict.fromkeys(combinations(range(gpus), 2), width))


MESHES = {
    "dgx-1": (mesh(8, NVLINKS), 6),
    "dgx-1 by bus": (mesh(8, LOGGED), 6),
    "mi250": (mesh(16, XGMI), 6),
    **{f"{gpus} GPUs": (full(gpus), gpus - 1) for gpus in range(2, 9)},
}


def uses(rings: tuple[tuple[int, ...], ...], *, closed: bool = True) -> Counter[tuple[int, int]]:
    return Counter(hop for ring in rings for hop in pairwise((*ring, ring[0]) if closed else ring))


@pytest.mark.parametrize("name", MESHES)
def test_the_rings_take_all_that_the_smallest_cut_lets_through(name: str) -> None:
    widths, cut = MESHES[name]
    rings = closed_rings(widths)
    assert smallest_cut(widths) == cut
    assert all(sorted(ring) == list(range(len(widths))) for ring in rings)
    split = -(-len(rings) // cut)
    assert len(rings) == split * cut
    assert all(count <= split * widths[i][j] for (i, j), count in uses(rings).items())


@pytest.mark.parametrize("name", ["dgx-1", "4 GPUs", "6 GPUs", "8 GPUs"])
def test_where_links_divide_evenly_every_unit_is_used_alike(name: str) -> None:
    widths, _ = MESHES[name]
    count = uses(closed_rings(widths))
    n = len(widths)
    assert len({count[i, j] / widths[i][j] for i in range(n) for j in range(n) if widths[i][j]}) == 1


def test_a_dgx_1_has_the_rings_that_its_log_prints() -> None:
    """NCCL 2.27.5 prints 12 channels: two of every order, these six and again."""
    one, other = (0, 3, 2, 1, 5, 6, 7, 4), (0, 1, 3, 7, 5, 4, 6, 2)
    logged = [one, one, *[(0, *one[:0:-1])] * 2, other, (0, *other[:0:-1])]
    assert list(closed_rings(mesh(8, LOGGED))) == logged


@shared_data.needs_shared_data
def test_four_v100_have_the_rings_that_their_log_prints() -> None:
    text = shared_data.real("real/nccl-logs/bigscience_n1_16gb_all_reduce_bench.txt").read_text()
    lines = re.findall(r"Channel (\d+)/12 : +([\d ]+)", text)
    logged = [tuple(map(int, line.split())) for _, line in sorted(lines)]
    assert list(closed_rings(full(4, 2))) * 2 == logged


@given(st.data())
def test_rings_and_ways_of_any_mesh_keep_within_its_links(data: st.DataObject) -> None:
    gpus = data.draw(st.integers(2, 6))
    links = {pair: data.draw(st.integers(0, 3)) for pair in combinations(range(gpus), 2)}
    widths, split = mesh(gpus, links), 2
    rings = closed_rings(widths)
    assert all(sorted(ring) == list(range(gpus)) for ring in rings)
    assert all(count <= split * widths[i][j] for (i, j), count in uses(rings).items())
    nics = tuple(data.draw(st.sampled_from([None, 0, 1])) for _ in range(gpus))
    ways, alternates = open_rings(widths, nics, data.draw(st.integers(1, 4)))
    assert all(sorted(way) == list(range(gpus)) for way in ways)
    assert all(widths[i][j] for i, j in uses(ways, closed=False))
    assert all(nics[way[0]] is not None and nics[way[-1]] is not None for way in ways)
    assert alternates or all(nics[way[0]] == nics[way[-1]] for way in ways)


@pytest.mark.parametrize("channels", [8, 16])
def test_ways_through_a_full_mesh_with_a_nic_each_use_every_link_alike(channels: int) -> None:
    """Eight ways of seven hops are the 56 links of eight GPUs; each GPU is entered and left as often as any other."""
    ways, alternates = open_rings(full(8), tuple(range(8)), channels)
    assert alternates
    assert set(uses(ways, closed=False).values()) == {channels // 8}
    assert len(uses(ways, closed=False)) == 56
    for end in (0, -1):
        assert set(Counter(way[end] for way in ways).values()) == {channels // 8}


def test_ways_through_a_dgx_1_leave_by_the_nic_they_came_in_by() -> None:
    widths = mesh(8, NVLINKS)
    ways, alternates = open_rings(widths, (0, 0, 1, 1, 2, 2, 3, 3), 4)
    assert not alternates
    assert [(way[0] // 2, way[-1] // 2) for way in ways] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert all(count <= widths[i][j] for (i, j), count in uses(ways, closed=False).items())


def test_no_ring_where_none_passes_all() -> None:
    star = mesh(4, {(0, 1): 1, (0, 2): 1, (0, 3): 1})
    assert closed_rings(star) == ()
    assert open_rings(star, (0, 0, 1, 1), 2)[0] == ()
    assert closed_rings(((0,),)) == ()


def test_an_mi300_host_opens_the_channels_of_its_table() -> None:
    """RCCL's table of eight MI300X without a network has 14 rings, doubled to 28; with eight NICs it has eight."""
    alone, joined = (named_system("mi300", nodes).graphs.ring for nodes in (1, 2))
    assert (alone.channels, alone.bw_intra_gbs) == (14, 24)
    assert joined.channels == 8
