"""``ringwright diff``: what changed between two runs, and what disturbed the later one."""

from __future__ import annotations

import sys

from ringwright.cli import reading
from ringwright.errors import EXIT_GATE, EXIT_GOOD


def diff(before: str, after: str, *, fail_over: str | None = None, json: bool = False) -> int:
    """Show what changed between two runs, most changed bytes first, and what disturbed the later one.

    The cause of a slower run (a slow rank, a slower link, loss, a flapping port, other traffic) is told where both runs have
    times and iterations, as recordings of `ringwright run` do; where two causes look alike it says so.

    Parameters
    ----------
    before
        The earlier run: a log, a folder or a capture.
    after
        The later run.
    fail_over
        Exit with code 1 when more than this share of calls or bytes changed, for example 5%.
    json
        Print one JSON object instead (schema ringwright.diff/1).
    """
    from ringwright.analysis import diff as comparison
    from ringwright.analysis.disturbance import can_be_told, disturbance
    from ringwright.analysis.gate import parse_share
    from ringwright.reports import changes

    bound = parse_share(fail_over) if fail_over is not None else None
    paths = [reading.inputs((path,)) for path in (before, after)]
    first, second = (reading.trace(each) for each in paths)
    result = comparison.diff(reading.summarised(first, paths[0]), reading.summarised(second, paths[1]))
    result["disturbance"] = disturbance(second, first) if can_be_told(second, first) else None
    if json:
        reading.print_json(result)
    else:
        changes.write(result, sys.stdout)
    share = result["changed_share"]
    if bound is None or share <= bound:
        return EXIT_GOOD
    print(f"FAIL {share:.1%} of calls or bytes changed, at most {bound:.1%} allowed", file=sys.stderr)
    return EXIT_GATE
