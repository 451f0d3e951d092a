"""Graphs on which every rule of the algebra applies, and graphs in which a tempting variant of a rule was forced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.graph.algebra.editing import local
from ringwright.model.values import MatrixProduct, Value, Work, WorkPart
from ringwright.model.workload import Mesh, Workload

COST = Work(flops=64.0, cuts={})


def one(p: int) -> Mesh:
    return Mesh((("a", p),))


def two(p: int) -> Mesh:
    """p ranks on two levels, 2 or 3 inside."""
    inside = next((m for m in (2, 3) if p % m == 0), 1)
    return Mesh((("x", p // inside), ("i", inside)))


@dataclass(frozen=True)
class Case:
    """A rule at a site of a graph; ``sizes`` are the group sizes at which it applies."""

    name: str
    make: Callable[[int], Workload]
    rules: tuple[tuple[str, str, dict[str, Any]], ...]
    sizes: tuple[int, ...] = (2, 3, 4, 6, 8)
    inputs: dict[str, Any] = field(default_factory=dict)


def _end(graph: Build, value: Value, dims: str, *layout: Any) -> Workload:
    """Close a graph with a task that nobody knows anything of: it depends on all of the value."""
    graph.task("end", "", [value], dims, *layout)
    return graph.step()


def all_reduce(p: int, uneven: bool = False, mesh: Mesh | None = None) -> Workload:
    mesh = mesh or one(p)
    axes = [name for name, _ in mesh.axes]
    graph = Build(mesh, b=2 * p + (1 if uneven else 0), h=3 * p)
    x = graph.input("x", "b h", *(partial(axis) for axis in axes))
    made = graph.task("f", "", [x], "b h", *(partial(axis) for axis in axes))
    return _end(graph, graph.send("y", "AR", made, " ".join(axes)), "b h")


def reduce_scatter(p: int, mesh: Mesh | None = None) -> Workload:
    mesh = mesh or one(p)
    axes = [name for name, _ in mesh.axes]
    graph = Build(mesh, b=2 * p, h=4)
    x = graph.input("x", "b h", *(partial(axis) for axis in axes))
    made = graph.task("f", "", [x], "b h", *(partial(axis) for axis in axes))
    cuts = [sliced(axis, "b") for axis in axes]
    return _end(graph, graph.send("y", "RS", made, " ".join(axes), *cuts), "b h", *cuts)


def all_gather(p: int, mesh: Mesh | None = None) -> Workload:
    mesh = mesh or one(p)
    axes = [name for name, _ in mesh.axes]
    graph = Build(mesh, b=2 * p, h=4)
    cuts = [sliced(axis, "b") for axis in axes]
    made = graph.task("f", "", [graph.input("x", "b h", *cuts)], "b h", *cuts)
    return _end(graph, graph.send("y", "AG", made, " ".join(axes)), "b h")


def all_to_all(p: int, mesh: Mesh | None = None) -> Workload:
    mesh = mesh or one(p)
    axes = [name for name, _ in mesh.axes]
    graph = Build(mesh, b=2 * p, h=3 * p, k=4)
    made = graph.task(
        "f", "", [graph.input("x", "b h k", *(sliced(a, "b") for a in axes))], "b h k", *(sliced(a, "b") for a in axes)
    )
    cuts = [sliced(axis, "h") for axis in axes]
    return _end(graph, graph.send("y", "A2A", made, " ".join(axes), *cuts), "b h k", *cuts)


def product(p: int) -> Workload:
    graph = Build(one(p), g=2, b=4, h=6, f=5)
    x, w = graph.input("x", "g b h"), graph.input("w", "g h f")
    y = graph.task("y", "einsum", [x, w], "g b f", cost=COST)
    return _end(graph, y, "g b f")


def points(p: int) -> Workload:
    graph = Build(one(p), b=4, h=6)
    x, z = graph.input("x", "b h"), graph.input("z", "h")
    y = graph.task("y", "pointwise", [x, z], "b h", fn="multiply")
    y = graph.task("r", "pointwise", [y], "b h", fn="relu")
    y = graph.task("n", "rowwise", [y], "b h", along="h")
    return _end(graph, y, "b h")


def block(p: int) -> Workload:
    """A tensor parallel block: two products with an all-reduce behind them, a norm before."""
    graph = Build(one(p), b=6, h=4, f=2 * p)
    x = graph.task("f0", "", [graph.input("x", "b h")], "b h")
    n = graph.task("norm", "rowwise", [x], "b h", along="h")
    u = graph.task("up", "einsum", [n, graph.input("w1", "h f", sliced("a", "f"))], "b f", sliced("a", "f"), cost=COST)
    r = graph.task("act", "pointwise", [u], "b f", sliced("a", "f"), fn="relu")
    d = graph.task("down", "einsum", [r, graph.input("w2", "f h", sliced("a", "f"))], "b h", partial("a"), cost=COST)
    s = graph.send("sum", "AR", d, "a")
    y = graph.task("res", "pointwise", [s, x], "b h", fn="add")
    return _end(graph, y, "b h")


def experts(p: int) -> Workload:
    """Tokens go to the ranks of their experts, through them, and back, with a capacity c for each pair."""
    graph = Build(one(p), e=p, s=p, c=4, h=3, f=2)
    x = graph.task("route", "", [graph.input("x", "s e c h", sliced("a", "s"))], "s e c h", sliced("a", "s"))
    there = graph.send("dispatch", "A2A", x, "a", sliced("a", "e"), role="ep")
    w = graph.input("w", "e h f", sliced("a", "e"))
    y = graph.task("expert", "einsum", [there, w], "s e c f", sliced("a", "e"), cost=COST)
    back = graph.send("combine", "A2A", y, "a", sliced("a", "s"), role="ep")
    return _end(graph, back, "s e c f", sliced("a", "s"))


def gathered_product(p: int, how: str = "free") -> Workload:
    """An einsum behind an all-gather along d: a free dimension of x, one that is summed up, or a batch dimension."""
    graph = Build(one(p), d=2 * p, h=3, f=5)
    x = graph.input("x", "d h", sliced("a", "d"))
    made = graph.task("f0", "", [x], "d h", sliced("a", "d"))
    whole = graph.send("whole", "AG", made, "a")
    dims = {"free": ("h f", "d f"), "sum": ("d f", "h f"), "batch": ("d h f", "d f")}[how]
    y = graph.task("y", "einsum", [whole, graph.input("w", dims[0])], dims[1], cost=COST)
    return _end(graph, y, dims[1])


def gathered_twice(p: int) -> Workload:
    """Two products of one gathered value."""
    graph = Build(one(p), d=2 * p, h=3, f=5)
    made = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    whole = graph.send("whole", "AG", made, "a")
    y = graph.task("y", "einsum", [whole, graph.input("w", "h f")], "d f", cost=COST)
    graph.task("other", "", [whole], "d h")
    return _end(graph, y, "d f")


def gathered_slices(p: int) -> Workload:
    """A product of a gathered value and a matrix that is cut by columns, as tensor parallel layers begin."""
    graph = Build(one(p), d=2 * p, h=3, f=2 * p)
    made = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    whole = graph.send("whole", "AG", made, "a")
    w = graph.input("w", "h f", sliced("a", "f"))
    y = graph.task("y", "einsum", [whole, w], "d f", sliced("a", "f"), cost=COST)
    return _end(graph, y, "d f", sliced("a", "f"))


ROWS = Work(flops=64.0, cuts={"d": 0.25}, products=(MatrixProduct(4096, 1024, 1024),))


def unknown_gathered(p: int) -> Workload:
    """A task of unknown meaning behind a gather, that works row by row, and reads parameters of the step before."""
    graph = Build(one(p), d=2 * p, h=3, f=2 * p)
    made = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    whole = graph.send("whole", "AG", made, "a")
    w = graph.value("w", "f", sliced("a", "f"), kind="parameter")
    y = graph.task("y", "", [whole, (w, 1)], "d f", sliced("a", "f"), cost=ROWS)
    return _end(graph, y, "d f", sliced("a", "f"))


def unknown_scattered(p: int) -> Workload:
    """A task of unknown meaning before a scatter, that works row by row on features of which each rank has some."""
    graph = Build(one(p), d=2 * p, h=3 * p, f=4)
    x = graph.input("x", "d h", sliced("a", "h"))
    y = graph.task("y", "", [x], "d f", partial("a"), cost=ROWS)
    return _end(graph, graph.send("z", "RS", y, "a", sliced("a", "d")), "d f", sliced("a", "d"))


def several_kernels(p: int) -> Workload:
    """A tensor parallel segment as one task: rows enter it gathered, something looks at all of them, and rows leave it."""
    graph = Build(one(p), d=2 * p, h=3, f=2 * p)
    made = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    whole = graph.send("whole", "AG", made, "a")
    handed = (("d", 2 * p), ("f", 2 * p)), (sliced("a", "f"),), 8 * p
    parts = (
        WorkPart(0.5, replace(ROWS, flops=16.0), (0,), (), *handed),
        WorkPart(0.25, Work(flops=32.0), (), (), *handed),
        WorkPart(0.25, replace(ROWS, flops=16.0), (), (0,)),
    )
    y = graph.task("y", "", [whole], "d h", partial("a"), cost=Work(flops=64.0, parts=parts))
    return _end(graph, graph.send("z", "RS", y, "a", sliced("a", "d")), "d h", sliced("a", "d"))


def product_scattered(p: int) -> Workload:
    graph = Build(one(p), d=2 * p, h=3 * p, f=4)
    x, w = graph.input("x", "d h", sliced("a", "h")), graph.input("w", "h f", sliced("a", "h"))
    y = graph.task("y", "einsum", [x, w], "d f", partial("a"), cost=COST)
    z = graph.send("z", "RS", y, "a", sliced("a", "d"))
    return _end(graph, z, "d f", sliced("a", "d"))


def gathered(p: int, meaning: str = "pointwise", other: str = "", **settings: Any) -> Workload:
    """A function of a gathered value, with another operand: whole, or none."""
    graph = Build(one(p), d=2 * p, h=3)
    made = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    reads = [graph.send("whole", "AG", made, "a")]
    reads += [graph.input("z", "d h")] if other else []
    y = graph.task("y", meaning, reads, "d h", cost=COST, **settings)
    return _end(graph, y, "d h")


def made_then_gathered(p: int) -> Workload:
    graph = Build(one(p), d=2 * p, h=3)
    made = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    y = graph.task("y", "pointwise", [made], "d h", sliced("a", "d"), fn="relu", cost=COST)
    return _end(graph, graph.send("whole", "AG", y, "a"), "d h")


def summed(p: int, op: str = "AR", *, behind: bool = True, fn: str = "scale") -> Workload:
    """A linear function behind a sum, or before it."""
    graph = Build(one(p), d=2 * p, h=3)
    cuts = [sliced("a", "d")] if op == "RS" else []
    x = graph.task("f0", "", [graph.input("x", "d h", partial("a"))], "d h", partial("a"))
    if behind:
        y = graph.task("y", "pointwise", [graph.send("s", op, x, "a", *cuts)], "d h", *cuts, fn=fn, by=3, cost=COST)
    else:
        y = graph.send(
            "s", op, graph.task("y", "pointwise", [x], "d h", partial("a"), fn=fn, by=3, cost=COST), "a", *cuts
        )
    return _end(graph, y, "d h", *cuts)


def biased(p: int) -> Workload:
    graph = Build(one(p), d=4, h=3)
    x = graph.task("f0", "", [graph.input("x", "d h", partial("a"))], "d h", partial("a"))
    y = graph.task("y", "pointwise", [graph.send("s", "AR", x, "a"), graph.input("b", "h")], "d h", fn="add")
    return _end(graph, y, "d h")


def norm_of_gathered(p: int) -> Workload:
    graph = Build(one(p), d=2 * p, h=3)
    x = graph.task("f0", "", [graph.input("x", "d h", sliced("a", "d"))], "d h", sliced("a", "d"))
    y = graph.task("y", "sum", [graph.send("whole", "AG", x, "a")], "h", along="d", cost=COST)
    return _end(graph, y, "h")


def buckets(p: int, op: str) -> Workload:
    graph = Build(one(p), u=2 * p, v=3 * p, w=p)
    ends = []
    for name in "uvw":
        lies = [sliced("a", name)] if op == "AG" else [partial("a")]
        after = [sliced("a", name)] if op == "RS" else []
        made = graph.task(f"f{name}", "", [graph.input(f"x{name}", name, *lies)], name, *lies)
        ends.append((graph.send(f"s{name}", op, made, "a", *after), after))
    for at, (value, after) in enumerate(ends):
        graph.task(f"end{at}", "", [value], "uvw"[at], *after)
    return graph.step()


def training(p: int) -> Workload:
    """Two layers of data parallel training: gradients are summed, parameters updated, and read in the next step."""
    graph = Build(one(p), n=2 * p, m=3 * p, o=4)
    w0, w1 = (graph.value(f"w{at}", "nm"[at], kind="parameter") for at in (0, 1))
    data = graph.input("data", "o", sliced("a", "o") if p in (2, 4) else local("a"))
    lies = data.layout
    a0 = graph.task("F0", "", [data, (w0, 1)], "o", *lies)
    a1 = graph.task("F1", "", [a0, (w1, 1)], "o", *lies)
    g1 = graph.task("B1", "", [a1, a0, (w1, 1)], "m", partial("a"), kind="B", value="gradient")
    g0 = graph.task("B0", "", [a1, data], "n", partial("a"), kind="B", value="gradient")
    for at, (grad, held) in enumerate(((g0, w0), (g1, w1))):
        total = graph.send(f"grad{at}", "AR", grad, "a", role="dp")
        made = graph.task(f"U{at}", "pointwise", [(held, 1), total], "nm"[at], kind="U", fn="update", cost=COST)
        graph.values.remove(made)
        graph.tasks[-1] = type(graph.tasks[-1])(
            **{
                **{name: getattr(graph.tasks[-1], name) for name in graph.tasks[-1].__dataclass_fields__},
                "writes": (held.name,),
            }
        )
    return graph.step()


def forward_backward(p: int, counter: int | None = 7) -> Workload:
    """Two tensor parallel layers forward, and backward that reads what forward made."""
    graph = Build(one(p), b=4, h=3, f=2 * p)
    x = graph.input("x", "b h")
    held = x
    for at in range(2):
        w1, w2 = graph.input(f"w1{at}", "h f", sliced("a", "f")), graph.input(f"w2{at}", "f h", sliced("a", "f"))
        u = graph.task(f"up{at}", "einsum", [held, w1], "b f", sliced("a", "f"), cost=COST)
        r = graph.task(f"act{at}", "pointwise", [u], "b f", sliced("a", "f"), fn="dropout", counter=counter)
        d = graph.task(f"down{at}", "einsum", [r, w2], "b h", partial("a"), cost=COST)
        held = graph.send(f"sum{at}", "AR", d, "a")
    graph.task("loss", "", [held], "b h")
    graph.task("back1", "", [graph.values[-1], _named(graph, "act1"), _named(graph, "sum0")], "b h", kind="B")
    graph.task("back0", "", [graph.values[-1], _named(graph, "act0"), x], "b h", kind="B")
    return graph.step()


def _named(graph: Build, name: str) -> Value:
    return next(each for each in graph.values if each.name == name)


EVEN = (2, 4, 6, 8)
LEVELS = (4, 6, 8)


def _case(
    name: str,
    make: Callable[..., Workload],
    *rules: tuple[str, str, dict[str, Any]],
    sizes: Any = (2, 3, 4, 6, 8),
    **inputs: Any,
) -> Case:
    return Case(name, lambda p: make(p, **inputs), rules, tuple(sizes))


CASES = (
    _case("S1", all_reduce, ("split-all-reduce", "y", {})),
    _case("S1 another dimension", all_reduce, ("split-all-reduce", "y", {"dim": "h"})),
    _case("S1 padded", all_reduce, ("split-all-reduce", "y", {}), uneven=True),
    _case("S1 and back", all_reduce, ("split-all-reduce", "y", {}), ("merge-all-reduce", "y.scatter", {})),
    _case("S1' reduce, broadcast", all_reduce, ("reduce-broadcast", "y", {})),
    _case("S1' gather by broadcasts", all_gather, ("gather-broadcasts", "y", {})),
    Case("S2", lambda p: all_reduce(p, mesh=two(p)), (("hierarchical-all-reduce", "y", {"inner": "i"}),), LEVELS),
    Case(
        "S2 padded", lambda p: all_reduce(p, True, two(p)), (("hierarchical-all-reduce", "y", {"inner": "i"}),), LEVELS
    ),
    Case(
        "S2 BlueConnect",
        lambda p: all_reduce(p, mesh=two(p)),
        (("hierarchical-all-reduce", "y", {"inner": "i"}), ("split-all-reduce", "y.across", {"dim": "h"})),
        LEVELS,
    ),
    Case("S3", lambda p: reduce_scatter(p, two(p)), (("hierarchical-reduce-scatter", "y", {"inner": "i"}),), LEVELS),
    Case(
        "S4 inside first", lambda p: all_gather(p, two(p)), (("hierarchical-all-gather", "y", {"inner": "i"}),), LEVELS
    ),
    Case(
        "S4 across first",
        lambda p: all_gather(p, two(p)),
        (("hierarchical-all-gather", "y", {"inner": "i", "first": "across"}),),
        LEVELS,
    ),
    Case("S5", lambda p: all_to_all(p, two(p)), (("hierarchical-all-to-all", "y", {"inner": "i"}),), LEVELS),
    _case("S6", all_gather, ("ring-all-gather", "y", {})),
    _case("S7", reduce_scatter, ("ring-reduce-scatter", "y", {})),
    _case("S8 pairs", all_to_all, ("pairwise-all-to-all", "y", {})),
    _case("S8 sum of an exchange", reduce_scatter, ("reduce-scatter-by-all-to-all", "y", {})),
    _case("D1", all_reduce, ("cut", "y", {"dim": "b", "parts": 2})),
    _case("D1 uneven", all_reduce, ("cut", "y", {"dim": "h", "parts": 5}), sizes=(2, 3, 4, 6, 8)),
    _case("D2 reduce-scatter", reduce_scatter, ("cut", "y", {"dim": "h", "parts": 3})),
    _case("D2 all-gather", all_gather, ("cut", "y", {"dim": "h", "parts": [1, 3]})),
    _case("D2 all-to-all", all_to_all, ("cut", "y", {"dim": "k", "parts": 2})),
    _case("D3 reduce-scatter", reduce_scatter, ("cut", "y", {"dim": "b", "parts": 2})),
    _case("D3 all-gather", all_gather, ("cut", "y", {"dim": "b", "parts": 2})),
    _case("D3 all-to-all", all_to_all, ("cut", "y", {"dim": "h", "parts": 3})),
    _case("C1 free", product, ("cut", "y", {"dim": "b", "parts": 3})),
    _case("C1 batch", product, ("cut", "y", {"dim": "g", "parts": 2})),
    _case("C1 columns", product, ("cut", "y", {"dim": "f", "parts": [2, 3]})),
    _case("C2", product, ("cut", "y", {"dim": "h", "parts": 4})),
    _case("C3 points", points, ("cut", "y", {"dim": "h", "parts": 2})),
    _case("C3 rows", points, ("cut", "n", {"dim": "b", "parts": 2})),
    _case("C3 three in a row", points, ("cut", "y", {"dim": "b", "parts": 3, "through": ["r", "n"]})),
    _case("C3 a block", block, ("cut", "norm", {"dim": "b", "parts": 2, "through": "up,act,down,sum,res"})),
    _case("C3 Domino", block, ("cut", "down", {"dim": "h", "parts": 2, "through": "sum"})),
    _case("M1", experts, ("cut", "dispatch", {"dim": "c", "parts": 2, "through": "expert,combine"})),
    _case("L1", gathered_product, ("loop-gather", "y", {})),
    _case("L2", gathered_product, ("loop-gather", "y", {}), how="sum"),
    _case("L3", gathered_product, ("loop-gather", "y", {}), how="batch"),
    _case("L4", product_scattered, ("loop-scatter", "y", {})),
    _case("L5 gather", gathered_product, ("loop-gather", "y", {"bidirectional": True}), sizes=EVEN),
    _case("L5 gather, summed", gathered_product, ("loop-gather", "y", {"bidirectional": True}), sizes=EVEN, how="sum"),
    _case("L5 scatter", product_scattered, ("loop-scatter", "y", {"bidirectional": True}), sizes=EVEN),
    _case("L direct gather", gathered_product, ("loop-gather", "y", {"direct": True, "op": "copy"})),
    _case("L direct gather, batch", gathered_product, ("loop-gather", "y", {"direct": True}), how="batch"),
    _case("L direct scatter", product_scattered, ("loop-scatter", "y", {"direct": True})),
    _case("L gather that others read", gathered_twice, ("loop-gather", "y", {"kept": True})),
    _case("L gather into slices", gathered_slices, ("loop-gather", "y", {})),
    _case("L tiles, gather", gathered_product, ("loop-gather", "y", {"tiles": 2}), sizes=(2, 3)),
    _case(
        "L tiles, summed", gathered_product, ("loop-gather", "y", {"tiles": 2, "direct": True}), sizes=(2, 3), how="sum"
    ),
    _case(
        "L tiles, batch", gathered_product, ("loop-gather", "y", {"tiles": 2, "epsilon": 1.5}), sizes=(3,), how="batch"
    ),
    _case(
        "L tiles, two rings", gathered_product, ("loop-gather", "y", {"tiles": 2, "bidirectional": True}), sizes=(4,)
    ),
    _case("L tiles, that others read", gathered_twice, ("loop-gather", "y", {"tiles": 2, "kept": True}), sizes=(2, 3)),
    _case("L tiles, unknown", unknown_gathered, ("loop-gather", "y", {"tiles": 2}), sizes=(3,)),
    _case("L tiles, scatter", product_scattered, ("loop-scatter", "y", {"tiles": 2, "op": "copy"}), sizes=(2, 3)),
    _case(
        "L tiles, direct",
        product_scattered,
        ("loop-scatter", "y", {"tiles": 2, "direct": True, "waves": 1}),
        sizes=(3,),
    ),
    _case(
        "L tiles, scatter, two rings",
        product_scattered,
        ("loop-scatter", "y", {"tiles": 2, "bidirectional": True}),
        sizes=(4,),
    ),
    _case("L gather, unknown", unknown_gathered, ("loop-gather", "y", {"epsilon": 1.25})),
    _case("L scatter, unknown", unknown_scattered, ("loop-scatter", "y", {})),
    _case("F3 backwards", several_kernels, ("open", "y", {})),
    _case(
        "F3 backwards, and L",
        several_kernels,
        ("open", "y", {}),
        ("loop-gather", "y.part0", {}),
        ("loop-scatter", "y.part2", {}),
    ),
    _case("O1", gathered, ("before-gather", "y", {}), fn="relu"),
    _case("O1 two operands", gathered, ("before-gather", "y", {}), other="z", fn="multiply"),
    _case("O2", gathered, ("before-gather", "y", {}), meaning="rowwise", along="h"),
    _case("O1 backwards", made_then_gathered, ("after-gather", "y", {})),
    _case("O3 all-reduce", summed, ("through-sum", "y", {})),
    _case("O3 reduce-scatter", summed, ("through-sum", "y", {}), op="RS"),
    _case("O3 backwards", summed, ("through-sum", "y", {}), behind=False),
    _case("O3 reduce-scatter backwards", summed, ("through-sum", "y", {}), op="RS", behind=False),
    _case("O4", biased, ("add-once", "y", {})),
    _case("O5", norm_of_gathered, ("sum-before-gather", "y", {})),
    _case("F1", buckets, ("fuse", "su", {"others": "sv,sw"}), op="AR"),
    _case("F2 reduce-scatter", buckets, ("fuse", "su", {"others": ["sv", "sw"]}), op="RS"),
    _case("F2 all-gather", buckets, ("fuse", "su", {"others": ["sv"]}), op="AG"),
    _case("F3", points, ("fuse-tasks", "y", {"others": "r"})),
    _case("F3 three in a row", points, ("fuse-tasks", "n", {"others": ["r", "y"], "saved_us": 5.0})),
    _case("F3 with a task of unknown meaning", points, ("fuse-tasks", "n", {"others": "end"})),
    _case("F3 a product and its activation", block, ("fuse-tasks", "up", {"others": "act,down"})),
    _case("F3 of a kernel", points, ("fuse-tasks", "y", {"others": "r"}), ("fuse-tasks", "y.fused", {"others": "n"})),
    _case("F3, what lies between is kept", forward_backward, ("fuse-tasks", "up1", {"others": "act1"})),
    _case(
        "F3, then R1",
        forward_backward,
        ("fuse-tasks", "up1", {"others": "act1"}),
        ("recompute", "act1", {}),
    ),
    _case("X1", training, ("shard-update", "grad0", {})),
    _case("X2", training, ("next-step", "U0", {})),
    _case("X2 with its sum", training, ("next-step", "grad0", {"through": "U0"})),
    _case(
        "X1, then X2 of the gather",
        training,
        ("shard-update", "grad0", {}),
        ("next-step", "w0.gather", {}),
    ),
    _case(
        "DeAR: S1, X2",
        training,
        ("split-all-reduce", "grad0", {}),
        ("next-step", "grad0.gather", {"through": "U0"}),
        ("split-all-reduce", "grad1", {}),
        ("next-step", "grad1.gather", {"through": "U1"}),
    ),
    _case("R1", forward_backward, ("recompute", "act1", {})),
    _case("R1 from a kept value", forward_backward, ("recompute", "act1", {"keep": "up1"})),
    _case("R1 and R2", forward_backward, ("recompute", "act1", {"keep": "sum0"})),
    _case("R1 through a sum", forward_backward, ("recompute", "sum0", {})),
    _case("R1 of two at once", forward_backward, ("recompute", "act1", {"also": "act0"})),
    _case("R1, then the sum as it was", forward_backward, ("recompute", "sum0", {}), ("reuse", "sum0.again~1", {})),
)
