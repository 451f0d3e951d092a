"""Tables of embeddings over ranks: each is whole on one rank, which looks up the rows of all ranks' samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ringwright.ground.errors import UsageError
from ringwright.workloads.layer_work import Gemm, LayerWork, Load
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parallel import Parallel
from ringwright.workloads.parts import Layer, ModelBlock

CUT = "tables"
ROLE = "mp"  # of the ranks that share tables out (model parallel)


def local(layers: Sequence[Layer], ranks: int) -> list[Layer]:
    """Return the layers of a rank: of tables, neighbours, as many on each rank as on the others or one more.

    The rank is the one whose tables are the largest together.
    """
    mine = [layer for layer in layers if layer.cut == CUT]
    if not mine:
        return list(layers)
    return max(_parts(mine, ranks), key=lambda part: sum(layer.elements for layer in part))


def _parts(layers: Sequence[Layer], ranks: int) -> Iterator[list[Layer]]:
    each, more = divmod(len(layers), ranks)
    start = 0
    for rank in range(ranks):
        end = start + each + (rank < more)
        yield list(layers[start:end])
        start = end


def check(model: ModelCard, parallel: Parallel) -> None:
    """Raise UsageError where a rank would have no table."""
    number = model.dims.get("tables", 0)
    if number and parallel.dp > number:
        raise UsageError(
            f"dp{parallel.dp} cannot share {number} tables of {model.size}: each is whole on one rank",
            remedy=f"dp{number} or less, or --dims.tables {parallel.dp}",
        )
    if number and model.dims["rows"] < number:
        raise UsageError(
            f"{model.dims['rows']} rows do not fill {number} tables", remedy=f"--dims.rows {number} or more"
        )


def exchanged_bytes(model: ModelCard, load: Load) -> int:
    """Return the size of the all-to-all of vectors: that of a rank with one table more where they do not come out even."""
    ranks = load.parallel.dp
    most = -(-model.dims["tables"] // ranks)
    return load.width_bytes * load.sequences * ranks * most * model.dims["width"]


def looked_up(layer: Layer, load: Load) -> LayerWork:
    """Return the lookup in one table, for the samples of all ranks."""
    rows = load.sequences * load.parallel.dp * layer.rows
    moved = 2 * load.width_bytes * rows * layer.shapes[0][1]
    return LayerWork(layer.name, "lookup", (), 0, moved, layer.elements, layer.cut)


def interaction(model: ModelCard, load: Load) -> LayerWork:
    """Return the products of all pairs of a sample's vectors."""
    vectors, width = model.dims["tables"] + 1, model.dims["width"]
    moved = load.width_bytes * load.sequences * (vectors * width + vectors * vectors)
    return LayerWork("interaction", "interaction", (Gemm(vectors, vectors, width, load.sequences),), 0, moved)


def touched(works: Iterable[LayerWork], width_bytes: int) -> dict[str, int]:
    """Return table -> elements of the rows that a step looks up, which alone have gradients and are updated."""
    return {work.name: work.moved_bytes // (2 * width_bytes) for work in works if work.cut == CUT}


def without(blocks: Iterable[ModelBlock]) -> list[ModelBlock]:
    """Return the blocks that are copied on every rank."""
    return [block for block in blocks if all(layer.cut != CUT for layer in block.layers)]
