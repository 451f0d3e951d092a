"""Which links do the messages of a program cross? From their routes alone, without a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.engines.flat import places
from ringwright.model.program import Affine

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from ringwright.model.program import Block, Program
    from ringwright.model.topology import Topology


def crossed(program: Program, topology: Topology) -> np.ndarray:
    """Return which links, and which capacities that links share, carry a byte of a program.

    bool of shape (links + capacities,): where a run of the program, by any engine, has them busy.
    """
    import numpy as np

    nodes = places(program)
    keys = np.unique(np.concatenate(list(_pairs(program)) or [np.zeros(0, np.int64)]))
    src, dst = (nodes[each] for each in np.divmod(keys, program.n_nodes))
    _, links = topology.routes(src, dst)
    used = np.zeros(topology.n_links + len(topology.groups), bool)
    used[links] = True
    if topology.groups:
        bounds, owners = topology.memberships
        drawn = np.repeat(used[: topology.n_links], np.diff(bounds))
        used[topology.n_links + owners[drawn]] = True
    return used


def _pairs(program: Program) -> Iterator[np.ndarray]:
    """Yield source * nodes + target of moves that carry a byte; blocks that differ in their chunks alone once."""
    import numpy as np

    empty = not program.layout.chunk_bytes.all()
    seen: set[object] = set()
    for step in program.steps():
        for block in step.blocks:
            key = None if empty else _ends(block)
            if key is not None and key in seen:
                continue
            seen.add(key)
            src, dst, chunk, _ = block.arrays()
            pairs = src * program.n_nodes + dst
            yield np.unique(pairs[program.layout.message_bytes(chunk, block.span) > 0] if empty else pairs)


def _ends(block: Block) -> object | None:
    """Return what the sources and targets of a block follow from; None where they are listed."""
    src, dst = block.src, block.dst
    if not (isinstance(src, Affine) and isinstance(dst, Affine)):
        return None
    return block.shape, src.base, src.digits, dst.base, dst.digits
