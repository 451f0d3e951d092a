"""Measured training steps beside predicted ones: medians by table, and every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from ringwright.ground.documents import read_json
from ringwright.reports import layout
from ringwright_lab.judges.steps_view import JudgedRowOfSteps, StepAccuracy


# long: the sections of the answer in their order
def write(judged: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.step-accuracy/1`` for a terminal."""
    result = read_json(StepAccuracy, judged)
    out = layout.console(file, width=width)
    rows = result.rows
    large = [row for row in rows if row.too_large]
    if large:
        first = f"{large[0].row}: {large[0].too_large}"
        layout.line(out, f"{len(large)} of {len(rows)} would not fit, as {first}", style="bold yellow", indent=0)
    layout.line(
        out,
        f"steps: {len(rows):,} measured, median error {layout.percent(result.median_abs_error)}",
        style="bold",
        indent=0,
    )
    layout.heading(
        out, "Error of each table", "of abs(predicted / measured - 1); rows 'test' had no part in a shipped fit"
    )
    head = ["table", "device", "half", "rows", "median", "bias", "worst"]
    cells = [
        [
            each.table,
            each.device,
            each.half,
            str(each.rows),
            layout.percent(each.median_abs_error),
            f"{each.median_error:+.1%}",
            layout.percent(each.worst_abs_error),
        ]
        for each in result.groups
    ]
    layout.table(out, head, cells, left=("table", "device", "half"))
    told = any(each.step_us_p50 is not None for each in rows)
    about = "; step: as simulate --policy none answers; predicted: with all exchanges in line" if told else ""
    layout.heading(out, "Error of each row", f"times in ms{about}")
    table = [
        [
            each.row,
            each.device,
            str(each.gpus),
            each.half,
            f"{each.measured_s * 1e3:,.1f}",
            *(_answer(each) if told else ()),
            f"{each.predicted_s * 1e3:,.1f}",
            f"{each.error:+.1%}",
        ]
        for each in rows
    ]
    head = ["row", "device", "GPUs", "half", "measured", *(("step", "90 %") if told else ()), "predicted", "error"]
    layout.table(out, head, table, left=("row", "device", "half"))
    if result.refused:
        layout.heading(out, "Refused")
        for refused in result.refused:
            layout.line(out, f"{refused.row}: {refused.why}")
    layout.heading(out, "Assumed")
    for each in (*result.fits, *result.assumptions):
        layout.line(out, each)


def _answer(row: JudgedRowOfSteps) -> list[str]:
    """Return the most probable step and its interval, in ms."""
    if row.step_us_p50 is None or row.step_us_p05 is None or row.step_us_p95 is None:
        return ["-", "none"]
    ends = f"{row.step_us_p05 / 1e3:,.1f} to {row.step_us_p95 / 1e3:,.1f}"
    return [f"{row.step_us_p50 / 1e3:,.1f}", ends]
