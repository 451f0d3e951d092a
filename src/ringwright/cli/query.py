"""``ringwright query``: SQL over the tables of a Trace."""

from __future__ import annotations

import sys

from ringwright.cli import harmless, options, reading


def query(
    sql: str,
    *paths: str,
    sample: options.Sample = False,
    files: bool = False,
    json: options.Json = False,
    executor: options.Executor = None,
) -> int:
    """Answer an SQL query over events, communicators, topology, claims and ledger.

    Parameters
    ----------
    sql
        For example: "select op, sum(multiplicity) from events group by op".
    paths
        Logs, folders or captures; - reads standard input.
    files
        Let the query read other files too: read_csv('...'), read_parquet('...').
    json
        Print one JSON object instead (schema ringwright.query/1).

    Examples
    --------
    ringwright query "select op, sum(multiplicity) as calls from events group by op" --sample
    """
    from ringwright.executors.fan_out import fan_out

    with fan_out(executor) as fan:
        trace = reading.trace(reading.inputs(paths, sample=sample), executor=fan)
    answer = trace.query(sql, files=files)
    for lost in trace.meta.get("losses", []):
        print(f"not in the answer: {harmless(lost)}", file=sys.stderr)
    if json:
        rows = [list(row) for row in answer.rows()]
        told = {"columns": answer.columns, "rows": rows, "executor": fan.account.document()}
        reading.print_json({"schema": "ringwright.query/1", **told})
        return 0
    from ringwright.reports.answer import write

    write(answer.columns, answer.rows(), sys.stdout)
    return 0
