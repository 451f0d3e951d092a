"""``ringwright report``: one HTML page to keep or send."""

from __future__ import annotations

from ringwright.cli import options, reading
from ringwright.ground import drafts, stores


def report(
    *paths: str,
    output: options.TargetOrAddress = None,
    sample: options.Sample = False,
    gap: options.Gap = None,
    force: options.Force = False,
    json: options.Json = False,
    executor: options.Executor = None,
) -> int:
    """Write one self-contained HTML page that opens without a network.

    Parameters
    ----------
    paths
        Logs, folders or captures; - reads standard input.
    output
        The page to write; named after the first input if left out.
    force
        Overwrite the output if it exists.
    json
        Print what was written as one JSON object (schema ringwright.report/1).

    Examples
    --------
    ringwright report --sample -o job.html --force
    """
    from ringwright.executors.fan_out import fan_out
    from ringwright.formats.exports.placement import claim_file
    from ringwright.reports import html

    given = reading.inputs(paths, sample=sample)
    goal = output or html.default_name(stores.shown(given[0]))
    with stores.delivered(goal, force=force) as local, fan_out(executor) as fan:
        target = claim_file(local, force=force)
        page = html.page(reading.summary(given, gap=gap, executor=fan))
        drafts.write(target, page)
        size_bytes = target.stat().st_size
    named = stores.target(goal)
    if json:
        told = {"output": named, "size_bytes": size_bytes, "executor": fan.account.document()}
        reading.print_json({"schema": "ringwright.report/1", **told})
    else:
        print(f"wrote {named}; open it in a browser")
    return 0
