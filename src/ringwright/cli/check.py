"""``ringwright check``: a gate for CI."""

from __future__ import annotations

import sys
from pathlib import Path

from ringwright.cli import options, reading
from ringwright.ground.errors import EXIT_GATE, EXIT_GOOD


def check(
    *paths: str,
    sample: options.Sample = False,
    config: Path | None = None,
    max_refused: str | None = None,
    ranks: int | None = None,
    allow_verdict: bool | None = None,
    allow_empty: bool | None = None,
    annotate: bool = False,
    step_summary: Path | None = None,
    json: options.Json = False,
    executor: options.Executor = None,
) -> int:
    """Compare a job with thresholds; exit code 1 when one is crossed.

    Parameters
    ----------
    paths
        Logs, folders or captures; - reads standard input.
    config
        Thresholds in TOML: max_refused_share, expected_ranks, allow_verdict, allow_empty, allow_truncated, max_step_us,
        max_wait_share, max_exposed_share, and any number of [[limit]], each with op, min_size, max_size and bounds: max_count,
        min_count, max_bytes, min_bytes, max_share, max_time_us, min_busbw_gbs,
        min_percentile (of such systems), max_wait_share, max_exposed_share.
    max_refused
        Share of lines that may be refused, 1% if left out.
    ranks
        How many ranks must be seen.
    allow_verdict
        Pass even when a verdict (a hang, a dead peer) was reached.
    allow_empty
        Pass even when no operation was read.
    annotate
        Write failed checks as annotations of GitHub too (always in a workflow there).
    step_summary
        Add what failed to this Markdown file too (in a workflow on GitHub always to the page of its step).
    json
        Print one JSON object instead (schema ringwright.check/1).

    Examples
    --------
    ringwright check --sample --ranks 16
    """
    from ringwright.analysis.compared import gate
    from ringwright.executors.fan_out import fan_out
    from ringwright.reports import annotations, checks
    from ringwright.reports.pages import step_page

    given = {"max_refused_share": max_refused, "expected_ranks": ranks}
    thresholds = gate.read_thresholds(config, **given, allow_verdict=allow_verdict, allow_empty=allow_empty)
    with fan_out(executor) as fan:
        result = gate.check(reading.summary(reading.inputs(paths, sample=sample), executor=fan), thresholds)
    with reading.while_read():
        if json:
            reading.print_json({**result, "executor": fan.account.document()})
        else:
            checks.write(result, sys.stdout, annotate=annotations.wanted(annotate))
    step_page.add(step_summary, step_page.of_check(result, reading.command_line()))
    return EXIT_GOOD if result["passed"] else EXIT_GATE
