"""A model's parameters, its operations, the collectives of one of its ranks and the memory of each, for a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.reports import layout, memory
from ringwright.units import format_size


def write(result: dict[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.workload/1``."""
    out = layout.console(file, width=width)
    where = f"{result['gpus']:,} GPUs, {result['parallel']}" if result["gpus"] > 1 else "one GPU"
    layout.line(out, f"workload: {result['card']} on {where}", style="bold", indent=0)
    layout.line(out, f"parameters  {result['parameters']:,}")
    if result["active_parameters"] != result["parameters"]:
        layout.line(out, f"active      {result['active_parameters']:,} per token")
    layout.line(out, f"operations  {result['flops_per_token']:.4g} per {result['unit']}, forward and backward")
    layout.heading(out, "Collectives", f"what one rank of stage {result['stage']} issues in an iteration")
    if result["collectives"]:
        rows = [
            [
                row["role"],
                row["op"],
                f"{row['count']:,}",
                format_size(row["bytes"]),
                format_size(row["count"] * row["bytes"]),
            ]
            for row in result["collectives"]
        ]
        layout.table(out, ["role", "op", "count", "size", "in all"], rows, left=("role", "op"))
    else:
        layout.line(out, "none")
    memory.stages(out, result["memory"], result["device_memory_bytes"])
    layout.heading(out, "Assumed")
    for each in result["assumptions"]:
        layout.line(out, each)
