"""``ringwright reproduce``: is the paper right?"""

from __future__ import annotations

import sys
from pathlib import Path

from ringwright.cli import options, progress, reading
from ringwright.ground import drafts
from ringwright.ground.errors import EXIT_GATE, EXIT_GOOD, UsageError


def reproduce(
    *names: str,
    record: Path | None = None,
    short: bool = False,
    fresh: bool = False,
    part: str | None = None,
    output: options.Folder = None,
    executor: options.Executor = None,
    json: options.Json = False,
) -> int:
    """Run what papers claim and hold each row against its tolerance; exit code 1 when one fails.

    Each row says what it proves: a prediction, a form, an exact count, something fitted, or an identity.

    Parameters
    ----------
    names
        Slugs, or TOML files of your own; all papers if left out, without those that are experiments.
    record
        Write the answers into this file as JSON, beside those of other papers that it holds.
    short
        Of an experiment (collective-profiling-poster) the form for minutes, not the one for a night.
    fresh
        Of an experiment: run every cell again, also those that lie in its folder from an earlier run. Papers keep nothing.
    part
        Of an experiment only these parts, comma separated: agreement,served,shapes,scale,disturbed,conclusions.
    output
        Folder of an experiment, which goes on there if it was cut short; named after the slug unless given.
    json
        Print one JSON object instead (schema ringwright.reproduce/1).

    Examples
    --------
    ringwright reproduce netai2020
    """
    from ringwright_lab.papers import claims

    paths = claims.find(names)
    experiments = [path for path in paths if claims.study_of(path) is not None]
    if experiments and len(paths) > 1:
        raise UsageError("an experiment is run by itself", remedy=f"ringwright reproduce {experiments[0].stem}")
    if experiments and executor is not None:
        raise UsageError(
            f"{experiments[0].stem} measures ranks of this machine, one cell at a time", remedy="leave --executor out"
        )
    if experiments:
        return _experiment(
            experiments[0].stem, short=short, fresh=fresh, part=part, out=output, record=record, json=json
        )
    before = claims.papers_of(record) if record else []
    with progress.steps("reproducing") as advance:
        result = claims.reproduce(paths, advance, executor)
    if record:
        reading.write_json(record, claims.joined(result, before))
    if json:
        reading.print_json(result)
    else:
        from ringwright_lab.reports import reproduced

        reproduced.write(result, sys.stdout)
    return EXIT_GOOD if all(paper["inside"] for paper in result["papers"]) else EXIT_GATE


def _experiment(
    slug: str, *, short: bool, fresh: bool, part: str | None, out: Path | None, record: Path | None, json: bool
) -> int:
    from ringwright_lab.papers.poster.study import experiment, parts_of
    from ringwright_lab.reports.experiment import page, write

    wanted = parts_of(part)
    folder = out or Path(f"{slug}-{'short' if short else 'full'}")
    with drafts.grown(folder), progress.steps(slug) as told:
        result = experiment(folder, short=short, fresh=fresh, parts=wanted, progress=told)
        drafts.write(folder / "report.html", page(result, reading.command_line()))
    if record:
        reading.write_json(record, result)
    if json:
        reading.print_json(result)
    else:
        write(result, sys.stdout)
    return EXIT_GOOD if all(row["pass"] for row in result["rows"]) else EXIT_GATE
