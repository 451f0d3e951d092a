"""Which slot each chunk of a rank's input, output and scratch buffer is, for the collectives that files name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.model.collective import Collective
from ringwright.model.program import Layout, cut

if TYPE_CHECKING:
    import numpy as np

# How programs spell what they do, by our names. What is not here is run, but its result is not known.
OPS = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reducescatter": "reduce-scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all-to-all",
}
OTHERS = ("custom", "send", "recv", "sendrecv", "gather", "scatter", "alltoallv")


@dataclass(frozen=True)
class Arrangement:
    """A collective, its layout, and where each rank's three buffers begin (ranks x 3, in slots)."""

    collective: Collective
    layout: Layout
    bases: np.ndarray


# What scripts may do besides; a file calls it custom.
ARRANGED = (*dict.fromkeys(OPS.values()), "send-recv", "scan", "exscan")
PER_RANK = ("all-gather", "reduce-scatter", "all-to-all")  # each rank owns a part of the longer buffer
_BETWEEN_PAIRS = ("all-to-all", "send-recv")  # a rank's input is its own, and no other's


def sides(op: str, chunks: int, p: int) -> tuple[int, int]:
    """Return the chunks of input and of output, of which the longer has ``chunks``."""
    return chunks // p if op == "all-gather" else chunks, chunks // p if op == "reduce-scatter" else chunks


def arrange(
    op: str, sizes: np.ndarray, chunks: int, *, in_place: bool, size_bytes: int, dtype: str = "float32", root: int = 0
) -> Arrangement:
    """Place the buffers of ``chunks`` equal chunks in all (the longer of input and output).

    ``op`` is ours, or empty where a program may do as it likes: then every rank's input is its own, and nothing is promised.
    ``sizes`` (ranks x 3) are the chunks of each buffer; ``chunks`` must be a multiple of the ranks where each rank owns a part.
    """
    p = len(sizes)
    collective = Collective(op or "all-gather", range(p), size_bytes, dtype, root=root, in_place=in_place)
    return arrange_for(collective, sizes, chunks, in_place=in_place, is_known=bool(op))


def arrange_for(
    collective: Collective, sizes: np.ndarray, chunks: int, *, in_place: bool, is_known: bool = True
) -> Arrangement:
    """Place the buffers of a collective, as ``arrange`` does; a size that does not fall into equal chunks is cut unevenly."""
    import numpy as np

    p, op = collective.p, collective.op if is_known else ""
    ranks, own = np.arange(p), chunks // p
    first = np.zeros(p, np.int64)
    first_of = {"i": first, "o": first if in_place else first + chunks}
    if op == "all-gather":
        first_of = {"o": first, "i": ranks * own if in_place else first + chunks}
    elif op == "reduce-scatter":
        first_of = {"i": first, "o": ranks * own if in_place else first + chunks}
    elif not op:
        chunks = max(int(sizes[:, :2].max(initial=1)), 1)
        first_of["o"] = first if in_place else first + chunks
    behind = max(
        int((first_of[side] + np.maximum(sizes[:, n], sides(op, chunks, p)[n])).max()) for n, side in enumerate("io")
    )
    bases = np.stack((first_of["i"], first_of["o"], first + behind), axis=1)
    layout = _layout(op, collective, chunks, bases, sizes)
    return Arrangement(collective, layout, bases)


def _layout(op: str, collective: Collective, chunks: int, bases: np.ndarray, sizes: np.ndarray) -> Layout:
    import numpy as np

    p, root, none = collective.p, collective.root, np.zeros(0, np.int64)
    if not op:
        before = tuple((bases[r, 0] + np.arange(sizes[r, 0]), r * chunks + np.arange(sizes[r, 0])) for r in range(p))
        each = np.array([max(collective.size_bytes // (p * chunks), 0)], np.int64)
        return Layout(p * chunks, each, chunks, before=before, after=((none, none),) * p)
    own, every = chunks // p, np.arange(chunks)
    rows: list[tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]] = []
    for r in range(p):
        mine = every[r * own : r * own + own]
        given, wanted = every, every
        if op == "all-gather":
            given = mine
        elif op == "reduce-scatter":
            wanted = mine
        i_slots, o_slots = bases[r, 0] + every[: len(given)], bases[r, 1] + every[: len(wanted)]
        if op == "all-to-all":
            given = r * chunks + every
            wanted = (every // own * p + r) * own + every % own
        elif op == "send-recv":
            given, wanted = r * chunks + every, (r - 1) % p * chunks + every
        if (op == "broadcast") and r != root:
            i_slots, given = none, none
        if (op == "reduce" and r != root) or (op == "exscan" and r == 0):
            o_slots, wanted = none, none
        rows.append(((i_slots, given), (o_slots, wanted)))
    n_chunks = chunks * p if op in _BETWEEN_PAIRS else chunks
    parts = n_chunks // collective.n_blocks
    before, after = tuple(row[0] for row in rows), tuple(row[1] for row in rows)
    if collective.size_bytes % (chunks * collective.unit_bytes) == 0:
        each = np.array([collective.size_bytes // chunks], np.int64)
        return Layout(n_chunks, each, parts, before=before, after=after)
    uneven = cut(collective, parts)
    # The first slots of a node are whole buffers, chunk after chunk; what any other slot holds may be of any size.
    template = np.full(chunks + 1, int(uneven.chunk_bytes.argmax()), np.int64)
    template[:chunks] = every % len(uneven.chunk_bytes)
    return Layout(n_chunks, uneven.chunk_bytes, parts, chunks + 1, template, before, after)
