"""From a cell to what its ranks are told, and to what they must then issue."""

from __future__ import annotations

from typing import Any

from ringwright.errors import UsageError
from ringwright.studies.sweep.cell import Cell
from ringwright.studies.sweep.work import SweepWork
from ringwright.workloads.cards import card
from ringwright.workloads.expected.row import ExpectedRow

WARM = "warm"  # what a rank prints when its warm-up is over


def work(cell: Cell) -> SweepWork:
    """Return the work of a cell's ranks; UsageError for a model or a form that does not exist."""
    return SweepWork(
        card(cell.model, cell.size, **cell.changed), cell.spread, cell.mode, batch=cell.batch, sequence=cell.sequence,
        micro_batches=cell.micro_batches, steps=cell.steps, dtype=cell.dtype, seed=cell.seed,
        bucket_cap_mb=cell.bucket_cap_mb, extra={"warm": cell.warm},
    )  # fmt: skip


def must_issue(cell: Cell, rank: int = 0) -> list[ExpectedRow]:
    """Return what a rank of the cell must issue, from closed formulas; UsageError where the cell is not legal."""
    return work(cell).rows(rank)


def told(cell: Cell) -> dict[str, Any]:
    """Return the JSON object for a rank program (``ringwright.execute.models.spec``)."""
    return work(cell).job(fake_rank=0 if cell.world else None)


def check(cell: Cell) -> None:
    """Raise UsageError where a cell cannot be run."""
    told(cell)
    if cell.world and (cell.fabric or cell.fault):
        raise UsageError("a fake job has no network", remedy="leave out fabric and fault, or world")
    if cell.fault and not cell.fabric:
        raise UsageError("a fault needs a network", remedy='fabric = "switch:4,rate=100Mb/s"')
    if cell.world and cell.world != cell.ranks:
        raise UsageError(f"{cell.parallel} has {cell.ranks} ranks, world is {cell.world}")
    if not cell.world and cell.ranks > 16:
        raise UsageError(f"{cell.ranks} real ranks on one machine", remedy="world = N runs it as a fake job")
