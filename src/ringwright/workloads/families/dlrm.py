"""DLRM: tables of embeddings that no rank can hold alone, an MLP for numbers, products of all pairs of vectors, an MLP on top.

Each table is whole on one rank, which looks up the rows of all ranks' samples; an all-to-all brings every rank the vectors of
its own samples, and another their gradients back. The MLPs are copied and their gradients summed, each by its own
DistributedDataParallel.

Tables are those of Criteo's public data sets as the public program reads them (Kaggle's, and a terabyte cut at 40 million rows
a table, as in MLPerf); another number of ``rows`` or ``tables`` is shared out evenly. ``lookups`` are rows of a table a sample.

Dimensions: Naumov et al., Deep Learning Recommendation Model (2019), and the scripts of its public program.
"""

from __future__ import annotations

from itertools import pairwise

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear

KAGGLE: tuple[int, ...] = (1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194)
KAGGLE += (27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572)
TERABYTE: tuple[int, ...] = (39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10)
TERABYTE += (2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36)
COMMON = {"tables": 26, "lookups": 1, "numbers": 13}
SIZES = {
    "dlrm-kaggle": {
        **COMMON,
        "rows": sum(KAGGLE),
        "width": 16,
        "bottom1": 512,
        "bottom2": 256,
        "bottom3": 64,
        "top1": 512,
        "top2": 256,
    },
    "dlrm-mlperf": {
        **COMMON,
        "rows": sum(TERABYTE),
        "width": 128,
        "bottom1": 512,
        "bottom2": 256,
        "top1": 1024,
        "top2": 1024,
        "top3": 512,
        "top4": 256,
    },
}
ALIASES = {"dlrm": "dlrm-mlperf", "dlrm-terabyte": "dlrm-mlperf"}
_TABLES = "its tables are shared out whole over the data parallel ranks, and its MLPs are copied"
REFUSED = {
    "tp": (_TABLES, "dp alone"),
    "sp": (_TABLES, "dp alone"),
    "cp": ("it has no sequences", "dp alone"),
    "ep": (_TABLES, "dp alone"),
    "pp": ("its public code has no stages", "dp alone"),
    "zero": ("tables and their states are on one rank each already, and the rest is small", "dp alone"),
}


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    width = dims["width"]
    looked_up = tuple(
        Layer(f"table{at}", ((rows, width),), "tables", rows=dims["lookups"]) for at, rows in enumerate(tables(dims))
    )
    vectors = dims["tables"] + 1
    paired = width + vectors * (vectors - 1) // 2
    bottom = [dims["numbers"], *_inner(dims, "bottom"), width]
    top = [paired, *_inner(dims, "top"), 1]
    return Anatomy(
        (
            ModelBlock("tables", looked_up, unit="root"),
            ModelBlock("bottom", _mlp("bottom", bottom)),
            ModelBlock("top", _mlp("top", top)),
        )
    )


def tables(dims: dict[str, int]) -> tuple[int, ...]:
    """Return the rows of each table."""
    for known in (KAGGLE, TERABYTE):
        if (len(known), sum(known)) == (dims["tables"], dims["rows"]):
            return known
    each, more = divmod(dims["rows"], dims["tables"])
    return tuple(each + (at < more) for at in range(dims["tables"]))


def _inner(dims: dict[str, int], name: str) -> list[int]:
    return [value for key, value in dims.items() if key.startswith(name)]


def _mlp(name: str, widths: list[int]) -> tuple[Layer, ...]:
    return tuple(
        linear(f"{name}{at}", outputs, inputs, bias=True) for at, (inputs, outputs) in enumerate(pairwise(widths), 1)
    )
