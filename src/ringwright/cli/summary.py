"""``ringwright summary``: one screen, coverage first."""

from __future__ import annotations

import shlex
import sys

from ringwright.cli import options, reading
from ringwright.ground.stores import shown


def summary(
    *paths: str,
    sample: options.Sample = False,
    json: options.Json = False,
    strict: bool = False,
    gap: options.Gap = None,
    width: int | None = None,
    executor: options.Executor = None,
) -> int:
    """Show operations, sizes, communicators, traffic and findings on one screen.

    Parameters
    ----------
    paths
        Logs, folders or captures; - reads standard input.
    json
        Print one JSON object instead (schema ringwright.summary/1).
    strict
        Fail with exit code 3 when a line could not be understood.
    width
        Columns of the report; the terminal's width if left out.

    Examples
    --------
    ringwright summary --sample
    """
    given = reading.inputs(paths, sample=sample)
    from ringwright.executors.fan_out import fan_out

    with fan_out(executor) as fan:
        result = reading.summary(given, strict=strict, gap=gap, executor=fan)
    if json:
        reading.print_json({**result, "executor": fan.account.document()})
        return 0
    from ringwright.reports import terminal

    names = "--sample" if sample else shlex.join(map(shown, given[:4]))
    following = "" if "-" in given else f"ringwright report {names} -o job.html"
    terminal.write(result, sys.stdout, width=width, following=following)
    return 0
