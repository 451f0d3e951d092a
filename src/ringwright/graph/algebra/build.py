"""Small graphs by hand: inputs, what is computed from them, and operations between layouts; edges follow.

Examples
--------
>>> from ringwright.graph.algebra.build import Build, partial, sliced
>>> from ringwright.model.workload import Mesh
>>> graph = Build(Mesh((("tp", 4),)), b=8, h=8, f=16)
>>> x = graph.input("x", "b h")
>>> w = graph.input("w", "h f", sliced("tp", "f"))
>>> y = graph.task("y", "einsum", [x, w], "b f", sliced("tp", "f"))
>>> step = graph.step()
>>> [(task.name, task.reads) for task in step.tasks]
[('y', (('x', 0), ('w', 0)))]
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ringwright.graph.algebra.editing import StepGraph, sent_bytes
from ringwright.model.values import PARTIAL, SLICED, Placement, Value, Work
from ringwright.model.workload import Mesh, Payload, RankClass, Task, Workload

BYTES = 4
OPS = {"AR": "all-reduce", "RS": "reduce-scatter", "AG": "all-gather", "A2A": "all-to-all"}


def sliced(axis: str, dim: str) -> Placement:
    """Return: rank i along ``axis`` holds block i of ``dim``."""
    return Placement(axis, SLICED, dim)


def partial(axis: str) -> Placement:
    """Return: the value is the sum of what ranks along ``axis`` hold."""
    return Placement(axis, PARTIAL)


class Build:
    """A graph under construction on a mesh; ``dims`` are the sizes of the whole dimensions by name."""

    def __init__(self, mesh: Mesh, **dims: int) -> None:
        self.mesh, self.dims = mesh, dict(dims)
        self.tasks: list[Task] = []
        self.payloads: list[Payload] = []
        self.values: list[Value] = []

    def value(self, name: str, dims: str, *layout: Placement, kind: str = "activation", per: str = "step") -> Value:
        """Add a value with these dimensions, names with spaces between."""
        made = Value(name, "all", 0, tuple((each, self.dims[each]) for each in dims.split()), layout, kind, per)
        size = BYTES * math.prod(made.held(self.mesh.sizes).values())
        made = Value(name, "all", size, made.dims, layout, kind, per)
        self.values.append(made)
        return made

    input = value

    def task(
        self,
        name: str,
        meaning: str,
        reads: Iterable[Value | tuple[Value, int]],
        dims: str,
        *layout: Placement,
        kind: str = "F",
        seconds: float = 1.0,
        cost: Work | None = None,
        **settings: Any,
    ) -> Value:
        """Add a task that computes a value of its own name, and return the value."""
        value_kind = str(settings.pop("value", "activation"))
        made = self.value(name, dims, *layout, kind=value_kind)
        listed = tuple((each[0].name, each[1]) if isinstance(each, tuple) else (each.name, 0) for each in reads)
        given = cost or Work()
        work = replace(given, meaning=meaning, settings=settings)
        slot = ("U", 0) if kind == "U" else (("F", 0) if kind == "F" else ("B", 0))
        self.tasks.append(
            Task(name, "all", kind, seconds, slot=slot, per="step", reads=listed, writes=(made.name,), work=work)
        )
        return made

    def send(
        self, name: str, op: str, source: Value, axes: str, *layout: Placement, role: str = "tp", **more: Any
    ) -> Value:
        """Add an operation (AR, RS, AG, A2A or a name of ``ringwright.model.workload.OPS``) along axes, and return its result."""
        made = self.value(name, " ".join(dim for dim, _ in source.dims), *layout, kind=source.kind)
        op = OPS.get(op, op)
        size = sent_bytes(op, source, made)
        self.payloads.append(
            Payload(
                name,
                "all",
                op,
                size,
                tuple(axes.split()),
                role,
                (),
                (),
                elements=size // BYTES,
                source=source.name,
                result=made.name,
                **more,
            )
        )
        return made

    def step(self, name: str = "graph") -> Workload:
        """Return the graph as a Workload."""
        listed = tuple(self.tasks), (), tuple(self.payloads)
        made = Workload(name, self.mesh, (RankClass("all"),), *listed, values=tuple(self.values))
        return StepGraph(made).done()
