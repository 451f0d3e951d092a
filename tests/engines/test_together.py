"""Programs at the same time on one machine: alone they are what they are, on a shared link they take turns."""

from __future__ import annotations

import pytest

import ringwright
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines.choose import simulate
from ringwright.engines.concurrent_programs import simulate_together
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.registry import algorithm
from ringwright.model.software import Software
from ringwright.model.topology import Topology
from small_fabrics import build

RATE, LATENCY_S = 1e9, 1e-6


def bar_bell(pairs: int) -> Topology:
    """``pairs`` ranks on either side of one cable between two switches."""
    left, right = 2 * pairs, 2 * pairs + 1
    near = [(rank, left if rank < pairs else right, 100 * RATE, LATENCY_S) for rank in range(2 * pairs)]
    return build("bar-bell", 2 * pairs, 2, [*near, (left, right, RATE, LATENCY_S)])


def across(pairs: int, size: int = 1 << 20) -> list[Program]:
    """An all-gather of each left rank with its right one: each sends half over the cable, both ways at once."""
    return [ring(Collective("all-gather", (rank, rank + pairs), size)) for rank in range(pairs)]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_pairs_over_one_cable_take_turns(pairs: int, native: bool) -> None:
    run = simulate_together(across(pairs), bar_bell(pairs), native=native)
    half = 1 << 19
    assert run.ends_ps.tolist() == [round((3 * LATENCY_S + at * half / RATE) * 1e12) for at in range(1, pairs + 1)]
    assert run.busy_ps.max() == pytest.approx(pairs * half / RATE * 1e12)


def test_one_program_takes_what_it_takes_alone() -> None:
    machine = ringwright.fabric("ndv2:2")
    program = algorithm("nccl-2-4")[1](Collective("all-reduce", tuple(range(16)), 1 << 20, "float32"), machine)
    alone = simulate(program, machine, fold_symmetry=False)
    assert simulate_together([program], machine).ends_ps.tolist() == [alone.time_ps]


def test_programs_that_share_nothing_do_not_see_each_other() -> None:
    machine = ringwright.fabric("dgx-h100:2")
    programs = [
        algorithm("nccl-2-4")[1](Collective("all-reduce", tuple(range(first, first + 8)), 1 << 24, "float32"), machine)
        for first in (0, 8)
    ]
    assert simulate_together(programs, machine).ends_ps.tolist() == [
        simulate(each, machine, fold_symmetry=False).time_ps for each in programs
    ]


def test_multicasts_keep_their_forks() -> None:
    machine = ringwright.fabric("dgx-h100:2,sharp=true")
    programs = [
        algorithm("nvls")[1](Collective("all-reduce", tuple(range(first, first + 8)), 1 << 20, "float32"), machine)
        for first in (0, 8)
    ]
    ends = simulate_together(programs, machine).ends_ps.tolist()
    assert ends == [simulate(each, machine, fold_symmetry=False).time_ps for each in programs]


def test_the_software_before_the_first_message_is_of_each_program() -> None:
    from dataclasses import replace

    slow, quick = across(2)
    run = simulate_together([replace(slow, software=Software(base_s=1.0)), quick], bar_bell(2))
    alone = 3 * LATENCY_S + (1 << 19) / RATE
    assert run.ends_ps.tolist() == [round((1.0 + alone) * 1e12), round(alone * 1e12)]
