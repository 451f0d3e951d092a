"""S, rank by rank: a gather, a scatter or an exchange becomes shifts, each from one rank to another."""

from __future__ import annotations

from ringwright.graph.algebra.editing import StepGraph, dims_of, local, placed, times_of
from ringwright.graph.algebra.rule import Refused, payload_at, rule
from ringwright.graph.algebra.split_collective import sliced_by
from ringwright.model.values import Change, Value
from ringwright.model.workload import Payload, Task


def ring_axis(graph: StepGraph, payload: Payload) -> str:
    """Return the one axis of a payload's group; Refused for several."""
    if len(payload.axes) != 1:
        raise Refused(
            f"its group goes along {', '.join(payload.axes)}", "split it by levels first: a ring is along one axis"
        )
    return payload.axes[0]


def shifts(
    graph: StepGraph, payload: Payload, own: Value, steps: int, hops: int = 1, name: str = "shift", op: str = "shift"
) -> list[Value]:
    """Send a value round the ring ``steps`` times; return what each rank holds after none, one, two ... of them."""
    held = [own]
    for step in range(1, steps + 1):
        made = graph.value(own, f"{own.name}.{name}{step}")
        graph.send(payload, f"{payload.name}.{name}{step}", op, held[-1], made, hops=hops, root=0)
        held.append(made)
    return held


def own_block(graph: StepGraph, payload: Payload, source: Value, axis: str) -> tuple[Value, str, int]:
    """Return a rank's block of a sliced value as a value of its own, the dimension, and the block's size."""
    ranks, dim = graph.extent((axis,)), sliced_by(source, payload)
    size = dims_of(source)[dim] // ranks
    dims = tuple((name, size if name == dim else each) for name, each in source.dims)
    layout = placed(source.layout, (axis,), local(axis))
    own = graph.value(source, f"{source.name}.own", dims=dims, layout=layout, size_bytes=source.size_bytes)
    graph.copying(f"{payload.name}.own", payload, "copy", {}, [source], [own])
    return own, dim, size


@rule("ring-all-gather", "AG = p - 1 shifts round a ring, each block to its place")
def ring_all_gather(graph: StepGraph, at: str) -> Change:
    """Send blocks round the ring; after s shifts rank i holds block i + s."""
    payload = payload_at(graph, at, "all-gather")
    axis = ring_axis(graph, payload)
    source, result = graph.values[payload.source], graph.values[payload.result]
    ranks = graph.extent((axis,))
    own, dim, size = own_block(graph, payload, source, axis)
    blocks = shifts(graph, payload, own, ranks - 1)
    settings = {"along": dim, "blocks": 1, "parts": [size] * ranks, "axis": axis, "offsets": list(range(ranks))}
    graph.copying(f"{at}.join", payload, "join", settings, blocks, [result])
    graph.drop(payload)
    return Change({}, (ranks - 2) * times_of(graph, payload), 0.0, result.size_bytes + source.size_bytes)


@rule("ring-reduce-scatter", "RS = p - 1 times (shift; add)")
def ring_reduce_scatter(graph: StepGraph, at: str) -> Change:
    """Send sums round the ring; the block that travels furthest goes first, and each rank ends with its own."""
    payload = payload_at(graph, at, "reduce-scatter")
    axis = ring_axis(graph, payload)
    source, result = graph.values[payload.source], graph.values[payload.result]
    ranks, dim = graph.extent((axis,)), sliced_by(result, payload)
    size = dims_of(source)[dim] // ranks
    pieces = rotated(graph, payload, source, dim, axis, [*range(1, ranks), 0], size)
    total = pieces[0]
    for step in range(1, ranks):
        moved = graph.value(total, f"{result.name}.shift{step}")
        graph.send(payload, f"{at}.shift{step}", "shift", total, moved, hops=1, root=0)
        total = graph.value(moved, f"{result.name}.sum{step}")
        add(graph, payload, moved, pieces[step], total, f"{at}.add{step}")
    graph.copying(f"{at}.own", payload, "copy", {}, [total], [result])
    graph.drop(payload)
    return Change({}, (ranks - 2) * times_of(graph, payload), 0.0, source.size_bytes + 2 * result.size_bytes)


def rotated(
    graph: StepGraph, near: Payload | Task, whole: Value, dim: str, axis: str, offsets: list[int], size: int
) -> list[Value]:
    """Cut a value into one block a rank, and return the blocks in the order in which each rank comes to them."""
    dims = tuple((name, size if name == dim else each) for name, each in whole.dims)
    layout = placed(whole.layout, (axis,), local(axis))
    pieces = [graph.value(whole, f"{whole.name}.turn{at}", dims=dims, layout=layout) for at in range(len(offsets))]
    settings = {"along": dim, "blocks": 1, "parts": [size] * len(offsets), "axis": axis, "offsets": offsets}
    graph.copying(f"{near.name}.turns.{whole.name}", near, "cut", settings, [whole], pieces)
    return pieces


def add(graph: StepGraph, near: Payload | Task, one: Value, other: Value, total: Value, name: str) -> Task:
    """Add a task that adds two values up; its time is not counted, as an operation's own sums are not."""
    return graph.copying(name, near, "pointwise", {"fn": "add"}, [one, other], [total])


@rule("pairwise-all-to-all", "A2A = p - 1 exchanges with one rank each")
def pairwise_all_to_all(graph: StepGraph, at: str) -> Change:
    """Send block after block straight to its rank; a rank's own block stays."""
    payload = payload_at(graph, at, "all-to-all")
    axis = ring_axis(graph, payload)
    source, result = graph.values[payload.source], graph.values[payload.result]
    ranks = graph.extent((axis,))
    old, new = sliced_by(source, payload), sliced_by(result, payload)
    size = dims_of(source)[new] // ranks
    # In turn s rank i sends the block of rank i - s, so that it receives its own from rank i + s.
    order = [(-step) % ranks for step in range(ranks)]
    own = graph.value(
        source,
        f"{source.name}.own",
        dims=tuple((n, s // ranks if n == old else s) for n, s in source.dims),
        layout=placed(source.layout, (axis,), local(axis)),
        size_bytes=source.size_bytes,
    )
    graph.copying(f"{at}.own", payload, "copy", {}, [source], [own])
    pieces = rotated(graph, payload, own, new, axis, order, size)
    arrived = [pieces[0]]
    for step in range(1, ranks):
        made = graph.value(pieces[step], f"{result.name}.from{step}")
        graph.send(payload, f"{at}.turn{step}", "shift", pieces[step], made, hops=step, root=0)
        arrived.append(made)
    block = dims_of(own)[old]
    joined = graph.value(
        own,
        f"{result.name}.own",
        dims=tuple((n, size if n == new else dims_of(source)[n]) for n, _ in source.dims),
        size_bytes=result.size_bytes,
    )
    settings = {"along": old, "blocks": 1, "parts": [block] * ranks, "axis": axis, "offsets": list(range(ranks))}
    graph.copying(f"{at}.join", payload, "join", settings, arrived, [joined])
    graph.copying(f"{at}.named", payload, "copy", {}, [joined], [result])
    graph.drop(payload)
    return Change({}, (ranks - 2) * times_of(graph, payload), 0.0, source.size_bytes + 2 * result.size_bytes)
