"""Which chunk every move of a program carries, from its transfers alone, and the trees that the chunks of one root run along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.program import ADDING, Op

if TYPE_CHECKING:
    from ringwright.model.program import Block, Program

MOST_MOVES = 2_000_000
MOST_SLOTS = 64_000_000  # of all nodes


@dataclass(frozen=True)
class CarriedChunks:
    """Every move from node to node with its chunk: int64 arrays of shape (moves,); nodes are the program's.

    ``collects``, bool: it carries a sum that is not whole yet.
    """

    step: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    chunk: np.ndarray
    collects: np.ndarray


@dataclass(frozen=True)
class CarriedTree:
    """The moves that some chunks share, each pair of nodes once, in the order of their steps.

    ``src``, ``dst`` (program nodes) and ``step`` are int64 of shape (edges,), ``collects`` is bool; ``root`` is -1 where no node
    is the root of all. ``height`` is the most moves that one datum makes.
    """

    root: int
    src: np.ndarray
    dst: np.ndarray
    step: np.ndarray
    collects: np.ndarray
    chunks: int
    size_bytes: int
    height: int


def carried(program: Program) -> CarriedChunks | None:
    """Return the chunk of every move; None where that is too much to follow.

    A slot holds the chunk that was last written to it, what is added to it changes nothing of that but how many contributions are
    in it; data that never leave a node are no move.
    """
    nodes, slots = program.n_nodes, program.layout.slots
    moves = sum(block.count * block.span for step in program.steps() for block in step.blocks)
    if moves > MOST_MOVES or nodes * slots > MOST_SLOTS:
        return None
    held, count = _before(program), np.ones((nodes, slots), np.int64)
    whole = program.p if program.collective.reduces else 0
    rows: list[tuple[np.ndarray, ...]] = []
    for number, step in enumerate(program.steps()):
        read = []
        for block in step.blocks:
            src, dst, chunk, to = _spread(block)
            read.append((block, src, dst, chunk, to, held[src, chunk], count[src, chunk]))
        for block, src, dst, chunk, to, named, parts in read:
            adds = (held[dst, to] >= 0) & (block.op in ADDING)
            held[dst, to] = np.where(adds, held[dst, to], named)
            count[dst[~adds], to[~adds]] = 0
            np.add.at(count, (dst, to), parts)
            if block.op is Op.EMIT:
                held[src, chunk] = -1
            apart = (src != dst) & (named >= 0)
            at = np.full(int(apart.sum()), number)
            rows.append((at, src[apart], dst[apart], named[apart], parts[apart] < whole))
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)] if rows else [np.zeros(0, np.int64)] * 5
    step_of, src, dst, chunk, collects = columns
    return CarriedChunks(step_of, src, dst, chunk, collects.astype(bool))


def _before(program: Program) -> np.ndarray:
    """Return the chunk of each slot at the start, that of its number if nothing else is said: int64 of shape (nodes, slots)."""
    layout = program.layout
    held = np.full((program.n_nodes, layout.slots), -1, np.int64)
    if layout.before is None:
        held[: program.p, : layout.n_chunks] = np.arange(layout.n_chunks)
        return held
    for rank, (slots, chunks) in enumerate(layout.before):
        held[rank, slots] = chunks
    return held


def _spread(block: Block) -> tuple[np.ndarray, ...]:
    """Return source, target and both slots of each move of a block, spans unfolded."""
    src, dst, chunk, to = block.arrays()
    if block.span == 1:
        return src, dst, chunk, to
    further = np.arange(block.span)
    chunk, to = ((start[:, None] + further).reshape(-1) for start in (chunk, to))
    return np.repeat(src, block.span), np.repeat(dst, block.span), chunk, to


def trees(program: Program, root: int | None = None) -> list[CarriedTree]:
    """Return the different trees of one root, those of most bytes first; none where the program is too large to follow.

    ``root`` is a place of the group: whose block is spread or collected. None: the root of the operation, or the first one that
    there is. What goes to each rank apart (all-to-all) is one tree for each rank that the root hands something to.
    """
    moved = carried(program)
    if moved is None or not len(moved.src):
        return []
    wanted = program.collective.root if root is None else root
    blocks, parts = program.collective.n_blocks, max(program.layout.parts, 1)
    block = moved.chunk // parts
    if blocks == program.p:
        moved = _only(moved, block == wanted)
    elif blocks > program.p:
        moved = _only(moved, block // program.p == wanted)
    every = _of_chunks(program, moved)
    if blocks == 1 and program.collective.op not in ("broadcast", "reduce"):
        rooted = sorted({each.root for each in every if each.root >= 0})
        first = wanted if wanted in rooted else min(rooted, default=-1)
        every = [each for each in every if each.root == first]
    merged = _by_first_hop(program, every) if blocks > program.p else every
    return sorted(merged, key=lambda each: (-each.size_bytes, each.src.tolist(), each.dst.tolist()))


def _only(moved: CarriedChunks, keep: np.ndarray) -> CarriedChunks:
    return CarriedChunks(moved.step[keep], moved.src[keep], moved.dst[keep], moved.chunk[keep], moved.collects[keep])


def _of_chunks(program: Program, moved: CarriedChunks) -> list[CarriedTree]:
    """Return a tree for each set of moves that chunks share."""
    nodes = program.n_nodes
    edge = (moved.collects * nodes + moved.src) * nodes + moved.dst
    key = moved.chunk * (2 * nodes * nodes) + edge
    order = np.lexsort((moved.step, key))
    first = np.unique(key[order], return_index=True)[1]
    rows = order[first]
    starts = np.flatnonzero(np.diff(moved.chunk[rows], prepend=-1))
    alike: dict[bytes, list[np.ndarray]] = {}
    for mine in np.split(rows, starts[1:]):
        alike.setdefault(edge[mine].tobytes(), []).append(mine)
    made = []
    for groups in alike.values():
        chunks = np.array([moved.chunk[mine[0]] for mine in groups])
        size = int(program.layout.bytes_of(chunks).sum())
        made.append(_tree(moved, groups[0], len(groups), size))
    return made


def _tree(moved: CarriedChunks, rows: np.ndarray, chunks: int, size_bytes: int) -> CarriedTree:
    rows = rows[np.argsort(moved.step[rows], kind="stable")]
    src, dst, step, collects = moved.src[rows], moved.dst[rows], moved.step[rows], moved.collects[rows]
    return CarriedTree(_root(src, dst, collects), src, dst, step, collects, chunks, size_bytes, _height(src, dst))


def _root(src: np.ndarray, dst: np.ndarray, collects: np.ndarray) -> int:
    """Return the node from which all is spread, else that into which all is collected; -1 where it is not one."""
    spread = ~collects
    tops = np.setdiff1d(src[spread], dst[spread]) if spread.any() else np.setdiff1d(dst, src)
    return int(tops[0]) if len(tops) == 1 else -1


def _height(src: np.ndarray, dst: np.ndarray) -> int:
    """Return the most moves in a row, by edges in the order of their steps."""
    high: dict[int, int] = {}
    for here, there in zip(src.tolist(), dst.tolist(), strict=True):
        high[there] = max(high.get(there, 0), high.get(here, 0) + 1)
    return max(high.values(), default=0)


def _by_first_hop(program: Program, every: list[CarriedTree]) -> list[CarriedTree]:
    """Return paths that begin with the same hop as one tree."""
    alike: dict[int, list[CarriedTree]] = {}
    for each in every:
        alike.setdefault(int(each.dst[0]), []).append(each)
    made = []
    for paths in alike.values():
        step, src, dst, collects = (
            np.concatenate([getattr(each, name) for each in paths]) for name in ("step", "src", "dst", "collects")
        )
        order = np.lexsort((step, src * program.n_nodes + dst))
        rows = order[np.unique((src * program.n_nodes + dst)[order], return_index=True)[1]]
        moved = CarriedChunks(step, src, dst, np.zeros(len(step), np.int64), collects)
        made.append(_tree(moved, rows, sum(each.chunks for each in paths), sum(each.size_bytes for each in paths)))
    return made
