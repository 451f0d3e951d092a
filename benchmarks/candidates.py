"""How many candidates a second a search can try: policies of one job, each scheduled, laid out, simulated and accounted for.

``bench_jobs.py --candidates N`` calls this. A candidate that shares a beginning with an earlier one takes that from it; beside it
stands the same candidate laid out alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ringwright.engines.job import layout, run
from ringwright.engines.job.reuse import Layouts
from ringwright.ground.errors import RingwrightError
from ringwright.jobs import study
from ringwright.jobs.model_job import GeneratedJobSpec, made
from ringwright.jobs.model_workload import WorkloadSpec

PARTS = ("policy", "operations", "layout", "flatten", "engine", "account")
CAPS_MB = (1, 2, 5, 8, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 300, 400, 500)
POLICIES = (
    "none",
    *(f"pytorch-ddp:bucket_cap_mb={cap}" for cap in CAPS_MB),
    *(f"bytescheduler:partition_mb={size}" for size in (8, 16, 30.5, 64)),
    "poseidon",
    "lina",
    "tictac",
    "pace",
    "p3",
    "gradientflow",
)


def _clocked(spent: Counter[str], part: str, called: Callable[..., Any]) -> Callable[..., Any]:
    def clocked(*given: Any, **named: Any) -> Any:
        begin = time.process_time()
        try:
            return called(*given, **named)
        finally:
            spent[part] += time.process_time() - begin

    return clocked


def _watch(spent: Counter[str]) -> None:
    """Have each part of an answer add its CPU seconds."""
    for where, name, part in (
        (layout, "operations", "operations"),
        (layout, "flatten", "flatten"),
        (run, "lay_out", "layout"),
        (run, "_run", "engine"),
        (study, "account", "account"),
    ):
        setattr(where, name, _clocked(spent, part, getattr(where, name)))
    schedule = study.scheduled_by
    study.scheduled_by = lambda policy: (schedule(policy)[0], _clocked(spent, "policy", schedule(policy)[1]))


def table(model: str, gpus: int, parallel: str, times: int) -> None:
    """Print a line for each policy: CPU ms the first time, from then on, and alone; and the share of each part."""
    job = made(GeneratedJobSpec(WorkloadSpec(model, gpus, parallel)))
    spent: Counter[str] = Counter()
    _watch(spent)
    print(
        f"{model} on {gpus} GPUs, {parallel}: CPU ms a candidate, the first time, then (least of {times}), and laid out alone"
    )
    print(
        f"{'policy':34}{'instances':>10}{'first':>8}{'then':>7}{'a second':>9}{'alone':>7}  "
        + "".join(f"{p:>11}" for p in PARTS)
    )
    total = 0.0
    for policy in POLICIES:
        taken: list[tuple[float, Counter[str]]] = []
        try:
            for _ in range(times + 1):
                spent.clear()
                begin = time.process_time()
                found = study.answer(job, policy)
                taken.append((time.process_time() - begin, Counter(spent)))
        except RingwrightError as error:
            print(f"{policy:34} {error.what}")
            continue
        then, parts = min(taken[1:], key=lambda each: each[0])
        parts["layout"] -= parts["operations"] + parts["flatten"]
        alone = min(_alone(job, policy) for _ in range(times))
        total += then
        shares = "".join(f"{parts[part] / then:>11.0%}" for part in PARTS)
        times_ms = f"{taken[0][0] * 1e3:>8.0f}{then * 1e3:>7.0f}{1 / then:>9.1f}{alone * 1e3:>7.0f}"
        print(f"{policy:34}{found.run.laid.flat.n:>10,}{times_ms}  {shares}")
    print(f"{len(POLICIES) / total:.1f} candidates a CPU second")


def _alone(job: study.Job, policy: str) -> float:
    object.__setattr__(job, "layouts", Layouts())
    begin = time.process_time()
    study.answer(job, policy)
    return time.process_time() - begin
