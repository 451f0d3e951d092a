"""Updates of models say which layers they change: each value in one part, shares of time as elements."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ringwright
from ringwright.graph.algebra import RULES, RewriteError, rewritten
from ringwright.graph.algebra.equality import prove, small
from ringwright.model.values import Work
from ringwright.model.workload import Task, Workload


def updates(workload: Workload) -> dict[str, tuple[Task, Work]]:
    return {task.name: (task, task.work) for task in workload.tasks if task.kind == "U" and task.work}


@pytest.mark.parametrize("parallel", ["dp2", "tp2,sp,dp1", "dp2,zero1"])
def test_each_layer_is_a_part_with_a_share_of_the_time(parallel: str) -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel=parallel)
    task, work = updates(step)["all.U.layer0"]
    size = {name: step.value[name].dims[0][1] for name in task.writes}
    for part in work.parts:
        assert part.work.cuts == {"elements": 0.0}
        layer = {task.writes[at].split(".")[2] for at in part.writes}
        assert len(layer) == 1
        own = {task.reads[at][0].split(".")[2] for at in part.reads}
        buffer = {"sum"} if parallel == "tp2,sp,dp1" and layer & {"norm1", "norm2"} else set()
        assert own - {"sum"} == layer
        assert ({"sum"} & own) == buffer
    uncut = [part.share for part in work.parts if task.writes[part.writes[0]].split(".")[2] == "norm1"]
    if parallel != "tp2,sp,dp1":
        whole = {name: held for name, held in size.items() if name.endswith("states")}
        assert uncut == [pytest.approx(whole["all.layer0.norm1.states"] / sum(whole.values()), rel=1e-3)]
    head = updates(step)["all.U.head"][1]
    assert not head.parts
    assert head.cuts == {"elements": 0.0}


def test_what_is_not_element_by_element_says_nothing() -> None:
    sharded = ringwright.job("gpt3-125m", gpus=2, parallel="fsdp")
    assert not any(work.parts or work.cuts for _, work in updates(sharded).values())
    tables = updates(ringwright.job("dlrm-terabyte", gpus=16))
    assert any(not (work.parts or work.cuts) for _, work in tables.values())
    assert any(work.parts for _, work in tables.values())


def test_each_of_the_parts_is_waited_for() -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel="dp2")
    waiting = {edge.dst for edge in step.edges if edge.src == "all.U.layer3"}
    made = rewritten(step, [("open", name, {}) for name, (_, work) in updates(step).items() if work.parts])
    parts = [task for task in made.tasks if task.name.startswith("all.U.layer3.")]
    assert len(parts) == len(updates(step)["all.U.layer3"][1].parts)
    assert sum(task.seconds for task in parts) == pytest.approx(step.task["all.U.layer3"].seconds)
    assert {edge.dst for edge in made.edges if edge.src in {task.name for task in parts}} >= waiting - {"all.U.layer3"}
    assert prove(*small(step, made), draws=1).equal


def test_slices_of_several_layers_are_not_slices_of_one() -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel="dp2")
    halves = RULES["split-all-reduce"](step, "all.layer0.qkv")
    with pytest.raises(RewriteError, match="nobody knows what"):
        RULES["reorder"](halves, "all.layer0.qkv.gather", over="all.U.layer0")
    apart = RULES["open"](halves, "all.U.layer0")
    (update,) = [t.name for t in apart.tasks if ("all.layer0.qkv.gradient_sum", 0) in t.reads]
    assert prove(*small(step, RULES["reorder"](apart, "all.layer0.qkv.gather", over=update)), draws=1).equal


def test_a_task_that_reads_layers_of_several_sizes_is_not_cut_along_elements() -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel="dp2")
    wrong = [
        replace(task, work=Work(cuts={"elements": 0.0})) if task.name == "all.U.layer0" else task for task in step.tasks
    ]
    halves = RULES["split-all-reduce"](replace(step, tasks=tuple(wrong)), "all.layer0.qkv")
    with pytest.raises(RewriteError, match=r"of elements, all\.layer0\.qkv\.gradient_sum"):
        RULES["reorder"](halves, "all.layer0.qkv.gather", over="all.U.layer0")


def test_all_parts_wait_for_what_no_value_explains() -> None:
    step = ringwright.job("gpt3-125m", gpus=2, parallel="pp2")  # the first and the last stage share a matrix
    made = RULES["open"](step, "stage0.U.embedding")
    parts = {task.name for task in made.tasks if task.name.startswith("stage0.U.embedding.")}
    assert len(parts) == 2
    assert {name for name, _ in made.payload["embedding"].consumers} >= parts
