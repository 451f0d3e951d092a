"""Lower bounds: the known figures, the truth of every certificate, exactness against all subsets, and no program below."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pkgutil
import random
import sys
import time
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ringwright.algorithms import blocks
from ringwright.algorithms.blocks.ring import ring as ring_program
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.bounds.cuts import distances
from ringwright.bounds.lower_bounds import Bound, bound, bounds, forest_s
from ringwright.bounds.maxflow import Cut, tightest, weakest
from ringwright.engines.choose import simulate
from ringwright.engines.events import run
from ringwright.engines.flat import flatten
from ringwright.engines.machine import machine
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import InfeasibleError, RingwrightError, UsageError
from ringwright.model.collective import OPS, Collective
from ringwright.model.topology import SharedCapacity, Topology
from ringwright.model.wiring import Wires
from shared_data import needs_shared_data, real

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from published_bounds import BOUNDS_US

GIB = 1 << 30
FILES = [
    name for name in BOUNDS_US if name not in ("dgx-a100:1", "dgx-a100:2", "dgx2x1", "dgx2x2")
]  # the others are made


def graph(n: int, edges: list[tuple[int, int, float]], ranks: int | None = None, latency_s: float = 1e-6) -> Topology:
    wires = Wires()
    for src, dst, rate in edges:
        wires.one_way(src, dst, rate, latency_s, "link")
    kinds = np.full(n, 2, np.uint8)
    kinds[: ranks or n] = 0
    return wires.topology("graph", ranks or n, kinds)


def published(name: str) -> Topology:
    found = json.loads(real(f"bench-topologies/{name}.json").read_text())
    return graph(found["n"], [(src, dst, rate * 2**30) for src, dst, rate, _ in found["edges"]])


def gather(p: int, size: int = GIB) -> Collective:
    return Collective("all-gather", range(p), size)


def of_kind(found: list[Bound], kind: str) -> Bound:
    return next(each for each in found if each.kind == kind)


@needs_shared_data
@pytest.mark.parametrize(("name", "us"), [(name, BOUNDS_US[name]) for name in FILES])
def test_the_published_optimum_of_every_benchmark(name: str, us: float) -> None:
    top = published(name)
    start_s = time.process_time()
    found = of_kind(bounds(gather(top.n_ranks), top), "cut")
    assert time.process_time() - start_s < 0.3
    assert found.time_s * 1e6 == pytest.approx(us, abs=0.051)
    assert found.algbw == pytest.approx(GIB / found.time_s)
    assert forest_s(gather(top.n_ranks), top) == found.time_s


@pytest.mark.parametrize(
    ("spec", "us"),
    [
        ("dgx-a100", 3131.7),
        ("dgx-a100:2", 3097.3),
        ("switch:16,rate=125GB/s", 8053.1),
        ("ring:8", 8750.0),
        ("torus:8x8", 4921.9),
        ("hypercube:64", 3281.3),
        ("mesh:8x8", 9843.8),
        ("dgx-1,pcie_rate=0", 6263.5),
    ],
)
def test_the_published_optimum_of_our_own_fabrics(spec: str, us: float) -> None:
    top = fabric(spec)
    assert of_kind(bounds(gather(top.n_ranks), top), "cut").time_s * 1e6 == pytest.approx(us, abs=0.051)


def test_dgx2_pair_of_the_public_te_ccl_inputs() -> None:
    """16 GPUs on a switch at 125 GB/s, eight links of 12.5 GB/s from odd to even GPUs: 8321.5 us (1 GB: 7750)."""
    edges = [(gpu, 32 + gpu // 16, 125e9) for gpu in range(32)]
    edges += [(there, here, rate) for here, there, rate in edges]
    edges += [(odd, (odd + 15) % 32, 12.5e9) for odd in range(1, 32, 2)]
    top = graph(34, edges, ranks=32)
    assert bound(gather(32), top).time_s * 1e6 == pytest.approx(8321.5, abs=0.051)
    assert bound(gather(32, 10**9), top).time_s == pytest.approx(7750e-6)
    assert bound(gather(32), top).kind == "cut"


SETS = [op for op in OPS if op not in ("barrier", "send-recv")]
MACHINES = ["dgx-a100:2", "ndv2:2", "torus:4x4", "mesh:3x3", "dgx-1:2", "leaf-spine:16,oversubscription=4", "mi300:2"]


def capacity_of(found: Bound, top: Topology) -> float:
    inside = np.zeros(top.n_nodes, bool)
    inside[[top.find(name) for name in found.certificate]] = True
    if found.crossing == "into":
        inside = ~inside
    return float(top.rate[inside[top.src] & ~inside[top.dst]].sum())


@pytest.mark.sampled(24)
@pytest.mark.parametrize("op", SETS)
@pytest.mark.parametrize("spec", MACHINES)
def test_every_certificate_proves_its_bound(op: str, spec: str) -> None:
    top = fabric(spec)
    collective = Collective(op, range(top.n_ranks), 1 << 24, root=1)
    found = bounds(collective, top)
    assert [each.time_s for each in found] == sorted((each.time_s for each in found), reverse=True)
    assert found[0] == bound(collective, top)
    for each in found:
        if each.crossing and each.certificate:
            assert capacity_of(each, top) == pytest.approx(each.capacity)
            assert each.time_s == pytest.approx(each.demand_bytes / each.capacity)
    cuts = [each for each in found if each.kind == "cut"]
    assert len(cuts) == (op != "all-to-all")
    tried = [each.time_s for each in found if each.kind not in ("cut", "parts", "volume", "distance")]
    assert not cuts or cuts[0].time_s >= max(tried) * (1 - 1e-9)


def random_graph(seed: int) -> tuple[int, dict[tuple[int, int], int], dict[int, int]]:
    draw = random.Random(seed)
    n = draw.randrange(2, 8)
    capacities = {}
    for pair in itertools.permutations(range(n), 2):
        if draw.random() < draw.choice((0.3, 0.6, 1.0)) or (pair[1] - pair[0]) % n == 1:
            capacities[pair] = draw.choice((1, 2, 3, 7, 25, 1000))
    ranks = draw.sample(range(n), draw.randrange(2, n + 1))
    return n, capacities, {rank: draw.choice((0, 1, 1, 1, 5, 12)) for rank in ranks} | {ranks[0]: 3}


def subsets(n: int) -> list[frozenset[int]]:
    return [frozenset(node for node in range(n) if mask >> node & 1) for mask in range(1, 1 << n)]


def leaving(capacities: dict[tuple[int, int], int], inside: frozenset[int]) -> int:
    return sum(rate for (src, dst), rate in capacities.items() if src in inside and dst not in inside)


@pytest.mark.parametrize("seed", range(150))
def test_the_cut_is_the_tightest_of_all_subsets(seed: int) -> None:
    n, capacities, weights = random_graph(seed)
    sinks = sorted(weights)
    best = max(
        Fraction(sum(weights.get(node, 0) for node in inside), leaving(capacities, inside))
        for inside in subsets(n)
        if not inside.issuperset(weights) and leaving(capacities, inside)
    )
    start = Cut(Fraction(0), frozenset())
    found = tightest(n, capacities, weights, sinks, start)
    assert found.value == best
    if best:
        held = sum(weights.get(node, 0) for node in found.nodes)
        assert Fraction(held, leaving(capacities, found.nodes)) == best
    pairs = [(sinks[0], sink) for sink in sinks[1:]]
    least = min(
        leaving(capacities, inside) for inside in subsets(n) if sinks[0] in inside and not inside.issuperset(sinks)
    )
    lowest = weakest(n, capacities, pairs, Cut(Fraction(10**9), frozenset()))
    assert lowest.value == least == leaving(capacities, lowest.nodes)


def test_closed_forms_on_one_switch() -> None:
    top, p, n, rate = fabric("switch:8,rate=100GB/s,latency_s=1us"), 8, 8_000_000, 100e9
    part = (p - 1) / p * n / rate
    expected = {
        "all-gather": part,
        "reduce-scatter": part,
        "all-reduce": 2 * part,
        "broadcast": n / rate,
        "reduce": n / rate,
        "gather": part,
        "scatter": part,
        "all-to-all": part,
    }
    for op, time_s in expected.items():
        assert bound(Collective(op, range(p), n), top).time_s == pytest.approx(time_s), op
    assert bound(Collective("send-recv", range(p), n), top).time_s == pytest.approx(n / rate)


def test_adding_in_the_network_halves_the_bound() -> None:
    top, n = fabric("switch:8,rate=100GB/s,sharp=yes"), 8_000_000
    assert bound(Collective("all-reduce", range(8), n), top, in_network=True).time_s == pytest.approx(n / 100e9)
    assert bound(Collective("all-reduce", range(8), n), top).time_s == pytest.approx(1.75 * n / 100e9)
    # NVSwitches add within hosts only: between hosts every byte still crosses twice, so to say.
    box = fabric("dgx-h100:2")
    inside, outside = (bound(Collective("all-reduce", range(16), GIB), box, in_network=each) for each in (True, False))
    assert inside.time_s <= outside.time_s
    assert inside.time_s >= GIB / 400e9


def test_latency_is_the_longest_shortest_way() -> None:
    for spec, us in (("ring:8", 2.0), ("torus:4x4", 2.0), ("switch:8", 1.0), ("dgx-h100:2", 1.3 + 2 * 0.2)):
        top = fabric(spec)
        found = of_kind(bounds(Collective("all-reduce", range(top.n_ranks), 0), top), "distance")
        assert found.time_s * 1e6 == pytest.approx(us), spec
    chain = graph(4, [(0, 1, 1e9), (1, 2, 1e9), (2, 3, 1e9), (3, 0, 1e9)])
    assert bound(Collective("broadcast", range(4), 0, root=1), chain).time_s == pytest.approx(3e-6)
    assert bound(Collective("broadcast", range(4), 0, root=1), chain).certificate == ("rank1", "rank0")
    assert bound(Collective("reduce", range(4), 0, root=1), chain).certificate == ("rank2", "rank1")
    assert bound(Collective("barrier", range(4), 0), chain).time_s == pytest.approx(3e-6)


def test_busy_ports_make_rounds() -> None:
    top = fabric("switch:9")
    found = of_kind(bounds(Collective("broadcast", range(9), 0), top, alpha="busy"), "rounds")
    assert found.time_s == pytest.approx(4 * 0.5e-6)
    assert found.ground == "4 rounds with 1 ports"
    assert (
        of_kind(bounds(Collective("broadcast", range(9), 0), fabric("full:9"), alpha="busy"), "rounds").time_s == 0.5e-6
    )
    with pytest.raises(UsageError, match="no latency model"):
        bound(Collective("broadcast", range(9), 0), top, alpha="lazy")


def test_one_rank_and_no_bytes() -> None:
    assert bound(Collective("all-reduce", [3], GIB), fabric("ring:8")).time_s == 0
    assert math.isinf(bound(Collective("all-reduce", [3], GIB), fabric("ring:8")).algbw)
    assert bound(gather(8, 0), fabric("ring:8")).kind == "distance"
    assert forest_s(gather(8, 0), fabric("ring:8")) == 0


def test_groups_of_ranks_and_uneven_blocks() -> None:
    top = fabric("ring:8,rate=1GB/s")
    pair = Collective("all-gather", [2, 3], 2_000_000)
    # The two are joined by a link of 1 GB/s, and by the other six ranks, which may relay as much again.
    assert bound(pair, top).time_s == pytest.approx(0.5e-3)
    uneven = Collective("all-gather", range(4), 10_000_000, counts=(9_000_000, 0, 0, 1_000_000))
    assert bound(uneven, fabric("switch:4,rate=1GB/s")).time_s == pytest.approx(10e-3)
    skewed = ((0, 9_000_000, 0), (0, 0, 0), (0, 0, 0))
    exchange = Collective("all-to-all", range(3), 9_000_000, counts=skewed)
    assert bound(exchange, fabric("switch:3,rate=1GB/s")).time_s == pytest.approx(9e-3)
    with pytest.raises(UsageError, match="has no rank 9"):
        bound(Collective("all-gather", [1, 9], 100), top)


def test_loss_adders_and_shared_capacities_count() -> None:
    top = fabric("switch:4,rate=100GB/s")
    lossy = dataclasses.replace(top, loss=np.full(top.n_links, 0.5))
    assert bound(gather(4), lossy).time_s == pytest.approx(2 * bound(gather(4), top).time_s)
    slow = dataclasses.replace(top, reduce_rate=1e9)
    assert bound(Collective("all-reduce", range(4), GIB), slow).kind == "adding"
    assert bound(Collective("all-reduce", range(4), GIB), slow).time_s == pytest.approx(0.75 * GIB / 1e9)
    blocked = fabric("switch:4,rate=100GB/s,backplane=10GB/s")
    assert bound(gather(4), blocked, exact=False).time_s > bound(gather(4), top, exact=False).time_s
    ring = fabric("ring:4,rate=100GB/s")
    out = np.flatnonzero(ring.src == 0)
    narrow = dataclasses.replace(ring, groups=(SharedCapacity("slot", 50e9, out),))
    assert of_kind(bounds(gather(4), narrow, exact=False), "rank").capacity == pytest.approx(50e9)


def test_faults_count_at_their_best() -> None:
    top, whole = fabric("ring:8"), bound(gather(8), fabric("ring:8")).time_s
    assert bound(gather(8), apply(top, ["link rank0 dead at 1s"])).time_s == whole
    assert bound(gather(8), apply(top, ["link rank0 dead from 0s to 1s"])).time_s == whole
    assert bound(gather(8), apply(top, ["link rank0>rank1 dead"])).time_s == pytest.approx(2 * whole)
    assert bound(gather(8), apply(top, ["link * rate 50% from 0s"])).time_s == pytest.approx(2 * whole)
    assert bound(gather(8), apply(top, [f"link rank{rank} rate 200% at 1s" for rank in range(8)])).time_s < whole
    with pytest.raises(InfeasibleError):
        bound(gather(8), apply(top, ["rank 3 dead"]))
    far = bound(gather(8, 0), apply(top, ["link * latency +1us at 0s"]))
    assert far.time_s == pytest.approx(6e-6)
    costly = dataclasses.replace(top, message_s={"link": 5e-6})
    assert bound(gather(8, 0), costly).time_s == pytest.approx(7e-6)


def test_a_broken_machine_is_infeasible() -> None:
    apart = graph(4, [(0, 1, 1e9), (1, 0, 1e9), (2, 3, 1e9), (3, 2, 1e9)])
    for op in SETS:
        with pytest.raises(InfeasibleError, match="disconnected"):
            bound(Collective(op, range(4), 1000), apart)
    dead = graph(2, [(0, 1, 1e9), (1, 0, 0.0)])
    with pytest.raises(InfeasibleError, match="rank1 to rank0"):
        bound(gather(2, 1000), dead)


def test_forests_add_up() -> None:
    top = fabric("torus:4x4")
    both = forest_s(Collective("all-reduce", range(16), GIB), top)
    assert both == pytest.approx(2 * 4687.5e-6)
    assert both >= bound(Collective("all-reduce", range(16), GIB), top).time_s * (1 - 1e-9)
    with pytest.raises(UsageError, match="no forests"):
        forest_s(Collective("broadcast", range(16), GIB), top)


def test_distances_by_either_way_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    top = fabric("dgx-1:3")
    together = distances(top, np.arange(24), top.latency_s)
    monkeypatch.setattr("ringwright.bounds.cuts.FEW_LINKS", 0)
    assert np.allclose(together, distances(top, np.arange(24), top.latency_s))


@pytest.mark.sampled(14)
@pytest.mark.parametrize(
    "spec", ["ring:8", "torus:4x4", "switch:8", "dgx-1", "dgx-h100:2", "leaf-spine:16,oversubscription=4"]
)
@pytest.mark.parametrize("op", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize("alpha", ["pipelined", "busy"])
def test_no_program_is_faster_than_its_bound(spec: str, op: str, alpha: str) -> None:
    top = fabric(spec)
    for size in (0, 4096, 1 << 22):
        collective = Collective(op, range(top.n_ranks), size)
        least = bound(collective, top, alpha=alpha).time_s
        for algorithm in (ring_program, blueconnect):
            mach = machine(top, alpha)
            took_s = run(flatten(algorithm(collective, top), mach), mach, native=False).time_ps * 1e-12
            assert took_s >= least * (1 - 1e-9)


@pytest.mark.parametrize("spec", ["dgx-h100:2048", "leaf-spine:16384", "torus:32x32x16"])
def test_large_machines_are_bound_by_structure(spec: str) -> None:
    top = fabric(spec)
    start_s = time.process_time()
    found = bounds(Collective("all-reduce", range(top.n_ranks), GIB), top)
    assert time.process_time() - start_s < 5
    assert found[0].kind == "parts"
    assert not [each for each in found if each.kind == "cut"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spec", ["switch:7", "dgx-1", "torus:3x3", "leaf-spine:8,oversubscription=2"])
@pytest.mark.parametrize("alpha", ["pipelined", "busy"])
def test_no_building_block_is_faster_than_its_bound(spec: str, alpha: str) -> None:
    top, ran = fabric(spec), 0
    for module in pkgutil.iter_modules(blocks.__path__):
        algorithm = getattr(import_module(f"{blocks.__name__}.{module.name}"), module.name, None)
        ops = getattr(import_module(f"{blocks.__name__}.{module.name}"), "OPS", ())
        for op in ops if algorithm else ():
            collective = Collective(op, range(top.n_ranks), 65536)
            try:
                program = algorithm(collective, top)
            except RingwrightError:
                continue  # it says why it does not offer this here
            took_s = simulate(program, top, "events", alpha=alpha, fold_symmetry=False, native=False).time_ps * 1e-12
            least = bound(collective, top, alpha=alpha, in_network=module.name.startswith("nvls"))
            assert took_s >= least.time_s * (1 - 1e-9), (module.name, op, least)
            ran += 1
    assert ran > 50
