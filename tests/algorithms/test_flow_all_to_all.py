"""All-to-all along the maximum concurrent flow: near the optimum that is proved, right, repeatable, and what is refused."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from ringwright.algorithms.networks import network
from ringwright.algorithms.synthesis.flow_all_to_all import _choice, flow_all_to_all
from ringwright.algorithms.synthesis.flow_all_to_all._classes import classes
from ringwright.algorithms.synthesis.flow_all_to_all._paths import sizes
from ringwright.bounds.arcs import arcs
from ringwright.bounds.lower_bounds import bound
from ringwright.engines.choose import simulate
from ringwright.engines.machine import machine
from ringwright.fabrics import fabric
from ringwright.formats.sources.topology import read_topology
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.topology import RANK, SharedCapacity, Topology
from ringwright_lab.contracts.algorithm_checks import right
from shared_data import needs_shared_data, real

ALPHA = {"blocking": "busy", "pipelined": "pipelined"}


def near(topology: Topology, model: str, size: int = 1 << 30) -> float:
    """Return the time over what is proved, less one."""
    exchange = Collective("all-to-all", range(topology.n_ranks), size)
    program = flow_all_to_all(exchange, topology, link_model=model)
    proved_us = program.knobs["proved_us"]
    assert isinstance(proved_us, float)
    assert proved_us == pytest.approx(program.knobs["flow_us"], rel=1e-5)
    return simulate(program, topology, alpha=ALPHA[model]).time_s * 1e6 / proved_us - 1


@pytest.mark.sampled(6, "*")
@needs_shared_data
@pytest.mark.once
@pytest.mark.parametrize("model", ["blocking", "pipelined"])
@pytest.mark.parametrize("name", ["ring8", "dgx1", "ndv2x2", "mi250x16", "torus4x4", "mesh4x4", "hypercube16"])
def test_the_optimum_is_reached_at_large_sizes(name: str, model: str) -> None:
    assert 0 <= near(read_topology(real(f"bench-topologies/{name}.json")), model) < 0.005


@pytest.mark.once
@pytest.mark.parametrize("name", ["torus:8x8", "dgx-a100:4", "dgx-h100:2"])
def test_the_optimum_is_reached_on_larger_machines(name: str) -> None:
    assert 0 <= near(fabric(name), "pipelined") < 0.002


@pytest.mark.once
def test_ranks_are_no_burden_where_the_machine_is_symmetric() -> None:
    exchange = Collective("all-to-all", range(512), 1 << 30)
    program = flow_all_to_all(exchange, fabric("torus:8x8x8"), chunks=1, merge=1)
    assert program.knobs["proved_us"] == pytest.approx(20_000.0)
    assert program.knobs["flow_us"] == pytest.approx(20_000.0)


def graph(draw: random.Random, p: int) -> Topology:
    pairs = {(at, (at + 1) % p) for at in range(p)} | {tuple(draw.sample(range(p), 2)) for _ in range(p)}
    src, dst = (np.array(column) for column in zip(*sorted(pairs), strict=True))
    rates, late = (np.array([draw.choice(of) for _ in src]) for of in ((1e9, 2e9, 5e9), (0.0, 1e-6)))
    kinds = np.full(p, RANK, np.uint8)
    return Topology("random", p, kinds, src, dst, rates, late, np.zeros(len(src), np.int64), ("link",))


@pytest.mark.sampled(8, "*")
@pytest.mark.parametrize("seed", range(25))
def test_random_graphs(seed: int) -> None:
    draw = random.Random(seed)
    p = draw.randint(2, 6)
    topology, model = graph(draw, p), draw.choice(("blocking", "pipelined"))
    rows = tuple(tuple(draw.choice((0, 4, 400, 4096)) for _ in range(p)) for _ in range(p))
    uneven = Collective("all-to-all", range(p), max(map(sum, rows)), counts=rows)
    even = Collective("all-to-all", range(p), draw.choice((0, 4, 3001, 4 * 1021)))
    for collective in (uneven, even):
        program = flow_all_to_all(collective, topology, link_model=model)
        assert validity.check(program, topology=topology) == []
        assert right(program, topology) is None
        took_s = simulate(program, topology, alpha=ALPHA[model]).time_s
        assert took_s >= bound(collective, topology, alpha=ALPHA[model]).time_s * (1 - 5e-3)  # it counts blocks as even


@pytest.mark.parametrize("seed", range(10))
def test_blocks_are_cut_into_whole_elements(seed: int) -> None:
    draw = random.Random(seed)
    blocks = np.array([draw.choice((0, 4, 40, 1021 * 4, 3001)) for _ in range(6)], np.int64)
    shares = [[], [1.0], [0.5, 0.5], [0.3, 0.6, 0.1], [1 / 3] * 3, [1.0, 0.0]]
    draw.shuffle(shares)
    for pieces in (1, 3):
        made = sizes(blocks, shares, 3, pieces, 4)
        assert made.shape == (6, 3 * pieces)
        assert made.min() >= 0
        assert made.sum(axis=1).tolist() == blocks.tolist()
        assert (np.delete(made.ravel() % 4, np.flatnonzero(made.ravel() % 4)) == 0).all()


def test_the_same_again() -> None:
    exchange, topology = Collective("all-to-all", range(9), 9 << 16), fabric("mesh:3x3")
    one, two = (flow_all_to_all(exchange, topology) for _ in range(2))
    for left, right_ in zip(one.steps(), two.steps(), strict=True):
        for a, b in zip(left.blocks, right_.blocks, strict=True):
            assert all(map(np.array_equal, a.arrays(), b.arrays()))


def test_it_goes_around_a_slow_link() -> None:
    exchange = Collective("all-to-all", range(8), 8 << 20)
    whole, hurt = fabric("torus:2x4"), fabric("torus:2x4")
    rates = hurt.rate.copy()
    rates[0] /= 4
    hurt = Topology(**{**vars(hurt), "rate": rates, "axes": (), "paths": None})
    times = [simulate(flow_all_to_all(exchange, each), each).time_s for each in (whole, hurt)]
    straight = simulate(flow_all_to_all(exchange, whole), hurt).time_s
    assert times[0] < times[1] < straight


def test_what_it_does_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="does no all-gather"):
        flow_all_to_all(Collective("all-gather", range(3), 12), fabric("ring:3"))
    with pytest.raises(DeclinedError, match="moves"):
        flow_all_to_all(Collective("all-to-all", range(16), 1 << 30), fabric("ring:16"), chunks=4096)
    none = np.zeros(1)
    line = Topology(
        "line",
        2,
        np.full(2, RANK, np.uint8),
        np.array([0]),
        np.array([1]),
        none + 1e9,
        none,
        np.zeros(1, np.int64),
        ("l",),
    )
    with pytest.raises(InfeasibleError):
        flow_all_to_all(Collective("all-to-all", range(2), 8), line)
    monkeypatch.setattr(_choice, "CLOSE", -1.0)
    stopped = flow_all_to_all(Collective("all-to-all", range(9), 9 << 20), fabric("mesh:3x3"), budget=0.001)
    assert stopped.knobs["stopped"]


def test_a_capacity_that_two_ranks_share_is_passed_twice_by_a_message_of_all() -> None:
    plain = fabric("full:4")
    halves = [np.flatnonzero(plain.src // 2 == half) for half in (0, 1)]
    rate = float(plain.rate[0])
    shared = tuple(SharedCapacity(f"half {at}", rate, links) for at, links in enumerate(halves))
    topology = dataclasses.replace(plain, groups=shared, axes=())
    made = arcs(topology, range(4))
    assert made.symmetry is not None
    folded = classes(network(machine(topology), made, range(topology.n_ranks)), made, topology)
    assert set(folded.times.tolist()) == {1.0, 2.0}
    assert 0 <= near(topology, "pipelined") < 0.01
