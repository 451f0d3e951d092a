"""Tasks that become one kernel: what it saves, where it is refused, and that a wrong one is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import algebra_cases as cases
import ringwright
from ringwright.engines.job.run import simulate
from ringwright.formats.exports.workload_json import workload_json
from ringwright.formats.sources.programs.workload_json import read_workload_json
from ringwright.graph.algebra import RULES, RewriteError
from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.graph.algebra.equality import prove
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.values import Work
from ringwright.model.workload import Workload

MOVES = Work(flops=8.0, read_bytes=4 * 4 * 6, written_bytes=4 * 4 * 6)  # a value of 4 x 6 numbers in, one out


def graph(*between: str) -> Workload:
    """y, then what ``between`` names, then n, which reads y; ``r`` stands between and is read by n, ``t`` reads y alone."""
    made = Build(cases.one(2), b=4, h=6)
    y = made.task("y", "pointwise", [made.input("x", "b h")], "b h", fn="square", cost=MOVES)
    reads = [y]
    for name in between:
        held = made.task(name, "pointwise", [y], "b h", fn="scale", cost=MOVES)
        reads += [held] if name == "r" else []
    made.task("n", "pointwise", reads, "b h", fn="subtract" if len(reads) > 1 else "scale", cost=MOVES)
    return made.step()


def fused(workload: Workload, at: str, others: str | Sequence[str], **knobs: Any) -> Workload:
    return RULES["fuse-tasks"](workload, at, others=others, **knobs)


def test_it_saves_a_launch_and_what_lies_between() -> None:
    before = graph()
    after = fused(before, "y", "n", saved_us=3.0)
    change = after.applied[0].change
    assert (change.launches, change.traffic_bytes) == (-1, -2 * 4 * 4 * 6)
    assert (change.flops, change.wire_bytes, change.operations, change.held_bytes) == (0.0, {}, 0, 0)
    kernel = after.task["y.fused"]
    assert kernel.seconds == pytest.approx(2.0 - 3e-6, abs=1e-12)
    assert kernel.work is not None
    assert (kernel.work.flops, kernel.work.read_bytes, kernel.work.written_bytes) == (16.0, 96, 96)
    assert "y" not in after.value
    took = [simulate(each, LinkCosts(1e9, 1e-6), steps=1).times.end.max() for each in (before, after)]
    assert took[0] - took[1] == 3_000_000


def test_what_others_read_is_still_written() -> None:
    before = graph("r")
    after = fused(before, "y", ["r", "n"])
    assert after.task["y.fused"].writes == ("n",)
    kept = fused(graph("t"), "y", "t")
    assert kept.task["y.fused"].writes == ("y", "t")
    assert prove(graph("t"), kept).equal
    assert kept.applied[0].change.traffic_bytes == -4 * 4 * 6  # t does not read y again
    beside = fused(graph("t"), "t", "n")  # neither reads of the other, both of one value
    assert prove(graph("t"), beside).equal


@pytest.mark.parametrize(
    ("make", "at", "others", "knobs", "says"),
    [
        (graph, "y", "y", {}, "nothing to fuse it with"),
        (graph, "y", "z", {}, "it is no task"),
        (graph, "y", "n", {"saved_us": 3e6}, "one kernel saves"),
        (graph, "y", "n", {"saved_us": -1.0}, "one kernel saves"),
        (lambda: graph("r"), "y", "n", {}, "n needs what others make of the first ones"),
        (lambda: graph("t"), "y", "n", {}, "t comes before the last of them"),
        (lambda: cases.block(2), "down", "res", {}, "res reads nothing"),
        (lambda: cases.forward_backward(2), "act1", "back1", {}, "runs at another time or place"),
        (
            lambda: RULES["split-all-reduce"](cases.all_reduce(2, uneven=True), "y"),
            "y.pad",
            "f",
            {},
            "only says which bytes are which",
        ),
    ],
)
def test_where_it_does_not_apply_it_says_why(make: Any, at: str, others: str, knobs: Any, says: str) -> None:
    with pytest.raises(RewriteError, match=says) as caught:
        fused(make(), at, others, **knobs)
    assert caught.value.remedy


def _changed(workload: Workload, **settings: Any) -> Workload:
    """Return the workload with the settings of its kernel changed."""
    kernel = workload.task["y.fused"]
    assert kernel.work is not None
    work = replace(kernel.work, settings={**kernel.work.settings, **settings})
    tasks = (replace(each, work=work) if each is kernel else each for each in workload.tasks)
    return replace(workload, tasks=tuple(tasks))


def test_a_kernel_whose_parts_take_each_others_operands_is_seen() -> None:
    before = graph("r")
    after = fused(before, "y", ["r", "n"])
    first, second, third = after.task["y.fused"].work.settings["parts"]  # type: ignore[union-attr]
    assert third[2] == (1, 2)
    assert prove(before, _changed(after, parts=[first, second, third])).equal
    assert not prove(before, _changed(after, parts=[first, second, [*third[:2], [2, 1], third[3]]])).equal


def test_a_kernel_is_written_and_read() -> None:
    step = cases.points(2)
    once = fused(step, "y", "r")
    assert len(fused(once, "y.fused", "n").task["y.fused.fused"].work.settings["parts"]) == 3  # type: ignore[union-attr]
    for each in (once, fused(once, "y.fused", "n"), fused(cases.forward_backward(2), "up1", "act1")):
        assert read_workload_json(workload_json(each), "a file") == each


def test_parts_that_do_not_fit_are_a_finding() -> None:
    after = fused(graph(), "y", "n")
    for settings in ({"parts": []}, {"parts": [["pointwise", {}, [7], [0]]]}, {"between": 3}, {"parts": [[]]}):
        found = check(_changed(after, **settings), warnings=False)
        assert {each.rule for each in found} <= {"layout"}
        assert found or settings == {"parts": []}


def test_the_layouts_within_a_kernel_are_checked() -> None:
    """A ReLU of terms is no term of the ReLU, in a kernel either."""
    made = Build(cases.one(2), d=4, h=6, f=4)
    x, w = made.input("x", "d h", sliced("a", "h")), made.input("w", "h f", sliced("a", "h"))
    y = made.task("y", "einsum", [x, w], "d f", partial("a"))
    made.task("n", "pointwise", [y], "d f", partial("a"), fn="scale")
    good = fused(made.step(), "y", "n")
    assert check(good, warnings=False) == []
    first, second = good.task["y.fused"].work.settings["parts"]  # type: ignore[union-attr]
    wrong = _changed(good, parts=[first, [second[0], {"fn": "relu"}, *second[2:]]])
    assert [each.rule for each in check(wrong, warnings=False)] == ["layout"]


def test_what_is_drawn_anew_is_not_computed_again_in_a_kernel_either() -> None:
    step = fused(cases.forward_backward(2, counter=None), "up1", "act1")
    with pytest.raises(RewriteError, match="draws anew each time"):
        RULES["recompute"](step, "act1")


def test_a_kernel_is_cut_nowhere() -> None:
    with pytest.raises(RewriteError, match="no cut along b is declared"):
        RULES["cut"](fused(graph(), "y", "n"), "y.fused", dim="b")


def test_on_a_model_forward_of_two_layers_is_one_kernel() -> None:
    before = ringwright.job("gpt3-125m", gpus=2, parallel="dp2", micro_batches=2)
    names = [task.name for task in before.tasks if task.kind == "F" and "layer" in task.name][:2]
    after = fused(before, names[0], names[1])
    assert check(after, warnings=False) == []
    assert after.applied[0].change.launches == -2  # once a micro-batch
    costs = LinkCosts(1e9, 1e-6)
    one, other = (simulate(each, costs, steps=2) for each in (before, after))
    assert other.step_s == pytest.approx(one.step_s, rel=1e-9)
