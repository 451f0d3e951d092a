"""S: one operation becomes several whose composition it is, over the same ranks or level by level over the axes of its group.

Laws: an all-reduce is a reduce-scatter, then an all-gather, along any dimension; over two levels it is a reduce-scatter inside,
an all-reduce across, an all-gather inside (BlueConnect splits the middle again); gathers, scatters and exchanges over two levels
need their blocks sorted by the other level first; each is also a ring of shifts.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.algebra.editing import StepGraph, dims_of, local, placed, times_of
from ringwright.algebra.rule import Refused, payload_at, rule
from ringwright.values import PARTIAL, SLICED, Change, Placement, Value
from ringwright.workload import Payload, Task


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
    graph.send(like, f"{like.name}.{name}", "reduce-scatter", source, made, axes=_ordered(graph, axes))
    return made


def _ordered(graph: StepGraph, axes: Sequence[str]) -> tuple[str, ...]:
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
    graph.inherit(graph.payloads[f"{at}.scatter"], payload, producers=True)
    graph.inherit(gather, payload, consumers=True)
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
    graph.inherit(first, payload, producers=True)
    graph.inherit(last, payload, consumers=True)
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


# ------------------------------------------------------------------------------------------------------- two levels
def _levels(graph: StepGraph, payload: Payload, inner: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes inside and across; Refused where the group has not both."""
    across = tuple(axis for axis in payload.axes if axis not in inner)
    inside = tuple(axis for axis in payload.axes if axis in inner)
    if not inside or not across:
        what = f"its group goes along {', '.join(payload.axes)}: {', '.join(inner)} does not part it"
        raise Refused(what, "inner: some, not all, of the axes of its group")
    return inside, across


def listed(axes: str | Sequence[str]) -> tuple[str, ...]:
    """Return axes from a knob: a list, or names joined by commas."""
    return tuple(axes.split(",")) if isinstance(axes, str) else tuple(axes)


@rule("hierarchical-all-reduce", "AR = AG inside . AR across . RS inside")
def hierarchical_all_reduce(graph: StepGraph, at: str, inner: str, dim: str = "") -> Change:
    """Reduce-scatter along the ``inner`` axes, all-reduce along the others, all-gather along the inner ones."""
    payload = payload_at(graph, at, "all-reduce")
    inside, across = _levels(graph, payload, listed(inner))
    source, result = graph.values[payload.source], graph.values[payload.result]
    along, many = dim_for(source, dim), graph.extent(inside)
    whole = padded(graph, payload, source, along, many)
    part = scattered(graph, payload, whole, along, inside, "scatter")
    summed = graph.value(part, f"{part.name}.summed", layout=placed(part.layout, across))
    graph.send(payload, f"{at}.across", "all-reduce", part, summed, axes=_ordered(graph, across))
    out = unpadded(graph, payload, whole, along, result)
    last = graph.send(payload, f"{at}.gather", "all-gather", summed, out, axes=_ordered(graph, inside))
    graph.inherit(graph.payloads[f"{at}.scatter"], payload, producers=True)
    graph.inherit(last, payload, consumers=True)
    graph.drop(payload)
    ranks, m, n = graph.extent(payload.axes), many, graph.extent(across)
    size = whole.size_bytes
    wire = 2 * (m - 1) / m * size + 2 * (n - 1) / n * size / m - 2 * (ranks - 1) / ranks * source.size_bytes
    held = 2 * part.size_bytes + result.size_bytes + (2 * size if whole is not source else 0)
    times = times_of(graph, payload)
    return Change({payload.role: wire * times} if abs(wire) > 1e-9 else {}, 2 * times, 0.0, held)


@rule("hierarchical-reduce-scatter", "RS = RS across . RS inside . permute")
def hierarchical_reduce_scatter(graph: StepGraph, at: str, inner: str) -> Change:
    """Sort the blocks by the inner axes first, then reduce-scatter along these, then along the others."""
    payload = payload_at(graph, at, "reduce-scatter")
    inside, across = _levels(graph, payload, listed(inner))
    source, result = graph.values[payload.source], graph.values[payload.result]
    dim = sliced_by(result, payload)
    order = (*_ordered(graph, inside), *_ordered(graph, across))
    into, dims = _renamed(source, dim, order)
    sorted_ = graph.value(source, f"{source.name}.sorted", dims=dims)
    settings = {"dim": dim, "into": into, "axes": list(order)}
    graph.copying(f"{at}.permute", payload, "permute", settings, [source], [sorted_])
    one = scattered(graph, payload, sorted_, into, inside, "inside")
    two = scattered(graph, payload, one, into, across, "across")
    back = {"dim": into, "into": dim, "axes": list(order)}
    graph.copying(f"{at}.named", payload, "permute", back, [two], [result])
    graph.inherit(graph.payloads[f"{at}.inside"], payload, producers=True)
    graph.drop(payload)
    return Change({}, times_of(graph, payload), 0.0, sorted_.size_bytes + one.size_bytes + two.size_bytes)


def _renamed(value: Value, dim: str, order: Sequence[str]) -> tuple[str, tuple[tuple[str, int], ...]]:
    into = f"{dim}@{'.'.join(order)}"
    return into, tuple((into if name == dim else name, size) for name, size in value.dims)


@rule("hierarchical-all-gather", "AG = AG across . AG inside; across first needs the blocks sorted back at the end")
def hierarchical_all_gather(graph: StepGraph, at: str, inner: str, first: str = "inside") -> Change:
    """Gather level by level: ``first`` "inside" (blocks come in order) or "across" (blocks are sorted at the end)."""
    payload = payload_at(graph, at, "all-gather")
    inside, across = _levels(graph, payload, listed(inner))
    if first not in ("inside", "across"):
        raise Refused(f"first is '{first}'", "first: inside or across")
    source, result = graph.values[payload.source], graph.values[payload.result]
    dim = sliced_by(source, payload)
    axes = source.axes(SLICED, dim)
    innermost = axes[-len(inside) :] == _ordered(graph, inside)
    if first == "inside" and not innermost:
        raise Refused(
            f"{dim} of {source.name} is sliced by {', '.join(axes)}: the inner axes are not the last cuts",
            "first=across",
        )
    if first == "inside":
        middle = graph.value(source, f"{source.name}.inside", layout=placed(source.layout, inside))
        one = graph.send(payload, f"{at}.inside", "all-gather", source, middle, axes=_ordered(graph, inside))
        two = graph.send(payload, f"{at}.across", "all-gather", middle, result, axes=_ordered(graph, across))
        held = middle.size_bytes
    else:
        order = (*_ordered(graph, inside), *_ordered(graph, across))
        into, dims = _renamed(source, dim, order)
        cuts = tuple(Placement(axis, SLICED, into) for axis in order)
        named = graph.value(
            source, f"{source.name}.named", dims=dims, layout=placed(source.layout, payload.axes, *cuts)
        )
        settings = {"dim": dim, "into": into, "axes": list(order)}
        graph.copying(f"{at}.named", payload, "permute", settings, [source], [named])
        middle = graph.value(named, f"{source.name}.across", layout=placed(named.layout, across))
        one = graph.send(payload, f"{at}.across", "all-gather", named, middle, axes=_ordered(graph, across))
        whole = graph.value(middle, f"{source.name}.whole", layout=placed(middle.layout, inside))
        two = graph.send(payload, f"{at}.inside", "all-gather", middle, whole, axes=_ordered(graph, inside))
        back = {"dim": into, "into": dim, "axes": list(order)}
        graph.copying(f"{at}.permute", payload, "permute", back, [whole], [result])
        held = middle.size_bytes + whole.size_bytes + named.size_bytes
    graph.inherit(one, payload, producers=True)
    graph.inherit(two, payload, consumers=True)
    graph.drop(payload)
    return Change({}, times_of(graph, payload), 0.0, held)


@rule("hierarchical-all-to-all", "A2A = A2A across . A2A inside, the blocks sorted by the inner level before")
def hierarchical_all_to_all(graph: StepGraph, at: str, inner: str) -> Change:
    """Exchange along the inner axes, then along the others; what a rank sends is sorted by the inner axes first."""
    payload = payload_at(graph, at, "all-to-all")
    inside, across = _levels(graph, payload, listed(inner))
    source, result = graph.values[payload.source], graph.values[payload.result]
    old, new = sliced_by(source, payload), sliced_by(result, payload)
    order = (*_ordered(graph, inside), *_ordered(graph, across))
    if source.axes(SLICED, old)[-len(inside) :] != _ordered(graph, inside):
        raise Refused(f"the inner axes are not the last cuts of {old}", "inner: the axes that vary fastest")
    into, dims = _renamed(source, new, order)
    sorted_ = graph.value(source, f"{source.name}.sorted", dims=dims)
    graph.copying(
        f"{at}.permute", payload, "permute", {"dim": new, "into": into, "axes": list(order)}, [source], [sorted_]
    )
    cuts = tuple(Placement(axis, SLICED, into) for axis in _ordered(graph, inside))
    middle = graph.value(sorted_, f"{source.name}.inside", layout=placed(sorted_.layout, inside, *cuts))
    one = graph.send(payload, f"{at}.inside", "all-to-all", sorted_, middle, axes=_ordered(graph, inside))
    cuts = tuple(Placement(axis, SLICED, into) for axis in order)
    swapped = graph.value(middle, f"{source.name}.across", layout=placed(middle.layout, payload.axes, *cuts))
    graph.send(payload, f"{at}.across", "all-to-all", middle, swapped, axes=_ordered(graph, across))
    graph.copying(
        f"{at}.named", payload, "permute", {"dim": into, "into": new, "axes": list(order)}, [swapped], [result]
    )
    graph.inherit(one, payload, producers=True)
    graph.drop(payload)
    times, size = times_of(graph, payload), source.size_bytes
    m, n, ranks = graph.extent(inside), graph.extent(across), graph.extent(payload.axes)
    wire = size * ((m - 1) / m + (n - 1) / n - (ranks - 1) / ranks)
    return Change({payload.role: wire * times}, times, 0.0, sorted_.size_bytes + middle.size_bytes + swapped.size_bytes)


# ------------------------------------------------------------------------------------------------------------ rings
def ring_axis(graph: StepGraph, payload: Payload) -> str:
    """Return the one axis of a payload's group; Refused for several."""
    if len(payload.axes) != 1:
        raise Refused(
            f"its group goes along {', '.join(payload.axes)}", "split it by levels first: a ring is along one axis"
        )
    return payload.axes[0]


def shifts(
    graph: StepGraph, payload: Payload, own: Value, steps: int, hops: int = 1, name: str = "shift"
) -> list[Value]:
    """Send a value round the ring ``steps`` times; return what each rank holds after none, one, two ... of them."""
    held = [own]
    for step in range(1, steps + 1):
        made = graph.value(own, f"{own.name}.{name}{step}")
        graph.send(payload, f"{payload.name}.{name}{step}", "shift", held[-1], made, hops=hops, root=0)
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
    graph.inherit(whole, scatter, producers=True)
    graph.inherit(whole, gather, consumers=True)
    for each in (scatter, gather):
        graph.drop(each)
    times = times_of(graph, scatter)
    return Change({}, -times, 0.0, 0)
