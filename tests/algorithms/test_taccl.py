"""TACCL: figures on the published profiles and sketches, times to the picosecond, what cannot be kept and why."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from ringwright.algorithms.synthesis.taccl import taccl
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.formats.exports.msccl_xml import msccl_xml
from ringwright.formats.sources.programs.taccl_sketch import Sketch, read_sketch
from ringwright.formats.sources.topology.taccl import read_taccl_model
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from shared_data import needs_shared_data, real

MB = 1 << 20
KB = 1 << 10
SK1 = Sketch(2, connections={0: (1,)}, symmetry=((8, 16),), name="sk1")
PROFILE = """{"name": "NDv2_1MB", "gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.3, "node_betas_list": [23, 46],
 "node_invbws_list": [23, 46], "remote_invbw": 107, "remote_alpha": 2.6, "remote_beta": 105}"""


def ndv2(sketch: Sketch = SK1) -> Topology:
    return read_taccl_model(PROFILE, "ndv2", sketch)


def published(profile: str, sketch: str) -> tuple[Topology, Sketch]:
    drawn = read_sketch(real(f"real/taccl-inputs/{sketch}.json"))
    return read_taccl_model(real(f"real/taccl-inputs/{profile}.json").read_text(), profile, drawn), drawn


def blocking_us(program: Program, machine: Topology) -> float:
    assert validity.check(program) == []
    return simulate(program, machine, engine="events", alpha="busy").time_s * 1e6


# ------------------------------------------------------------------------------------------------- the card's figures
def test_all_gather_on_two_ndv2_reaches_the_link_between_them() -> None:
    """8 MB at 105 us and one alpha are 842.6 us; the public tool with an open solver takes 970.6."""
    machine = ndv2()
    collective = Collective("all-gather", range(16), 16 * MB)
    program = taccl(collective, machine, sketch=SK1, chunks=16, effort=0.5, link_model="blocking")
    assert blocking_us(program, machine) <= 1.02 * 842.6


@pytest.mark.once
def test_whole_chunks_need_the_last_one_to_spread() -> None:
    """Whole chunks: after the last one has come it still takes 69.6 us to the far GPUs, so that 912.2 us are a bound."""
    machine = ndv2()
    collective = Collective("all-gather", range(16), 16 * MB)
    program = taccl(collective, machine, sketch=SK1, effort=1.0, link_model="blocking")
    bound = 840 + 2.6 + 46.3 + 23.3
    assert bound <= blocking_us(program, machine) <= 1.01 * bound
    assert program.knobs["chunks"] == 1
    least = program.knobs["order_bound_us"]
    assert isinstance(least, float)
    assert bound <= least <= program.knobs["time_us"]  # type: ignore[operator]


def test_all_to_all_on_two_ndv2_is_under_the_public_tool() -> None:
    """64 MB over one link are 6,722.6 us with one alpha; the public tool takes 6,881.2."""
    machine = ndv2()
    program = taccl(
        Collective("all-to-all", range(16), 16 * MB), machine, sketch=SK1, effort=0.9, link_model="blocking"
    )
    assert 6722.6 <= blocking_us(program, machine) <= 1.002 * 6722.6


@pytest.mark.sampled(3, "profile", "sketch", "op", "size", "most_us")
@needs_shared_data
@pytest.mark.once
@pytest.mark.parametrize(
    ("profile", "sketch", "op", "size", "most_us"),
    [
        ("topo-ndv2-1MB", "sk1-ndv2-n4", "all-gather", 32 * MB, 2640),  # 24 MB over a link: 2,522.6; public: none
        ("topo-ndv2-1KB", "sk2-ndv2-n2", "all-gather", 16 * KB, 9.17),  # public tool: none in 340 s
        ("topo-dgx2-1MB", "sk1-dgx2-n2", "all-to-all", 32 * MB, 3380),  # public tool: infeasible
        ("topo-ndv2-1MB", "sk-ndv2-n1-cUp6", "all-gather", 48 * MB, 420),
        ("topo-ndv2-1MB", "sk3-ndv2-n2", "all-gather", 16 * MB, 980),
        ("topo-dgx2-1MB", "sk1-dgx2-n1", "reduce-scatter", 16 * MB, 130),
    ],
)
def test_published_inputs_are_taken_unchanged(profile: str, sketch: str, op: str, size: int, most_us: float) -> None:
    machine, drawn = published(profile, sketch)
    group = range(machine.n_ranks)
    program = taccl(Collective(op, group, size), machine, sketch=drawn, effort=0.5, link_model="blocking")
    assert blocking_us(program, machine) <= most_us
    assert program.knobs["sketch"] == sketch


@needs_shared_data
def test_the_public_tools_own_paths_are_infeasible_and_say_why() -> None:
    """Sketch sk1 of DGX-2, all-to-all: the shortest ways by links miss the sender that the sketch asks for."""
    machine, drawn = published("topo-dgx2-1MB", "sk1-dgx2-n2")
    with pytest.raises(InfeasibleError, match=r"gpus_to_sender_rev_map lets it leave by rank 1 alone.*links go over"):
        taccl(Collective("all-to-all", range(32), 32 * MB), machine, sketch=drawn, paths="hops")


# -------------------------------------------------------------------------------------------------- model and engine
@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "reduce"])
@pytest.mark.parametrize("link_model", ["blocking", "pipelined"])
def test_the_engine_takes_as_long_as_the_timetable(op: str, link_model: Any) -> None:
    alpha = {"blocking": "busy", "pipelined": "pipelined"}[link_model]
    for machine, sketch in ((ndv2(), SK1), (fabric("dgx-1:1"), None)):
        collective = Collective(op, range(machine.n_ranks), 3 * MB)
        program = taccl(collective, machine, sketch=sketch, effort=0.1, chunks=2, link_model=link_model)
        run = simulate(program, machine, engine="events", alpha=alpha)
        assert run.time_s * 1e6 == pytest.approx(program.knobs["time_us"], abs=1e-5)


def test_without_the_declared_order_a_link_serves_what_is_ready_first() -> None:
    machine = ndv2()
    program = taccl(
        Collective("all-gather", range(16), 16 * MB), machine, sketch=SK1, effort=0.9, link_model="blocking"
    )
    assert program.schedule is not None
    loose = dataclasses.replace(program, schedule=None)
    assert blocking_us(loose, machine) > blocking_us(program, machine)


def test_random_machines_and_sizes() -> None:
    draw = random.Random(7)
    for _ in range(8):
        name = draw.choice(["ring:5", "torus:3x2", "mesh:2x3", "switch:6", "ndv2:2", "dgx-a100:2", "full:4"])
        machine = fabric(name)
        p = draw.randint(2, machine.n_ranks)
        group = sorted(draw.sample(range(machine.n_ranks), p))
        op = draw.choice(["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast"])
        size = draw.choice([0, 4, 1021 * 4, 65536, 10 * MB])
        program = taccl(Collective(op, group, size), machine, effort=0.05, seed=draw.randint(0, 9))
        assert validity.check(program) == [], (name, group, op, size)
        simulate(program, machine, engine="events")


def test_the_same_question_gets_the_same_program() -> None:
    machine = ndv2()
    one, two = (
        taccl(Collective("all-reduce", range(16), 16 * MB), machine, sketch=SK1, effort=0.1, seed=3) for _ in "ab"
    )
    assert one.knobs == two.knobs
    for left, right in zip(one.steps(), two.steps(), strict=True):
        for a, b in zip(left.blocks, right.blocks, strict=True):
            assert all(map(np.array_equal, a.arrays(), b.arrays()))


def test_a_smaller_sketch_never_makes_more_connections_than_it_names() -> None:
    program = taccl(Collective("all-gather", range(16), MB), ndv2(), sketch=SK1, effort=0.2)
    crossing = {
        (s, d)
        for step in program.steps()
        for block in step.blocks
        for s, d in zip(*(each.tolist() for each in block.arrays()[:2]), strict=True)
        if s // 8 != d // 8
    }
    assert crossing == {(0, 9), (8, 1)}


def test_the_order_goes_into_thread_blocks() -> None:
    program = taccl(Collective("all-gather", range(16), 16 * MB), ndv2(), sketch=SK1, effort=0.2)
    assert program.schedule is not None
    text = msccl_xml(program)
    assert text.startswith(b"<algo")
    assert b'ngpus="16"' in text


# ----------------------------------------------------------------------------------------------------- errors, budgets
def test_a_budget_only_stops() -> None:
    collective = Collective("all-gather", range(16), 16 * MB)
    program = taccl(collective, ndv2(), sketch=SK1, budget=0.001)
    assert program.knobs["stopped"] is True
    assert validity.check(program) == []


@pytest.mark.parametrize(
    ("sketch", "words"),
    [
        (dataclasses.replace(SK1, hosts=3), "3 equal boxes"),
        (dataclasses.replace(SK1, connections={9: (1,)}), "names GPU 9"),
        (dataclasses.replace(SK1, symmetry=((8, 32),)), "turns groups of 32"),
        (dataclasses.replace(SK1, symmetry=((1, 16),)), "behaves like"),
        ("no-such-sketch.json", "no sketch"),
    ],
)
def test_sketches_that_do_not_fit(sketch: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        taccl(Collective("all-gather", range(16), MB), ndv2(), sketch=sketch)


def test_a_sketch_without_a_way_names_what_is_missing() -> None:
    nowhere = dataclasses.replace(SK1, relays={3: (0, 1, 2, 3)}, symmetry=())
    with pytest.raises(InfeasibleError, match="gpus_to_sender_rev_map lets it leave by rank 3 alone"):
        taccl(Collective("all-gather", range(16), MB), ndv2(), sketch=nowhere)
    with pytest.raises(UsageError, match="none is given"):
        taccl(Collective("all-gather", range(16), MB), sketch=SK1)


def test_plans_that_wait_for_each_other_are_given_up() -> None:
    """An all-reduce without bytes: joined sends up and down wait for each other, and every send still goes."""
    program = taccl(Collective("all-reduce", range(16), 0), fabric("ndv2:2"), effort=0.5)
    assert validity.check(program) == []
    program = taccl(Collective("all-reduce", [0, 1, 2, 8, 9, 10], 0), fabric("ndv2:2"), effort=2.0)
    assert validity.check(program) == []


def test_dead_links_are_left_out() -> None:
    ring = fabric("ring:4")
    dead = dataclasses.replace(ring, rate=np.where(np.arange(ring.n_links) == 0, 0.0, ring.rate))
    program = taccl(Collective("all-gather", range(4), MB), dead)
    assert validity.check(program) == []
    assert simulate(program, dead, engine="events").time_s > 0
    with pytest.raises(InfeasibleError, match="do not join them"):
        taccl(Collective("all-gather", range(4), MB), dataclasses.replace(ring, rate=ring.rate * 0))


def test_what_is_too_large_is_declined() -> None:
    with pytest.raises(DeclinedError, match="at most 60,000"):
        taccl(Collective("all-to-all", range(300), MB), fabric("switch:300"))


def test_every_solver_in_one_process() -> None:
    """SciPy's HiGHS and OR-tools side by side; a second build of HiGHS beside OR-tools would not load."""
    from ortools.linear_solver import pywraplp
    from ortools.math_opt.python import mathopt
    from ortools.sat.python import cp_model
    from scipy.optimize import Bounds, LinearConstraint, milp

    answer = milp([1.0], integrality=[1], bounds=Bounds(0, 9), constraints=LinearConstraint([[2.0]], 3, np.inf))
    assert answer.x[0] == 2
    model = cp_model.CpModel()
    whole = model.new_int_var(0, 9, "whole")
    model.add(2 * whole >= 3)
    model.minimize(whole)
    assert cp_model.CpSolver().solve(model) == cp_model.OPTIMAL
    other = mathopt.Model()
    share = other.add_variable(lb=0, ub=9)
    other.add_linear_constraint(2 * share >= 3)
    other.minimize(share)
    assert mathopt.solve(other, mathopt.SolverType.GLOP).objective_value() == 1.5
    assert pywraplp.Solver.CreateSolver("SCIP") is not None
