"""Several schedulers on one workload: the outer one replaces the parts it sets, and what contradicts itself is an error.

What cannot be composed is said in the words of who asks: which of the two keeps the other from applying, and of tasks and
operations what they are, not what they are called inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ringwright.ground.errors import InfeasibleError, RingwrightError, UsageError, WorkloadError
from ringwright.model.stages import Costs
from ringwright.model.validity.workloads import contradictions
from ringwright.model.workload import Policy, Workload

Scheduler = Callable[..., Workload]
KINDS = {"F": "a forward task", "R": "a task that runs once more", "U": "an update"}  # of tasks; others are of backward
OF_ORDER = "with others between"  # what two orders of one device's passes are refused with
OF_NAMES = "names a payload"  # what a rewrite of gradients that are gone is refused with


class PolicyConflictError(UsageError):
    """Two parts of a policy contradict each other; the message names who set each."""


def compose(outer: Scheduler, inner: Scheduler) -> Scheduler:
    """Return the scheduler that applies ``inner``, then ``outer``.

    It raises what either declines the job for by itself, and PolicyConflictError where the outcome contradicts itself, or where
    the outer one does not apply to the step that the inner one makes.
    """

    def both(workload: Workload, costs: Costs, **knobs: Any) -> Workload:
        before = inner(workload, costs)
        try:
            made = outer(before, costs, **knobs)
        except RingwrightError as error:
            if not _is_internal(error, before):
                raise
            outer(workload, costs, **knobs)  # what it declines the job for by itself
            raise _conflict(outer, inner, workload, before, error) from error
        consistent(made.policy)
        return made

    both.__name__ = f"{called(outer)}+{called(inner)}"
    return both


def called(scheduler: Scheduler) -> str:
    """Return the slug of a scheduler, or those that are composed in it."""
    function = scheduler.func if isinstance(scheduler, partial) else scheduler
    return str(getattr(function, "__name__", "given")).replace("_", "-")


def consistent(policy: Policy) -> None:
    """Raise PolicyConflictError where two parts of a policy contradict each other, naming who set each."""
    for contradiction in contradictions(policy):
        raise PolicyConflictError(contradiction.message, remedy=contradiction.remedy)


def _is_internal(error: RingwrightError, workload: Workload) -> bool:
    """Return whether an error speaks of tasks and operations by their names, or of no job at all."""
    said = isinstance(error, WorkloadError | InfeasibleError | PolicyConflictError)
    return not said or _in_words(error.what, workload) != error.what or OF_ORDER in error.what


def _conflict(
    outer: Scheduler, inner: Scheduler, workload: Workload, before: Workload, error: RingwrightError
) -> PolicyConflictError:
    one, other = called(outer), called(inner)
    if OF_NAMES in error.what:
        why = f"{other} picks gradients one by one, and {one} replaces them"
    elif OF_ORDER in error.what:
        why = f"each sets the order of a device's passes, and {one} cannot keep that of {other}"
    elif one == other:
        why = f"{one} was applied already, and what it has made is nothing that it applies to"
    elif isinstance(error, WorkloadError | InfeasibleError | PolicyConflictError) or hasattr(error, "why"):
        why = f"behind {other}, {_in_words(error.what, before).removeprefix(f'{one}: ')}"
    else:
        why = f"operations that {other} leaves to the next step wait for those of this one, so {one} finds no order of one step"
    remedy = f"--policy {one}" if one == other else f"--policy {other}+{one}, or one of the two"
    return PolicyConflictError(f"{one}+{other}: {why}", where=workload.name, remedy=remedy)


def _in_words(text: str, workload: Workload) -> str:
    """Return a text with what tasks, operations and values are, not their names."""
    words = {each.name: f"{_article(each.op)} {each.op}" for each in workload.payloads}
    words |= {each.name: KINDS.get(each.kind, "a backward task") for each in workload.tasks}
    classes = "|".join(re.escape(each.name) for each in workload.classes)
    text = re.sub(rf"\b(?:{classes})\.[\w.#]*\w", lambda name: words.get(name[0], "an operation"), text)
    text = re.sub(r"\bstage(\d+)\b", r"stage \1", text)
    return re.sub(r"\b(an? [\w-]+(?: task)?)(?:, \1)+\b", r"\1", text)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
