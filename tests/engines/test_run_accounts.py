"""What a run says of itself besides its time, where paper and pencil are enough: one link of 1 GB/s and 10 us."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine_cases as cases
from ringwright.engines.choose import simulate
from ringwright.engines.result import Run
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import InfeasibleError
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, cut, explicit
from ringwright.model.software import Software
from ringwright.model.topology import Topology

SIZE = 1_000_000  # 1 ms on the wire
LINE = fabric("ring:2,rate=1GB/s,latency_s=10e-6")


def sends(steps: int = 1, **software: float) -> Program:
    """Return a broadcast from rank 0 to rank 1, a chunk of 1 MB in each step."""
    wanted = Collective("broadcast", range(2), SIZE * steps)
    layout = cut(wanted, steps)
    made = [Step((explicit(Op.SEND, [0], [1], [step]),)) for step in range(steps)]
    return Program(
        "by-hand",
        wanted,
        layout,
        lambda: iter(made),
        steps,
        Cost((), float(wanted.size_bytes)),
        software=Software(**software),
    )


def ran(program: Program, topology: Topology = LINE) -> Run:
    return simulate(program, topology, "events", fold_symmetry=False)


def test_a_link_is_busy_while_it_sends() -> None:
    run = ran(sends())
    assert run.time_ps == 1_010_000_000
    ((name, share, carried),) = run.load()
    assert share == pytest.approx(1000 / 1010)
    assert (carried, run.bottleneck, run.utilisation) == (SIZE, name, share)
    assert run.waited == 0


def test_the_second_message_waits_for_the_first() -> None:
    star = fabric("switch:3,rate=1GB/s,latency_s=10e-6")
    wanted = Collective("broadcast", range(3), SIZE)
    step = Step((explicit(Op.SEND, [0, 0], [1, 2], [0, 0]),))
    run = ran(Program("by-hand", wanted, cut(wanted, 1), lambda: iter([step]), 1, Cost((), 2.0 * SIZE)), star)
    assert run.time_ps == 2_020_000_000
    assert run.waited == pytest.approx(1000 / 2020)
    assert run.path() == "one message: 50 % on link links, 50 % waiting for rank0 > switch"
    assert run.load(1) == [("rank0 > switch", pytest.approx(2000 / 2020), 2.0 * SIZE)]


def test_nothing_that_moves_has_no_load() -> None:
    run = ran(sends(steps=0))
    assert (run.time_ps, run.load(), run.utilisation, run.waited, run.bottleneck) == (0, [], 0.0, 0.0, "")


def test_software_comes_before_the_first_message_and_is_no_waiting() -> None:
    run = ran(sends(base_s=1e-3))
    assert run.time_ps == 2_010_000_000
    assert run.waited == 0
    assert run.path() == "one message: 50 % on link links, 50 % in software"


@given(seed=st.integers(0, 1 << 32))
def test_the_parts_of_the_path_are_the_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 9))
    program = dataclasses.replace(cases.random_program(rng, p), software=Software(base_s=float(rng.choice([0, 3e-6]))))
    try:
        run = simulate(program, cases.random_fabric(rng, p), "events", fold_symmetry=False)
    except InfeasibleError:
        return
    path = run._critical
    if path is not None and path.messages:
        assert path.total_ps == run.time_ps


@pytest.mark.parametrize(
    ("fault", "time_us"),
    [
        ("link * latency +500us from 0.5ms", 2510),  # there before the message leaves at 1 ms
        ("link * latency +500us from 0.5ms to 0.9ms", 2010),
        ("link * latency +500us from 5ms", 2010),
        ("link * rate 50% from 1.5ms", 2510),  # half of it is sent by then
        ("link * rate 50% from 0.2ms to 0.8ms", 2010),
        ("link * rate 50% from 5ms", 2010),
    ],
)
@pytest.mark.parametrize("engine", ["events", "flows"])
def test_faults_keep_their_clock_behind_software(engine: str, fault: str, time_us: float) -> None:
    """Software of 1 ms, then 1 ms on the wire: a fault acts at its own time, not at that of the first message."""
    run = simulate(sends(base_s=1e-3), apply(LINE, [fault]), engine, fold_symmetry=False)
    assert run.time_s * 1e6 == pytest.approx(time_us, rel=1e-6)


def test_an_engine_that_follows_no_message_says_so() -> None:
    run = dataclasses.replace(ran(sends()), flat=None)
    assert run.waited == 0
    assert "follows no single message" in run.path()
