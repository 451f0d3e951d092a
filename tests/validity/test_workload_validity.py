"""A workload that breaks a rule is refused with the task or payload, the class or rank, and what to do; never a hang."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from ringwright.engines.job.run import simulate
from ringwright.ground.errors import EXIT_PROGRAM, InfeasibleError, UsageError, WorkloadError
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import RULES, check, require, sequences
from ringwright.model.workload import (
    Edge,
    Gate,
    Mesh,
    Payload,
    Policy,
    Queue,
    RankClass,
    Resource,
    Rewrite,
    Task,
    Workload,
)
from ringwright.schedulers.compose import consistent
from ringwright.workloads.chain import ChainLayer, chain


def three(**changed: Any) -> Workload:
    made = chain("three", [ChainLayer(2, 2, 4), ChainLayer(2, 2, 8), ChainLayer(2, 2, 4)], micro_batches=2)
    return dataclasses.replace(made, **changed)


def pipeline(**changed: Any) -> Workload:
    """Two stages: the first sends what the second works on."""
    send = Payload("act", "s0", "send-recv", 8, ("pp",), "pp", ("F0",), (("F1", 0),), "micro-batch", peer="s1")
    made = Workload(
        "two stages",
        Mesh((("pp", 2),)),
        (RankClass("s0", {"pp": 0}), RankClass("s1", {"pp": 1})),
        (Task("F0", "s0", "F", 1.0), Task("F1", "s1", "F", 1.0)),
        payloads=(send,),
        resources=(Resource("link.tx", "shared"), Resource("link.rx", "shared")),
    )
    return dataclasses.replace(made, **changed)


def stages(workload: Workload) -> Workload:
    """Add a third stage that has no part in anything."""
    return dataclasses.replace(
        workload,
        mesh=Mesh((("pp", 3),)),
        classes=(*workload.classes, RankClass("s2", {"pp": 2})),
        tasks=(*workload.tasks, Task("F2", "s2", "F", 1.0)),
    )


def task(workload: Workload, name: str, **changed: Any) -> Workload:
    listed = tuple(dataclasses.replace(t, **changed) if t.name == name else t for t in workload.tasks)
    return dataclasses.replace(workload, tasks=listed)


def payload(workload: Workload, name: str, **changed: Any) -> Workload:
    listed = tuple(dataclasses.replace(p, **changed) if p.name == name else p for p in workload.payloads)
    return dataclasses.replace(workload, payloads=listed)


def only(workload: Workload) -> Any:
    """Return the one finding."""
    found = check(workload)
    assert len(found) == 1, [str(each) for each in found]
    assert found[0].rule in RULES
    assert found[0].remedy
    return found[0]


def test_legal_workloads_have_no_finding() -> None:
    for legal in (three(), pipeline(), three().with_policy("x", boundary="layer"), three(micro_batches=1)):
        assert check(legal) == []
        assert require(legal) is legal


BROKEN: list[tuple[str, Workload, tuple[str, ...]]] = [
    ("task", task(three(), "F.layer1", kind="X"), ("F.layer1", "class all")),
    ("task", task(three(), "F.layer1", per="epoch"), ("F.layer1", "epoch")),
    ("task", task(three(), "F.layer1", seconds=math.nan), ("F.layer1", "nan s")),
    ("task", task(three(), "F.layer1", seconds=-1.0), ("F.layer1", "-1.0 s")),
    ("name", three(tasks=(*three().tasks, three().tasks[0])), ("F.layer0", "2 tasks")),
    ("name", three(payloads=(*three().payloads, three().payloads[0])), ("layer0", "2 payloads")),
    ("mesh", three(micro_batches=0), ("0 micro-batches",)),
    ("mesh", three(mesh=Mesh((("dp", 0),))), ("'dp'", "0 ranks")),
    ("class", three(classes=(RankClass("all", {"dp": 0}),)), ("rank 1",)),
    ("class", three(classes=(RankClass("all"), RankClass("more", {"dp": 1}))), ("rank 1", "more")),
    ("class", three(classes=(RankClass("all"), RankClass("more", {"tp": 1}))), ("more", "tp")),
    ("class", three(classes=(RankClass("all"), RankClass("more", {"dp": 5}))), ("more", "dp 5 of 2")),
    ("edge", three(edges=(*three().edges, Edge("F.layer0", "F.layer9"))), ("F.layer9",)),
    ("edge", pipeline(edges=(Edge("F0", "F1"),)), ("F0", "s0", "F1", "s1")),
    ("edge", three(edges=(*three().edges, Edge("F.layer0", "F.layer1", -1))), ("1 steps back",)),
    ("payload", payload(three(), "layer1", op="all-sum"), ("layer1", "all-sum")),
    ("payload", payload(three(), "layer1", axes=("tp",)), ("layer1", "tp")),
    ("payload", payload(three(), "layer1", axes=()), ("layer1", "no axis")),
    ("payload", payload(three(), "layer1", per="epoch"), ("layer1", "epoch")),
    ("payload", payload(three(), "layer1", root=2), ("layer1", "root 2")),
    ("payload", payload(three(), "layer1", joint=("nobody",)), ("layer1", "nobody")),
    ("payload", payload(pipeline(), "act", peer="s9"), ("act", "s9")),
    ("payload", payload(three(), "layer1", disturbed=math.nan), ("layer1", "nan times")),
    ("payload", payload(three(), "layer1", disturbed=0.0), ("layer1", "0 times")),
    ("size", payload(three(), "layer1", size_bytes=0), ("layer1", "0 B", "class all")),
    ("size", payload(three(), "layer1", size_bytes=-4), ("layer1", "-4 B")),
    ("producer", payload(three(), "layer1", producers=()), ("layer1", "no producer")),
    ("producer", payload(three(), "layer1", producers=("B.gone",)), ("layer1", "B.gone")),
    ("producer", payload(pipeline(), "act", producers=("F1",)), ("F1", "s1", "act")),
    ("consumer", payload(three(), "layer1", consumers=(("U.gone", 0),)), ("layer1", "U.gone")),
    ("consumer", stages(payload(pipeline(), "act", consumers=(("F2", 0),))), ("F2", "s2", "act")),
    ("consumer", payload(three(), "layer1", consumers=(("U.layer1", -1),)), ("layer1", "U.layer1")),
    ("resource", task(three(), "F.layer1", demands=(("memory", 1.0),)), ("F.layer1", "memory")),
    ("resource", three(resources=(Resource("x", "often"),)), ("x", "often")),
    ("resource", three(resources=(Resource("x", "tokens", 0.0),)), ("x", "capacity")),
    (
        "cycle",
        three(edges=(*three().edges, Edge("B.layer0", "F.layer0"))),
        ("F.layer0 waits for B.layer0", "class all"),
    ),
    ("order", three(order={"all": (("F", 0, 0), ("B", 0, 0), ("F", 0, 1))}), ("B of virtual stage 0, micro-batch 1",)),
    ("order", three(order={"nobody": ()}), ("nobody",)),
    ("policy", three(policy=Policy(boundary="never")), ("boundary", "never")),
    ("order", three(policy=Policy(order={"all": (("F.layer0", 0), ("U.layer0", 0))})), ("B.layer0, micro-batch 0",)),
    ("order", three(policy=Policy(order={"all": (("F.layer0", 0), ("F.layer0", 0))})), ("never runs",)),
    ("policy", three(policy=Policy(agreement="vote")), ("agreement", "vote")),
    ("policy", three(policy=Policy(rewrites=(Rewrite("zip"),))), ("zip",)),
    ("policy", three(policy=Policy(rewrites=(Rewrite("fuse"),))), ("fuse", "caps_bytes")),
    ("policy", three(policy=Policy(rewrites=(Rewrite("groups", settings={"names": (("a",),)}),))), ("'a'",)),
    ("queue", three(policy=Policy(queue=Queue(keys={"layer9": 0}))), ("layer9",)),
    ("queue", three(policy=Policy(queue=Queue(windows={"dp": (0, "operations")}))), ("dp", "nothing could ever start")),
    ("queue", three(policy=Policy(queue=Queue(windows={"dp": (1, "elephants")}))), ("dp", "elephants")),
    ("queue", three(policy=Policy(queue=Queue(gates=(Gate(0, 0, "asleep"),)))), ("asleep",)),
    ("queue", three(policy=Policy(queue=Queue(issue_s=-1.0))), ("-1.0 s",)),
]


@pytest.mark.parametrize(("rule", "broken", "names"), BROKEN, ids=[f"{r}-{n[0]}" for r, _, n in BROKEN])
def test_a_broken_rule_is_named_with_its_place(rule: str, broken: Workload, names: tuple[str, ...]) -> None:
    errors = [each for each in check(broken) if each.severity == "error"]
    assert rule in {each.rule for each in errors}, [str(each) for each in errors]
    with pytest.raises(WorkloadError) as caught:
        require(broken)
    assert caught.value.exit_code == EXIT_PROGRAM
    assert caught.value.where
    assert caught.value.remedy
    for name in names:
        assert name in str(caught.value), str(caught.value)


def test_a_payload_that_nobody_waits_for_is_a_warning() -> None:
    idle = payload(three(), "layer1", consumers=())
    found = only(idle)
    assert (found.rule, found.severity) == ("consumer", "warning")
    assert "layer1" in found.message
    assert require(idle) is idle
    assert check(idle, warnings=False) == []


def test_windows_and_gates_that_name_nothing_are_warnings() -> None:
    queue = Queue(windows={"tp": (1, "operations")}, gates=(Gate(0, "attention"),))
    found = check(three(policy=Policy(queue=queue)))
    assert [each.severity for each in found] == ["warning", "warning"]
    assert "'tp'" in found[0].message
    assert "attention" in found[1].message


def test_a_static_order_that_contradicts_the_edges_is_named_and_the_engine_does_not_hang() -> None:
    backwards = three(order={"all": (("B", 0, 0), ("B", 0, 1), ("F", 0, 0), ("F", 0, 1))})
    found = only(backwards)
    assert found.rule == "order"
    assert "waits for" in found.message
    assert "class all" in found.where
    with pytest.raises(InfeasibleError) as caught:
        simulate(backwards, LinkCosts(1.0))
    assert "waits for" in caught.value.where


def test_a_cycle_through_a_payload_names_it() -> None:
    back = Payload("back", "s1", "send-recv", 8, ("pp",), "pp", ("F1",), (("F0", 0),), "micro-batch", peer="s0")
    looped = pipeline(payloads=(*pipeline().payloads, back))
    found = only(looped)
    assert found.rule == "cycle"
    assert "payload" in found.where
    with pytest.raises(InfeasibleError) as caught:
        simulate(looped, LinkCosts(1.0))
    assert "waits for" in caught.value.where


def test_tokens_that_are_never_given_back() -> None:
    pool = (*three().resources, Resource("memory", "tokens", 3.0))
    leaking = task(three(resources=pool), "F.layer0", demands=(("memory", 1.0),))
    found = only(leaking)
    assert found.rule == "tokens"
    assert "F.layer0" in found.message
    with pytest.raises(InfeasibleError):
        simulate(leaking, LinkCosts(1.0))
    back = task(leaking, "B.layer0", demands=(("memory", -1.0),))
    assert check(back) == []
    assert simulate(back, LinkCosts(1.0)).step_s > 0


def test_an_order_that_needs_more_tokens_than_there_are() -> None:
    pool = (*three().resources, Resource("memory", "tokens", 1.0))
    held = task(
        task(three(resources=pool), "F.layer0", demands=(("memory", 1.0),)), "B.layer0", demands=(("memory", -1.0),)
    )
    assert check(held) == []  # forward and backward of a micro-batch before the next one
    eager = dataclasses.replace(held, order={"all": (("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1))})
    found = only(eager)
    assert found.rule == "tokens"
    assert "F.layer0 (micro-batch 1, step 0)" in found.message
    with pytest.raises(InfeasibleError):
        simulate(eager, LinkCosts(1.0))


def test_demands_beyond_the_capacity() -> None:
    pool = (*three().resources, Resource("memory", "tokens", 1.0))
    found = only(task(three(resources=pool), "F.layer0", demands=(("memory", 2.0), ("memory", -2.0))))
    assert (found.rule, "2 of 'memory'" in found.message) == ("tokens", True)


def test_parts_of_a_policy_that_contradict_each_other() -> None:
    policy = Policy(agreement="index", queue=Queue(keys={"layer0": 0}), by={"agreement": "one", "queue": "two"})
    found = only(three(policy=policy))
    assert found.rule == "policy"
    assert "one" in found.message
    assert "two" in found.message
    with pytest.raises(UsageError, match="two by urgency"):
        consistent(policy)
    fused = Policy(
        rewrites=(
            Rewrite("fuse", settings={"caps_bytes": (1,)}),
            Rewrite("substitute", settings={"names": (), "batch": 1}),
        )
    )
    assert only(three(policy=fused)).rule == "policy"
    with pytest.raises(UsageError):
        consistent(fused)


def test_ranks_that_issue_different_operations() -> None:
    same = ["all-reduce of 8 B", "all-gather of 4 B"]
    assert sequences("dp", {0: same, 1: list(same)}) == []
    found = sequences("dp", {0: same, 3: ["all-reduce of 8 B", "broadcast of 4 B"]})
    assert [each.rule for each in found] == ["sequence"]
    for part in ("rank 3", "operation 1", "broadcast of 4 B", "rank 0", "all-gather of 4 B"):
        assert part in found[0].message
    shorter = sequences("dp", {0: same, 1: same[:1]})
    assert "rank 1 issues nothing as operation 1" in shorter[0].message


def test_findings_are_bounded() -> None:
    many = three(tasks=tuple(Task(f"t{at}", "nobody", "X") for at in range(1000)))
    assert len(check(many, most=5)) == 5
