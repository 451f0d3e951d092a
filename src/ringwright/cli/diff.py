"""``ringwright diff``: what changed between two runs, and what disturbed the later one."""

from __future__ import annotations

import sys
from pathlib import Path

from ringwright.cli import options, reading
from ringwright.ground.errors import EXIT_GATE, EXIT_GOOD


def diff(
    before: str | None = None,
    after: str | None = None,
    *,
    sample: options.Sample = False,
    fail_over: str | None = None,
    slower_only: bool = False,
    annotate: bool = False,
    step_summary: Path | None = None,
    json: options.Json = False,
    executor: options.Executor = None,
) -> int:
    """Show what changed between two runs: calls and bytes, times by size, steps, and what disturbed the later one.

    The cause of a slower run (a slow rank, a slower link, loss, a flapping port, other traffic) is told where both runs have
    times and iterations, as recordings of the verb run do; where two causes look alike it says so.

    Parameters
    ----------
    before
        The earlier run: a log, a folder or a capture.
    after
        The later run; with --sample the sample job, and without either both runs are the sample.
    fail_over
        Exit with code 1 when calls or bytes, the time of a size or of a step, waiting or exposed communication changed by more
        than this share, for example 5%; times only where they changed by more than they vary by themselves.
    slower_only
        With --fail-over: what became faster passes.
    annotate
        With --fail-over: write what failed as annotations of GitHub too (always in a workflow there).
    step_summary
        Add what changed, and with --fail-over what failed, to this Markdown file too (a gate in a workflow on GitHub does so
        always, to the page of its step).
    json
        Print one JSON object instead (schema ringwright.diff/1).

    Examples
    --------
    ringwright diff --sample
    """
    from ringwright.analysis.compared import diff as comparison
    from ringwright.analysis.compared.diff_gate import over
    from ringwright.analysis.compared.gate import parse_share
    from ringwright.analysis.slow.disturbance import can_be_told, disturbance
    from ringwright.executors.fan_out import fan_out
    from ringwright.reports import annotations, changes
    from ringwright.reports.pages import step_page

    bound = parse_share(fail_over) if fail_over is not None else None
    paths = reading.two_inputs(before, after, sample=sample)
    with fan_out(executor) as fan:
        first, second = (reading.trace(each, executor=fan) for each in paths)
    result = comparison.diff(reading.summarised(first, paths[0]), reading.summarised(second, paths[1]))
    result["disturbance"] = disturbance(second, first) if can_be_told(second, first) else None
    with reading.while_read():
        if json:
            reading.print_json({**result, "executor": fan.account.document()})
        else:
            changes.write(result, sys.stdout)
    failed = over(result, bound, slower_only=slower_only) if bound is not None else []
    for sentence in failed:
        print(f"FAIL {sentence}, at most {bound:.1%} allowed", file=sys.stderr)
        if not json and annotations.wanted(annotate):
            print(annotations.annotation("error", "ringwright diff", sentence))
    if bound is not None or step_summary:
        verdict = None if bound is None else failed
        step_page.add(step_summary, step_page.of_difference(result, verdict, reading.command_line()))
    return EXIT_GATE if failed else EXIT_GOOD
