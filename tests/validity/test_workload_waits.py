"""Who reads a value waits for whoever writes it, directly or through others; payloads turn one layout into another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringwright.model.validity.workloads import check
from ringwright.model.values import PARTIAL, SLICED, Placement, Value
from ringwright.model.workload import Edge, Mesh, Payload, RankClass, Task, Workload


def step() -> Workload:
    """Return forward, backward and update of one layer; backward reads what forward kept, forward what the update left."""
    tasks = (
        Task("F", "all", "F", reads=(("weights", 1),), writes=("kept",)),
        Task("L", "all", "F"),
        Task("B", "all", "B", slot=("B", 0), reads=(("kept", 0), ("weights", 1)), writes=("sums",)),
        Task("U", "all", "U", slot=("U", 0), per="step", reads=(("gradient", 0),), writes=("weights",)),
    )
    values = (
        Value("weights", "all", 8, kind="parameter", per="step"),
        Value("kept", "all", 8),
        Value("sums", "all", 8, layout=(Placement("dp", PARTIAL),), kind="gradient", per="step"),
        Value("gradient", "all", 8, kind="gradient", per="step"),
    )
    gradient = Payload(
        "g", "all", "all-reduce", 8, ("dp",), "dp", ("B",), (("U", 0),), source="sums", result="gradient"
    )
    edges = (Edge("F", "L"), Edge("L", "B"), Edge("U", "F", 1))
    return Workload("chain", Mesh((("dp", 2),)), (RankClass("all"),), tasks, edges, (gradient,), values=values)


def test_waiting_through_others_is_waiting() -> None:
    assert check(step()) == []


@pytest.mark.parametrize(
    ("edges", "told"),
    [
        ((Edge("F", "L"), Edge("U", "F", 1)), "B reads kept and does not wait for F, which writes it"),
        ((Edge("F", "L"), Edge("L", "B")), "F reads weights and does not wait for U, which writes it"),
        (
            (Edge("L", "B"), Edge("F", "B"), Edge("U", "L", 1)),
            "F reads weights and does not wait for U, which writes it",
        ),
    ],
)
def test_a_reader_that_nothing_makes_wait_is_named(edges: tuple[Edge, ...], told: str) -> None:
    found = check(replace(step(), edges=edges))[0]
    assert (found.rule, found.message) == ("wait", told)


def test_a_reader_of_what_a_payload_brings_waits_for_its_consumer() -> None:
    made = step()
    late = Task("V", "all", "U", slot=("U", 0), per="step", reads=(("gradient", 0),))
    with_late = replace(made, tasks=(*made.tasks, late))
    assert check(with_late)[0].message == "V reads gradient and does not wait for g, which brings it"
    assert check(replace(with_late, edges=(*made.edges, Edge("U", "V")))) == []


def test_a_payload_may_carry_what_was_written_in_the_step_before_but_not_what_nothing_orders() -> None:
    """As fully sharded parameters do: updated at the end of a step, gathered at the begin of the next one."""
    made = step()
    part = replace(made.value["weights"], name="part", layout=(Placement("dp", SLICED),))
    gather = Payload("w", "all", "all-gather", 8, ("dp",), "dp", ("F",), (("L", 0),), source="part", result="whole")
    update = replace(made.task["U"], writes=("weights", "part"))
    whole = replace(part, name="whole", layout=(), kind="buffer")
    sharded = replace(
        made,
        tasks=(*made.tasks[:-1], update),
        payloads=(*made.payloads, gather),
        values=(*made.values, part, whole),
    )
    assert check(sharded) == []
    loose = replace(sharded, edges=(Edge("F", "L"), Edge("L", "B"), Edge("U", "L", 1)))
    assert [each.rule for each in check(loose)] == ["wait", "wait"]


def test_a_sum_of_what_every_rank_has_whole_is_refused() -> None:
    made = step()
    values = tuple(replace(each, layout=()) if each.name == "sums" else each for each in made.values)
    found = check(replace(made, values=values))[0]
    assert (found.rule, found.where) == ("layout", "payload g")
