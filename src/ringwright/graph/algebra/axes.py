"""A: an axis of the mesh is named as two, outer then inner, so that rules can tell what lies inside a node from what crosses.

No rank moves, no byte is sent: rank i along the axis is at (i // inner, i % inner) along the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ringwright.graph.algebra.editing import StepGraph
from ringwright.graph.algebra.rule import Refused, rule
from ringwright.model.values import Change, Placement
from ringwright.model.workload import Mesh, RankClass


@rule("split-axis", "an axis of n ranks is two, of n / m and m: the inner ranks are neighbours")
def split_axis(graph: StepGraph, at: str, inside: int) -> Change:
    """Name the axis ``at`` as two: ``at-across`` and, of ``inside`` neighbours each, ``at-inside``."""
    sizes = graph.mesh.sizes
    if at not in sizes:
        raise Refused("it is no axis of the mesh", f"one of: {', '.join(sizes)}")
    if inside < 2 or sizes[at] % inside or sizes[at] == inside:
        raise Refused(f"{sizes[at]} ranks are no groups of {inside}", f"inside: a divisor of {sizes[at]} in between")
    two = ((f"{at}-across", sizes[at] // inside), (f"{at}-inside", inside))
    if any(name in sizes for name, _ in two):
        raise Refused(f"there is an axis {two[0][0]} already", "another axis")
    for task in graph.tasks.values():
        works = [task.work, *(part.work for part in task.work.parts)] if task.work else []
        if any(at in _words(work.settings) for work in works):
            raise Refused(f"{task.name} counts along it", "split the axis before its operations become rings")
    names = tuple(name for name, _ in two)
    axes = [pair for name, size in graph.mesh.axes for pair in (two if name == at else ((name, size),))]
    graph.mesh = Mesh(tuple(axes))
    graph.classes = tuple(_named(each, at, names, inside) for each in graph.classes)
    for name, value in graph.values.items():
        graph.values[name] = replace(value, layout=_laid(value.layout, at, names))
    for task in list(graph.tasks.values()):
        if task.work and task.work.parts:
            parts = tuple(replace(part, layout=_laid(part.layout, at, names)) for part in task.work.parts)
            graph.change(task, work=replace(task.work, parts=parts))
    for payload in list(graph.payloads.values()):
        graph.change(payload, axes=tuple(axis for each in payload.axes for axis in _of(each, at, names)))
    return Change()


def _laid(layout: Iterable[Placement], at: str, names: tuple[str, ...]) -> tuple[Placement, ...]:
    return tuple(Placement(axis, each.how, each.dim) for each in layout for axis in _of(each.axis, at, names))


def _of(axis: str, at: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return names if axis == at else (axis,)


def _named(each: RankClass, at: str, names: tuple[str, ...], inside: int) -> RankClass:
    if at not in each.at:
        return each
    kept = {axis: coordinate for axis, coordinate in each.at.items() if axis != at}
    return RankClass(each.name, {**kept, names[0]: each.at[at] // inside, names[1]: each.at[at] % inside})


def _words(settings: Mapping[str, Any]) -> set[str]:
    """Return every word in settings, however deep."""
    words, todo = set[str](), list[Any](settings.values())
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            words.add(each)
        elif isinstance(each, Mapping):
            todo += each.values()
        elif isinstance(each, list | tuple):
            todo += each
    return words
