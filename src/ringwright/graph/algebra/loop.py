"""L: an operation and the product beside it become a loop (looped CollectiveEinsum): one block is sent, another worked on.

Source: Wang et al., Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models, ASPLOS
2023. A gathered operand: each rank works on its own block first, then on those that arrive. A scattered product: each rank
works first on the block that travels furthest, adds what arrives, and ends with its own. Both ways round, where p is even; or
``direct``, each block straight from its rank, or to it. What has no meaning has a loop where it may be cut so. A block may go in
``tiles``, each worked on and sent by itself; of ``waves`` of a kernel's own tiles that a block takes, those of one end together.
"""

from __future__ import annotations

from itertools import zip_longest

from ringwright.graph.algebra.block_loop import TurnedTask
from ringwright.graph.algebra.editing import StepGraph, dims_of, times_of
from ringwright.graph.algebra.rings import add, own_block, ring_axis, shifts
from ringwright.graph.algebra.rule import Refused, rule, task_at
from ringwright.graph.algebra.split_collective import sliced_by
from ringwright.graph.algebra.tiles import put_together, tiled
from ringwright.model.values import Change, Value
from ringwright.model.workload import SHIFTS, Payload, Task


@rule("loop-gather", "einsum(AG x, w) = p partial products, each beside a shift of the next block")
def loop_gather(
    graph: StepGraph,
    at: str,
    bidirectional: bool = False,
    direct: bool = False,
    kept: bool = False,
    epsilon: float = 0.0,
    op: str = "shift",
    tiles: int = 1,
    waves: int = 0,
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
    site = TurnedTask(graph, task, axis, dim, dims_of(source)[dim] // ranks, epsilon).in_tiles(tiles, waves)
    own, _, size = own_block(graph, gather, source, axis)
    own_tiles, kinds = tiled(graph, gather, own, dim, tiles), {"bidirectional": bidirectional, "direct": direct}
    offsets, blocks = _arriving(graph, gather, own_tiles, (ranks, op), **kinds)
    others = {name: site.own(name) for name, _ in task.reads if name != gather.result}
    cut = site.cut(others, offsets)
    pieces = [site.turn({gather.result: blocks[at]} | {n: p[at] for n, p in cut.items()}, at) for at in range(ranks)]
    for number, name in enumerate(task.writes):
        site.assembled(graph.values[name], [[tile[number] for tile in each] for each in pieces], offsets)
    if kept:
        settings = {"along": dim, "blocks": 1, "parts": [size] * ranks, "axis": axis, "offsets": offsets}
        whole_blocks = [put_together(graph, gather, each, dim, f"{each[0].name}.block") for each in blocks]
        graph.copying(f"{gather.name}.join", gather, "join", settings, whole_blocks, [whole])
    graph.drop(gather)
    graph.drop(task, [graph.tasks[name] for name in site.turns])
    flat = [*(tile for each in blocks for tile in each), *(out for each in pieces for tile in each for out in tile)]
    held = sum(value.size_bytes for value in (*flat, *others.values(), *site.outs))
    return Change({}, ((ranks - 1) * tiles - 1) * times_of(graph, gather), 0.0, held)


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


def _prefixes(tiles: int) -> list[str]:
    """Return what the names of what is sent of each tile begin with; nothing where a block is one tile."""
    return [f"tile{at}." for at in range(tiles)] if tiles > 1 else [""]


def _arriving(
    graph: StepGraph, gather: Payload, own: list[Value], how: tuple[int, str], *, bidirectional: bool, direct: bool
) -> tuple[list[int], list[list[Value]]]:
    """Send the tiles of a rank's own block; return in which order each rank has blocks, counted from its own, and their tiles."""
    ranks, op = how
    if direct:  # block after block, as they are worked on
        blocks = [own]
        for hops in range(1, ranks):
            moved = [graph.value(tile, f"{tile.name}.from{hops}") for tile in own]
            for prefix, tile, made in zip(_prefixes(len(own)), own, moved, strict=True):
                graph.send(gather, f"{gather.name}.{prefix}from{hops}", op, tile, made, hops=hops, root=0)
            blocks.append(moved)
        return list(range(ranks)), blocks
    offsets, columns = list(range(ranks)), list[list[Value]]()
    for prefix, tile in zip(_prefixes(len(own)), own, strict=True):
        if bidirectional:
            offsets, column = _two_rings(graph, gather, tile, (ranks, op, prefix))
        else:
            column = shifts(graph, gather, tile, ranks - 1, name=f"{prefix}shift", op=op)
        columns.append(column)
    return offsets, [list(block) for block in zip(*columns, strict=True)]


def _two_rings(
    graph: StepGraph, gather: Payload, own: Value, how: tuple[int, str, str]
) -> tuple[list[int], list[Value]]:
    """Send a block round the ring in both directions, halfway; return the order in which the blocks come, and what comes."""
    ranks, op, prefix = how
    there = shifts(graph, gather, own, ranks // 2, name=f"{prefix}shift", op=op)
    back = shifts(graph, gather, own, ranks // 2 - 1, hops=-1, name=f"{prefix}back", op=op)[1:]
    offsets, blocks = [0], [there[0]]
    for turn in range(1, ranks // 2 + 1):
        offsets, blocks = [*offsets, turn], [*blocks, there[turn]]
        if turn <= len(back):
            offsets, blocks = [*offsets, -turn], [*blocks, back[turn - 1]]
    return offsets, blocks


@rule("loop-scatter", "RS einsum(x, w) = p times: a partial product, added to what arrives, and sent on")
def loop_scatter(
    graph: StepGraph,
    at: str,
    bidirectional: bool = False,
    direct: bool = False,
    epsilon: float = 0.0,
    op: str = "shift",
    tiles: int = 1,
    waves: int = 0,
) -> Change:
    """Loop a product whose terms are summed and scattered over the blocks of what it makes; the rest as of gathers."""
    task = task_at(graph, at)
    scatter = _scattered_by(graph, task)
    axis, ranks = _ring(graph, scatter, op, bidirectional=bidirectional, direct=direct)
    out, result = graph.values[scatter.source], graph.values[scatter.result]
    dim = sliced_by(result, scatter)
    site = TurnedTask(graph, task, axis, dim, dims_of(out)[dim] // ranks, epsilon).in_tiles(tiles, waves)
    half = ranks // 2
    there = [turn - half for turn in range(half)] if bidirectional else [*range(1, ranks)]
    back = [half - 1 - turn for turn in range(half - 1)] if bidirectional else []
    turns = zip_longest(there, back)
    offsets = [*(each for pair in turns for each in pair if each is not None), 0]
    operands = {name: site.own(name) for name, _ in task.reads}
    cut = site.cut(operands, offsets)
    made = [site.turn({name: each[turn] for name, each in cut.items()}, turn) for turn in range(ranks)]
    number = task.writes.index(out.name)
    totals = []
    for tile, prefix in enumerate(_prefixes(tiles)):
        pieces = {offset: made[turn][tile][number] for turn, offset in enumerate(offsets)}
        totals.append(_summed(graph, task, scatter, pieces, (there, back), (op, prefix), direct=direct))
    total = put_together(graph, task, totals, dim, f"{result.name}.whole")
    graph.copying(f"{at}.own", task, "copy", {}, [total], [result])
    for at_write, value in enumerate(site.outs):
        if at_write != number:
            site.assembled(value, [[tile[at_write] for tile in each] for each in made], offsets)
    graph.drop(scatter)
    graph.drop(task, [graph.tasks[name] for name in site.turns])
    held = 2 * sum(value.size_bytes for value in site.outs) + (ranks + 2 if direct else 3) * result.size_bytes
    held += 2 * sum(value.size_bytes for value in operands.values())
    return Change({}, ((ranks - 1) * tiles - 1) * times_of(graph, scatter), 0.0, held)


def _summed(
    graph: StepGraph,
    task: Task,
    scatter: Payload,
    pieces: dict[int, Value],
    directions: tuple[list[int], list[int]],
    how: tuple[str, str],
    *,
    direct: bool,
) -> Value:
    """Send the terms of a block, or of a tile of it, to their rank; return the sum that each rank has of its own."""
    (there, back), (op, prefix) = directions, how
    if direct:
        sums = [_straight(graph, scatter, pieces[each], len(pieces) - each, op, prefix) for each in there]
    else:
        sums = [_travelled(graph, scatter, [pieces[each] for each in there], 1, f"{prefix}shift", op)]
    if back:
        sums.append(_travelled(graph, scatter, [pieces[each] for each in back], -1, f"{prefix}back", op))
    total = pieces[0]
    for turn, arrived in enumerate(sums):
        into = graph.value(total, f"{scatter.result}.{prefix}whole{turn}")
        add(graph, task, total, arrived, into, f"{task.name}.{prefix}end{turn}")
        total = into
    return total


def _scattered_by(graph: StepGraph, task: Task) -> Payload:
    for name in task.writes:
        readers = graph.readers(name)
        if len(readers) == 1 and isinstance(readers[0], Payload) and readers[0].op == "reduce-scatter":
            return readers[0]
    raise Refused("what it makes is not scattered, and by nobody else", "a product before a reduce-scatter")


def _straight(graph: StepGraph, scatter: Payload, piece: Value, hops: int, op: str, prefix: str) -> Value:
    """Send a term straight to the rank whose block it is of; return what arrives."""
    moved = graph.value(piece, f"{scatter.result}.{prefix}from{hops}")
    graph.send(scatter, f"{scatter.name}.{prefix}from{hops}", op, piece, moved, hops=hops, root=0)
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
