"""Ranks that come at different times: what no engine may do, and below what no time may be."""

from __future__ import annotations

import random

import numpy as np
import pytest

import ringwright
from ringwright.bounds.late_bounds import late_bound
from ringwright.engines.choose import simulate
from ringwright.ground.errors import DeclinedError, RingwrightError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology

ENGINES = ("events", "flows", "recurrence")
# Of the time, by which a later rank may end it earlier: fair shares let a message that is not urgent slow one that is.
MOST_GAIN = {"events": 1e-4, "flows": 0.02}
ASKED = (
    ("all-reduce", "ring"),
    ("all-reduce", "rabenseifner"),
    ("all-reduce", "nccl-2-4@2.27"),
    ("all-reduce", "nvls-tree"),
    ("all-gather", "ring"),
    ("reduce-scatter", "ring"),
    ("all-to-all", "pairwise"),
    ("broadcast", "binomial"),
    ("reduce", "binomial"),
    ("gather", "binomial"),
    ("scatter", "binomial"),
    ("scan", "linear"),
    ("barrier", "recursive-doubling"),
)
FABRICS = ("switch:8,rate=50GB/s", "dgx-h100:1", "dgx-h100:2", "torus:2x4", "switch:6,rate=50GB/s,backplane=150GB/s")


def asked(seed: int) -> tuple[Program, Topology, np.ndarray]:
    """Return a drawn program, its machine, and when its ranks come: together with one late, or each at its own time."""
    draw = random.Random(f"arrivals {seed}")
    while True:
        op, name = draw.choice(ASKED)
        topology = ringwright.fabric(draw.choice(FABRICS))
        p, size = topology.n_ranks, draw.choice((0, 1 << 10, 1 << 16, 1 << 22, 3 * 5 * 7 * 64, 1 << 26))
        root = draw.randrange(p) if op in ("broadcast", "reduce", "gather", "scatter") else 0
        try:
            program = ringwright.algorithm(name)(Collective(op, range(p), size, root=root), topology)
        except RingwrightError:
            continue
        spread = draw.choice((1e-6, 30e-6, 1e-3))
        come = np.array([draw.expovariate(1 / spread) for _ in range(p)])
        if draw.random() < 0.4:
            come = np.zeros(p)
            come[draw.randrange(p)] = spread
        return program, topology, come


@pytest.mark.sampled(10, "*")
@pytest.mark.parametrize("seed", range(24))
def test_no_time_is_below_the_bound_of_its_arrivals(seed: int) -> None:
    program, topology, come = asked(seed)
    run = simulate(program, topology, arrivals=come)
    floor = late_bound(program.collective, topology, come, in_network=bool(program.aggregators))
    assert run.time_s >= floor.time_s * (1 - 1e-9), f"{program.name} on {topology.name}: {floor}"
    assert floor.time_s >= come.max() - 1e-15


@pytest.mark.parametrize("engine", ENGINES)
def test_together_is_as_before_and_all_later_is_later(engine: str) -> None:
    for seed in range(8):
        program, topology, _ = asked(seed)
        try:
            before = simulate(program, topology, engine)
        except DeclinedError:
            continue
        none = simulate(program, topology, engine, arrivals=np.zeros(program.p))
        later = simulate(program, topology, engine, arrivals=np.full(program.p, 3e-4))
        assert none.time_ps == before.time_ps
        assert none.end_ps.tolist() == before.end_ps.tolist()
        assert later.time_ps == before.time_ps + 300_000_000
        assert later.parts == before.parts, "what comes together is folded as before"


@pytest.mark.parametrize("engine", MOST_GAIN)
def test_a_later_rank_ends_nothing_earlier(engine: str) -> None:
    for seed in range(12):
        program, topology, come = asked(seed)
        if program.aggregators and engine == "flows":
            continue
        before = simulate(program, topology, engine, arrivals=come)
        come[seed % program.p] += 40e-6
        after = simulate(program, topology, engine, arrivals=come)
        assert after.time_ps >= before.time_ps * (1 - MOST_GAIN[engine]), f"seed {seed}: {before}"


def test_engines_agree_on_late_ranks() -> None:
    """The compiled loops and their twins; and the recurrence where it does not decline."""
    agreed = 0
    for seed in range(12):
        program, topology, come = asked(seed)
        run = simulate(program, topology, "events", arrivals=come)
        assert simulate(program, topology, "events", arrivals=come, native=False).end_ps.tolist() == run.end_ps.tolist()
        try:
            assert simulate(program, topology, "recurrence", arrivals=come).time_ps == run.time_ps
            agreed += 1
        except DeclinedError:
            continue
    assert agreed > 2


def test_a_message_waits_for_both_its_ends() -> None:
    topology = ringwright.fabric("switch:4,rate=50GB/s")
    program = ringwright.algorithm("ring")(Collective("all-reduce", range(4), 1 << 20), topology)
    come = np.array([0.0, 5e-6, 0.0, 20e-6])
    run = simulate(program, topology, arrivals=come)
    assert run.flat is not None
    ends = np.maximum(come[run.flat.src], come[run.flat.dst])
    assert (run.start_ps >= np.rint(ends * 1e12)).all()
    assert len(run.start_ps) == run.flat.n_messages
    assert run.after_last_s == pytest.approx(run.time_s - 20e-6)
    assert "until rank3 came" in run.path()
    assert run._critical is not None
    assert run._critical.total_ps == run.time_ps


def test_what_is_left_when_a_straggler_comes() -> None:
    """The chunk that begins at the last rank has the whole ring before it; no program needs more than the result's bytes."""
    topology = ringwright.fabric("switch:8,rate=50GB/s")
    program = ringwright.algorithm("ring")(Collective("all-reduce", range(8), 1 << 26), topology)
    come = [0.0] * 7 + [1.0]
    late = simulate(program, topology, arrivals=come)
    floor = late_bound(program.collective, topology, come)
    assert late.after_last_s == pytest.approx(simulate(program, topology).time_s)
    assert floor.time_s - 1.0 == pytest.approx((1 << 26) / 50e9, rel=0.01), "all of the result depends on it"


def test_faults_keep_their_own_clock() -> None:
    """A link that is dead until 1 ms delays ranks that come at 0, and none that come later."""
    topology = ringwright.fabric("switch:4,rate=50GB/s")
    program = ringwright.algorithm("ring")(Collective("all-reduce", range(4), 1 << 20), topology)
    from ringwright.fabrics.faults import apply

    faulty = apply(topology, ["link rank0>switch dead until 1ms"])
    healthy = simulate(program, topology).time_ps
    assert simulate(program, faulty).time_ps > 10**9
    assert simulate(program, faulty, arrivals=[2e-3] * 4).time_ps == 2 * 10**9 + healthy


def test_what_are_no_arrivals_is_refused() -> None:
    topology = ringwright.fabric("switch:4,rate=50GB/s")
    program = ringwright.algorithm("ring")(Collective("all-reduce", range(4), 1 << 20), topology)
    for wrong in ([0.0, 1.0], [0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, float("nan")], [0.0, 0.0, 0.0, 1e9]):
        with pytest.raises(UsageError):
            simulate(program, topology, arrivals=wrong)
    with pytest.raises(UsageError, match="2 arrivals"):
        late_bound(program.collective, topology, [0.0, 1.0])
    with pytest.raises(DeclinedError, match="different times"):
        simulate(program, topology, "closed-form", arrivals=[0.0, 0.0, 0.0, 1.0])
