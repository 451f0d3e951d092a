"""L: an operation and the product beside it become a loop (looped CollectiveEinsum): one block is sent, another worked on.

Source: Wang et al., Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models, ASPLOS
2023. A gathered operand: each rank works on its own block first, then on those that arrive. A scattered product: each rank
works first on the block that travels furthest, adds what arrives, and ends with its own. Both ways round, where p is even.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from ringwright.algebra.editing import StepGraph, dims_of, local, placed, share_of, times_of
from ringwright.algebra.rings import add, own_block, ring_axis, rotated, shifts
from ringwright.algebra.rule import Refused, rule, task_at
from ringwright.algebra.split_collective import sliced_by
from ringwright.values import LOCAL, SLICED, Change, Value
from ringwright.workload import Payload, Task


@rule("loop-gather", "einsum(AG x, w) = p partial products, each beside a shift of the next block")
def loop_gather(graph: StepGraph, at: str, bidirectional: bool = False) -> Change:
    """Loop a product over the blocks of an operand that is gathered."""
    task = task_at(graph, at, "einsum")
    gather = _gathered_for(graph, task)
    axis, ranks = ring_axis(graph, gather), graph.extent(gather.axes)
    if bidirectional and ranks % 2:
        raise Refused(f"{ranks} ranks do not part into two ways round", "bidirectional=false")
    dim, out = sliced_by(graph.values[gather.source], gather), graph.values[task.writes[0]]
    own, _, size = own_block(graph, gather, graph.values[gather.source], axis)
    if bidirectional:
        there = shifts(graph, gather, own, ranks // 2)
        back = shifts(graph, gather, own, ranks // 2 - 1, hops=-1, name="back")[1:]
        offsets, blocks = [0], [there[0]]
        for turn in range(1, ranks // 2 + 1):
            offsets, blocks = [*offsets, turn], [*blocks, there[turn]]
            if turn <= len(back):
                offsets, blocks = [*offsets, -turn], [*blocks, back[turn - 1]]
    else:
        offsets, blocks = list(range(ranks)), shifts(graph, gather, own, ranks - 1)
    others = {name: graph.values[name] for name, _ in task.reads if name != gather.result}
    cut = {
        name: rotated(graph, task, value, dim, axis, offsets, size)
        for name, value in others.items()
        if dim in dims_of(value)
    }
    pieces = [
        _product(
            graph,
            task,
            out,
            (axis, dim, size),
            {gather.result: blocks[turn]} | {n: p[turn] for n, p in cut.items()},
            turn,
        )
        for turn in range(ranks)
    ]
    _assembled(graph, task, out, pieces, (axis, dim, offsets, size))
    graph.drop(gather)
    graph.drop(task, [graph.tasks[f"{at}.turn{turn}"] for turn in range(ranks)])
    held = (
        sum(each.size_bytes for each in (*blocks, *pieces))
        + sum(v.size_bytes for v in others.values())
        + out.size_bytes
    )
    return Change({}, (ranks - 2) * times_of(graph, gather), 0.0, held)


def _gathered_for(graph: StepGraph, task: Task) -> Payload:
    for name, distance in task.reads:
        node = graph.writer(name)
        if isinstance(node, Payload) and node.op == "all-gather" and not distance:
            if len(graph.readers(name)) > 1:
                raise Refused(f"others read {name} too", "a value that one product reads")
            return node
    raise Refused("it reads nothing that is gathered", "a product behind an all-gather")


def _product(
    graph: StepGraph, task: Task, out: Value, where: tuple[str, str, int], operands: dict[str, Value], turn: int
) -> Value:
    """Add one turn of the loop: the product of the operands that it has a block of, and return what it makes."""
    axis, dim, size = where
    dims = tuple((name, size if name == dim else each) for name, each in out.dims)
    made = graph.value(out, f"{out.name}.turn{turn}", dims=dims, layout=placed(out.layout, (axis,), local(axis)))
    share = 1 / graph.extent((axis,))
    more_s = (task.work.cuts.get(dim, 0.0) if task.work else 0.0) if turn else 0.0
    fields = share_of(task, share, more_s)
    reads = tuple((operands[name].name if name in operands else name, distance) for name, distance in task.reads)
    graph.add(replace(task, name=f"{task.name}.turn{turn}", reads=reads, writes=(made.name,), **fields), task)
    return made


def _assembled(
    graph: StepGraph, task: Task, out: Value, pieces: list[Value], where: tuple[str, str, list[int], int]
) -> None:
    """Put the products at their places, or add them up where the blocks were terms of a sum."""
    axis, dim, offsets, size = where
    if dim in dims_of(out):
        settings = {"along": dim, "blocks": 1, "parts": [size] * len(pieces), "axis": axis, "offsets": offsets}
        graph.copying(f"{task.name}.join", task, "join", settings, pieces, [out])
        return
    total = pieces[0]
    for at, piece in enumerate(pieces[1:], 1):
        into = graph.value(total, f"{out.name}.sum{at}")
        add(graph, task, total, piece, into, f"{task.name}.add{at}")
        total = into
    graph.copying(f"{task.name}.sum", task, "copy", {}, [total], [out])


@rule("loop-scatter", "RS einsum(x, w) = p times: a partial product, added to what arrives, and sent on")
def loop_scatter(graph: StepGraph, at: str, bidirectional: bool = False) -> Change:
    """Loop a product whose terms are summed and scattered over the blocks of what it makes."""
    task = task_at(graph, at, "einsum")
    readers = graph.readers(task.writes[0])
    scatter = readers[0] if len(readers) == 1 else None
    if not isinstance(scatter, Payload) or scatter.op != "reduce-scatter":
        raise Refused("what it makes is not scattered, and by nobody else", "a product before a reduce-scatter")
    axis, ranks = ring_axis(graph, scatter), graph.extent(scatter.axes)
    if bidirectional and ranks % 2:
        raise Refused(f"{ranks} ranks do not part into two ways round", "bidirectional=false")
    out, result = graph.values[task.writes[0]], graph.values[scatter.result]
    dim = sliced_by(result, scatter)
    size, half = dims_of(out)[dim] // ranks, ranks // 2
    there = [turn - half for turn in range(half)] if bidirectional else [*range(1, ranks)]
    back = [half - 1 - turn for turn in range(half - 1)] if bidirectional else []
    turns = zip_longest(there, back)
    offsets = [*(each for pair in turns for each in pair if each is not None), 0]
    operands = {name: _own(graph, task, graph.values[name], axis) for name, _ in task.reads}
    cut = {
        name: rotated(graph, task, value, dim, axis, offsets, size)
        for name, value in operands.items()
        if dim in dims_of(value)
    }
    pieces = {
        offset: _product(
            graph, task, out, (axis, dim, size), {**operands, **{name: each[turn] for name, each in cut.items()}}, turn
        )
        for turn, offset in enumerate(offsets)
    }
    sums = [_travelled(graph, scatter, [pieces[each] for each in there], 1, "shift")]
    if back:
        sums.append(_travelled(graph, scatter, [pieces[each] for each in back], -1, "back"))
    total = pieces[0]
    for turn, arrived in enumerate(sums):
        into = graph.value(total, f"{result.name}.whole{turn}")
        add(graph, task, total, arrived, into, f"{at}.end{turn}")
        total = into
    graph.copying(f"{at}.own", task, "copy", {}, [total], [result])
    graph.drop(scatter)
    graph.drop(task, [graph.tasks[f"{at}.turn{turn}"] for turn in range(ranks)])
    held = 2 * out.size_bytes + 3 * result.size_bytes + 2 * sum(value.size_bytes for value in operands.values())
    return Change({}, (ranks - 2) * times_of(graph, scatter), 0.0, held)


def _own(graph: StepGraph, task: Task, value: Value, axis: str) -> Value:
    """Return a rank's slice of an operand as a value of its own, or the operand where all ranks have it."""
    lies = value.along(axis)
    if lies is None or lies.how == LOCAL:
        return value
    if lies.how != SLICED:
        raise Refused(f"{value.name} is a sum that is not added up", "operands that are whole, or sliced")
    ranks = graph.extent((axis,))
    dims = tuple((name, size // ranks if name == lies.dim else size) for name, size in value.dims)
    layout = placed(value.layout, (axis,), local(axis))
    own = graph.value(value, f"{value.name}.own", dims=dims, layout=layout, size_bytes=value.size_bytes)
    graph.copying(f"{task.name}.own.{value.name}", task, "copy", {}, [value], [own])
    return own


def _travelled(graph: StepGraph, scatter: Payload, pieces: list[Value], hops: int, name: str) -> Value:
    """Send a sum from rank to rank, each of which adds its piece; return what arrives in the end."""
    total = pieces[0]
    for turn in range(1, len(pieces) + 1):
        moved = graph.value(total, f"{scatter.result}.{name}{turn}")
        graph.send(scatter, f"{scatter.name}.{name}{turn}", "shift", total, moved, hops=hops, root=0)
        if turn == len(pieces):
            return moved
        total = graph.value(moved, f"{scatter.result}.{name}.sum{turn}")
        add(graph, scatter, moved, pieces[turn], total, f"{scatter.name}.{name}.add{turn}")
    return total
