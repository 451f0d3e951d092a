"""F: several operations become one on their values side by side, and what it makes is taken apart again.

Sums may lie one behind the other. What is scattered or gathered must lie by rank: for each rank its block of every value; one
behind the other, ranks would get other slices.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.algebra.editing import StepGraph, dims_of, times_of
from ringwright.algebra.rule import Refused, payload_at, rule
from ringwright.values import SLICED, Change, Placement, Value
from ringwright.workload import Payload

FUSED = ("all-reduce", "reduce-scatter", "all-gather")


@rule("fuse", "AR(u) beside AR(v) = AR(u beside v); scattered or gathered: u and v beside each other rank by rank")
def fuse(graph: StepGraph, at: str, others: str | Sequence[str]) -> Change:
    """Make one operation of this one and ``others``: same group, operation and type of elements."""
    names = list(dict.fromkeys([at, *(others.split(",") if isinstance(others, str) else others)]))
    if len(names) < 2:
        raise Refused("there is nothing to fuse it with", "others: names of operations")
    members = [payload_at(graph, name, *FUSED) for name in names]
    first = members[0]
    for each in members[1:]:
        if (each.op, each.axes, each.of, each.per, each.dtype) != (
            first.op,
            first.axes,
            first.of,
            first.per,
            first.dtype,
        ):
            raise Refused(f"{each.name} is of another operation, group, class or type", "operations that are alike")
    sources = [graph.values[each.source] for each in members]
    results = [graph.values[each.result] for each in members]
    if any(len(value.dims) != 1 for value in (*sources, *results)):
        raise Refused("values of several dimensions lie beside each other in no one way", "values of one dimension")
    _apart(graph, members)
    ranks = graph.extent(first.axes)
    blocks = 1 if first.op == "all-reduce" else ranks
    joined, along = _beside(graph, sources, f"{at}.fused.in")
    settings = {"along": along, "blocks": blocks, "parts": [value.dims[0][1] for value in sources]}
    graph.copying(f"{at}.join", first, "join", settings, sources, [joined])
    made, _ = _beside(graph, results, f"{at}.fused.out", along)
    op = graph.send(first, f"{at}.fused", first.op, joined, made, elements=sum(each.elements for each in members))
    graph.copying(f"{at}.parts", first, "cut", settings, [made], results)
    for each in members:
        graph.inherit(op, each, producers=True, consumers=True)
        graph.drop(each)
    held = joined.size_bytes + made.size_bytes
    return Change({}, (1 - len(members)) * times_of(graph, first), 0.0, held)


def _apart(graph: StepGraph, members: list[Payload]) -> None:
    """Refuse operations of which one needs what another brings: together, they would wait for themselves."""
    needed, todo = set[str](), [each.source for each in members]
    while todo:
        node = graph.writer(todo.pop())
        if node is None or node.name in needed:
            continue
        if node.name in {each.name for each in members}:
            raise Refused(f"one of them needs what {node.name} brings", "operations that do not wait for each other")
        needed.add(node.name)
        reads = [node.source] if isinstance(node, Payload) else [name for name, distance in node.reads if not distance]
        todo += reads


def _beside(graph: StepGraph, values: list[Value], name: str, along: str = "") -> tuple[Value, str]:
    """Return a value that holds several one-dimensional ones, and its dimension."""
    first = values[0]
    along = along or "+".join(dict.fromkeys(value.dims[0][0] for value in values))
    layout = tuple(Placement(e.axis, e.how, along if e.how == SLICED else "") for e in first.layout)
    for value in values[1:]:
        mine = [(each.axis, each.how) for each in value.layout]
        if mine != [(each.axis, each.how) for each in first.layout]:
            raise Refused(f"{value.name} lies otherwise than {first.name}", "values that lie alike")
    size = sum(dims_of(value)[value.dims[0][0]] for value in values)
    total = sum(value.size_bytes for value in values)
    return graph.value(first, name, dims=((along, size),), layout=layout, size_bytes=total), along
