"""How the value that a task writes lies on the mesh, from how those that it reads do: the types of what tasks compute.

A dimension whose name ends in ``@a.b`` holds its blocks sorted by axis a, then b, instead of the mesh's own order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ringwright.model.values import LOCAL, PARTIAL, SLICED, Placement, Value

LINEAR = ("add", "subtract", "scale", "update", "copy")  # of all their operands together: partial sums may go through
SORTED = "@"
Sizes = Mapping[str, int]


class LayoutRefusal(Exception):  # noqa: N818 - caught by the rules next door
    """Why a task cannot write a value that lies so; ``remedy`` is what would make it legal."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


def written(meaning: str, settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    """Raise LayoutRefusal where a task of this meaning cannot write ``out`` from what it reads."""
    rule = _RULES.get(meaning)
    if rule is not None:
        rule(settings, reads, out, sizes)


def _same(layout: Iterable[Placement], out: Value, sizes: Sizes) -> None:
    """Refuse where ``out`` does not lie so; along one dimension the order of the cuts counts, between two it does not."""
    wanted = [each for each in layout if sizes.get(each.axis, 1) > 1]
    lies = [each for each in out.layout if sizes.get(each.axis, 1) > 1]
    dims = {each.dim for each in (*wanted, *lies)}
    if any([e for e in wanted if e.dim == dim] != [e for e in lies if e.dim == dim] for dim in dims):
        raise LayoutRefusal(f"{out.name} is {told(lies)}, not {told(wanted)}", f"{out.name} as {told(wanted)}")


def told(layout: Iterable[Placement]) -> str:
    """Return a layout in words."""
    words = [f"{each.how} along {each.axis}" + (f" by {each.dim}" if each.dim else "") for each in layout]
    return ", ".join(words) or "replicated"


def _einsum(settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    kept = {name for name, _ in out.dims}
    axes = list(dict.fromkeys(each.axis for value in reads for each in value.layout))
    made: list[Placement] = []
    for axis in axes:
        lies = [value.along(axis) for value in reads]
        hows = {each.how for each in lies if each}
        if LOCAL in hows:
            if hows != {LOCAL}:
                raise LayoutRefusal(
                    f"local and {', '.join(sorted(hows - {LOCAL}))} operands along {axis}", "one layout"
                )
            made.append(Placement(axis, LOCAL))
        elif PARTIAL in hows:
            if sum(1 for each in lies if each) > 1:
                raise LayoutRefusal(f"a product of two that are not whole along {axis}", "sum one of them up first")
            made.append(Placement(axis, PARTIAL))
        else:
            made.append(_contracted(axis, lies, reads, kept))
    order = [each for value in reads for each in value.layout]
    made.sort(key=lambda each: order.index(next(one for one in order if one.axis == each.axis)))
    _same(made, out, sizes)


def _contracted(axis: str, lies: list[Placement | None], reads: Sequence[Value], kept: set[str]) -> Placement:
    dims = {each.dim for each in lies if each}
    if len(dims) > 1:
        raise LayoutRefusal(f"operands sliced along {axis} by {' and '.join(sorted(dims))}", "slice both by one")
    dim = dims.pop()
    for value, each in zip(reads, lies, strict=True):
        if each is None and dim in dict(value.dims):
            raise LayoutRefusal(
                f"{value.name} has all of {dim}, the other operand a slice of it", f"slice {value.name}"
            )
    return Placement(axis, SLICED, dim) if dim in kept else Placement(axis, PARTIAL)


def _pointwise(settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    fn = settings.get("fn", "")
    if fn == "multiply":
        _einsum(settings, reads, out, sizes)
        return
    layouts = [value.layout for value in reads]
    if fn == "add-once":  # the second operand counts on the first rank of an axis only
        layouts = [tuple(each for each in layouts[0] if each.axis != settings.get("axis")), *layouts[1:]]
        if not reads[0].along(str(settings.get("axis"))):
            raise LayoutRefusal(f"{reads[0].name} is whole along {settings.get('axis')}", "add to all ranks")
    dims = [name for name, _ in out.dims]
    for value, layout in zip(reads, layouts, strict=True):
        mine = [each for each in layouts[0] if not each.dim or each.dim in dict(value.dims)]
        if sorted(map(str, mine)) != sorted(map(str, layout)):
            remedy = f"slice {value.name}, or gather {reads[0].name}"
            raise LayoutRefusal(
                f"{reads[0].name} is {told(layouts[0])}, {value.name} {told(layout)}: they do not meet", remedy
            )
        if any(name not in dims for name, _ in value.dims):
            raise LayoutRefusal(f"{value.name} has a dimension that {out.name} has not", "sum it up")
    partial = [each.axis for each in reads[0].layout if each.how == PARTIAL] if reads else []
    if partial and fn not in (*LINEAR, "add-once"):
        raise LayoutRefusal(f"{fn} of a sum is not the sum of {fn}: {reads[0].name} is partial", "sum it up first")
    _same(reads[0].layout if reads else (), out, sizes)


def _rowwise(settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    along, value = settings.get("along"), reads[0]
    for each in value.layout:
        if each.how == PARTIAL or (each.how == SLICED and each.dim == along):
            what = f"{value.name} is {told([each])}, and all of {along} is needed at once"
            raise LayoutRefusal(what, "gather it first")
    _same(value.layout, out, sizes)


def _sum(settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    along = settings.get("along")
    layout = (
        Placement(each.axis, PARTIAL) if each.how == SLICED and each.dim == along else each for each in reads[0].layout
    )
    _same(layout, out, sizes)


def _pieces(whole: Value, pieces: Sequence[Value], settings: Mapping[str, Any], sizes: Sizes) -> None:
    """Refuse pieces that do not lie as the whole does, or cut its slices apart."""
    along, offsets = str(settings.get("along")), settings.get("offsets")
    if offsets is not None:  # every rank begins with a piece of its own: the pieces are local
        axis = str(settings.get("axis"))
        if any((each.along(axis) or Placement(axis, "")).how != LOCAL for each in pieces):
            raise LayoutRefusal(f"pieces that every rank along {axis} counts from itself are local", "pieces as local")
        return
    parts = math.prod(sizes.get(axis, 1) for axis in whole.axes(SLICED, along))
    if int(settings.get("blocks", 1)) % parts:
        what = f"{whole.name} is sliced into {parts} by {along}, its pieces lie in {settings.get('blocks', 1)} blocks"
        raise LayoutRefusal(what, f"pieces of every block: blocks={parts}")
    at = [name for name, _ in whole.dims].index(along)
    for piece in pieces:
        mine = piece.dims[at][0] if at < len(piece.dims) else along
        layout = (Placement(e.axis, e.how, mine if e.dim == along else e.dim) for e in whole.layout)
        _same(layout, piece, sizes)


def _pad(settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    parts = math.prod(sizes.get(axis, 1) for axis in reads[0].axes(SLICED, str(settings.get("along"))))
    if int(settings.get("blocks", 1)) != parts:
        raise LayoutRefusal(f"{reads[0].name} is sliced by {settings.get('along')}", f"pad each slice: blocks={parts}")
    _same(reads[0].layout, out, sizes)


def _stack(settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    """The terms of a sum become a dimension of their own, one on each rank."""
    dim = str(settings.get("dim"))
    kept = [each for each in reads[0].layout if each.how != PARTIAL]
    terms = [Placement(axis, SLICED, dim) for axis in reads[0].axes(PARTIAL)]
    _same([*kept, *terms], out, sizes)


def _slice(settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    axis, dim = str(settings.get("axis")), str(settings.get("dim"))
    if reads[0].along(axis):
        raise LayoutRefusal(f"{reads[0].name} is {told(reads[0].layout)}", f"a value that is whole along {axis}")
    _same((*reads[0].layout, Placement(axis, SLICED, dim)), out, sizes)


def _permute(settings: Mapping[str, Any], reads: Sequence[Value], out: Value, sizes: Sizes) -> None:
    """A dimension changes its name with the order of its blocks; where it is sliced, the order of the cuts does.

    Cuts by other axes come first, and stay.
    """
    value, old, new = reads[0], str(settings.get("dim")), str(settings.get("into"))
    if old.partition(SORTED)[0] != new.partition(SORTED)[0]:
        raise LayoutRefusal(f"{old} sorted otherwise is not {new}", "the same dimension")
    named = set(settings.get("axes", ()))
    cuts = value.axes(SLICED, old)
    outer, axes = [axis for axis in cuts if axis not in named], tuple(axis for axis in cuts if axis in named)
    if not axes:
        layout = [Placement(each.axis, each.how, new if each.dim == old else each.dim) for each in value.layout]
        _same(layout, out, sizes)
        return
    wanted = [*outer, *_sorted_by(new, axes, sizes)]
    if set(axes) != named or list(cuts[: len(outer)]) != outer or list(out.axes(SLICED, new)) != wanted:
        raise LayoutRefusal(f"{value.name} is sliced by {', '.join(cuts)}", "slice by all of its axes, or by none")


def _sorted_by(dim: str, axes: Sequence[str], sizes: Sizes) -> list[str]:
    named = dim.partition(SORTED)[2].split(".") if SORTED in dim else [axis for axis in sizes if axis in axes]
    return [axis for axis in named if axis in axes]


_RULES: dict[str, Callable[[Mapping[str, Any], Sequence[Value], Value, Sizes], None]] = {
    "einsum": _einsum,
    "pointwise": _pointwise,
    "rowwise": _rowwise,
    "sum": _sum,
    "pad": _pad,
    "stack": _stack,
    "slice": _slice,
    "permute": _permute,
}


def cut(settings: Mapping[str, Any], whole: Value, pieces: Sequence[Value], sizes: Sizes) -> None:
    """Raise LayoutRefusal where pieces (what a cut writes, a join reads) cannot lie as they do."""
    _pieces(whole, pieces, settings, sizes)
