"""A rank's block in tiles, each of which is worked on, and sent, by itself: what a loop of blocks may be cut into further."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ringwright.graph.algebra.editing import StepGraph, dims_of
from ringwright.graph.algebra.rule import Refused
from ringwright.model.values import Value
from ringwright.model.workload import Payload, Task


def require_tiles(size: int, dim: str, tiles: int, waves: int) -> None:
    """Refuse tiles that do not part a block of ``size`` along ``dim`` evenly, and waves that are none."""
    if tiles < 1 or size % tiles:
        raise Refused(f"a block of {size} along {dim} does not part into {tiles} tiles", f"tiles that divide {size}")
    if waves < 0:
        raise Refused(f"a block of {waves} waves", "waves: 1 and more, or 0 where nobody knows")


def tiled(graph: StepGraph, near: Payload | Task, block: Value, dim: str, tiles: int) -> list[Value]:
    """Return the tiles of a block that a rank holds, in their order; the block itself where it is one tile."""
    if tiles == 1:
        return [block]
    size = dims_of(block)[dim] // tiles
    dims = tuple((name, size if name == dim else each) for name, each in block.dims)
    made = [graph.value(block, f"{block.name}.tile{at}", dims=dims) for at in range(tiles)]
    settings = {"along": dim, "blocks": 1, "parts": [size] * tiles}
    graph.copying(f"{near.name}.tiles.{block.name}", near, "cut", settings, [block], made)
    return made


def put_together(graph: StepGraph, near: Payload | Task, tiles: Sequence[Value], dim: str, name: str) -> Value:
    """Return the block of which these are the tiles, in their order; the tile itself where it is the only one."""
    if len(tiles) == 1:
        return tiles[0]
    size = dims_of(tiles[0])[dim]
    dims = tuple((each, size * len(tiles) if each == dim else many) for each, many in tiles[0].dims)
    block = graph.value(tiles[0], name, dims=dims)
    settings = {"along": dim, "blocks": 1, "parts": [size] * len(tiles)}
    graph.copying(f"{near.name}.whole.{block.name}", near, "join", settings, tiles, [block])
    return block


def shares_of_time(tiles: int, waves: int) -> list[float]:
    """Return which share of a block's time lies before the end of each of its tiles and behind that of the one before.

    Compute units finish a wave of tiles together: of a block of ``waves`` a tile is done when the wave is in which it ends.
    0: each is done after its own share.

    Examples
    --------
    >>> shares_of_time(4, 2)
    [0.5, 0.0, 0.5, 0.0]
    """
    if not waves:
        return [1 / tiles] * tiles
    ends = [-(-waves * at // tiles) for at in range(tiles + 1)]
    return [(end - begin) / waves for begin, end in pairwise(ends)]
