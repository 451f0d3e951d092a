"""Corners of the engines that whole programs rarely meet: each with the answer that paper and pencil give."""

from __future__ import annotations

import numpy as np
import pytest

import engine_cases as cases
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines import closed_form, events, flat, recurrence
from ringwright.engines.choose import simulate
from ringwright.engines.machine import machine
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit

RING = ring(Collective("all-reduce", range(16), 16_000))


def test_a_run_says_whether_it_was_folded() -> None:
    assert simulate(RING, cases.switch(16), "events").folded
    assert not simulate(RING, cases.switch(16), "events", fold_symmetry=False).folded


def priced(level: str, p: int = 16) -> Program:
    """Return a program of one message of 1,600 B on a level, by its closed form alone."""
    wanted = Collective("all-reduce", range(p), 1600)
    return Program("priced", wanted, cut(wanted), list, 0, Cost((Term(1, 1600.0, level),), 0.0))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_message_along_an_axis_goes_over_one_link(axis: int) -> None:
    """Neighbours along an axis of the machine are one link apart; ranks that follow each other are not, at a row's end."""
    top = cases.torus(4, 4)
    name = top.axes[axis][0]
    assert closed_form.times_s(priced(name), top, [1600]) == pytest.approx([500e-9 + 1600 / 50e9])


def test_axes_of_a_machine_are_not_those_of_a_part_of_it() -> None:
    """Of 16 ranks, 12 take part: rank 3 and rank 4 follow each other, two links apart."""
    top = cases.torus(4, 4)
    name = top.axes[1][0]
    assert closed_form.times_s(priced(name, 12), top, [1600])[0] > 2 * 500e-9


def test_nothing_scales_to_nothing() -> None:
    nothing = ring(Collective("all-reduce", range(4), 0))
    assert closed_form.times_s(nothing, cases.switch(4), [0, 0]).shape == (2,)
    with pytest.raises(UsageError, match="a program of 0 B says nothing of other sizes"):
        closed_form.times_s(nothing, cases.switch(4), [0, 1])


@pytest.mark.parametrize("senders", [2, 3, 5])
def test_a_port_serves_one_message_after_the_other(senders: int) -> None:
    """All send to rank 0 in one step: the recurrence queues them at its port as the event engine does."""
    wanted = Collective("gather", range(senders + 1), (senders + 1) * 9000)
    ranks = list(range(1, senders + 1))
    step = Step((explicit(Op.SEND, ranks, [0] * senders, ranks),))
    program = Program("gather", wanted, cut(wanted, 1), lambda: [step], 1, Cost((), 0.0))
    made = machine(cases.switch(senders + 1))
    try:
        told = recurrence.run(program, made).time_ps
    except DeclinedError:
        return
    assert told == events.run(flat.flatten(program, made), made).time_ps


def test_no_load_without_a_machine() -> None:
    run = simulate(RING, cases.switch(16), "closed-form")
    assert (run.load(), run.bottleneck, run.utilisation) == ([], "", 0.0)
    assert run.start_ps.dtype == np.int64
