"""Memory over a step of small jobs by hand: from whom to whom a value is there, and how many micro-batches of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringwright.graph.memory import memory, peak_bytes
from ringwright.graph.pipelines import order
from ringwright.model.validity.workloads import require
from ringwright.model.values import PARTIAL, SLICED, Placement, Value
from ringwright.model.workload import Edge, Mesh, Payload, RankClass, Task, Workload

KEPT, WEIGHTS = 100, 7


def pipeline(stages: int, micro_batches: int, schedule: str = "1f1b", chunks: int = 1) -> Workload:
    """Return a pipeline whose chunks keep ``KEPT`` bytes from forward to backward and have ``WEIGHTS`` of parameters."""
    tasks, edges, values, classes, orders = [], [], [], [], {}
    for at in range(stages):
        of = f"stage{at}"
        classes.append(RankClass(of, {"pp": at}))
        orders[of] = order(schedule, stages, at, micro_batches, chunks)
        for chunk in range(chunks):
            name = f"{of}.{chunk}"
            tasks.append(Task(f"F{name}", of, "F", 1.0, slot=("F", chunk), writes=(f"kept{name}",)))
            tasks.append(Task(f"B{name}", of, "B", 2.0, slot=("B", chunk), reads=((f"kept{name}", 0),)))
            edges.append(Edge(f"F{name}", f"B{name}"))
            values.append(Value(f"kept{name}", of, KEPT))
        values.append(Value(f"weights{at}", of, WEIGHTS, kind="parameter", per="step"))
    mesh = Mesh((("pp", stages),))
    made = Workload("pipe", mesh, tuple(classes), tuple(tasks), tuple(edges), (), (), micro_batches, orders)
    return require(replace(made, values=tuple(values)))


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 8), (4, 3), (8, 8), (1, 5)])
def test_1f1b_holds_as_many_micro_batches_as_stages_are_left(stages: int, micro_batches: int) -> None:
    accounts = memory(pipeline(stages, micro_batches))
    held = [(each.peak_bytes - WEIGHTS) // KEPT for each in accounts]
    assert held == [min(stages - stage, micro_batches) for stage in range(stages)]
    assert accounts[0].by_kind["parameter"] == WEIGHTS


@pytest.mark.parametrize(("stages", "chunks"), [(4, 2), (8, 3)])
def test_interleaving_holds_its_factor_more_on_the_first_stage(stages: int, chunks: int) -> None:
    """arXiv 2205.05198, section 4.2.3: 1 + (p - 1) / (p v) of the p micro-batches, whose chunks are a v-th as large."""
    first = memory(pipeline(stages, 4 * stages, chunks=chunks))[0]
    assert first.by_kind["activation"] // KEPT == stages * chunks + stages - 1


def test_gpipe_holds_all_micro_batches_on_every_stage() -> None:
    accounts = memory(pipeline(4, 6, "gpipe"))
    assert [each.by_kind["activation"] for each in accounts] == [6 * KEPT] * 4


def test_memory_over_time_is_that_of_the_order_and_peaks_where_it_says() -> None:
    (account,) = memory(pipeline(1, 2))
    assert account.line == (
        ("Fstage0.0", 0, 107),
        ("Bstage0.0", 0, 107),
        ("Fstage0.0", 1, 107),
        ("Bstage0.0", 1, 107),
    )
    assert account.at == ("Fstage0.0", 0)
    assert [(each.name, each.size_bytes, each.copies) for each in account.holders] == [
        ("keptstage0.0", 100, 1),
        ("weights0", 7, 1),
    ]


def test_another_order_of_a_policy_holds_more() -> None:
    made = pipeline(1, 2)
    line = (("Fstage0.0", 0), ("Fstage0.0", 1), ("Bstage0.0", 0), ("Bstage0.0", 1))
    assert peak_bytes(made.with_policy("eager", order={"stage0": line})) == 2 * KEPT + WEIGHTS


def exchange(op: str, result_bytes: int, layout: tuple[Placement, ...], after: tuple[Placement, ...]) -> Workload:
    """Return a task whose 100 bytes go through an operation while another one runs, to a third."""
    tasks = (
        Task("A", "all", "F", writes=("made",)),
        Task("beside", "all", "F"),
        Task("C", "all", "F", reads=(("brought", 0),)),
    )
    values = (Value("made", "all", 100, layout=layout), Value("brought", "all", result_bytes, layout=after))
    sent = Payload(
        "p", "all", op, 100, ("tp",), "tp", ("A",), (("C", 0),), per="micro-batch", source="made", result="brought"
    )
    edges = (Edge("A", "beside"), Edge("beside", "C"))
    return require(Workload("sent", Mesh((("tp", 2),)), (RankClass("all"),), tasks, edges, (sent,), values=values))


def test_an_all_reduce_is_done_in_place_and_a_gather_needs_both_ends() -> None:
    partial, block = (Placement("tp", PARTIAL),), (Placement("tp", SLICED),)
    reduced = memory(exchange("all-reduce", 100, partial, ()))[0]
    assert [held for _, _, held in reduced.line] == [100, 100, 100]
    gathered = memory(exchange("all-gather", 200, block, ()))[0]
    assert [held for _, _, held in gathered.line] == [100, 300, 200]


def test_what_is_read_in_the_next_step_is_there_at_both_ends_of_a_step() -> None:
    tasks = (
        Task("A", "all", "F", reads=(("late", 1),)),
        Task("B", "all", "B", slot=("B", 0)),
        Task("C", "all", "B", slot=("B", 0), writes=("late",)),
    )
    edges = (Edge("A", "B"), Edge("B", "C"), Edge("C", "A", 1))
    made = Workload("carried", Mesh(), (RankClass("all"),), tasks, edges, values=(Value("late", "all", 5),))
    assert [held for _, _, held in memory(require(made))[0].line] == [5, 0, 5]


def test_a_received_value_is_there_from_its_first_reader_on() -> None:
    """Of what another class sends only the use says when it has to be there."""
    tasks = (
        Task("send", "a", "F", writes=("out",)),
        Task("first", "b", "F"),
        Task("use", "b", "F", reads=(("in", 0),)),
        Task("last", "b", "F"),
    )
    values = (Value("out", "a", 3), Value("in", "b", 3))
    sent = Payload(
        "p",
        "a",
        "send-recv",
        3,
        ("pp",),
        "pp",
        ("send",),
        (("use", 0),),
        per="micro-batch",
        peer="b",
        source="out",
        result="in",
    )
    classes = (RankClass("a", {"pp": 0}), RankClass("b", {"pp": 1}))
    edges = (Edge("first", "use"), Edge("use", "last"))
    made = require(Workload("two", Mesh((("pp", 2),)), classes, tasks, edges, (sent,), values=values))
    assert [held for _, _, held in memory(made)[1].line] == [0, 3, 0]


def test_nothing_is_said_where_nothing_is_known() -> None:
    made = pipeline(2, 2)
    assert memory(made.without_values()) == ()
    assert peak_bytes(made.without_values()) is None
    partly = replace(made, tasks=(*made.tasks, Task("other", "stage0", "F", 1.0)))
    assert memory(partly) == ()  # one task that computes says nothing: the rest would be a part of the truth
    assert require(made.without_values()).task["Fstage0.0"].writes == ()
