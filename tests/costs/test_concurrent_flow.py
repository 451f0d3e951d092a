"""The maximum concurrent flow: known optima, its proof by prices alone, symmetry, and what is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ringwright.bounds import concurrent_flow as module
from ringwright.bounds.arcs import arcs
from ringwright.bounds.concurrent_flow import concurrent_flow, link_prices, proved_s
from ringwright.fabrics import fabric
from ringwright.ground.errors import DeclinedError, InfeasibleError
from ringwright.model.topology import RANK, SharedCapacity, Topology

MIB = 1 << 20


def even(p: int, size: float = MIB) -> np.ndarray:
    return np.full((p, p), float(size))


def graph(draw: random.Random, p: int) -> Topology:
    pairs = {(at, (at + 1) % p) for at in range(p)} | {tuple(draw.sample(range(p), 2)) for _ in range(p)}
    src, dst = (np.array(column) for column in zip(*sorted(pairs), strict=True))
    rates = np.array([draw.choice((1e9, 2e9, 5e9)) for _ in src])
    kinds, none = np.full(p, RANK, np.uint8), np.zeros(len(src))
    shared = (SharedCapacity("some", 2.5e9, np.arange(0, len(src), 2)),) if draw.random() < 0.5 else ()
    return Topology("random", p, kinds, src, dst, rates, none, none.astype(np.int64), ("link",), groups=shared)


@pytest.mark.parametrize(
    ("name", "hops"),
    [("ring:8", 16 / 16), ("ring:5", 6 / 10), ("torus:4x4", 32 / 64), ("full:5", 4 / 20), ("torus:3x3x3", 54 / 162)],
)
def test_a_symmetric_direct_network_needs_the_mean_distance(name: str, hops: float) -> None:
    """``hops``: the sum of distances from a rank over all links of the machine."""
    topology = fabric(name)
    p = topology.n_ranks
    flow = concurrent_flow(arcs(topology, range(p)), even(p))
    assert flow.time_s == pytest.approx(hops * p * MIB / float(topology.rate[0]), rel=1e-6)


@pytest.mark.parametrize("name", ["ring:6", "torus:3x4", "mesh:3x3", "dgx-1:1", "dgx-a100:2", "switch:5"])
def test_its_prices_prove_it(name: str) -> None:
    topology = fabric(name)
    p = topology.n_ranks
    flow = concurrent_flow(arcs(topology, range(p)), even(p))
    proved = proved_s(topology, range(p), even(p), link_prices(flow, topology, range(p)))
    assert proved == pytest.approx(flow.time_s, rel=1e-5)
    assert proved <= flow.time_s * (1 + 1e-9)


@pytest.mark.parametrize("name", ["torus:3x4", "dgx-a100:2", "mesh:3x3", "dgx-1:1"])
def test_symmetry_changes_nothing(name: str) -> None:
    topology = fabric(name)
    p = topology.n_ranks
    folded = concurrent_flow(arcs(topology, range(p)), even(p))
    plain = concurrent_flow(arcs(topology, range(p), turning=False), even(p))
    assert folded.time_s == pytest.approx(plain.time_s, rel=1e-6)
    assert len(plain.sources) == p >= len(folded.sources)


@pytest.mark.parametrize("seed", range(20))
def test_random_machines_and_demands(seed: int) -> None:
    draw = random.Random(seed)
    p = draw.randint(3, 7)
    topology = graph(draw, p)
    demand = np.array([[draw.choice((0.0, 1e6, 3e6)) for _ in range(p)] for _ in range(p)])
    flow = concurrent_flow(arcs(topology, range(p), turning=False), demand)
    proved = proved_s(topology, range(p), demand, link_prices(flow, topology, range(p)))
    assert proved == pytest.approx(flow.time_s, rel=1e-5, abs=1e-12)
    kept = flow.carried.sum(axis=1) >= flow.demand.sum(axis=1) * (1 - 1e-6)
    assert kept.all()


@pytest.mark.parametrize("seed", range(10))
def test_no_prices_at_all_prove_more_than_the_optimum(seed: int) -> None:
    draw = random.Random(seed)
    topology = graph(draw, 5)
    flow = concurrent_flow(arcs(topology, range(5), turning=False), even(5))
    any_prices = np.array(
        [draw.choice((-1.0, 0.0, 1.0, draw.random())) for _ in range(topology.n_links + len(topology.groups))]
    )
    assert proved_s(topology, range(5), even(5), any_prices) <= flow.time_s * (1 + 1e-6)


def test_dead_links_prove_nothing_and_carry_nothing() -> None:
    topology = fabric("ring:4")
    assert proved_s(topology, range(4), even(4), np.zeros(topology.n_links)) == 0.0


def test_a_group_may_go_through_others() -> None:
    topology = fabric("ring:8")
    flow = concurrent_flow(arcs(topology, (0, 4), turning=False), even(2))
    assert flow.time_s == pytest.approx(MIB / float(topology.rate[0]))  # one route each: arcs follow the machine's own


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, line = np.zeros(2), np.array([0, 1])
    topology = Topology(
        "line", 3, np.full(3, RANK, np.uint8), line, line + 1, one + 1e9, one, one.astype(np.int64), ("link",)
    )
    with pytest.raises(InfeasibleError, match="cannot get their data"):
        concurrent_flow(arcs(topology, range(3), turning=False), even(3))
    monkeypatch.setattr(module, "MOST_VARIABLES", 10)
    with pytest.raises(DeclinedError, match="too large"):
        concurrent_flow(arcs(fabric("mesh:3x3"), range(9), turning=False), even(9))
