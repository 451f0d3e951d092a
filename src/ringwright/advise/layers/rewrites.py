"""The graph of a step rewritten: schedulers of the decompose class, as they ship and by each word of their knobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.advise.settings import GRAPH, Setting
from ringwright.ground.errors import UsageError
from ringwright.jobs.auto import spelled_words
from ringwright.model.registry import System, schedulers

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

MOST_TASKS = 400  # of a step, up to which each word of a knob is tried: what a scheduler takes grows with it
RISK = "the program of a rank changes; its results stay equal where simulate says so"


def graph_settings(situation: Situation) -> list[Setting]:
    """Return one setting a scheduler that cuts, reorders or recomputes; UsageError where nothing says what tasks compute."""
    known = [each for each in schedulers() if each.problem is None and not each.hardware and each.kind == "decompose"]
    if not situation.workload.values and not situation.workload.gradients():
        raise UsageError(
            "nothing says what its tasks read and write", remedy="advise --model, where the model is known"
        )
    is_large = len(situation.workload.tasks) > MOST_TASKS
    spellings = [spelling for each in known for spelling in ([each.slug] if is_large else _spellings(each))]
    return [
        Setting("rewrites", GRAPH, each, f"step rewritten: {each}", "the program of the job", RISK)
        for each in spellings
    ]


def _spellings(system: System) -> Iterator[str]:
    yield system.slug
    for knob in system.knobs().values():
        yield from (f"{system.slug}:{word}" for word in spelled_words(system.slug, knob))
