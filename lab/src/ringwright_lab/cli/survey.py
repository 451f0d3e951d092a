"""``ringwright survey``: the systems of the survey, what each is and has shown, and what each would do to a job."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, progress, reading
from ringwright.cli.fabrics import MachineOptions
from ringwright_lab.cli import surveyed


def survey(
    job: Annotated[str | None, Parameter(group=options.QUESTION)] = None,
    *,
    sample: options.Sample = False,
    machine: MachineOptions = surveyed.EVERYWHERE,
    model: surveyed.ModelOptions = surveyed.NO_OPTIONS,
    exhaustive: Annotated[bool, Parameter(group=options.QUESTION)] = False,
    output: options.Target = None,
    force: options.Force = False,
    executor: options.Executor = None,
    json: options.Json = False,
) -> int:
    """List the survey's systems with what each has shown; for a job, simulate its step with each and find the best pair.

    Parameters
    ----------
    job
        A model (llama3-70b) or a recording (capture, trace, log) or workload file; none for the list alone.
    exhaustive
        Try every pair of algorithm and policy for the best one, not only those an exchange of one part leads to.
    output
        Write one HTML page.
    force
        Overwrite the page.
    json
        Print one JSON object instead (schema ringwright.survey/1).

    Examples
    --------
    ringwright survey
    ringwright survey resnet50 --fabric switch:4
    """
    from ringwright.formats.exports.placement import claim_file
    from ringwright_lab.survey import document

    asked = surveyed.question(reading.recording(job, sample=sample), machine, model)
    if output is not None:
        claim_file(output, force=force)  # before minutes are spent
    with progress.steps("surveying") as told:
        result = document.survey(asked, exhaustive=exhaustive, told=told, executor=executor)
    if json:
        reading.print_json(result)
        return 0
    from ringwright_lab.reports.survey import write

    write(result, sys.stdout)
    if output is not None:
        from ringwright_lab.reports import survey_page

        reading.write_page(output, survey_page.page(result, reading.command_line()), force=force)
    return 0
