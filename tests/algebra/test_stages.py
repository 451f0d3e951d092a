"""The language of stages: layouts meet or are refused exactly by its type rules, and every rule behind it is proven."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ringwright.graph.algebra import RULES, RewriteError, rewritten
from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.graph.algebra.equality import prove
from ringwright.graph.algebra.stages import LAYOUTS, StageProgram, StageValue
from ringwright.ground.errors import UsageError
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Mesh, Workload
from ringwright_lab.papers.figures.coconet import optimizer

P = 4
BEHIND = ("m.faded", "m1", "g.squared", "v.faded", "v1", "move", "w1")


def program() -> tuple[StageProgram, dict[str, StageValue]]:
    step = StageProgram(P, n=8, k=8)
    made = {
        "local": step.input("l", "n k", "local"),
        "replicated": step.input("r", "n k"),
        "sliced": step.input("s", "n k", "sliced", "n"),
        "sliced otherwise": step.input("o", "n k", "sliced", "k"),
        "number": step.input("c", ""),
        "row": step.input("row", "k"),
    }
    return step, made


# ----------------------------------------------------------------------------------------------------------- type rules
MEET = {  # of two operands: the layout of what is made
    ("local", "local"): "local",
    ("replicated", "replicated"): "replicated",
    ("sliced", "sliced"): "sliced",
    ("local", "replicated"): "local",
    ("replicated", "local"): "local",
    ("sliced", "replicated"): "sliced",
    ("replicated", "sliced"): "sliced",
}


@pytest.mark.parametrize("one", LAYOUTS)
@pytest.mark.parametrize("other", LAYOUTS)
def test_two_operands_meet_or_are_refused(one: str, other: str) -> None:
    step, of = program()
    if (one, other) in MEET:
        made = step.pointwise("y", "add", of[one], of[other])
        assert made.layout == MEET[one, other]
        assert check(step.done(), warnings=False) == []
        return
    with pytest.raises(UsageError, match="they do not meet"):
        step.pointwise("y", "add", of[one], of[other])


REFUSED: dict[str, tuple[Callable[[StageProgram, dict[str, StageValue]], Any], str]] = {
    "slices of two dimensions": (
        lambda s, of: s.pointwise("y", "add", of["sliced"], of["sliced otherwise"]),
        "do not meet",
    ),
    "a number first": (lambda s, of: s.pointwise("y", "add", of["number"], of["row"]), "has no dimension"),
    "no such function": (lambda s, of: s.pointwise("y", "softmax", of["row"]), "is no stage"),
    "other elements": (
        lambda s, of: s.pointwise("y", "add", of["row"], s.cast("h", of["row"], "float16")),
        "element types",
    ),
    "a number sliced": (lambda s, of: s.scatter("y", of["number"], "n"), "share out"),
    "scatter what is local": (lambda s, of: s.scatter("y", of["local"], "n"), "not replicated"),
    "reduce what is whole": (lambda s, of: s.all_reduce("y", of["replicated"]), "not local"),
    "reduce what is sliced": (lambda s, of: s.reduce_scatter("y", of["sliced"], "n"), "not local"),
    "gather what is whole": (lambda s, of: s.all_gather("y", of["replicated"]), "not sliced"),
    "broadcast what is sliced": (lambda s, of: s.broadcast("y", of["sliced"]), "not local"),
    "no group to send to": (lambda s, of: s.send("y", of["replicated"]), "no group behind"),
    "no state": (lambda s, of: s.update(of["row"], of["row"]), "no state"),
    "a state by a slice": (
        lambda s, of: s.update(s.input("w", "n k", kind="parameter"), s.pointwise("y", "copy", of["sliced"])),
        "cannot take the place",
    ),
    "a product of local and sliced": (lambda s, of: s.matmul("y", of["local"], of["sliced"], "n"), "do not meet"),
    "uneven": (lambda s, of: StageProgram(3, n=8).scatter("y", StageProgram(3, n=8).input("x", "n"), "n"), "share out"),
    "an input sliced by nothing": (lambda s, of: s.input("x", "n", "sliced"), "an input that is"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused(what: str) -> None:
    make, says = REFUSED[what]
    with pytest.raises(UsageError, match=says) as caught:
        make(*program())
    assert caught.value.remedy


def test_layouts_of_operations() -> None:
    step, of = program()
    assert step.all_reduce("a", of["local"]).layout == "replicated"
    scattered = step.reduce_scatter("b", of["local"], "n")
    assert (scattered.layout, scattered.dim) == ("sliced", "n")
    assert step.all_gather("gathered", scattered).layout == "replicated"
    assert step.broadcast("d", of["local"], root=1).layout == "replicated"
    assert step.reduce("e", of["local"], root=2).layout == "local"
    assert step.scatter("f", of["replicated"], "k").dim == "k"
    assert step.reduce_tensor("g", of["sliced"]).layout == "local"
    assert step.reduce_tensor("h", of["replicated"]).layout == "replicated"
    assert step.pointwise("i", "relu", of["local"]).layout == "local"
    assert step.pointwise("j", "multiply", of["sliced"], of["number"]).layout == "sliced"
    with pytest.raises(UsageError, match="another stage or input"):
        step.pointwise("j", "copy", of["row"])
    assert step.pointwise("k1", "add", of["sliced otherwise"], of["row"]).dim == "k"
    assert re.fullmatch(r"StageValue\(a: n k, replicated\)", repr(StageValue(step.done().value["a"])))
    assert check(step.done(), warnings=False) == []
    assert prove(step.done(), step.done()).equal


@pytest.mark.parametrize(
    ("dims", "one", "other", "layout"),
    [("b h", "f", "f", "local"), ("b h", "b", "", "sliced"), ("b h", "", "h", "sliced"), ("b h", "", "", "replicated")],
)
def test_layouts_of_products(dims: str, one: str, other: str, layout: str) -> None:
    step = StageProgram(2, b=4, h=4, f=4)
    x = step.input("x", "b f", "sliced" if one else "replicated", one)
    w = step.input("w", "f h", "sliced" if other else "replicated", other)
    made = step.matmul("y", x, w, dims)
    assert made.layout == layout
    if layout == "local":
        made = step.all_reduce("z", made)
    assert check(step.done(), warnings=False) == []


def test_a_state_is_what_the_step_before_left() -> None:
    step = optimizer("sgd", P, 8)
    assert step.task["w1"].reads == (("w", 1), ("sum", 0))
    assert step.task["w1"].writes == ("w",)


# -------------------------------------------------------------------------------------------------------------- reorder
def split(step: Workload) -> Workload:
    return RULES["split-all-reduce"](step, "sum")


def test_reorder_moves_a_gather_behind_what_reads_it() -> None:
    before = optimizer("adam", P, 8, 7.0)
    after = RULES["reorder"](split(before), "sum.gather", over=BEHIND)
    assert prove(before, after).equal
    assert [each.source.removesuffix("~1") for each in after.payloads if each.op == "all-gather"] == [
        "m.slice",
        "v.slice",
        "w.slice",
    ]
    assert sum(task.seconds for task in after.tasks) == pytest.approx(7.0 / P)
    kept = rewritten(after, [("as-slice", "m", {}), ("as-slice", "v", {})])
    assert [each.op for each in kept.payloads] == ["reduce-scatter", "all-gather"]
    assert prove(before, kept).equal
    assert kept.value["m"].layout == after.value["sum.terms.scatter"].layout


def test_a_proof_sees_a_slice_that_is_wrong() -> None:
    """States in slices are compared by slice: with another scale nothing is equal."""
    before = optimizer("adam", P, 8)
    kept = rewritten(split(before), [("reorder", "sum.gather", {"over": list(BEHIND)}), ("as-slice", "m", {})])
    tasks = [each if each.name != "m.faded" else _scaled(each) for each in kept.tasks]
    from dataclasses import replace

    assert "m" in prove(before, replace(kept, tasks=tuple(tasks))).differing


def _scaled(task: Any) -> Any:
    from dataclasses import replace

    return replace(task, work=replace(task.work, settings={"fn": "scale", "by": 5}))


def sums(fn: str, along: str = "") -> Workload:
    graph = Build(Mesh((("rank", P),)), n=8, k=4)
    total = graph.send("sum", "AR", graph.input("x", "n k", partial("rank")), "rank")
    if fn == "local":
        own = graph.input("own", "n k", *(sliced("rank", "k"),))
        graph.task("y", "pointwise", [total, own], "n k", fn="add")
    elif fn == "rowwise":
        graph.task("y", "rowwise", [total], "n k", along=along)
    elif fn == "dropout":
        graph.task("y", "pointwise", [total], "n k", fn="dropout", counter=3)
    else:
        middle = graph.task("between", "pointwise", [total], "n k", fn=fn)
        graph.task("y", "pointwise", [middle, total], "n k", fn="add")
    return graph.step()


@pytest.mark.parametrize(
    ("made", "over", "says"),
    [
        (lambda: sums("square"), ["y"], "between lies between"),
        (lambda: sums("square"), ["between"], "y reads sum too"),
        (lambda: sums("square"), ["strange"], "it is no task"),
        (lambda: sums("rowwise", "n"), ["y"], "needs all of n at once"),
        (lambda: sums("dropout"), ["y"], "draws by rank"),
    ],
)
def test_reorder_is_refused_where_it_is_not_legal(made: Callable[[], Workload], over: list[str], says: str) -> None:
    with pytest.raises(RewriteError, match=says):
        RULES["reorder"](split(made()), "sum.gather", over=over)


def test_rows_along_another_dimension_and_positioned_dropout_move() -> None:
    before = sums("rowwise", "k")
    assert prove(before, RULES["reorder"](split(before), "sum.gather", over="y")).equal
    step = StageProgram(P, n=8)
    step.dropout("y", step.all_reduce("sum", step.input("x", "n", "local")), 5)
    before = step.done()
    for rule, knobs in (("reorder", {"over": ["y"]}), ("before-gather", {})):
        at = "sum.gather" if rule == "reorder" else "y"
        assert prove(before, RULES[rule](split(before), at, **knobs)).equal
    cut = RULES["cut"](before, "y", dim="n", parts=2)
    assert prove(before, cut).equal


def test_a_nonlinear_function_does_not_move_before_the_sum() -> None:
    with pytest.raises(RewriteError, match="square of a sum is not the sum of square"):
        RULES["through-sum"](sums("square"), "between")


# ---------------------------------------------------------------------------------------------- slices, sends, kernels
def test_states_that_are_read_whole_are_not_kept_in_slices() -> None:
    step = StageProgram(P, n=8)
    state = step.input("m", "n", kind="optimizer")
    new = step.update(state, step.pointwise("m1", "add", state, step.all_reduce("sum", step.input("g", "n", "local"))))
    step.pointwise("seen", "square", new)
    moved = RULES["reorder"](split(step.done()), "sum.gather", over="m1")
    with pytest.raises(RewriteError, match="seen reads all of it"):
        RULES["as-slice"](moved, "m")
    with pytest.raises(RewriteError, match="not gathered"):
        RULES["as-slice"](step.done(), "m")
    with pytest.raises(RewriteError, match="no state"):
        RULES["as-slice"](step.done(), "seen")


def test_messages_carry_slices() -> None:
    step = StageProgram(P, groups=2, n=8)
    step.pointwise("y", "square", step.send("z", step.all_reduce("sum", step.input("x", "n", "local"))))
    before = step.done()
    with pytest.raises(RewriteError, match="not gathered"):
        RULES["send-before-gather"](before, "z")
    after = RULES["send-before-gather"](split(before), "z")
    assert prove(before, after).equal
    assert after.payload["z"].size_bytes * P == before.payload["z"].size_bytes
    assert after.applied[-1].change.wire_bytes == {"pp": 8 - 32}
    assert after.payload["z.gather"].of == "g1"


def test_a_kernel_holds_one_operation() -> None:
    before = optimizer("sgd", P, 8, 1.0)
    sliced_step = RULES["reorder"](split(before), "sum.gather", over="w1")
    kernel = RULES["fuse-collective"](sliced_step, "w1", within=["sum.scatter", "w.gather"], saved_us=5.0)
    assert prove(before, kernel).equal
    assert kernel.task["w1"].stream == "kernel of sum.scatter"
    assert kernel.task["w1"].seconds == pytest.approx(1.0 / P - 5e-6)
    for within, saved, says in (
        (["w.gather", "strange"], 0.0, "it is no payload"),
        (["sum.scatter"], 1e9, "one kernel saves"),
        ([], 0.0, "right before it or behind it"),
    ):
        with pytest.raises(RewriteError, match=says):
            RULES["fuse-collective"](sliced_step, "w1", within=within, saved_us=saved)
    read_twice = sums("square")
    with pytest.raises(RewriteError, match="never leave the kernel"):
        RULES["fuse-collective"](read_twice, "between", within="sum")
