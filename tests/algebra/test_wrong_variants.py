"""Tempting variants of rules are refused, and where the graph is written by hand as they would have it, the numbers differ.

Each is a correct graph, the wrong one, who refuses it (a rule at a site, or the checker), and at which group sizes the numbers tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

import algebra_cases as cases
from ringwright.graph.algebra import RULES, RewriteError
from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.graph.algebra.editing import local
from ringwright.graph.algebra.equality import prove
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload

LEVELS = (4, 6, 8)
ALL = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Wrong:
    name: str
    right: Callable[[int], Workload]
    wrong: Callable[[int], Workload] | None
    rule: Callable[[Workload], Workload] | None
    sizes: tuple[int, ...] = ALL
    checked: bool = True  # whether the checker refuses the graph, too


def s3_plain(p: int) -> Workload:
    """Reduce-scatter inside, then across, without sorting the blocks first."""
    graph = Build(cases.two(p), b=2 * p, h=4)
    x = graph.input("x", "b h", partial("x"), partial("i"))
    made = graph.task("f", "", [x], "b h", partial("x"), partial("i"))
    inside = graph.send("inside", "RS", made, "i", partial("x"), sliced("i", "b"))
    y = graph.send("y", "RS", inside, "x", sliced("x", "b"), sliced("i", "b"))
    graph.task("end", "", [y], "b h", sliced("x", "b"), sliced("i", "b"))
    return graph.step()


def s4_plain(p: int) -> Workload:
    """All-gather across first, then inside, without sorting the blocks back."""
    graph = Build(cases.two(p), b=2 * p, h=4)
    cuts = [sliced("x", "b"), sliced("i", "b")]
    made = graph.task("f", "", [graph.input("x", "b h", *cuts)], "b h", *cuts)
    across = graph.send("across", "AG", made, "x", sliced("i", "b"))
    graph.task("end", "", [graph.send("y", "AG", across, "i")], "b h")
    return graph.step()


def s5_plain(p: int) -> Workload:
    """An exchange inside, then across, of blocks in their own order."""
    graph = Build(cases.two(p), b=2 * p, h=3 * p, k=4)
    cuts = [sliced("x", "b"), sliced("i", "b")]
    made = graph.task("f", "", [graph.input("x", "b h k", *cuts)], "b h k", *cuts)
    inside = graph.send("inside", "A2A", made, "i", sliced("x", "b"), sliced("i", "h"))
    y = graph.send("y", "A2A", inside, "x", sliced("x", "h"), sliced("i", "h"))
    graph.task("end", "", [y], "b h k", sliced("x", "h"), sliced("i", "h"))
    return graph.step()


def rows_sliced(p: int) -> Workload:
    """Rows of d worked on slice by slice, then gathered along d."""
    graph = Build(cases.one(p), d=2 * p, h=3)
    made = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    part = graph.task("y.part", "rowwise", [made], "d h", sliced("a", "d"), along="d")
    graph.task("end", "", [graph.send("y", "AG", part, "a")], "d h")
    return graph.step()


def relu_of_terms(p: int) -> Workload:
    graph = Build(cases.one(p), d=2 * p, h=3)
    x = graph.task("f0", "", [graph.input("x", "d h", partial("a"))], "d h", partial("a"))
    terms = graph.task("y.terms", "pointwise", [x], "d h", partial("a"), fn="relu")
    graph.task("end", "", [graph.send("y", "AR", terms, "a")], "d h")
    return graph.step()


def bucket_in_a_row(p: int, op: str = "RS") -> Workload:
    """u, v and w one behind the other, scattered (or gathered), and taken apart as if they still were."""
    graph = Build(cases.one(p), u=2 * p, v=3 * p, w=p, all=6 * p)
    scattered = op == "RS"
    lies, after = ([partial("a")], "sliced") if scattered else (None, "")
    made = []
    for name in "uvw":
        mine = lies or [sliced("a", name)]
        made.append(graph.task(f"f{name}", "", [graph.input(f"x{name}", name, *mine)], name, *mine))
    before = lies or [sliced("a", "all")]
    parts = [2 * p, 3 * p, p]
    settings = {"along": "all", "blocks": 1, "parts": parts}
    joined = graph.task("joined", "join", made, "all", *before, **settings)
    behind = [sliced("a", "all")] if after else []
    whole = graph.send("sent", op, joined, "a", *behind)
    step_values = []
    for at, name in enumerate("uvw"):
        mine = [sliced("a", name)] if after else []
        value = graph.value(f"s{name}", name, *mine)
        step_values.append((value, mine))
        graph.task(f"end{at}", "", [value], name, *mine)
    built = graph.step()
    from ringwright.graph.algebra.editing import StepGraph

    edit = StepGraph(built)
    node = edit.tasks["end0"]
    edit.copying("apart", node, "cut", settings, [whole], [value for value, _ in step_values])
    return edit.done()


def bias_on_all(p: int) -> Workload:
    graph = Build(cases.one(p), d=4, h=3)
    x = graph.task("f0", "", [graph.input("x", "d h", partial("a"))], "d h", partial("a"))
    terms = graph.task("terms", "pointwise", [x, graph.input("b", "h")], "d h", partial("a"), fn="add")
    graph.task("end", "", [graph.send("y", "AR", terms, "a")], "d h")
    return graph.step()


def whole_beside_slice(p: int) -> Workload:
    """A slice multiplied with the first block of the other operand, on every rank."""
    graph = Build(cases.one(p), d=2 * p, h=3, e=2)
    made = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    z = graph.input("z", "d h")
    first = graph.task("first", "cut", [z], "e h", along="d", blocks=1, parts=[2, 2 * p - 2])
    mine = graph.task("mine", "copy", [made], "e h", local("a"))
    part = graph.task("part", "pointwise", [mine, first], "e h", local("a"), fn="multiply")
    lies = graph.task("lies", "copy", [part], "d h", sliced("a", "d"))
    graph.task("end", "", [graph.send("y", "AG", lies, "a")], "d h")
    return graph.step()


def in_a_row_scatter(p: int) -> Workload:
    """Halves of the rows scattered one after the other, their slices joined as they come (D3 without blocks)."""
    graph = Build(cases.one(p), b=2 * p, half=p, h=4)
    x = graph.task("f", "", [graph.input("x", "b h", partial("a"))], "b h", partial("a"))
    halves = [graph.value(f"y.{at}", "half h", partial("a")) for at in range(2)]
    sent = [graph.send(f"s{at}", "RS", value, "a", sliced("a", "half")) for at, value in enumerate(halves)]
    y = graph.task("y", "join", sent, "b h", sliced("a", "b"), along="b", blocks=p, parts=[p, p])
    graph.task("end", "", [y], "b h", sliced("a", "b"))
    from ringwright.graph.algebra.editing import StepGraph

    edit = StepGraph(graph.step())
    near = edit.tasks["y"]
    edit.copying("cut", near, "cut", {"along": "b", "blocks": 1, "parts": [p, p]}, [x], halves)
    return edit.done()


def rotated_wrongly(p: int) -> Workload:
    """A looped product whose blocks go to the places of another direction."""
    made = RULES["loop-gather"](cases.gathered_product(p), "y")
    tasks = []
    for each in made.tasks:
        task = each
        if task.work and task.work.meaning == "join":
            offsets = [-each for each in task.work.settings["offsets"]]
            task = replace(task, work=replace(task.work, settings={**task.work.settings, "offsets": offsets}))
        tasks.append(task)
    return replace(made, tasks=tuple(tasks))


def one_shift_short(p: int) -> Workload:
    """A ring reduce-scatter that begins with its own block."""
    made = RULES["ring-reduce-scatter"](cases.reduce_scatter(p), "y")
    tasks = []
    for each in made.tasks:
        task = each
        if task.work and task.work.meaning == "cut":
            settings = {**task.work.settings, "offsets": list(range(p))}
            task = replace(task, work=replace(task.work, settings=settings))
        tasks.append(task)
    return replace(made, tasks=tuple(tasks))


def drawn_again(p: int) -> Workload:
    """Recomputed with a mask drawn anew."""
    made = RULES["recompute"](cases.forward_backward(p, counter=3), "act1")
    tasks = [
        replace(each, work=replace(each.work, settings={**each.work.settings, "counter": None}))
        if each.work and each.work.settings.get("fn") == "dropout"
        else each
        for each in made.tasks
    ]
    return replace(made, tasks=tuple(tasks))


def statistics(p: int) -> Workload:
    """A norm over the batch: each part of the batch would be normed by itself."""
    graph = Build(cases.one(p), b=4, h=6)
    x = graph.task("f0", "", [graph.input("x", "b h")], "b h")
    graph.task("end", "", [graph.task("y", "rowwise", [x], "b h", along="b")], "b h")
    return graph.step()


def statistics_by_part(p: int) -> Workload:
    graph = Build(cases.one(p), b=4, h=6, half=2)
    x = graph.task("f0", "", [graph.input("x", "b h")], "b h")
    halves = [graph.value(f"half{at}", "half h") for at in range(2)]
    normed = [graph.task(f"y{at}", "rowwise", [half], "half h", along="half") for at, half in enumerate(halves)]
    y = graph.task("y", "join", normed, "b h", along="b", blocks=1, parts=[2, 2])
    graph.task("end", "", [y], "b h")
    from ringwright.graph.algebra.editing import StepGraph

    edit = StepGraph(graph.step())
    edit.copying("cut", edit.tasks["y0"], "cut", {"along": "b", "blocks": 1, "parts": [2, 2]}, [x], halves)
    return edit.done()


def stale(p: int) -> Workload:
    """Parameters read one step too late: the update is done in the next step, and its reader waits for the one before."""
    made = RULES["next-step"](cases.training(p), "U0")
    tasks = tuple(
        replace(each, reads=tuple((n, d + 1 if n == "w0" else d) for n, d in each.reads)) if each.name == "F0" else each
        for each in made.tasks
    )
    return replace(made, tasks=tasks)


def apply(name: str, at: str, **knobs: object) -> Callable[[Workload], Workload]:
    return lambda workload: RULES[name](workload, at, **knobs)


WRONG = (
    Wrong("S3 without sorting", lambda p: cases.reduce_scatter(p, cases.two(p)), s3_plain, None, LEVELS),
    Wrong("S4 across first without sorting", lambda p: cases.all_gather(p, cases.two(p)), s4_plain, None, LEVELS),
    Wrong("S5 without sorting", lambda p: cases.all_to_all(p, cases.two(p)), s5_plain, None, LEVELS),
    Wrong(
        "O2 along the dimension that is gathered",
        lambda p: cases.gathered(p, "rowwise", along="d"),
        rows_sliced,
        apply("before-gather", "y"),
    ),
    Wrong("O3 of relu", lambda p: cases.summed(p, fn="relu"), relu_of_terms, apply("through-sum", "y")),
    Wrong("O4 on all ranks", cases.biased, bias_on_all, None),
    Wrong(
        "O1 with a block of the other operand",
        lambda p: cases.gathered(p, other="z", fn="multiply"),
        whole_beside_slice,
        None,
        checked=False,
    ),
    Wrong("F2 in a row", lambda p: cases.buckets(p, "RS"), bucket_in_a_row, None),
    Wrong("F2 in a row, gathered", lambda p: cases.buckets(p, "AG"), lambda p: bucket_in_a_row(p, "AG"), None),
    Wrong("D3 in a row", cases.reduce_scatter, in_a_row_scatter, None, checked=False),
    Wrong("L1 turned round", cases.gathered_product, rotated_wrongly, None, (3, 4, 6, 8), checked=False),
    Wrong("S7 begun with its own", cases.reduce_scatter, one_shift_short, None, (2, 3, 4, 6, 8), checked=False),
    Wrong(
        "R1 of what is drawn anew",
        lambda p: cases.forward_backward(p, counter=3),
        drawn_again,
        lambda workload: apply("recompute", "act1")(cases.forward_backward(4, counter=None)),
        checked=False,
    ),
    Wrong(
        "C3 of a batch's statistics", statistics, statistics_by_part, apply("cut", "y", dim="b", parts=2), checked=False
    ),
    Wrong("X2 read too late", cases.training, stale, apply("next-step", "grad0"), checked=False),
)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_variant_gives_other_numbers_and_is_refused(case: Wrong) -> None:
    for p in case.sizes:
        right = case.right(p)
        assert check(right, warnings=False) == []
        if case.wrong is not None:
            wrong = case.wrong(p)
            assert not prove(right, wrong, draws=4).equal, f"{p} ranks"
            findings = [each.rule for each in check(wrong, warnings=False)]
            assert not case.checked or {"layout", "wait"} & set(findings), findings
        if case.rule is not None:
            with pytest.raises(RewriteError) as caught:
                case.rule(right)
            assert caught.value.remedy
            assert caught.value.at
