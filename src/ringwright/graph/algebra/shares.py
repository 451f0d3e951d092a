"""Parts of a task: a share of its work, and who computes what an old task did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringwright.model.values import MatrixProduct, Work, WorkPart
from ringwright.model.workload import Task


def share_of(task: Task, share: float, more_s: float = 0.0, dim: str = "") -> Mapping[str, Any]:
    """Return the fields of a part of a task that does a share of its work, and takes ``more_s`` longer than that share.

    Of a task that is cut along ``dim``, one of those that its work names, products and parts are known, too.
    """
    work = task.work or Work()
    settings = work.settings if work.meaning else {**work.settings, "same_as": work.settings.get("same_as", task.name)}
    part = replace(_shared(work, share, dim if dim in work.cuts else ""), settings=settings)
    return {"seconds": task.seconds * share + more_s, "work": part}


def _shared(work: Work, share: float, dim: str) -> Work:
    def shorter(product: MatrixProduct) -> MatrixProduct:
        return replace(product, **{product.cut: max(1, round(getattr(product, product.cut) * share))})

    def smaller(part: WorkPart) -> WorkPart:
        dims = tuple((name, round(size * share) if name == dim else size) for name, size in part.dims)
        return replace(part, work=_shared(part.work, share, dim), dims=dims, size_bytes=round(part.size_bytes * share))

    return replace(
        work,
        flops=work.flops * share,
        read_bytes=round(work.read_bytes * share),
        written_bytes=round(work.written_bytes * share),
        products=tuple(map(shorter, work.products)) if dim else (),
        parts=tuple(map(smaller, work.parts)) if dim else (),
    )


def same_as(task: Task, old: Task) -> Task:
    """Return a task that computes the function of an old one, which nobody may know: it is told by the old one's name."""
    work = task.work or Work()
    if work.meaning:
        return task
    settings = {**work.settings, "same_as": str(work.settings.get("same_as", old.name))}
    return replace(task, work=replace(work, settings=settings))
