"""All-gathers before matrix products and reduce-scatters behind them: which were one operation, and which pairs are left.

A pair is left where the collective is exposed, belongs to a tensor parallel group, and a product follows (or precedes) it at
once, at most copies between. What is hidden anyway is not counted, for the compiler leaves it alone; a group of which nothing
says what it is for may as well carry parameters: those are not counted but listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.analysis.exposed.fusion_rows import (
    GATHER_MATMUL,
    MATMUL_SCATTER,
    Fusion,
    FusionRows,
    begin_end,
    is_copy,
    is_product,
)

if TYPE_CHECKING:
    from ringwright.ground.trace_tables import Row

AT_ONCE_US = 100.0
TOLERANCE_US = 2.0  # older traces hold whole microseconds
COPIES_BETWEEN = 2
EXPOSED = 0.2  # share of an operation's time
TENSOR = ("tp", "sp")


def product_fusions(rows: FusionRows) -> tuple[list[Fusion], dict[int, int]]:
    """Return the fusions of one rank, and per communicator how many pairs may be some but cannot be told for certain."""
    fired = [
        Fusion(row["op"], rows.rank, row["iteration"], row["layer"] or "", None, True, row["file"], row["line"])
        for row in rows.fused
    ]
    fallen = [_fallen(rows, row) for row in rows.fallen]
    left, unsure = [], dict[int, int]()
    for row, share in zip(rows.talk, rows.exposed_shares(), strict=True):
        made = _pair(rows, row) if share >= EXPOSED else None
        if made is None:
            continue
        role = rows.roles.get(row["communicator"])
        if role in TENSOR:
            left.append(made)
        elif role is None:
            unsure[row["communicator"]] = unsure.get(row["communicator"], 0) + 1
    return [*fired, *fallen, *left], unsure


def _fallen(rows: FusionRows, row: Row) -> Fusion:
    """Return a fused operation that ran as a collective and a product after all; its event is the collective's."""
    until = row["start_s"] + row["duration_s"]
    inner = next(one for one in rows.talk if one["enqueue_s"] and row["start_s"] <= one["enqueue_s"] <= until)
    fault = "the fused operation fell back to a collective and a product"
    what = (row["op"], rows.rank, row["iteration"], row["layer"] or "", inner["communicator"], False)
    return Fusion(*what, inner["file"], inner["line"], fault, inner["duration_s"] * 1e6)


def _pair(rows: FusionRows, row: Row) -> Fusion | None:
    if (
        row["op"] not in ("all-gather", "reduce-scatter")
        or row["role"] is not None
        or rows.in_operation(row["enqueue_s"])
    ):
        return None
    begin, end = begin_end(row)
    number = _after(rows, row, end) if row["op"] == "all-gather" else _before(rows, row, begin)
    if number is None:
        return None
    return Fusion(
        GATHER_MATMUL if row["op"] == "all-gather" else MATMUL_SCATTER,
        rows.rank,
        row["iteration"],
        row["layer"] or "",
        row["communicator"],
        False,
        row["file"],
        row["line"],
        "the pair is there, the fused operation is not",
        end - begin,
        float(rows.compute["end"][number] - rows.compute["start"][number]),
        row["nranks"],
    )


def _after(rows: FusionRows, row: Row, end: float) -> int | None:
    """Return the product that consumes what was gathered."""
    compute = rows.compute
    number, free = rows.next_compute(end - TOLERANCE_US), end
    for _ in range(COPIES_BETWEEN + 1):
        if number >= len(compute["start"]) or compute["start"][number] - free > AT_ONCE_US:
            return None
        called = row["enqueue_s"]
        if called is not None and compute["enqueue"][number] < called * 1e6:
            return None  # launched before the gather was asked for: it waits for something else
        if is_product(compute["kernel"][number]):
            return number
        if not is_copy(compute["kernel"][number]):
            return None
        number, free = number + 1, compute["end"][number]
    return None


def _before(rows: FusionRows, row: Row, begin: float) -> int | None:
    """Return the product whose result is reduced: the last that was launched before the call, and that ended just before."""
    compute, called = rows.compute, row["enqueue_s"]
    number = rows.next_compute(begin - TOLERANCE_US) - 1
    if number < 0 or abs(begin - compute["end"][number]) > AT_ONCE_US:
        return None
    if called is not None and number != rows.launched_last(called * 1e6):
        return None
    return number if is_product(compute["kernel"][number]) else None
