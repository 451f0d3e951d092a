"""Several schedulers on one workload: the outer one replaces the parts it sets, and what contradicts itself is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringwright.costs.stages import Costs
from ringwright.errors import UsageError
from ringwright.validity.workloads import contradictions
from ringwright.workload import Policy, Workload

Scheduler = Callable[..., Workload]


class PolicyConflictError(UsageError):
    """Two parts of a policy contradict each other; the message names who set each."""


def compose(outer: Scheduler, inner: Scheduler) -> Scheduler:
    """Return the scheduler that applies ``inner``, then ``outer``; PolicyConflictError where the outcome contradicts itself."""

    def both(workload: Workload, costs: Costs, **knobs: Any) -> Workload:
        made = outer(inner(workload, costs), costs, **knobs)
        consistent(made.policy)
        return made

    return both


def consistent(policy: Policy) -> None:
    """Raise PolicyConflictError where two parts of a policy contradict each other, naming who set each."""
    for contradiction in contradictions(policy):
        raise PolicyConflictError(contradiction.message, remedy=contradiction.remedy)
