"""The best program seen at work: which chunk a move carries, the trees of a root, the load of links over time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ringwright import Collective
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines.choose import simulate
from ringwright.engines.event_loop import served
from ringwright.engines.result import loads
from ringwright.fabrics import fabric
from ringwright.model.program import Op, Program, Step, explicit
from ringwright.model.registry import algorithm
from ringwright.model.topology import Topology
from ringwright.search import best_run, chunk_routes
from ringwright.search.chunk_routes import trees

pytestmark = pytest.mark.once

FOUND = [
    ("all-gather", "torus:2x3", "forest"),
    ("all-gather", "dgx-a100:2", "taccl"),
    ("reduce-scatter", "torus:2x3", "expand"),
    ("all-reduce", "dgx-1:1", "forest"),
    ("broadcast", "dgx-1:1", "forest"),
    ("all-reduce", "dgx-a100:2", "p2"),
    ("all-to-all", "torus:2x3", "flow-all-to-all"),
]


def made(op: str, topology: Topology, spelling: str, size: int = 1 << 20) -> Program:
    _, make, knobs = algorithm(spelling)
    return make(Collective(op, range(topology.n_ranks), size), topology, **knobs)


def test_a_ring_is_a_path_around() -> None:
    (tree,) = trees(ring(Collective("all-gather", range(4), 1 << 12), fabric("ring:4")), 2)
    assert (tree.root, tree.height, tree.size_bytes, tree.chunks) == (2, 3, 1 << 10, 1)
    assert list(zip(tree.src.tolist(), tree.dst.tolist(), tree.step.tolist(), strict=True)) == [
        (2, 3, 0),
        (3, 0, 1),
        (0, 1, 2),
    ]


@pytest.mark.parametrize(("op", "name", "spelling"), FOUND)
def test_trees_of_a_root_carry_its_block_to_all_or_from_all(op: str, name: str, spelling: str) -> None:
    topology = fabric(name)
    program = made(op, topology, spelling)
    every = trees(program)
    p = topology.n_ranks
    assert every
    if op == "all-to-all":
        assert sum(each.size_bytes for each in every) == pytest.approx((1 << 20) * (p - 1) / p, rel=0.01)
    elif op != "all-reduce":
        block = 1 << 20 if op == "broadcast" else program.collective.block_bytes[0]
        assert sum(each.size_bytes for each in every) == block
    for each in every:
        assert each.root == 0
        spread, collect = ~each.collects, each.collects
        if op in ("all-gather", "broadcast", "all-reduce"):
            assert sorted(each.dst[spread].tolist()) == list(range(1, p)), "each other rank gets it once"
        if op in ("reduce-scatter", "all-reduce"):
            assert sorted(each.src[collect].tolist()) == list(range(1, p)), "each other rank gives its part once"
        assert 1 <= each.height <= program.n_steps


def test_a_chunk_is_followed_through_other_slots() -> None:
    """What is sent by way of a scratch slot is still the chunk that it was."""
    program = ring(Collective("all-gather", range(3), 12), fabric("ring:3"))
    steps = [
        Step((explicit(Op.SEND, [0], [1], [0], [5]),)),
        Step((explicit(Op.COPY, [1], [1], [5], [4]),)),
        Step((explicit(Op.SEND, [1], [2], [4], [0]),)),
    ]
    layout = replace(program.layout, n_slots=6)
    moved = chunk_routes.carried(replace(program, layout=layout, make_steps=lambda: steps, n_steps=3))
    assert moved is not None
    assert moved.chunk.tolist() == [0, 0]
    assert list(zip(moved.src.tolist(), moved.dst.tolist(), strict=True)) == [(0, 1), (1, 2)]


def test_what_is_too_large_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_routes, "MOST_MOVES", 3)
    assert trees(ring(Collective("all-gather", range(4), 1 << 12), fabric("ring:4"))) == []


@pytest.mark.sampled(5, "*")
@pytest.mark.parametrize("alpha", ["pipelined", "busy"])
@pytest.mark.parametrize(("op", "name", "spelling"), FOUND)
def test_the_load_over_time_is_what_links_carried(op: str, name: str, spelling: str, alpha: str) -> None:
    topology = fabric(name)
    run = simulate(made(op, topology, spelling), topology, alpha=alpha, fold_symmetry=False)
    assert run.flat is not None
    assert run.machine is not None
    load = best_run.load_over_time(run.flat, run.machine, run.time_ps)
    assert load.shape == (run.machine.n, best_run.BINS)
    assert load.max() <= 1 + 1e-9
    busy = loads(run.flat, run.machine.n) * run.machine.ps_per_byte / run.time_ps
    assert load.mean(axis=1) == pytest.approx(busy, abs=1e-3)


def test_links_serve_one_after_the_other_and_first_hops_when_messages_start() -> None:
    topology = fabric("dgx-a100:2")
    run = simulate(made("all-gather", topology, "ring"), topology, fold_symmetry=False)
    assert run.flat is not None
    assert run.machine is not None
    begin, stop, leave = served(run.flat, run.machine)
    first = run.flat.hop_starts[:-1]
    assert np.array_equal(begin[first], run.start_ps)
    for resource in np.unique(run.flat.hops).tolist():
        mine = np.flatnonzero(run.flat.hops == resource)
        order = mine[np.argsort(begin[mine], kind="stable")]
        assert (begin[order][1:] >= stop[order][:-1]).all()
    assert (leave >= stop).all()
    assert np.array_equal(leave[run.flat.hop_starts[1:] - 1], run.end_ps)
