"""L: an operation and the product beside it become a loop (looped CollectiveEinsum): one block is sent, another worked on.

Source: Wang et al., Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models, ASPLOS
2023. A gathered operand: each rank works on its own block first, then on those that arrive. A scattered product: each rank
works first on the block that travels furthest, adds what arrives, and ends with its own. Both ways round, where p is even; or
``direct``, each block straight from its rank, or to it. What has no meaning has a loop where it may be cut so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from ringwright.algebra.editing import StepGraph, dims_of, local, placed, share_of, times_of
from ringwright.algebra.rings import add, own_block, ring_axis, rotated, shifts
from ringwright.algebra.rule import Refused, rule, task_at
from ringwright.algebra.split_collective import sliced_by
from ringwright.values import LOCAL, SLICED, Change, Value
from ringwright.workload import SHIFTS, Payload, Task


@rule("loop-gather", "einsum(AG x, w) = p partial products, each beside a shift of the next block")
def loop_gather(
    graph: StepGraph,
    at: str,
    bidirectional: bool = False,
    direct: bool = False,
    kept: bool = False,
    epsilon: float = 0.0,
    op: str = "shift",
) -> Change:
    """Loop a product over the blocks of an operand that is gathered; ``kept``: others read the whole, which is put together.

    Blocks go by ``op``: a shift of the library's, or a copy by copy engines.

    ``epsilon`` is how many times as long all turns take as the product (0: by what its work says that a part more costs).
    """
    task = task_at(graph, at)
    gather = _gathered_for(graph, task, kept=kept)
    axis, ranks = _ring(graph, gather, op, bidirectional=bidirectional, direct=direct)
    source, whole = graph.values[gather.source], graph.values[gather.result]
    dim = sliced_by(source, gather)
    site = _Site(graph, task, axis, dim, dims_of(source)[dim] // ranks, epsilon)
    own, _, size = own_block(graph, gather, source, axis)
    offsets, blocks = _arriving(graph, gather, own, (ranks, op), bidirectional=bidirectional, direct=direct)
    others = {name: site.own(name) for name, _ in task.reads if name != gather.result}
    cut = site.cut(others, offsets)
    pieces = [site.turn({gather.result: blocks[at]} | {n: p[at] for n, p in cut.items()}, at) for at in range(ranks)]
    for number, name in enumerate(task.writes):
        site.assembled(graph.values[name], [each[number] for each in pieces], offsets)
    if kept:
        settings = {"along": dim, "blocks": 1, "parts": [size] * ranks, "axis": axis, "offsets": offsets}
        graph.copying(f"{gather.name}.join", gather, "join", settings, blocks, [whole])
    graph.drop(gather)
    graph.drop(task, [graph.tasks[name] for name in site.turns])
    held = sum(value.size_bytes for value in (*blocks, *(each for piece in pieces for each in piece)))
    held += sum(value.size_bytes for value in (*others.values(), *site.outs))
    return Change({}, (ranks - 2) * times_of(graph, gather), 0.0, held)


def _ring(graph: StepGraph, payload: Payload, op: str, *, bidirectional: bool, direct: bool) -> tuple[str, int]:
    if op not in SHIFTS:
        raise Refused(f"a {op} brings no blocks", f"op: {' or '.join(SHIFTS)}")
    axis, ranks = ring_axis(graph, payload), graph.extent(payload.axes)
    if bidirectional and ranks % 2:
        raise Refused(f"{ranks} ranks do not part into two ways round", "bidirectional=false")
    if bidirectional and direct:
        raise Refused("blocks that go straight to their rank go no way round", "bidirectional=false, or direct=false")
    return axis, ranks


def _gathered_for(graph: StepGraph, task: Task, *, kept: bool) -> Payload:
    for name, distance in task.reads:
        node = graph.writer(name)
        if isinstance(node, Payload) and node.op == "all-gather" and not distance:
            if len(graph.readers(name)) > 1 and not kept:
                raise Refused(f"others read {name} too", "a value that one product reads, or kept=true")
            return node
    raise Refused("it reads nothing that is gathered", "a product behind an all-gather")


def _arriving(
    graph: StepGraph, gather: Payload, own: Value, how: tuple[int, str], *, bidirectional: bool, direct: bool
) -> tuple[list[int], list[Value]]:
    """Send the blocks; return in which order each rank has them, counted from its own, and the blocks."""
    ranks, op = how
    if direct:
        blocks = [own]
        for hops in range(1, ranks):
            moved = graph.value(own, f"{own.name}.from{hops}")
            graph.send(gather, f"{gather.name}.from{hops}", op, own, moved, hops=hops, root=0)
            blocks.append(moved)
        return list(range(ranks)), blocks
    if not bidirectional:
        return list(range(ranks)), shifts(graph, gather, own, ranks - 1, op=op)
    there = shifts(graph, gather, own, ranks // 2, op=op)
    back = shifts(graph, gather, own, ranks // 2 - 1, hops=-1, name="back", op=op)[1:]
    offsets, blocks = [0], [there[0]]
    for turn in range(1, ranks // 2 + 1):
        offsets, blocks = [*offsets, turn], [*blocks, there[turn]]
        if turn <= len(back):
            offsets, blocks = [*offsets, -turn], [*blocks, back[turn - 1]]
    return offsets, blocks


class _Site:
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

    def cut(self, operands: dict[str, Value], offsets: list[int]) -> dict[str, list[Value]]:
        """Return what each turn reads of each operand: its block where it has the dimension, else all of it."""
        made = {}
        for name, value in operands.items():
            if self.dim in dims_of(value):
                made[name] = rotated(self.graph, self.task, value, self.dim, self.axis, offsets, self.size)
            else:
                made[name] = [value] * self.ranks
        return made

    def turn(self, operands: dict[str, Value], turn: int) -> list[Value]:
        """Add one turn of the loop, and return what it makes."""
        graph, task, dim = self.graph, self.task, self.dim
        made = []
        for out in self.outs:
            lies = out.along(self.axis)
            inner = lies.dim if lies is not None and lies.how == SLICED else ""
            dims = tuple(
                (name, self.size if name == dim else size // self.ranks if name == inner else size)
                for name, size in out.dims
            )
            layout = placed(out.layout, (self.axis,), local(self.axis))
            made.append(graph.value(out, f"{out.name}.turn{turn}", dims=dims, layout=layout))
        share = 1 / self.ranks
        cost = task.work.cuts.get(dim, 0.0) if task.work and turn and not self.epsilon else 0.0
        more_s = task.seconds * share * (self.epsilon - 1) if self.epsilon else cost
        fields = share_of(task, share, more_s, dim)
        reads = tuple((operands[name].name if name in operands else name, late) for name, late in task.reads)
        writes = tuple(value.name for value in made)
        name = graph.fresh(f"{task.name}.turn{turn}")
        self.turns.append(name)
        graph.add(replace(task, name=name, reads=reads, writes=writes, **fields), task)
        return made

    def assembled(self, out: Value, pieces: list[Value], offsets: list[int]) -> None:
        """Put what the turns make at its places, or add it up where the blocks were terms of a sum."""
        graph, task = self.graph, self.task
        if self.dim in dims_of(out):
            sizes = [self.size] * len(pieces)
            settings = {"along": self.dim, "blocks": 1, "parts": sizes, "axis": self.axis, "offsets": offsets}
            graph.copying(f"{task.name}.join.{out.name}", task, "join", settings, pieces, [out])
            return
        total = pieces[0]
        for at, piece in enumerate(pieces[1:], 1):
            into = graph.value(total, f"{out.name}.sum{at}")
            add(graph, task, total, piece, into, f"{task.name}.add{at}")
            total = into
        graph.copying(f"{task.name}.sum", task, "copy", {}, [total], [out])


@rule("loop-scatter", "RS einsum(x, w) = p times: a partial product, added to what arrives, and sent on")
def loop_scatter(
    graph: StepGraph,
    at: str,
    bidirectional: bool = False,
    direct: bool = False,
    epsilon: float = 0.0,
    op: str = "shift",
) -> Change:
    """Loop a product whose terms are summed and scattered over the blocks of what it makes; ``epsilon``, ``op`` as of gathers."""
    task = task_at(graph, at)
    scatter = _scattered_by(graph, task)
    axis, ranks = _ring(graph, scatter, op, bidirectional=bidirectional, direct=direct)
    out, result = graph.values[scatter.source], graph.values[scatter.result]
    dim = sliced_by(result, scatter)
    site = _Site(graph, task, axis, dim, dims_of(out)[dim] // ranks, epsilon)
    half = ranks // 2
    there = [turn - half for turn in range(half)] if bidirectional else [*range(1, ranks)]
    back = [half - 1 - turn for turn in range(half - 1)] if bidirectional else []
    turns = zip_longest(there, back)
    offsets = [*(each for pair in turns for each in pair if each is not None), 0]
    operands = {name: site.own(name) for name, _ in task.reads}
    cut = site.cut(operands, offsets)
    made = [site.turn({name: each[turn] for name, each in cut.items()}, turn) for turn in range(ranks)]
    number = task.writes.index(out.name)
    pieces = {offset: made[turn][number] for turn, offset in enumerate(offsets)}
    if direct:
        sums = [_straight(graph, scatter, pieces[each], ranks - each, op) for each in there]
    else:
        sums = [_travelled(graph, scatter, [pieces[each] for each in there], 1, "shift", op)]
    if back:
        sums.append(_travelled(graph, scatter, [pieces[each] for each in back], -1, "back", op))
    total = pieces[0]
    for turn, arrived in enumerate(sums):
        into = graph.value(total, f"{result.name}.whole{turn}")
        add(graph, task, total, arrived, into, f"{at}.end{turn}")
        total = into
    graph.copying(f"{at}.own", task, "copy", {}, [total], [result])
    for at_write, value in enumerate(site.outs):
        if at_write != number:
            site.assembled(value, [each[at_write] for each in made], offsets)
    graph.drop(scatter)
    graph.drop(task, [graph.tasks[name] for name in site.turns])
    held = 2 * sum(value.size_bytes for value in site.outs) + (ranks + 2 if direct else 3) * result.size_bytes
    held += 2 * sum(value.size_bytes for value in operands.values())
    return Change({}, (ranks - 2) * times_of(graph, scatter), 0.0, held)


def _scattered_by(graph: StepGraph, task: Task) -> Payload:
    for name in task.writes:
        readers = graph.readers(name)
        if len(readers) == 1 and isinstance(readers[0], Payload) and readers[0].op == "reduce-scatter":
            return readers[0]
    raise Refused("what it makes is not scattered, and by nobody else", "a product before a reduce-scatter")


def _straight(graph: StepGraph, scatter: Payload, piece: Value, hops: int, op: str) -> Value:
    """Send a term straight to the rank whose block it is of; return what arrives."""
    moved = graph.value(piece, f"{scatter.result}.from{hops}")
    graph.send(scatter, f"{scatter.name}.from{hops}", op, piece, moved, hops=hops, root=0)
    return moved


def _travelled(graph: StepGraph, scatter: Payload, pieces: list[Value], hops: int, name: str, op: str) -> Value:
    """Send a sum from rank to rank, each of which adds its piece; return what arrives in the end."""
    total = pieces[0]
    for turn in range(1, len(pieces) + 1):
        moved = graph.value(total, f"{scatter.result}.{name}{turn}")
        graph.send(scatter, f"{scatter.name}.{name}{turn}", op, total, moved, hops=hops, root=0)
        if turn == len(pieces):
            return moved
        total = graph.value(moved, f"{scatter.result}.{name}.sum{turn}")
        add(graph, scatter, moved, pieces[turn], total, f"{scatter.name}.{name}.add{turn}")
    return total
