"""A task that becomes turns of a loop, one for each rank's block of a dimension, in as many tiles as are asked for."""

from __future__ import annotations

from dataclasses import replace

from ringwright.graph.algebra.editing import StepGraph, dims_of, local, placed
from ringwright.graph.algebra.rings import add, rotated
from ringwright.graph.algebra.rule import Refused
from ringwright.graph.algebra.shares import share_of
from ringwright.graph.algebra.tiles import put_together, require_tiles, shares_of_time, tiled
from ringwright.model.values import LOCAL, SLICED, Value
from ringwright.model.workload import Task


class TurnedTask:
    """A task that becomes turns, one for each block of a dimension; what each turn reads and writes."""

    def __init__(self, graph: StepGraph, task: Task, axis: str, dim: str, size: int, epsilon: float) -> None:
        self.graph, self.task, self.axis, self.dim, self.size = graph, task, axis, dim, size
        self.ranks = graph.extent((axis,))
        if epsilon and epsilon < 1:
            raise Refused(f"turns that take {epsilon:g} times as long as the whole", "epsilon: 1 and more")
        if any(name not in graph.values for name in (*(name for name, _ in task.reads), *task.writes)):
            raise Refused("not all that it reads and writes is known", "values for all of it")
        self.outs = [graph.values[name] for name in task.writes]
        self.epsilon, self.turns = epsilon, list[str]()
        self.tiles, self.times = 1, [1.0]
        self.is_einsum = bool(task.work and task.work.meaning == "einsum")
        legal = task.work.cuts if task.work and not task.work.meaning else {}
        if not self.is_einsum and dim not in legal:
            known = (
                f"it is '{task.work.meaning}'" if task.work and task.work.meaning else "nobody knows what it computes"
            )
            raise Refused(f"{known}, and no cut along {dim} is declared", f"an einsum, or work with cuts: {dim}")
        without = next((value.name for value in self.outs if dim not in dims_of(value)), "")
        if without and not self.is_einsum:
            raise Refused(f"{without} has no {dim}, and nobody knows whether it is a sum", f"writes with {dim}")

    def in_tiles(self, tiles: int, waves: int) -> TurnedTask:
        """Let each block be worked on in so many tiles; Refused where they are not equal."""
        require_tiles(self.size, self.dim, tiles, waves)
        self.tiles, self.times = tiles, shares_of_time(tiles, waves)
        return self

    def own(self, name: str) -> Value:
        """Return a rank's slice of an operand as a value of its own, or the operand where all ranks have it."""
        value = self.graph.values[name]
        lies = value.along(self.axis)
        late = any(distance for each, distance in self.task.reads if each == name)
        if lies is None or lies.how == LOCAL or (late and not self.is_einsum and self.dim not in dims_of(value)):
            return value
        if lies.dim == self.dim:
            raise Refused(f"each rank has its block of {name} only", "operands with all blocks on each rank")
        if lies.how != SLICED:
            raise Refused(f"{value.name} is a sum that is not added up", "operands that are whole, or sliced")
        if late:
            raise Refused(f"{value.name} is of an earlier step", "operands of this step")
        dims = tuple((each, size // self.ranks if each == lies.dim else size) for each, size in value.dims)
        layout = placed(value.layout, (self.axis,), local(self.axis))
        own = self.graph.value(value, f"{name}.own", dims=dims, layout=layout, size_bytes=value.size_bytes)
        self.graph.copying(f"{self.task.name}.own.{name}", self.task, "copy", {}, [value], [own])
        return own

    def cut(self, operands: dict[str, Value], offsets: list[int]) -> dict[str, list[list[Value]]]:
        """Return what each turn reads of each operand, tile by tile: of its block where it has the dimension, else all of it."""
        made = {}
        for name, value in operands.items():
            if self.dim in dims_of(value):
                blocks = rotated(self.graph, self.task, value, self.dim, self.axis, offsets, self.size)
                made[name] = [tiled(self.graph, self.task, block, self.dim, self.tiles) for block in blocks]
            else:
                made[name] = [[value] * self.tiles] * self.ranks
        return made

    def turn(self, operands: dict[str, list[Value]], turn: int) -> list[list[Value]]:
        """Add one turn of the loop, tile after tile, and return what each of them makes."""
        return [self._tile({name: each[at] for name, each in operands.items()}, turn, at) for at in range(self.tiles)]

    def _tile(self, operands: dict[str, Value], turn: int, tile: int) -> list[Value]:
        graph, task, dim = self.graph, self.task, self.dim
        made, called = [], f"turn{turn}" + (f".tile{tile}" if self.tiles > 1 else "")
        for out in self.outs:
            lies = out.along(self.axis)
            inner = lies.dim if lies is not None and lies.how == SLICED else ""
            dims = tuple(
                (name, self.size // self.tiles if name == dim else size // self.ranks if name == inner else size)
                for name, size in out.dims
            )
            layout = placed(out.layout, (self.axis,), local(self.axis))
            made.append(graph.value(out, f"{out.name}.{called}", dims=dims, layout=layout))
        more_s = task.work.cuts.get(dim, 0.0) if task.work and (turn or tile) and not self.epsilon else 0.0
        fields = share_of(task, 1 / (self.ranks * self.tiles), 0.0, dim)
        seconds = task.seconds * self.times[tile] / self.ranks * (self.epsilon or 1.0) + more_s
        reads = tuple((operands[name].name if name in operands else name, late) for name, late in task.reads)
        writes = tuple(value.name for value in made)
        name = graph.fresh(f"{task.name}.{called}")
        self.turns.append(name)
        graph.add(replace(task, name=name, reads=reads, writes=writes, **{**fields, "seconds": seconds}), task)
        return made

    def assembled(self, out: Value, pieces: list[list[Value]], offsets: list[int]) -> None:
        """Put what the turns make, tile by tile, at its places, or add it up where the blocks were terms of a sum."""
        graph, task = self.graph, self.task
        if self.dim in dims_of(out):
            sizes = [self.size] * len(pieces)
            settings = {"along": self.dim, "blocks": 1, "parts": sizes, "axis": self.axis, "offsets": offsets}
            blocks = [put_together(graph, task, each, self.dim, f"{each[0].name}.block") for each in pieces]
            graph.copying(f"{task.name}.join.{out.name}", task, "join", settings, blocks, [out])
            return
        total, *terms = (tile for each in pieces for tile in each)
        for at, piece in enumerate(terms, 1):
            into = graph.value(total, f"{out.name}.sum{at}")
            add(graph, task, total, piece, into, f"{task.name}.add{at}")
            total = into
        graph.copying(f"{task.name}.sum", task, "copy", {}, [total], [out])
