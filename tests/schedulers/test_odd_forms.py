"""Every scheduler on odd forms of a tiny model: an answer that simulates, or a typed decline, never a circle or a crash."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest

from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import RewriteError
from ringwright.graph.memory import peak_bytes
from ringwright.ground.errors import InfeasibleError, RingwrightError, WorkloadError
from ringwright.ground.plugins import HOUSE
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.registry import schedulers
from ringwright.model.stages import LinkCosts
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Workload

TINY = {"layers": 4, "hidden": 128, "heads": 4}
EXPERTS = {"layers": 2}
FORMS: dict[str, tuple[str, int, str, int, dict[str, int]]] = {
    "fsdp": ("gpt3-125m", 4, "fsdp", 2, TINY),
    "zero1 and chunks": ("gpt3-125m", 8, "tp2,pp2,vp2,zero1", 4, TINY),
    "experts": ("mixtral-8x7b", 4, "ep4", 2, EXPERTS),
    "contexts": ("gpt3-125m", 4, "tp2,cp2", 2, TINY),
    "sequences": ("gpt3-125m", 4, "tp2,sp", 2, TINY),
    "one micro-batch": ("gpt3-125m", 4, "tp2,pp2", 1, TINY),
}
OURS = [each for each in schedulers() if each.origin == HOUSE]
MORE: dict[str, dict[str, Any]] = {"syndicate": {"budget": 6, "restarts": 1}}
COSTS = LinkCosts(20e9, ring=True)


@cache
def odd(form: str, size: int = 1) -> Workload:
    model, gpus, parallel, batches, dims = FORMS[form]
    card = WorkloadSpec(model, gpus, parallel, batches, size, 1024 if dims is TINY else 128, dims=dims)
    return workload(GeneratedJobSpec(card))


def answered(asked: Callable[[], Workload]) -> Workload | None:
    """Return what a scheduler answers, None for a typed decline with a remedy that is not of a circle."""
    declined: RingwrightError
    try:
        return asked()
    except (WorkloadError, RewriteError, InfeasibleError) as error:
        declined = error
    assert declined.remedy, declined
    assert "waits for" not in declined.what
    return None


@pytest.mark.sampled(60)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("system", OURS, ids=lambda each: each.slug)
def test_a_scheduler_answers_or_declines(system: Any, form: str) -> None:
    step, more = odd(form), dict(MORE.get(system.slug, {}))
    if system.slug == "lynx":  # a little less than all needs
        more["memory_bytes"] = round(0.98 * (peak_bytes(step) or 0))
    made = answered(partial(system.load(), step, COSTS, **more))
    if made is None:
        return
    assert check(made, warnings=False) == []
    assert simulate(made, COSTS, steps=2).step_s > 0
