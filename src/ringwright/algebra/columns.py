"""C1 of a task whose content is unknown, but for a product: parts that make some of the columns of the result, from all it reads.

Each number of a result follows from all that its row has of what is read, and from its own column. So a part that reads the same
and makes a range of columns makes the same numbers. It is a share of the work where that is one product whose rows are what the
task may be cut along: what is written has its other dimensions from the second factor, and nothing else is written. A part more
costs as much as one more by rows does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringwright.algebra.computing import COLUMN
from ringwright.values import SLICED, MatrixProduct, Value, Work
from ringwright.workload import Task


def has_columns(work: Work | None, reads: Sequence[Value], writes: Sequence[Value], dim: str) -> bool:
    """Whether ``dim`` are columns of the second factor of a task's product, whole on each rank, and all it writes has them."""
    if work is None or work.meaning or work.parts or not writes or not work.cuts or dim in work.cuts:
        return False
    if [product.cut for product in work.products] != ["m"] or any(dim in dict(value.dims) for value in reads):
        return False
    return all(dim in dict(value.dims) and not value.axes(SLICED, dim) for value in writes)


def columns_of(task: Task, dim: str, begin: int, size: int, whole: int) -> Mapping[str, Any]:
    """Return the fields of a part of a task that makes ``size`` of ``whole`` columns from ``begin`` on."""
    work = task.work or Work()
    share, settings = size / whole, work.settings
    _, earlier, all_columns = settings.get(COLUMN, (dim, 0, whole))
    same = {"same_as": settings.get("same_as", task.name), COLUMN: (dim, earlier + begin, all_columns)}
    made = replace(
        work,
        flops=work.flops * share,
        read_bytes=round(work.read_bytes * _read_share(work.products, share)),
        written_bytes=round(work.written_bytes * share),
        products=tuple(replace(product, n=max(1, round(product.n * share))) for product in work.products),
        settings={**settings, **same},
    )
    more_s = max(work.cuts.values(), default=0.0) if begin else 0.0
    return {"seconds": task.seconds * share + more_s, "work": made}


def _read_share(products: Sequence[MatrixProduct], share: float) -> float:
    """Return the share of the operands that a part reads: all of the first factor, its columns of the second."""
    first = sum(each.m * each.k * each.times for each in products)
    second = sum(each.k * each.n * each.times for each in products)
    return (first + share * second) / (first + second)
