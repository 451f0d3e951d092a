"""Every pipeline schedule keeps its contract; one that deadlocks, misses a pass or holds more than it declares is told by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from outsiders import install
from ringwright.graph import pipelines
from ringwright.graph.pipelines import Order, PipelineSchedule, Shape, order
from ringwright.graph.pipelines.alternating import forward_first, in_turns
from ringwright.graph.pipelines.zero_bubble import h1
from ringwright.ground.errors import UsageError
from ringwright_lab.testing import check_pipeline, failures

pytestmark = pytest.mark.once


def as_many_as_devices(shape: Shape, group: int) -> int:
    return shape.devices


WHOLE = PipelineSchedule("mine", in_turns, 1, held=as_many_as_devices)


def changed(change: Any) -> PipelineSchedule:
    """Return 1F1B with the passes of each device changed."""

    def mine(shape: Shape, device: int) -> Order:
        return tuple(change(list(in_turns(shape, device)), device))

    return dataclasses.replace(WHOLE, of=mine)


def swapped(slots: list[Any], device: int) -> list[Any]:
    """The first backward pass goes before all forward ones on the first device."""
    at = next(index for index, slot in enumerate(slots) if slot[0] == "B")
    return [slots[at], *slots[:at], *slots[at + 1 :]] if device == 0 else slots


def without_order(slots: list[Any], device: int) -> list[Any]:
    """Of two devices each waits for the other: the last one does its backward passes in another order than all others."""
    return [slot for slot in slots if slot[0] == "F"] + [slot for slot in slots[::-1] if slot[0] == "B"]


@pytest.mark.parametrize("name", pipelines.SCHEDULES)
def test_every_schedule_keeps_its_contract(name: str) -> None:
    outcomes = check_pipeline(name)
    assert failures(outcomes) == []
    assert sum("held" in each.passed for each in outcomes) > 3


def test_a_schedule_of_others_is_known_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from ringwright.graph.pipelines import PipelineSchedule\nfrom ringwright.graph.pipelines.alternating import in_turns\n"
        "turns = PipelineSchedule('any', in_turns, 1, held=lambda shape, group: shape.devices)\n"
    )
    points = {"pipelines": {"turns": "outside_turns:turns", "wrong": "outside_turns:in_turns"}}
    install(tmp_path, monkeypatch, points, outside_turns=text)
    assert failures(check_pipeline("turns")) == []
    assert order("turns", 4, 0, 8) == order("1f1b", 4, 0, 8)
    (error,) = pipelines.problems()
    assert "is of type function, not a PipelineSchedule" in error.what
    with pytest.raises(UsageError, match="'wrong' is no pipeline schedule"):
        order("wrong", 4, 0, 8)


BROKEN: list[tuple[str, PipelineSchedule, str]] = [
    ("ends", changed(swapped), "device 0 waits for ever before B of chunk 0, micro-batch 0"),
    ("whole", changed(lambda slots, device: slots[:-1]), "device 0 misses the gradients of inputs of chunk 0"),
    (
        "whole",
        changed(lambda slots, device: [*slots, slots[0]]),
        "the forward pass of chunk 0, micro-batch 0 once too often",
    ),
    ("held", dataclasses.replace(WHOLE, of=forward_first), "device 0 holds the inputs of 4 passes, it declares 2"),
    ("held", dataclasses.replace(WHOLE, held=None), "it does not say how many inputs it holds"),
    ("named", changed(lambda slots, device: [("X", *slot[1:]) for slot in slots]), "'X' is no pass"),
    ("named", dataclasses.replace(WHOLE, of=h1), "splits is False"),
    ("orders", changed(lambda slots, device: [1 / 0]), "raised ZeroDivisionError"),
    ("orders", dataclasses.replace(WHOLE, least=100), "it takes none of the pipelines"),
]


@pytest.mark.parametrize(("check", "schedule", "why"), BROKEN)
def test_what_is_wrong_with_a_schedule_is_told_by_name(check: str, schedule: PipelineSchedule, why: str) -> None:
    told = [each.failed[check] for each in check_pipeline(schedule) if check in each.failed]
    assert any(why in words for words in told), told
    assert "mine" not in pipelines.schedules()


def test_whole_and_in_another_order_it_still_passes() -> None:
    assert failures(check_pipeline(WHOLE)) == []
    backwards = dataclasses.replace(changed(without_order), held=lambda shape, group: shape.micro_batches)
    assert failures(check_pipeline(backwards)) == []


def test_what_is_no_schedule_is_told() -> None:
    assert failures(check_pipeline("zb-h9")) == ["zb-h9: known: 'zb-h9' is no pipeline schedule"]
