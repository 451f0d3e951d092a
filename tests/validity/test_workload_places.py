"""A finding about a workload says exactly where and what to do: task, class, remedy; how many; nothing is off by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ringwright.ground.errors import WorkloadError
from ringwright.model.validity import workload_order, workloads
from ringwright.model.validity.workload_finding import Finding, doubt
from ringwright.model.values import Placement, Value
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


def step(tasks: Sequence[Task], **parts: Any) -> Workload:
    """Return a step of one class of two ranks."""
    return Workload("by hand", Mesh((("dp", 2),)), (RankClass("all"),), tuple(tasks), **parts)


def work(name: str, kind: str = "F", **fields: Any) -> Task:
    return Task(name, "all", kind, 1.0, **fields)


def findings(workload: Workload) -> list[tuple[str, str]]:
    return [(each.rule, each.message) for each in workloads.check(workload)]


def test_the_remedy_of_a_class_out_of_its_axis_is_its_range() -> None:
    wrong = dataclasses.replace(step([work("a")]), classes=(RankClass("all"), RankClass("more", {"dp": 7})))
    assert workloads.check(wrong)[0].remedy == "0 to 1"


def test_axes_of_one_rank_are_placed_like_others() -> None:
    placed = dataclasses.replace(
        step([work("a")]), mesh=Mesh((("dp", 1), ("tp", 2))), classes=(RankClass("all", {"tp": 0}),)
    )
    assert ("class", "rank 1 is of no class") in findings(placed)


def test_what_a_payload_without_axes_may_be() -> None:
    payload = Payload("p", "all", "shift", 8, (), "pp", ("a",), (("b", 0),))
    assert ("payload", "p goes along no axis") in findings(step([work("a"), work("b")], payloads=(payload,)))


def test_the_remedy_of_a_size_says_which_end_it_misses() -> None:
    def remedy(size_bytes: int) -> str:
        payload = Payload("p", "all", "all-reduce", size_bytes, ("dp",), "dp", ("a",), (("b", 0),))
        found = workloads.check(step([work("a"), work("b")], payloads=(payload,)))
        return next(each.remedy for each in found if each.rule == "size")

    assert remedy(0).startswith("leave out")
    assert remedy(1 << 62).startswith("at most")


def test_a_circle_of_tasks_ends_where_it_begins() -> None:
    found = workloads.check(step([work("a"), work("b")], edges=(Edge("a", "b"), Edge("b", "a"))))
    names = found[0].message.split(" waits for ")
    assert names[0] == names[-1]
    assert sorted(names[:-1]) == ["a", "b"]


def circle(of: int) -> Workload:
    """Return a step in which each of so many tasks waits for the next one."""
    return step(
        [work(f"t{at}") for at in range(of)], edges=tuple(Edge(f"t{(at + 1) % of}", f"t{at}") for at in range(of))
    )


@pytest.mark.parametrize(("tasks", "told"), [(3, 4), (8, 9), (9, 9), (12, 9)])
def test_of_a_large_circle_nine_tasks_are_told(tasks: int, told: int) -> None:
    (found,) = workloads.check(circle(tasks))
    assert found.rule == "cycle"
    assert len(found.message.split(" waits for ")) == told


def test_an_order_that_runs_work_of_the_step_last_contradicts_what_waits_for_it() -> None:
    """What runs once a step comes behind all micro-batches on its stream; here the first of them waits for it."""
    tasks = [work("a"), work("once", "B", per="step")]
    (found,) = workloads.check(step(tasks, edges=(Edge("once", "a"),), micro_batches=2))
    assert (found.rule, found.where) == ("order", "class all")
    names = found.message.partition(": ")[2].split(" waits for ")
    assert names[0] == names[-1]
    assert {name.partition(" ")[0] for name in names} == {"a", "once"}
    elsewhere = dataclasses.replace(tasks[1], stream="other")
    assert findings(step([tasks[0], elsewhere], edges=(Edge("once", "a"),), micro_batches=2)) == []


@pytest.mark.parametrize("listed", ["F0 B0 F1 F2", "F1 F2 F0 B0", "F2 F0 B0 F1"])
def test_an_order_that_waits_for_itself_through_other_classes_names_the_class_of_its_first_task(listed: str) -> None:
    """The first stage runs F0 before B0; B0 sends to the second stage, that to the third, and that to F0."""
    tasks = {name: Task(name, f"s{name[1]}", name[0], 1.0) for name in listed.split()}
    sent = (("B0", "F1"), ("F1", "F2"), ("F2", "F0"))
    payloads = [
        Payload(a + b, f"s{a[1]}", "send-recv", 8, ("pp",), "pp", (a,), ((b, 0),), "micro-batch", peer=f"s{b[1]}")
        for a, b in sent
    ]
    made = Workload(
        "three stages",
        Mesh((("pp", 3),)),
        tuple(RankClass(f"s{at}", {"pp": at}) for at in range(3)),
        tuple(tasks.values()),
        payloads=tuple(payloads),
        resources=(Resource("link.tx", "shared"), Resource("link.rx", "shared")),
    )
    (found,) = workloads.check(made)
    first = found.message.partition(": ")[2].partition(" ")[0]
    assert (found.rule, found.where) == ("order", f"class {tasks[first].of}")


def test_work_once_a_step_is_no_circle() -> None:
    assert findings(step([work("a"), work("once", "B", per="step"), work("u", "U", per="step")])) == []


def test_tokens_taken_each_micro_batch_are_counted_so() -> None:
    resources = (Resource("slots", "tokens", 8.0),)
    tasks = [work("take", demands=(("slots", 1.0),)), work("give", "B", per="step", demands=(("slots", -1.0),))]
    found = workloads.check(step(tasks, resources=resources, micro_batches=3))
    assert [each.message for each in found] == ["2 of 'slots' a step are taken and never given back, by take"]


def test_tokens_never_given_back_are_told_of_the_task_that_takes_them() -> None:
    resources = (Resource("slots", "tokens", 8.0),)
    tasks = [
        work("idle", demands=(("slots", 0.0),)),
        work("give", "B", demands=(("slots", -0.5),)),
        work("take", demands=(("slots", 1.0),)),
    ]
    found = workloads.check(step(tasks, resources=resources))
    assert [each.message for each in found] == ["0.5 of 'slots' a step are taken and never given back, by take"]


def test_an_update_gives_back_before_the_next_step_takes() -> None:
    resources = (Resource("slots", "tokens", 1.0),)
    tasks = [work("take", demands=(("slots", 1.0),)), work("u", "U", per="step", demands=(("slots", -1.0),))]
    assert findings(step(tasks, resources=resources)) == []


def test_each_kind_of_token_is_followed_alone() -> None:
    """Users of another resource, on another stream, do not hide that an order takes before it gives back."""
    resources = (Resource("a", "tokens", 9.0), Resource("b", "tokens", 1.0))
    tasks = [
        work("other", stream="copy", demands=(("a", 1.0),)),
        work("back", stream="copy", demands=(("a", -1.0),)),
        work("one", demands=(("b", 1.0),)),
        work("two", demands=(("b", 1.0),)),
        work("free", demands=(("b", -2.0),)),
    ]
    found = workloads.check(step(tasks, resources=resources))
    assert [each.message for each in found] == ["two (micro-batch 0, step 0) needs 1 of 'b', 0 are left"]


def test_tokens_of_a_class_are_followed_on_its_own_stream() -> None:
    """The first class takes them on another stream; that the second takes before it gives back is seen all the same."""
    tasks = [
        Task("in", "first", "F", 1.0, stream="copy", demands=(("slots", 1.0),)),
        Task("out", "first", "F", 1.0, stream="copy", demands=(("slots", -1.0),)),
        Task("one", "second", "F", 1.0, demands=(("slots", 1.0),)),
        Task("two", "second", "F", 1.0, demands=(("slots", 1.0),)),
        Task("free", "second", "F", 1.0, demands=(("slots", -2.0),)),
    ]
    classes = (RankClass("first", {"dp": 0}), RankClass("second", {"dp": 1}))
    made = Workload("by hand", Mesh((("dp", 2),)), classes, tuple(tasks), resources=(Resource("slots", "tokens", 1.0),))
    assert [(each.rule, each.where) for each in workloads.check(made)] == [("tokens", "resource slots, class second")]


@pytest.mark.parametrize(
    "axes",
    [(), (("dp", 0),), (("dp", 2), ("dp", 2)), (("dp", True),), (("dp", 1 << 23),)],
    ids=["no-axis", "no-rank", "twice", "no-number", "too-many"],
)
def test_ranks_of_a_mesh_that_makes_no_sense_are_not_put_into_classes(axes: tuple[tuple[str, int], ...]) -> None:
    payload = Payload("p", "all", "all-reduce", 8, ("dp",), "dp", ("a",), (("b", 0),))
    some = (RankClass("all", {"dp": 0}),)
    made = dataclasses.replace(step([work("a"), work("b")], payloads=(payload,)), mesh=Mesh(axes), classes=some)
    found = workloads.check(made)
    assert {each.rule for each in found} & {"mesh", "name"}
    assert not [each for each in found if "is of no class" in each.message]


@pytest.mark.parametrize(("coordinate", "is_there"), [(-1, False), (0, True), (1, True), (2, False), (True, False)])
def test_a_class_is_at_a_coordinate_of_its_axis(coordinate: int, *, is_there: bool) -> None:
    made = dataclasses.replace(step([work("a")]), classes=(RankClass("all", {"dp": coordinate}),))
    told = f"'all' is at dp {coordinate} of 2"
    assert (told in [each.message for each in workloads.check(made)]) is not is_there


@pytest.mark.parametrize(
    ("size_bytes", "remedy"),
    [
        (-4, "leave out what is not sent; a payload has at least 1 B"),
        (0, "leave out what is not sent; a payload has at least 1 B"),
        (1, None),
        (1 << 60, None),
        ((1 << 60) + 1, "at most 1,152,921,504,606,846,976 B"),
    ],
)
def test_a_payload_has_a_byte_and_at_most_an_exbibyte(size_bytes: int, remedy: str | None) -> None:
    payload = Payload("p", "all", "all-reduce", size_bytes, ("dp",), "dp", ("a",), (("b", 0),))
    found = workloads.check(step([work("a"), work("b")], payloads=(payload,)))
    assert [each.remedy for each in found if each.rule == "size"] == [remedy] * (remedy is not None)


@pytest.mark.parametrize(
    ("known", "listed"),
    [(3, "c0, c1, c2"), (8, "c0, c1, c2, c3, c4, c5, c6, c7"), (9, "c0, c1, c2, c3, c4, c5, c6, c7, ...")],
)
def test_up_to_eight_classes_are_offered_in_the_same_order_each_time(known: int, listed: str) -> None:
    """Whatever order a set of names has in this process."""
    classes = tuple(RankClass(f"c{at}", {"dp": at}) for at in range(known))
    made = Workload("by hand", Mesh((("dp", known),)), classes, (Task("a", "c9", "F", 1.0),))
    (found,) = workloads.check(made)
    assert (found.rule, found.remedy) == ("task", f"one of: {listed}")


def test_an_order_has_the_slots_of_its_own_class() -> None:
    """The first class runs forwards and backwards, the second forwards alone."""
    tasks = [Task("f", "first", "F", 1.0), Task("b", "first", "B", 1.0, slot=("B", 0))]
    tasks += [Task("g", "second", "F", 1.0)]
    made = Workload(
        "by hand",
        Mesh((("dp", 2),)),
        (RankClass("first", {"dp": 0}), RankClass("second", {"dp": 1})),
        tuple(tasks),
        order={"second": ((*tasks[2].slot, 0),)},
    )
    assert findings(made) == []
    missing = dataclasses.replace(made, order={"first": ((*tasks[0].slot, 0),)})
    assert [rule for rule, _ in findings(missing)] == ["order"]


@pytest.mark.parametrize(("mine", "other"), [("broadcast", "all-gather"), ("all-gather", "broadcast")])
def test_ranks_that_issue_another_operation_are_told_whichever_it_is(mine: str, other: str) -> None:
    (found,) = workloads.sequences("dp", {0: ["all-reduce", other], 1: ["all-reduce", mine]})
    assert found.where == "rank 1, operation 1"
    assert found.message == f"rank 1 issues {mine} as operation 1 of dp, rank 0 issues {other}"


@pytest.mark.parametrize(("broken", "more"), [(1, ""), (2, " (and 1 more)"), (3, " (and 2 more)")])
def test_the_error_of_an_illegal_workload_counts_the_rest(broken: int, more: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        workloads.require(step([work(f"t{at}", "X") for at in range(broken)]))
    assert refused.value.what == f"by hand is not legal: task: t0 is of kind 'X'{more}"


def test_every_broken_rewrite_is_told() -> None:
    policy = Policy(rewrites=(Rewrite("zip"), Rewrite("fuse"), Rewrite("zap")))
    found = [each for each in workloads.check(step([work("a")], policy=policy)) if each.rule == "policy"]
    assert [each.where for each in found] == [f"policy rewrite {at}" for at in range(3)]


@pytest.mark.parametrize(("micro_batches", "is_large"), [(2, False), (3, True)])
def test_large_is_counted_in_instances(monkeypatch: pytest.MonkeyPatch, micro_batches: int, is_large: bool) -> None:
    """Four micro-batch instances and one of the step, twice: 10 are looked at, 14 are not."""
    monkeypatch.setattr(workload_order, "MOST_INSTANCES", 10)
    tasks = [work("a"), work("b", "B"), work("u", "U", per="step")]
    found = findings(step(tasks, micro_batches=micro_batches))
    assert any("not looked at" in message for _, message in found) == is_large


def test_an_order_with_many_strange_entries_names_three() -> None:
    strange = tuple(("F", 7, at) for at in range(5))
    found = workloads.check(step([work("a")], order={"all": (("F", 0, 0), *strange)}))
    assert sum("which is no slot" in each.message for each in found) == 3


def test_findings_end_when_there_are_enough_errors() -> None:
    looked = 0

    def endless() -> Iterator[Finding]:
        nonlocal looked
        for _ in range(1000):
            looked += 1
            yield Finding("task", "wrong", "here", "mend it")

    assert len(workloads._some(endless(), 3)) == 3
    assert looked == 3


def test_warnings_do_not_push_errors_out() -> None:
    mixed = [*[doubt("order", "perhaps", "here", "look")] * 3, Finding("task", "wrong", "here", "mend it")]
    kept = workloads._some(iter(mixed), 2)
    assert [each.severity for each in kept] == ["warning", "warning", "error"]


def test_an_error_behind_many_warnings_is_found() -> None:
    """Of 60 payloads nobody waits for the first 59, and the last one is made by a task that does not exist."""
    idle = [Payload(f"p{at}", "all", "all-reduce", 8, ("dp",), "dp", ("a",), ()) for at in range(59)]
    wrong = Payload("wrong", "all", "all-reduce", 8, ("dp",), "dp", ("gone",), (("a", 0),))
    made = step([work("a")], payloads=(*idle, wrong))
    found = workloads.check(made)
    assert (len(found), found[0].rule, found[0].severity) == (20, "producer", "error")
    assert {each.severity for each in found[1:]} == {"warning"}
    with pytest.raises(WorkloadError, match="gone"):
        workloads.require(made)
    assert len(workloads.check(step([work("a")], payloads=tuple(idle)), 50)) == 50


# --------------------------------------------------------------------------------------------------- values and gates
def lying(*layout: Placement, size: int = 8) -> list[tuple[str, str]]:
    """Return what is found of a value of ``size`` rows that lies so on two by two ranks."""
    value = Value("x", "all", 8, (("rows", size), ("columns", 4)), layout)
    mesh = Mesh((("dp", 2), ("tp", 2)))
    return findings(dataclasses.replace(step([work("a", writes=("x",))], values=(value,)), mesh=mesh))


def test_a_value_may_lie_in_every_way_that_blocks_of_one_size_allow() -> None:
    assert lying() == []
    assert lying(Placement("dp", "sliced", "rows"), Placement("tp", "sliced", "rows")) == []
    assert lying(Placement("dp", "sliced", "columns"), Placement("tp", "partial")) == []
    assert lying(Placement("dp", "local"), size=7) == []
    assert lying(Placement("dp", "sliced", "rows"), size=0) == []


@pytest.mark.parametrize(
    ("layout", "size", "message"),
    [
        ([Placement("pp", "local")], 8, "x lies along 'pp'"),
        ([Placement("dp", "scattered", "rows")], 8, "x is 'scattered'"),
        ([Placement("dp", "sliced", "depth")], 8, "x is sliced along 'depth'"),
        ([Placement("dp", "sliced", "rows"), Placement("dp", "partial")], 8, "x lies along 'dp' in 2 ways"),
        ([Placement("dp", "sliced", "rows")], 7, "rows of x is 7, which 2 ranks do not share out evenly"),
        (
            [Placement("dp", "sliced", "rows"), Placement("tp", "sliced", "rows")], 6,
            "rows of x is 6, which 4 ranks do not share out evenly",
        ),
        ([], -1, "rows of x is -1, which 1 ranks do not share out evenly"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_lie_so_is_named(layout: list[Placement], size: int, message: str) -> None:
    assert lying(*layout, size=size) == [("layout", message)]


def test_a_step_of_values_alone_and_one_of_tasks_alone_are_both_looked_at() -> None:
    assert ("value", "x is a 'thing'") in findings(step([work("a")], values=(Value("x", "all", kind="thing"),)))
    assert any("y" in message for _, message in findings(step([work("a", reads=(("y", 0),))])))


@pytest.mark.parametrize(("closed", "by", "is_doubted"), [(1, 1, False), (2, 1, True), (1, 2, True), (2, 2, True)])
def test_a_gate_of_traffic_that_no_role_has_is_doubted_on_either_side(closed: int, by: int, is_doubted: bool) -> None:
    payload = Payload("p", "all", "all-reduce", 8, ("dp",), "dp", ("a",), (("b", 0),))
    policy = Policy(queue=Queue(traffic={"dp": 1}, gates=(Gate(closed, by),)))
    found = findings(step([work("a"), work("b")], payloads=(payload,), policy=policy))
    assert (("queue", "a gate of a traffic class that no role has") in found) == is_doubted


@pytest.mark.parametrize("lag", [0, 2])
def test_a_payload_of_another_step_than_what_it_carries_is_named_whichever_is_later(lag: int) -> None:
    values = (Value("x", "all", 8, per="step"), Value("y", "all", 8, per="step"))
    sent = Payload("p", "all", "all-reduce", 8, ("dp",), "dp", ("a",), (("b", 0),), source="x", result="y", lag=1)
    tasks = [work("a", "U", per="step", writes=("x",), lag=lag), work("b", "U", per="step", lag=1)]
    found = findings(step(tasks, payloads=(sent,), values=values))
    assert ("wait", "p carries x, which is of another step than its own (lag 1)") in found
