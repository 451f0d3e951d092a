"""What operations take is timed once and remembered, the latest of it; what was forgotten is timed anew, with the same answer."""

from __future__ import annotations

import dataclasses

import pytest

import ringwright
from ringwright.jobs.pricing import costs
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.model.stages import Stage
from ringwright.model.workload import Mesh

SIZES = tuple(1 << power for power in range(14, 22))
ASKED = [(op, size) for size in SIZES for op in ("all-reduce", "push-pull", "shift")]


def made() -> FabricCosts:
    return FabricCosts(ringwright.fabric("dgx-h100:2"), Mesh((("dp", 2), ("tp", 8))))


def ask(one: FabricCosts, op: str, size: int) -> tuple[Stage, ...]:
    return one.stages(op, size, tuple(range(8)), "tp")


def test_what_was_forgotten_is_answered_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {asked: ask(made(), *asked) for asked in ASKED}
    monkeypatch.setattr(costs, "MOST_TIMED", 3)
    monkeypatch.setattr(costs, "MOST_ASKED", 2)
    forgetful = made()
    for asked in ASKED * 2:
        assert ask(forgetful, *asked) == wanted[asked]
        assert len(forgetful.met.timed) <= 3


def test_a_second_question_is_answered_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made()
    first = ask(one, "all-reduce", 1 << 20)
    monkeypatch.setattr(costs, "simulate", None)
    assert ask(one, "all-reduce", 1 << 20) is first


def test_costs_of_another_machine_or_algorithm_are_another_object() -> None:
    one = made()
    before = ask(one, "all-reduce", 1 << 20)
    for name, value in (("units", 0.5), ("topology", ringwright.fabric("dgx-a100:2")), ("algorithms", {"": "ring"})):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(one, name, value)
        assert ask(dataclasses.replace(one, **{name: value}), "all-reduce", 1 << 20) != before
