"""What a benchmark found, with the columns of nccl-tests; ours over theirs; what the simulator said."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO

from ringwright.ground.documents import read_json
from ringwright.reports import layout
from ringwright_lab.bench.bench_view import BenchRatio, BenchRow, BenchView

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("size B", "count", "type", "time us", "algbw", "busbw", "#wrong", "predicted us")


def write(bench: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.bench/1`` for a terminal."""
    result = read_json(BenchView, bench)
    out = layout.console(file, width=width)
    where = f"in a lab, {result.lab}, TCP {result.tcp}" if result.lab else "on this machine"
    faults = f", faults: {'; '.join(result.faults)}" if result.faults else ""
    rounds = f"median of {result.rounds} rounds"
    ground = f"measured: {result.collective}, {result.ranks} real ranks {where}{faults}; {rounds}"
    layout.line(out, ground, style="bold", indent=0)
    layout.line(out, "a round lasts from when its last rank starts to when its last rank ends", style="dim", indent=0)
    if result.verdict:
        layout.line(out, f"limit: {result.verdict.limit} ({result.verdict.why})", indent=0)
    rows = sorted(result.rows, key=lambda row: (row.backend, row.algorithm, row.size_bytes))
    for (backend, algorithm), group in groupby(rows, key=lambda row: (row.backend, row.algorithm)):
        layout.heading(out, f"{backend}, {algorithm}", f"{result.reduce_op}, root {result.root}, bandwidths in GB/s")
        listed = list(group)
        counted = any(row.sent_bytes is not None for row in listed)
        layout.table(out, [*COLUMNS, "B on wire"] if counted else COLUMNS, [_cells(row) for row in listed])
    if any(row.sent_bytes is not None for row in rows):
        layout.line(out, "B on wire: what a rank sent in one run, mean over ranks, headers counted", style="dim")
    for row in rows:
        # A rank with one link sends no more than the busiest link carries.
        if row.sent_bytes is not None and row.sent_bytes > (row.most_port_bytes or 0):
            _ports(out, row)
    _ratios(out, result.ratios)
    if result.notes:
        layout.heading(out, "Notes")
        for note in result.notes:
            layout.line(out, note)


def _cells(row: BenchRow) -> list[str]:
    predicted, sent = row.predicted_us, row.sent_bytes
    return [
        f"{row.size_bytes}",
        f"{row.count}",
        row.dtype,
        us(row.time_us),
        f"{row.algbw_gbs:.3g}",
        f"{row.busbw_gbs:.3g}",
        f"{row.wrong}",
        "-" if predicted is None else us(predicted),
        *([] if sent is None else [f"{sent}"]),
    ]


def _ports(out: Console, row: BenchRow) -> None:
    """Say how evenly the links of ranks were used."""
    least, most = row.least_port_bytes or 0, row.most_port_bytes or 0
    apart = f", {most / least - 1:.1%} apart" if 2 * least > most else ""
    said = f"{least} to {most} B a link{apart}"
    layout.line(out, f"{row.backend}, {row.algorithm}, {row.size_bytes} B: {said}", style="dim")


def us(time_us: float) -> str:
    """Return microseconds with three or four digits that matter."""
    return f"{time_us:,.0f}" if time_us >= 100 else f"{time_us:.1f}"


def _ratios(out: Console, ratios: list[BenchRatio]) -> None:
    if not ratios:
        return
    layout.heading(out, "Ours over theirs", "in turns, on the same ranks; below 1 ours is faster")
    rows = []
    key = lambda each: (each.backend, each.native, each.algorithm)  # noqa: E731
    for (backend, native, algorithm), group in groupby(sorted(ratios, key=key), key=key):
        group_ratios = list(group)
        large = [each.ratio for each in group_ratios if each.size_bytes >= 64 << 10]
        small = [each.ratio for each in group_ratios if each.size_bytes < 64 << 10]
        rows.append([backend, native, algorithm, mean(large), mean(small), f"{len(group_ratios)}"])
    columns = ("ours", "theirs", "algorithm", "from 64 KiB on", "below", "sizes")
    layout.table(out, columns, rows, left=("ours", "theirs", "algorithm"))


def mean(ratios: Iterable[float]) -> str:
    """Return the geometric mean."""
    values = [*ratios]
    return f"{math.exp(sum(map(math.log, values)) / len(values)):.2f}" if values else "-"
