"""The figures of the six published systems, on small machines with the event engine; what is not reached is said so."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from ringwright.algorithms import orders
from ringwright.algorithms.blocks.direct import direct
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.published.accl import accl, path_shares
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.algorithms.published.imagenet_4_minutes import imagenet_4_minutes, predicted_s
from ringwright.algorithms.published.plink import plink
from ringwright.algorithms.published.ring_allreduce import ring_allreduce
from ringwright.algorithms.published.torus_2d_allreduce import torus_2d_allreduce
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.rewrites import operations
from ringwright.model.stages import LinkCosts
from ringwright.model.topology import Topology
from ringwright.schedulers.fifo.gradientflow import gradientflow
from ringwright.workloads.chain import ChainLayer, chain
from small_fabrics import GBIT, bigraph, boxes, racks, star, time_s, tree
from small_models import alexnet, resnet50

pytestmark = pytest.mark.once

MB = 10**6


def all_reduce(p: int, size_bytes: int) -> Collective:
    return Collective("all-reduce", range(p), size_bytes)


# ------------------------------------------------------------------------------------------------------ ring-allreduce
@pytest.mark.parametrize("p", [2, 3, 5, 8, 16, 33, 64])
def test_ring_takes_its_closed_form_on_a_star(p: int) -> None:
    collective = all_reduce(p, 4 * 1000 * p)
    expected_s = 2 * (p - 1) * (2e-6 + 4000 / 1e10)
    assert time_s(ring_allreduce(collective, star(p)), star(p)) == pytest.approx(expected_s, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_ring_takes_its_closed_form_on_trees_of_two_levels(seed: int) -> None:
    """Within 0.1 % where bytes dominate: a step is one message on each link, whatever the tree."""
    generator = np.random.default_rng(seed)
    p = int(generator.integers(4, 64))
    leaves = int(generator.integers(2, 6))
    topology = tree(p, [-1, *[0] * leaves], (1 + generator.integers(0, leaves, p)).tolist(), latency_s=1e-9)
    collective = all_reduce(p, 40_000 * p)
    expected_s = 2 * (p - 1) * 40_000 / 1e10
    assert time_s(ring_allreduce(collective, topology), topology) == pytest.approx(expected_s, rel=1.5e-3)


def test_a_random_order_is_slower_on_a_tree_of_two_levels() -> None:
    topology = racks(4, 8, oversubscription=4.0)
    collective = all_reduce(32, 32 * MB)
    ordered, mixed = (time_s(ring_allreduce(collective, topology, order=o), topology) for o in ("dfs", "random-1"))
    assert mixed > 2 * ordered


def test_adding_overlaps_sending_in_loops() -> None:
    import dataclasses

    topology = dataclasses.replace(star(8), reduce_rate=2e10)
    collective = all_reduce(8, 64 * MB)
    whole, looped = (time_s(ring_allreduce(collective, topology, loops=n), topology) for n in (1, 4))
    assert looped < 0.9 * whole


# -------------------------------------------------------------------------------------------------- imagenet-4-minutes
PRICE = {"level0": (5e-6, 1 / 12e9), "level1": (7.5e-6, 1 / 12.5e9), "": (7.5e-6, 1 / 12.5e9)}


def step_s(tensors: Sequence[int], threshold: int, **knobs: float) -> float:
    """Return the seconds of all all-reduces of a step on 128 nodes of 8 GPUs, one after the other, fp16."""
    links = [ChainLayer(1.0, 1.0, 4 * elements, elements) for elements in tensors]
    job = gradientflow(chain("fused", links[::-1], 1024), LinkCosts(1.0), theta_mb=threshold / (1 << 20))
    pools = [each.size_bytes for each in operations(job)]
    return sum(predicted_s(imagenet_4_minutes(all_reduce(1024, size), group=8, **knobs), PRICE) for size in pools)


@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize(
    ("tensors", "unfused", "alike"), [(resnet50(), 55.4, 3.95), (alexnet(), 4.08, 1.48)], ids=["resnet50", "alexnet"]
)
def test_fusion_and_hierarchy_against_rings(tensors: list[int], unfused: float, alike: float) -> None:
    """The paper: up to 11x (ResNet-50) and 3x (AlexNet) over its baseline; the bands wanted were 5x-15x and 2x-5x.

    With 4 MiB pools, 5 us a hop inside a node and 7.5 us between nodes, and nothing overlapped: AlexNet gains 4.1x over unfused
    rings, inside its band. ResNet-50 gains 55x over unfused rings, far above its band (161 times 2,046 steps are pure
    latency), and 4.0x over rings that are fused alike, just below it; what the paper compares with lies between.
    """
    threshold = 4 << 20
    mine = step_s(tensors, threshold, eta=math.inf)
    assert step_s(tensors, 0, eta=0) / mine == pytest.approx(unfused, rel=0.02)
    assert step_s(tensors, threshold, eta=0) / mine == pytest.approx(alike, rel=0.02)


def test_the_fused_pipeline_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """ResNet-50 on 64 GPUs of 8 nodes: pools by the cheaper algorithm against each tensor by a ring, on the wire."""
    words = ["simulate", "--model", "resnet50", "--gpus", "64", "--fabric", "dgx-a100:8", "--json"]
    wire = {}
    for policy, algorithm in (("none", "ring"), ("gradientflow:theta_mb=4", "imagenet-4-minutes")):
        assert main([*words, "--policy", policy, "--algorithm", algorithm]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        wire[policy] = row["by_role"]["dp"]
    fused = wire["gradientflow:theta_mb=4"]
    assert wire["none"]["operations"] > 100 > fused["operations"]
    assert fused["bytes"] == pytest.approx(wire["none"]["bytes"] / 2)
    assert wire["none"]["busy_us"] > 3 * fused["busy_us"]


# -------------------------------------------------------------------------------------------------- torus-2d-allreduce
def abci(nodes: int) -> Topology:
    """Nodes of 4 V100 on NVLink (50 GB/s a GPU) with two EDR ports (100 Gb/s each)."""
    return boxes(nodes, 4, nvlink=50e9, nic=100 * GBIT, nics=2, alpha=1e-6, network=2e-6)


@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize("nodes", [68, pytest.param(272, marks=pytest.mark.slow)])
def test_the_torus_is_fastest_of_three(nodes: int) -> None:
    """51 MB; rows are nodes. On 1,088 GPUs: torus 5.6 ms, one ring 8.2 ms, hierarchy 12.8 ms; efficiency 89.1 % (paper: 91.6 %).

    The torus wins because its columns use both ports of a node, of which one ring uses one. With 32 images a GPU at about 700
    images/s a step computes for 46 ms. Rows longer than a node (34 x 32) are slower than the ring on this fabric: 8.4 ms.
    """
    topology = abci(nodes)
    collective = all_reduce(4 * nodes, 51 * MB)
    torus = time_s(torus_2d_allreduce(collective, topology, x=4), topology)
    hierarchy = time_s(imagenet_4_minutes(collective, topology, eta=math.inf), topology)
    flat = time_s(ring_allreduce(collective, topology), topology)
    assert torus < min(hierarchy, flat)
    assert 0.046 / (0.046 + torus) == pytest.approx(0.9162, abs=0.03)


def test_the_best_grid_is_square_where_latency_dominates() -> None:
    topology = star(64)
    times = {x: time_s(torus_2d_allreduce(all_reduce(64, 64), x=x), topology) for x in (1, 2, 4, 8, 16, 32, 64)}
    assert min(times, key=times.__getitem__) == 8


# --------------------------------------------------------------------------------------------------------- blueconnect
def test_blueconnect_on_48_nodes_of_4() -> None:
    """100 MB, NVLink 40 GB/s, one 100 Gb/s port a node. Wanted: 80 % less time than a ring in random order, 30 % less than leaders.

    Measured 68 % (70 % in pieces) and, against leaders, 33 % without and 13 % with a pipelined chain in the node (18 % in
    pieces). 80 % is NOT reached and cannot be in a model without congestion: a random ring puts at most 4 messages on a port,
    4 x 15.9 ms, and BlueConnect needs the port for 15.7 ms, so 75 % is the most.
    """
    topology = boxes(48, 4, nvlink=40e9, nic=100 * GBIT, nics=1)
    collective = all_reduce(192, 100 * MB)
    plain = time_s(blueconnect(collective, topology, factors=(4, 48)), topology)
    pieces = time_s(blueconnect(collective, topology, factors=(4, 48), inner=(direct, ring), pieces=8), topology)
    flat = time_s(ring_allreduce(collective, topology, order="random-1"), topology)
    leaders = [time_s(imagenet_4_minutes(collective, topology, eta=math.inf, segments=n), topology) for n in (1, 4)]
    assert 1 - plain / flat > 0.67
    assert 1 - pieces / flat > 0.69
    assert 1 - plain / leaders[0] > 0.30
    assert 1 - pieces / leaders[1] > 0.18


@pytest.mark.parametrize("size_bytes", [1 << 20, 4 << 20, 48 << 20])
def test_the_search_over_factors_finds_the_machine(size_bytes: int) -> None:
    """With a port for each GPU. With one port a node, a single ring in host order fills it too, and is as good for large sizes."""
    topology = boxes(12, 4, nvlink=40e9, nic=100 * GBIT)
    collective = all_reduce(48, size_bytes)
    factors = [(48,), (2, 24), (4, 12), (8, 6), (3, 16), (6, 8), (16, 3), (24, 2), (12, 4)]
    times = {each: time_s(blueconnect(collective, topology, factors=each), topology) for each in factors}
    assert min(times, key=times.__getitem__) == (4, 12)


@pytest.mark.parametrize("size_bytes", [4 << 10, 1 << 20, 48 << 20])
def test_factors_best_is_found_by_a_user(size_bytes: int) -> None:
    """The order that the cost model makes least is, simulated, within 2 % of the best of all orders, and says its factors."""
    topology = boxes(12, 4, nvlink=40e9, nic=100 * GBIT)
    collective = all_reduce(48, size_bytes)
    every = list(orders.factorisations(48))
    assert len(every) == orders.count(48) == 48
    times = [time_s(blueconnect(collective, topology, factors=each), topology) for each in every]
    made = blueconnect(collective, topology, factors="best")
    assert time_s(made, topology) <= min(times) * 1.02
    assert made.knobs["algorithm"] == "x".join(map(str, made.knobs["factors"]))
    assert time_s(made, topology) < time_s(blueconnect(collective, topology), topology)
    if size_bytes == 48 << 20:  # no factor crosses a box before its level does
        assert math.prod(made.knobs["factors"][: [4, 2].index(made.knobs["factors"][0]) + 1]) == 4
    with pytest.raises(UsageError, match="needs a machine to price"):
        blueconnect(collective, factors="best")


def test_factors_best_counts_the_flows_that_share_a_port() -> None:
    """Four GPUs behind one port: a level that leaves the box loads the port four times as much as one flow would."""
    topology = boxes(12, 4, nvlink=40e9, nic=100 * GBIT, nics=1)
    collective = all_reduce(48, 48 << 20)
    across = orders._level(collective, topology, 4, 12)
    assert across.beta_s == pytest.approx(4 / (100 * GBIT))
    assert orders._level(collective, topology, 1, 4).beta_s == pytest.approx(1 / 40e9)
    assert across.alpha_s > 0


# --------------------------------------------------------------------------------------------------------------- plink
def test_plink_against_a_ring_in_random_order() -> None:
    """64 hosts in 8 hidden racks, 4:1: wanted 1.8x to 4x, measured 2.9x; a step of 0.25 s and 553 MB (VGG-16) gains 2.6x."""
    order = np.random.default_rng(3).permutation(64)
    topology = racks(8, 8, order=order)
    collective = all_reduce(64, 100 << 20)
    flat = time_s(ring_allreduce(collective, topology, order="rank"), topology)
    mine = time_s(plink(collective, topology, noise=0.2, seed=1), topology)
    assert 1.8 < flat / mine < 4
    compute_s, model = 0.25, 553 * MB / (100 << 20)
    assert (compute_s + model * flat) / (compute_s + model * mine) == pytest.approx(2.6, abs=0.15)


def test_plink_adapts_where_a_user_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A host's port at a fifth of its rate: the plan of before takes 1.5 times as long as the one that was watched."""
    words = [
        "simulate",
        "all-reduce",
        "--fabric",
        "leaf-spine:16,oversubscription=4",
        "-b",
        "16M",
        "-e",
        "16M",
        "--json",
    ]
    policies = "plink,plink:adapt=stale,plink:adapt=watch"
    assert main([*words, "--algorithm", policies]) == 0
    plain = [row["time_us"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert plain[0] == plain[1] == plain[2]
    assert main([*words, "--algorithm", policies, "--fault", "link rank3 rate 20%"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[1]["time_us"] > 1.5 * rows[2]["time_us"]
    top = apply(fabric("leaf-spine:16,oversubscription=4"), ["link rank3 rate 20%"])
    assert plink(all_reduce(16, 1 << 24), top, adapt="watch").knobs["algorithm"].startswith("adapted 5 rounds after")
    slow = plink(all_reduce(16, 1 << 24), top, adapt="watch", window=9).knobs["algorithm"]
    assert slow.startswith("adapted 9 rounds after")
    deaf = plink(all_reduce(16, 1 << 24), top, adapt="watch", threshold=100.0)
    assert deaf.knobs["algorithm"] == "watched, nothing to adapt"


# ---------------------------------------------------------------------------------------------------------------- accl
def test_accl_fills_all_ports() -> None:
    """16 nodes of 8 GPUs, NVLink 150 GB/s, 8 x 100 Gb/s: wanted 95 % of the ports' bound, 7x a ring on one port; 95.1 %, 8.1x."""
    topology = boxes(16, 8, nvlink=150e9, nic=100 * GBIT)
    collective = all_reduce(128, 256 << 20)
    bound_s = 2 * 15 / 16 * collective.size_bytes / 8 / (100 * GBIT)
    mine = time_s(accl(collective, topology), topology)
    assert bound_s / mine > 0.95
    single = boxes(16, 8, nvlink=150e9, nic=100 * GBIT, nics=1)
    assert time_s(ring_allreduce(collective, single), single) / mine > 7


def test_a_random_mapping_costs_half_as_much_again() -> None:
    topology = bigraph(8, 8)
    collective = all_reduce(128, 64 << 20)
    mapped, mixed = (time_s(accl(collective, topology, mapping=m), topology) for m in ("hdrm", "random-1"))
    assert mixed / mapped > 1.5


@pytest.mark.parametrize("size_bytes", [1 << 16, 10**6 + 4, 1 << 30])
def test_paths_end_together(size_bytes: int) -> None:
    rates = (150e9, 12.5e9, 3e9)
    shares = path_shares(size_bytes, rates, 4)
    assert shares.sum() == size_bytes
    slowest_s = max(share / rate for share, rate in zip(shares.tolist(), rates, strict=True))
    assert slowest_s == pytest.approx(size_bytes / sum(rates), rel=0.01)
