"""Breadth-first pipelines: the published makespans, equal graphs, what is gathered and summed, memory, and what is declined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import RULES, RewriteError, replayed
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.memory import memory
from ringwright.graph.pipelines import order
from ringwright.ground.errors import WorkloadError
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.breadth_first_pp import breadth_first_pp
from ringwright_lab.papers import claims
from ringwright_lab.papers.figures import breadth_first_pp as figures
from ringwright_lab.papers.figures import rows
from ringwright_lab.papers.figures.pipelines import UnitCosts, units

FREE = LinkCosts(1e30)
PAPER = claims.read(claims.find(["breadth-first-pp"])[0])["rows"]


def model(parallel: str, gpus: int = 4, **more: Any) -> Workload:
    return workload(GeneratedJobSpec(WorkloadSpec("gpt2-small", gpus, parallel, micro_batches=4, **more)))


def passes(step: Workload, of: str) -> list[tuple[str, int, int]]:
    """Return the passes of a class one after another, as its policy orders them."""
    slots = [(step.task[name].slot, batch) for name, batch in step.line(of)]
    return list(dict.fromkeys((phase, chunk, batch) for (phase, chunk), batch in slots))


def got(row: dict[str, Any]) -> float:
    return float(getattr(figures, row["measure"])(**row.get("with", {})))


@pytest.mark.parametrize("row", [row for row in PAPER if "measure" in row], ids=lambda row: row["figure"])
def test_every_row_of_the_paper_holds(row: dict[str, Any]) -> None:
    assert rows.holds(got(row), row["claimed"], row["tolerance"])


def test_without_the_system_every_form_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    figures.sums_of_a_stage.cache_clear()
    monkeypatch.setattr(figures, "breadth_first_pp", lambda made, _: made)
    forms = [row for row in PAPER if row["kind"] in ("form", "prediction")]
    kept = [row["figure"] for row in forms if rows.holds(got(row), row["claimed"], row["tolerance"])]
    assert len(forms) == 3
    assert not kept


@pytest.mark.parametrize("group", [0, 4, 6, 8])
@pytest.mark.parametrize("descending", [False, True])
def test_a_group_of_all_is_breadth_first_and_one_of_as_many_as_devices_is_depth_first(
    group: int, descending: bool
) -> None:
    """What goes first is the order of ``ringwright.graph.pipelines``; with N = p that is the interleaved order of Megatron-LM."""
    made = breadth_first_pp(units(4, 12, 2), FREE, group=group, descending=descending)
    spelled = {0: "aiao" if descending else "breadth-first", 4: "1f1b"}.get(group, f"breadth-first:{group}")
    for at in range(4):
        assert passes(made, f"device{at}") == list(order(spelled, 4, at, 12, 2))


@pytest.mark.parametrize("sharded", [False, True])
def test_the_graph_computes_the_same_and_the_rules_repeat_it(sharded: bool) -> None:
    step = units(2, 4, 2, sharded=sharded)
    made = breadth_first_pp(step, FREE)
    assert check(made, warnings=False) == []
    assert prove(step, made).equal
    again = replayed(step, made.applied)
    assert again.payloads == made.payloads
    assert again.policy.order == made.policy.order


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("parallel", ["pp2,vp2,dp2", "pp2,vp2,dp2,fsdp", "dp2", "dp2,fsdp"])
def test_models_are_ordered_in_loops_or_by_layers_and_proven(parallel: str) -> None:
    step = model(parallel, 4 if "pp" in parallel else 2)
    made = breadth_first_pp(step, FREE)
    assert check(made, warnings=False) == []
    before, after = small(step, made)
    assert prove(before, after, draws=1).equal
    gathers = [each.per for each in made.payloads if each.op == "all-gather" and each.source]
    assert set(gathers) == ({"step"} if "fsdp" in parallel else set())
    assert any("gather" in text and "nothing says" in text for text in made.assumptions) == ("fsdp" in parallel)


def test_accumulation_goes_layer_by_layer_and_sums_begin_sooner() -> None:
    """Without a pipeline layers are the stages: the last layers' gradients are complete while the first ones still run."""
    step = model("dp4")
    made = breadth_first_pp(step, FREE)
    (of,) = (each.name for each in made.classes)
    layers = [made.task[name].layer for name, _ in made.line(of) if made.task[name].slot[0] == "F"]
    assert layers == sorted(layers)
    slow = LinkCosts(2e10)
    assert simulate(made, slow, steps=3).step_s < simulate(step, slow, steps=3).step_s


def test_gathered_stages_take_turns_in_the_buffers() -> None:
    """The third stage is gathered when the first has run, with two buffers; with one, each when the one before has."""
    step = units(2, 4, 4, sharded=True)
    for buffers, before in ((2, "F0"), (1, "F2")):
        made = breadth_first_pp(step, FREE, buffers=buffers)
        assert made.payload["Fgather4"].producers[-1:] == (before,)


def test_it_holds_the_inputs_of_all_stages() -> None:
    """A device holds m v inputs of stages: what small batches are for."""
    step = units(4, 8, 2)
    held = [memory(each)[0].by_kind["activation"] for each in (step, breadth_first_pp(step, FREE))]
    assert held[1] > 1.3 * held[0]


def test_names_decide_nothing() -> None:
    step = units(2, 4, 2)
    names = {each.name: f"x{at}" for at, each in enumerate(reversed(step.classes))}
    tasks = tuple(replace(task, of=names[task.of]) for task in step.tasks)
    payloads = tuple(replace(each, of=names[each.of], peer=names.get(each.peer, "")) for each in step.payloads)
    values = tuple(replace(each, of=names[each.of]) for each in step.values)
    classes = tuple(replace(each, name=names[each.name]) for each in step.classes)
    order = {names[of]: line for of, line in step.order.items()}
    other = replace(step, tasks=tasks, payloads=payloads, values=values, classes=classes, order=order)
    one, two = (breadth_first_pp(each, FREE) for each in (step, other))
    assert passes(one, "device0") == passes(two, names["device0"])


@pytest.mark.parametrize(
    ("step", "why", "remedy"),
    [
        (units(4, 8, 1), "each device has one stage", "--parallel ...,vp2"),
        (units(4, 1, 2), "one micro-batch", "--micro-batches 4"),
        (units(4, 8, 2, "zb-v", splits=True), "go there and back", "--schedule 1f1b"),
        (model("pp2,vp2", 2, mode="decode", seq=64), "nothing runs backward", "--mode training"),
        (replace(units(2, 4, 2), payloads=()), "no", "--parallel pp4,vp2"),
    ],
    ids=["one stage", "one micro-batch", "folded", "inference", "no line"],
)
def test_what_it_declines_says_why_and_what_to_type(step: Workload, why: str, remedy: str) -> None:
    with pytest.raises(WorkloadError, match=why) as refused:
        breadth_first_pp(step, UnitCosts())
    assert remedy in str(refused.value.remedy)
    assert str(refused.value).startswith("breadth-first-pp: ") or "breadth-first-pp" in refused.value.what


# ------------------------------------------------------------------------------------------------------- the two rules
@pytest.mark.parametrize(
    ("rule", "at", "knobs", "why"),
    [
        ("slots", "device9", {"orders": {}}, "no class of ranks"),
        ("slots", "device0", {"orders": {"device1": []}}, "has no order"),
        ("slots", "device0", {"orders": {"device0": [["F", 7, 0]]}}, "no pass F of chunk 7"),
        ("slots", "device0", {"orders": {"device0": [["Q", 0, 0]]}}, "'Q' is no pass"),
        ("slots", "device0", {"orders": {"device0": []}, "by": "name"}, "not told apart by 'name'"),
        ("slots", "device0", {"orders": {"device0": [["F", 0, 0]]}}, "F0 runs never for micro-batch 1"),
        ("slots", "device0", {"orders": {"device0": [["F", 0, 0], ["F", 0, 0]]}}, "F0 runs 2 times"),
        ("once", "F0-F1", {}, "send-recv"),
        ("once", "Fgather0", {"behind": "F1"}, "no task of its class"),
    ],
)
def test_rules_refuse_what_is_not_theirs(rule: str, at: str, knobs: dict[str, Any], why: str) -> None:
    with pytest.raises(RewriteError, match=why):
        RULES[rule](units(2, 2, 2, sharded=True), at, **knobs)


def test_once_refuses_what_differs_between_micro_batches() -> None:
    step = units(2, 2, 2, sharded=True)
    gather = step.payload["Fgather0"]
    values = tuple(replace(v, per="micro-batch") if v.name == gather.source else v for v in step.values)
    tasks = tuple(replace(t, per="micro-batch") if t.name == "Fbegin0" else t for t in step.tasks)
    tasks = tuple(replace(t, reads=(("kept0", 0),)) if t.name == "Fbegin0" else t for t in tasks)
    own = replace(step, values=values, tasks=tasks, edges=tuple(e for e in step.edges if e.dst != "Fbegin0"))
    with pytest.raises(RewriteError, match="of its own"):
        RULES["once"](own, "Fgather0")
    with pytest.raises(RewriteError, match="once a step"):
        RULES["once"](units(2, 2, 2), "sum0")


def test_once_sends_what_it_says() -> None:
    step = units(2, 4, 2, sharded=True)
    made = RULES["once"].everywhere(step, ["Fgather0", "sum0"])
    assert prove(step, made).equal
    gathered, summed = (each.change for each in made.applied)
    assert gathered.operations == summed.operations == -3
    assert gathered.wire_bytes["dp"] == -3 * step.payload["Fgather0"].size_bytes / 2
