"""The survey in one call: the list alone, or what each system would do to a job that is named."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.calls import arguments
from ringwright.executors.fan_out import Chosen
from ringwright.ground.errors import UsageError
from ringwright.ground.notebook import rows_shown, shown

if TYPE_CHECKING:
    from ringwright_lab.survey.survey_job import Asked, NamedMachine

_SEEN = rows_shown("the survey", "rows")


def survey(
    job: str | Path | None = None,
    on: arguments.Machine | None = None,
    *,
    gpus: int | None = None,
    parallel: str | None = None,
    exhaustive: bool = False,
    executor: Chosen = None,
) -> dict[str, Any]:
    """Tell the survey's systems, what each is and has shown; given a job, what each would do to its step.

    Parameters
    ----------
    job
        A model such as ``llama3-70b``, or the path of a recording or workload file (minutes); None: the list alone.
    on
        The machine: a Topology, ``dgx-h100:8``, or a file that describes one. Usual: enough nodes of ``dgx-h100`` for a
        model, a plain switch for a file.
    gpus, parallel
        Of a model: number of GPUs (usual: all of the machine), and its form such as ``tp8,pp4`` (usual: the first that fits).
    exhaustive
        Try every pair of algorithm and policy for the best one.
    executor
        Who simulates the pairs: a spelling such as ``local:4``, or an object of ``concurrent.futures.Executor``.

    Returns
    -------
    dict
        Schema ``ringwright.survey/1``: ``tree``; in ``rows`` a row a system; of a job also ``baseline`` and ``best``. Times in
        microseconds, bytes those that a rank puts on wires in a step.

    Raises
    ------
    UsageError
        No such model, file or machine, or options of a model for a file.

    Examples
    --------
    >>> import ringwright
    >>> found = ringwright.survey()
    >>> len(found["rows"]), [row["family"] for row in found["rows"] if row["slug"] == "p3"]
    (45, ['communication-scheduling'])
    """
    from ringwright_lab.survey import document

    options = {"on": on, "gpus": gpus, "parallel": parallel}
    if job is None:
        if given := [name for name, value in options.items() if value is not None]:
            raise UsageError(f"{given[0]} is of a job, and none is named", remedy="ringwright.survey('llama3-70b')")
        return shown(document.survey(), _SEEN)
    return shown(document.survey(_asked(job, on, gpus, parallel), exhaustive=exhaustive, executor=executor), _SEEN)


def _asked(job: str | Path, on: arguments.Machine | None, gpus: int | None, parallel: str | None) -> Asked:
    from ringwright_lab.survey import survey_job

    if Path(job).exists():
        if gpus is not None or parallel is not None:
            raise UsageError(
                "gpus and parallel are of a model, this is a file", where=str(job), remedy="leave them out"
            )
        from ringwright.formats.sources import read

        return survey_job.of_path(str(job), partial(_machine, on), read)
    survey_job.known(str(job))
    told = () if on is not None else (f"fabric: {survey_job.usual_fabric(gpus, parallel)}, for none was named",)
    topology = arguments.machine(survey_job.usual_fabric(gpus, parallel) if on is None else on)
    machine = survey_job.NamedMachine(topology, _option(topology.name), told)
    return survey_job.of_model(str(job), machine, survey_job.SurveySpec(gpus, parallel))


def _machine(on: arguments.Machine | None, ranks: int) -> NamedMachine:
    from ringwright_lab.survey import survey_job

    named = f"switch:{max(ranks, 2)}"
    topology = arguments.machine(named if on is None else on)
    told = (f"fabric: {named}, for none was named",) if on is None else ()
    return survey_job.NamedMachine(topology, _option(topology.name), told)


def _option(fabric: str) -> str:
    return shlex.join(["--fabric", fabric])
