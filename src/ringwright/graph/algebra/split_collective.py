"""S: one operation becomes several whose composition it is, over the same ranks.

Laws: an all-reduce is a reduce-scatter, then an all-gather, along any dimension, or a reduce, then a broadcast; an all-gather
is a broadcast of each block; a reduce-scatter is the sum of what an exchange brings. Levels and rings: ``levels``, ``rings``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.graph.algebra.editing import StepGraph, dims_of, local, placed, times_of
from ringwright.graph.algebra.rule import Refused, payload_at, rule
from ringwright.model.values import PARTIAL, SLICED, Change, Placement, Value
from ringwright.model.workload import Payload


def dim_for(value: Value, dim: str) -> str:
    """Return the dimension to cut along: the one that was asked for, the first that is whole, or the first of all."""
    whole = [name for name, _ in value.dims if not value.axes(SLICED, name)]
    if dim and dim not in dims_of(value):
        raise Refused(f"{value.name} has no dimension '{dim}'", f"dim: one of {', '.join(dims_of(value))}")
    if not value.dims:
        raise Refused(f"{value.name} has no dimension", "a value with dims")
    return dim or (whole or [value.dims[0][0]])[0]


def slices_of(graph: StepGraph, value: Value, dim: str) -> int:
    """Return into how many slices a dimension of a value is cut."""
    return graph.extent(value.axes(SLICED, dim))


def padded(graph: StepGraph, node: Payload, value: Value, dim: str, parts: int) -> Value:
    """Return the value with each slice of ``dim`` filled up with zeros to a multiple of ``parts``, or itself where it is one."""
    size, slices = dims_of(value)[dim], slices_of(graph, value, dim)
    if size % (slices * parts) == 0:
        return value
    dims = tuple((name, size + -size % (slices * parts) if name == dim else each) for name, each in value.dims)
    made = graph.value(value, f"{value.name}.padded", dims=dims)
    graph.copying(f"{node.name}.pad", node, "pad", {"along": dim, "blocks": slices}, [value], [made])
    return made


def unpadded(graph: StepGraph, node: Payload, value: Value, dim: str, into: Value) -> Value:
    """Return a value that the padding is taken from, writing ``into``; or ``into``, where there is none to take."""
    size, whole = dims_of(into)[dim], dims_of(value)[dim]
    if size == whole:
        return into
    made = graph.value(into, f"{into.name}.padded", dims=value.dims)
    settings = {"along": dim, "parts": [size, whole - size], "blocks": slices_of(graph, into, dim)}
    graph.copying(f"{node.name}.unpad", node, "cut", settings, [made], [into])
    return made


def scattered(graph: StepGraph, like: Payload, source: Value, dim: str, axes: Sequence[str], name: str) -> Value:
    """Add a reduce-scatter along some axes and return what it makes."""
    cuts = tuple(Placement(axis, SLICED, dim) for axis in graph.mesh.sizes if axis in axes)
    made = graph.value(source, f"{source.name}.{name}", layout=placed(source.layout, axes, *cuts))
    graph.send(like, f"{like.name}.{name}", "reduce-scatter", source, made, axes=ordered(graph, axes))
    return made


def ordered(graph: StepGraph, axes: Sequence[str]) -> tuple[str, ...]:
    """Return axes in the order of the mesh."""
    return tuple(axis for axis in graph.mesh.sizes if axis in axes)


@rule("split-all-reduce", "AR = AG . RS, along any dimension; the size is padded to a multiple of the ranks")
def split_all_reduce(graph: StepGraph, at: str, dim: str = "") -> Change:
    """Split an all-reduce into a reduce-scatter and an all-gather along ``dim`` (the first whole one)."""
    payload = payload_at(graph, at, "all-reduce")
    source, result = graph.values[payload.source], graph.values[payload.result]
    ranks, along = graph.extent(payload.axes), dim_for(source, dim)
    whole = padded(graph, payload, source, along, ranks)
    part = scattered(graph, payload, whole, along, payload.axes, "scatter")
    out = unpadded(graph, payload, whole, along, result)
    gather = graph.send(payload, f"{at}.gather", "all-gather", part, out)
    graph.waits.inherit(graph.payloads[f"{at}.scatter"], payload, producers=True)
    graph.waits.inherit(gather, payload, consumers=True)
    graph.drop(payload)
    more = 2 * (ranks - 1) / ranks * (whole.size_bytes - source.size_bytes) * times_of(graph, payload)
    held = part.size_bytes + result.size_bytes + (2 * whole.size_bytes if whole is not source else 0)
    return Change({payload.role: more} if more else {}, times_of(graph, payload), 0.0, held)


@rule("reduce-broadcast", "AR = BC . RED")
def reduce_broadcast(graph: StepGraph, at: str) -> Change:
    """Reduce to the first rank of the group, then broadcast from it."""
    payload = payload_at(graph, at, "all-reduce")
    source, result = graph.values[payload.source], graph.values[payload.result]
    own = tuple(local(axis) for axis in payload.axes)
    made = graph.value(source, f"{source.name}.rooted", layout=placed(source.layout, payload.axes, *own))
    first = graph.send(payload, f"{at}.reduce", "reduce", source, made, root=0)
    last = graph.send(payload, f"{at}.broadcast", "broadcast", made, result, root=0)
    graph.waits.inherit(first, payload, producers=True)
    graph.waits.inherit(last, payload, consumers=True)
    graph.drop(payload)
    more = 2 * source.size_bytes / graph.extent(payload.axes) * times_of(graph, payload)
    return Change({payload.role: more}, times_of(graph, payload), 0.0, made.size_bytes + result.size_bytes)


@rule("gather-broadcasts", "AG = p broadcasts of a block each")
def gather_broadcasts(graph: StepGraph, at: str) -> Change:
    """Broadcast each rank's block to all, and put the blocks one behind the other."""
    payload = payload_at(graph, at, "all-gather")
    source, result = graph.values[payload.source], graph.values[payload.result]
    ranks, dim = graph.extent(payload.axes), sliced_by(source, payload)
    size = dims_of(source)[dim] // ranks
    dims = tuple((name, size if name == dim else each) for name, each in source.dims)
    own = graph.value(
        source, f"{source.name}.own", dims=dims, size_bytes=source.size_bytes, layout=_own(source, payload.axes)
    )
    graph.copying(f"{at}.own", payload, "copy", {}, [source], [own])
    pieces = []
    for root in range(ranks):
        piece = graph.value(own, f"{result.name}.{root}", layout=placed(source.layout, payload.axes))
        graph.send(payload, f"{at}.{root}", "broadcast", own, piece, root=root)
        pieces.append(piece)
    settings = {"along": dim, "blocks": 1, "parts": [size] * ranks}
    graph.copying(f"{at}.join", payload, "join", settings, pieces, [result])
    graph.drop(payload)
    wire = result.size_bytes / ranks * times_of(graph, payload)
    operations = (ranks - 1) * times_of(graph, payload)
    return Change({payload.role: wire}, operations, 0.0, result.size_bytes + source.size_bytes)


def sliced_by(source: Value, payload: Payload) -> str:
    """Return the one dimension by which a value is sliced along a payload's axes; Refused for none or several."""
    dims = {each.dim for each in source.layout if each.axis in payload.axes and each.how == SLICED}
    if len(dims) != 1:
        raise Refused(f"{source.name} is not sliced by one dimension along {', '.join(payload.axes)}")
    return dims.pop()


def _own(value: Value, axes: Sequence[str]) -> tuple[Placement, ...]:
    return placed(value.layout, axes, *(local(axis) for axis in axes))


@rule("reduce-scatter-by-all-to-all", "RS = sum of what an A2A brings")
def reduce_scatter_by_all_to_all(graph: StepGraph, at: str) -> Change:
    """Exchange the blocks, and add up on each rank; for libraries whose reduce-scatter moves an all-reduce's bytes."""
    payload = payload_at(graph, at, "reduce-scatter")
    source, result = graph.values[payload.source], graph.values[payload.result]
    ranks, dim = graph.extent(payload.axes), sliced_by(result, payload)
    terms = "terms"
    while terms in dims_of(source):
        terms += "'"
    dims = ((terms, ranks), *source.dims)
    cuts = tuple(Placement(axis, SLICED, terms) for axis in payload.axes)
    stacked = graph.value(
        source,
        f"{source.name}.terms",
        dims=dims,
        layout=placed(source.layout, payload.axes, *cuts),
        size_bytes=source.size_bytes,
    )
    graph.copying(f"{at}.stack", payload, "stack", {"dim": terms}, [source], [stacked])
    swaps = tuple(Placement(axis, SLICED, dim) for axis in payload.axes)
    swapped = graph.value(stacked, f"{result.name}.terms", layout=placed(source.layout, payload.axes, *swaps))
    graph.send(payload, f"{at}.exchange", "all-to-all", stacked, swapped)
    graph.copying(f"{at}.sum", payload, "sum", {"along": terms}, [swapped], [result])
    graph.drop(payload)
    return Change({}, 0, 0.0, 2 * source.size_bytes)


@rule("merge-all-reduce", "AG . RS = AR: split-all-reduce backwards")
def merge_all_reduce(graph: StepGraph, at: str) -> Change:
    """Replace a reduce-scatter and the all-gather behind it, of the same ranks, by an all-reduce."""
    scatter = payload_at(graph, at, "reduce-scatter")
    readers = graph.readers(scatter.result)
    gather = readers[0] if len(readers) == 1 else None
    if not isinstance(gather, Payload) or gather.op != "all-gather" or gather.axes != scatter.axes:
        raise Refused(
            "what it makes is not gathered by the same ranks, and by nobody else", "a reduce-scatter before its gather"
        )
    if not set(graph.values[scatter.source].axes(PARTIAL)) >= set(scatter.axes):
        raise Refused(f"{scatter.source} is no sum", "a sum")
    whole = graph.send(
        scatter, graph.fresh(f"{at}.whole"), "all-reduce", graph.values[scatter.source], graph.values[gather.result]
    )
    graph.waits.inherit(whole, scatter, producers=True)
    graph.waits.inherit(whole, gather, consumers=True)
    for each in (scatter, gather):
        graph.drop(each)
    times = times_of(graph, scatter)
    return Change({}, -times, 0.0, 0)
