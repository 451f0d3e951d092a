"""S, level by level: one operation becomes several over the axes of its group, inside and across.

Laws: an all-reduce is a reduce-scatter inside, an all-reduce across, an all-gather inside (BlueConnect splits the middle again);
gathers, scatters and exchanges over two levels need their blocks sorted by the other level first.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.graph.algebra.editing import StepGraph, placed, times_of
from ringwright.graph.algebra.rule import Refused, payload_at, rule
from ringwright.graph.algebra.split_collective import dim_for, ordered, padded, scattered, sliced_by, unpadded
from ringwright.model.values import SLICED, Change, Placement, Value
from ringwright.model.workload import Payload


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
def hierarchical_all_reduce(graph: StepGraph, at: str, inner: str | Sequence[str], dim: str = "") -> Change:
    """Reduce-scatter along the ``inner`` axes, all-reduce along the others, all-gather along the inner ones."""
    payload = payload_at(graph, at, "all-reduce")
    inside, across = _levels(graph, payload, listed(inner))
    source, result = graph.values[payload.source], graph.values[payload.result]
    along, many = dim_for(source, dim), graph.extent(inside)
    whole = padded(graph, payload, source, along, many)
    part = scattered(graph, payload, whole, along, inside, "scatter")
    summed = graph.value(part, f"{part.name}.summed", layout=placed(part.layout, across))
    graph.send(payload, f"{at}.across", "all-reduce", part, summed, axes=ordered(graph, across))
    out = unpadded(graph, payload, whole, along, result)
    last = graph.send(payload, f"{at}.gather", "all-gather", summed, out, axes=ordered(graph, inside))
    graph.waits.inherit(graph.payloads[f"{at}.scatter"], payload, producers=True)
    graph.waits.inherit(last, payload, consumers=True)
    graph.drop(payload)
    ranks, m, n = graph.extent(payload.axes), many, graph.extent(across)
    size = whole.size_bytes
    wire = 2 * (m - 1) / m * size + 2 * (n - 1) / n * size / m - 2 * (ranks - 1) / ranks * source.size_bytes
    held = 2 * part.size_bytes + result.size_bytes + (2 * size if whole is not source else 0)
    times = times_of(graph, payload)
    return Change({payload.role: wire * times} if abs(wire) > 1e-9 else {}, 2 * times, 0.0, held)


@rule("hierarchical-reduce-scatter", "RS = RS across . RS inside . permute")
def hierarchical_reduce_scatter(graph: StepGraph, at: str, inner: str | Sequence[str]) -> Change:
    """Sort the blocks by the inner axes first, then reduce-scatter along these, then along the others."""
    payload = payload_at(graph, at, "reduce-scatter")
    inside, across = _levels(graph, payload, listed(inner))
    source, result = graph.values[payload.source], graph.values[payload.result]
    dim = sliced_by(result, payload)
    order = (*ordered(graph, inside), *ordered(graph, across))
    into, dims, layout = _renamed(source, dim, order)
    sorted_ = graph.value(source, f"{source.name}.sorted", dims=dims, layout=tuple(layout))
    settings = {"dim": dim, "into": into, "axes": list(order)}
    graph.copying(f"{at}.permute", payload, "permute", settings, [source], [sorted_])
    one = scattered(graph, payload, sorted_, into, inside, "inside")
    two = scattered(graph, payload, one, into, across, "across")
    back = {"dim": into, "into": dim, "axes": list(order)}
    graph.copying(f"{at}.named", payload, "permute", back, [two], [result])
    graph.waits.inherit(graph.payloads[f"{at}.inside"], payload, producers=True)
    graph.drop(payload)
    return Change({}, times_of(graph, payload), 0.0, sorted_.size_bytes + one.size_bytes + two.size_bytes)


def _renamed(value: Value, dim: str, order: Sequence[str]) -> tuple[str, tuple[tuple[str, int], ...], list[Placement]]:
    """Return a name for a dimension whose blocks are sorted by axes in this order, and the dimensions and layout with it."""
    into = f"{dim}@{'.'.join(order)}"
    layout = [Placement(each.axis, each.how, into if each.dim == dim else each.dim) for each in value.layout]
    return into, tuple((into if name == dim else name, size) for name, size in value.dims), layout


@rule("hierarchical-all-gather", "AG = AG across . AG inside; across first needs the blocks sorted back at the end")
def hierarchical_all_gather(graph: StepGraph, at: str, inner: str | Sequence[str], first: str = "inside") -> Change:
    """Gather level by level: ``first`` "inside" (blocks come in order) or "across" (blocks are sorted at the end)."""
    payload = payload_at(graph, at, "all-gather")
    inside, across = _levels(graph, payload, listed(inner))
    if first not in ("inside", "across"):
        raise Refused(f"first is '{first}'", "first: inside or across")
    source, result = graph.values[payload.source], graph.values[payload.result]
    dim = sliced_by(source, payload)
    axes = source.axes(SLICED, dim)
    innermost = axes[-len(inside) :] == ordered(graph, inside)
    if first == "inside" and not innermost:
        raise Refused(
            f"{dim} of {source.name} is sliced by {', '.join(axes)}: the inner axes are not the last cuts",
            "first=across",
        )
    if first == "inside":
        middle = graph.value(source, f"{source.name}.inside", layout=placed(source.layout, inside))
        one = graph.send(payload, f"{at}.inside", "all-gather", source, middle, axes=ordered(graph, inside))
        two = graph.send(payload, f"{at}.across", "all-gather", middle, result, axes=ordered(graph, across))
        held = middle.size_bytes
    else:
        order = (*ordered(graph, inside), *ordered(graph, across))
        into, dims, layout = _renamed(source, dim, order)
        cuts = tuple(Placement(axis, SLICED, into) for axis in order)
        named = graph.value(source, f"{source.name}.named", dims=dims, layout=placed(layout, payload.axes, *cuts))
        settings = {"dim": dim, "into": into, "axes": list(order)}
        graph.copying(f"{at}.named", payload, "permute", settings, [source], [named])
        middle = graph.value(named, f"{source.name}.across", layout=placed(named.layout, across))
        one = graph.send(payload, f"{at}.across", "all-gather", named, middle, axes=ordered(graph, across))
        whole = graph.value(middle, f"{source.name}.whole", layout=placed(middle.layout, inside))
        two = graph.send(payload, f"{at}.inside", "all-gather", middle, whole, axes=ordered(graph, inside))
        back = {"dim": into, "into": dim, "axes": list(order)}
        graph.copying(f"{at}.permute", payload, "permute", back, [whole], [result])
        held = middle.size_bytes + whole.size_bytes + named.size_bytes
    graph.waits.inherit(one, payload, producers=True)
    graph.waits.inherit(two, payload, consumers=True)
    graph.drop(payload)
    return Change({}, times_of(graph, payload), 0.0, held)


@rule("hierarchical-all-to-all", "A2A = A2A across . A2A inside, the blocks sorted by the inner level before")
def hierarchical_all_to_all(graph: StepGraph, at: str, inner: str | Sequence[str]) -> Change:
    """Exchange along the inner axes, then along the others; what a rank sends is sorted by the inner axes first."""
    payload = payload_at(graph, at, "all-to-all")
    inside, across = _levels(graph, payload, listed(inner))
    source, result = graph.values[payload.source], graph.values[payload.result]
    old, new = sliced_by(source, payload), sliced_by(result, payload)
    order = (*ordered(graph, inside), *ordered(graph, across))
    if source.axes(SLICED, old)[-len(inside) :] != ordered(graph, inside):
        raise Refused(f"the inner axes are not the last cuts of {old}", "inner: the axes that vary fastest")
    into, dims, layout = _renamed(source, new, order)
    sorted_ = graph.value(source, f"{source.name}.sorted", dims=dims, layout=tuple(layout))
    graph.copying(
        f"{at}.permute", payload, "permute", {"dim": new, "into": into, "axes": list(order)}, [source], [sorted_]
    )
    cuts = tuple(Placement(axis, SLICED, into) for axis in ordered(graph, inside))
    middle = graph.value(sorted_, f"{source.name}.inside", layout=placed(sorted_.layout, inside, *cuts))
    one = graph.send(payload, f"{at}.inside", "all-to-all", sorted_, middle, axes=ordered(graph, inside))
    cuts = tuple(Placement(axis, SLICED, into) for axis in order)
    swapped = graph.value(middle, f"{source.name}.across", layout=placed(middle.layout, payload.axes, *cuts))
    graph.send(payload, f"{at}.across", "all-to-all", middle, swapped, axes=ordered(graph, across))
    graph.copying(
        f"{at}.named", payload, "permute", {"dim": into, "into": new, "axes": list(order)}, [swapped], [result]
    )
    graph.waits.inherit(one, payload, producers=True)
    graph.drop(payload)
    times, size = times_of(graph, payload), source.size_bytes
    m, n, ranks = graph.extent(inside), graph.extent(across), graph.extent(payload.axes)
    wire = size * ((m - 1) / m + (n - 1) / n - (ranks - 1) / ranks)
    return Change({payload.role: wire * times}, times, 0.0, sorted_.size_bytes + middle.size_bytes + swapped.size_bytes)
