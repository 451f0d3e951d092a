"""Advice for whoever asks in Python: as the verb ``advise`` gives it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.advise.advise import AdviceSpec, advise
from ringwright.advise.search import WORK
from ringwright.advise.situation import of_model, of_recording
from ringwright.advise.space import asked_layers
from ringwright.calls import arguments
from ringwright.executors.fan_out import Chosen
from ringwright.ground.errors import UsageError
from ringwright.ground.notebook import Seen, card, shown, table
from ringwright.ground.units import parse_size, parse_time
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    from ringwright.advise.document import Advice
    from ringwright.advise.situation import Situation

VERDICTS = {"changes": "Change", "nothing": "Nothing here is worth a change", "cannot-tell": "Cannot tell"}


def advice(
    job: Trace | str | Path,
    on: arguments.Machine | None = None,
    *,
    gpus: int | None = None,
    may: str | Sequence[str] | None = None,
    budget: float | str | None = None,
    work: int = WORK,
    memory: int | str | None = None,
    inexact: bool = False,
    seed: int = 0,
    executor: Chosen = None,
) -> Advice:
    """Advise on a job: at most five changes, each with what it gains together with those above it, and with its interval.

    Parameters
    ----------
    job
        A Trace, the path of a recording, or a model such as ``llama3-8b``.
    on
        The machine it runs on, as ``simulate`` takes it; of a recording it may be left out.
    gpus
        Of a model: how many ranks; those of the machine if left out.
    may
        What may be changed: ``["ddp", "policy"]`` or ``"ddp,policy"``; all that costs nothing if left out.
    budget
        For how long to search at the most: seconds, or ``30s``; the answer then depends on the machine. No clock if left out.
    work
        How much to search at the most: instances of tasks and operations, which every machine counts alike.
    memory
        What a rank may hold: bytes, or ``80GiB``; what its device has if left out.
    inexact
        Also what makes gradients other numbers.
    seed
        Of what is drawn.
    executor
        Who works: ``local:4``, ``dask://HOST:8786``, or any object of ``concurrent.futures.Executor``; all cores if left out.

    Returns
    -------
    dict
        Plain JSON values, schema ``ringwright.advise/1``: ``verdict`` and ``why``, ``base`` (the step of today, us), ``changes``
        with ``step_us`` and gains as shares of that step, ``refused``.

    Raises
    ------
    UsageError
        What is named does not exist or does not fit together.
    InputError
        The path holds no recording.

    Examples
    --------
    >>> import ringwright
    >>> told = ringwright.advice(ringwright.read(ringwright.sample()))
    >>> told["verdict"], told["changes"]
    ('cannot-tell', [])
    """
    if seed < 0:
        raise UsageError(f"{seed} is no seed", remedy="a whole number from 0 on")
    layers = asked_layers(may if may is None or isinstance(may, str) else ",".join(may))
    seconds = parse_time(budget) if isinstance(budget, str) else math.inf if budget is None else float(budget)
    limit = parse_size(memory) if isinstance(memory, str) else memory
    recording = "PATH" if isinstance(job, Trace) else str(job)
    spec = AdviceSpec(
        layers,
        seconds,
        seed,
        limit,
        inexact=inexact,
        recording=recording,
        work=work,
    )
    return shown(advise(_situation(job, on, gpus), spec, executor=executor), _seen)


def _situation(job: Trace | str | Path, on: arguments.Machine | None, gpus: int | None) -> Situation:
    machine = None if on is None else arguments.machine(on)
    if isinstance(job, Trace) or Path(job).exists():
        if gpus is not None:
            raise UsageError("gpus is of a model, and this is a recording", remedy="leave gpus out")
        from ringwright.formats.sources import read

        if isinstance(job, Trace):
            return of_recording(job, machine)
        return of_recording(read(job), machine, paths=(str(job),))
    from ringwright.jobs.model_job import GeneratedJobSpec
    from ringwright.jobs.model_workload import WorkloadSpec

    ranks = gpus if gpus is not None or machine is None else machine.n_ranks
    return of_model(GeneratedJobSpec(WorkloadSpec(str(job), ranks)), machine, "pytorch-ddp")


def _seen(result: Advice) -> Seen:
    """Return the verdict, the step of today, a row a change, and what was refused."""
    base = result["base"]
    times = {"measured": base["measured_us"], "most probable": base["step_us_p50"], "replayed": base["replayed_us"]}
    times |= {"exposed": base["exposed_us"]}
    today = {name: f"{us / 1e3:,.6g} ms" for name, us in times.items() if us is not None}
    rows = [
        (
            *(each["what"], f"{each['step_us'] / 1e3:,.6g}", f"{each['gain_p50']:.1%}"),
            *(f"{each['gain_p05']:.1%} to {each['gain_p95']:.1%}", each["spelling"]),
        )
        for each in result["changes"]
    ]
    refused = [(each["what"], each["why"], each["remedy"]) for each in result["refused"]]
    parts = [
        card("", {"job": result["job"], "on": result["fabric"], "policy today": base["policy"], **today}),
        table("changes, each with those above it", ("change", "step ms", "gain", "5 to 95 %", "spelling"), rows)
        if rows
        else "",
        table("not advised", ("what", "why", "instead"), refused) if refused else "",
    ]
    return f"{VERDICTS[result['verdict']]}: {result['why']}", parts
