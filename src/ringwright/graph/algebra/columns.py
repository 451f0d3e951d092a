"""C1 of a task whose content is unknown, but for a product: parts that make some of the columns of the result, from all it reads.

Each number of a result follows from all that its row has of what is read, and from its own column. So a part that reads the same
and makes a range of columns makes the same numbers; what has no columns the first part makes. It is a share of the work where
that is one product whose rows are what the task may be cut along: what is written has its other dimensions from the second
factor. A part more costs as much as one more by rows does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringwright.graph.algebra.computation import COLUMN
from ringwright.model.values import SLICED, MatrixProduct, Value, Work
from ringwright.model.workload import Task


def has_columns(work: Work | None, writes: Sequence[Value], dim: str) -> bool:
    """Whether ``dim`` are columns that a task makes, of its product's second factor, whole on each rank."""
    if work is None or work.meaning or work.parts or not work.cuts or dim in work.cuts or "begins" in work.settings:
        return False
    mine = [value for value in writes if dim in dict(value.dims)]
    return bool(mine) and [each.cut for each in work.products] == ["m"] and not any(v.axes(SLICED, dim) for v in mine)


def columns_of(task: Task, kept: Sequence[int], columns: tuple[str, int, int, int]) -> Mapping[str, Any]:
    """Return the fields of a part of a task that makes (dimension, first column, how many, of how many).

    ``kept`` are places among what the task writes.
    """
    work, (dim, begin, size, whole) = task.work or Work(), columns
    share, settings = size / whole, work.settings
    _, earlier, all_columns = settings.get(COLUMN, (dim, 0, whole))
    labels = list(settings.get("outputs", range(len(task.writes))))
    same = {"same_as": settings.get("same_as", task.name), "outputs": [labels[at] for at in kept]}
    made = replace(
        work,
        flops=work.flops * share,
        read_bytes=round(work.read_bytes * _read_share(work.products[0], share)),
        written_bytes=round(work.written_bytes * share),
        products=tuple(replace(product, n=max(1, round(product.n * share))) for product in work.products),
        settings={**settings, **same, COLUMN: (dim, earlier + begin, all_columns)},
    )
    more_s = max(work.cuts.values(), default=0.0) if begin else 0.0
    return {"seconds": task.seconds * share + more_s, "work": made}


def _read_share(product: MatrixProduct, share: float) -> float:
    """Return the share of the operands that a part reads: all of the first factor, its columns of the second."""
    return (product.m + share * product.n) / (product.m + product.n)
