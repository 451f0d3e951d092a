"""What a user names in whole jobs, as what it stands for: a scheduler, and what operations cost on a machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.calls.arguments import Machine, machine
from ringwright.ground.notebook import card
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.model import registry
from ringwright.model.topology import Topology

if TYPE_CHECKING:
    from ringwright.model.stages import Costs
    from ringwright.model.workload import Workload


@dataclass(frozen=True, repr=False)
class Scheduler:
    """A scheduler with its knobs set: call it with a Workload and costs to have the Workload in its order."""

    spelling: str
    reorder: Callable[..., Workload]

    def __call__(self, workload: Workload, costs: Costs | Machine) -> Workload:
        """Return the Workload with the policy set; in place of costs a machine may be named, which then gives them."""
        return self.reorder(workload, costs_on(workload, costs))

    def __repr__(self) -> str:
        return f"Scheduler({self.spelling})"

    def _repr_html_(self) -> str:
        slugs = [part.partition(":")[0].partition("@")[0] for part in self.spelling.split("+")]
        systems = [registry.find(slug, registry.schedulers) for slug in slugs]
        return card(f"Scheduler: {self.spelling}", {each.slug: each.headings.get("Idea", "") for each in systems})


def costs_on(workload: Workload, costs: Costs | Machine, algorithm: str = "") -> Costs:
    """Return what the workload's operations take: the costs themselves, or those of a machine that is named."""
    if not isinstance(costs, Topology | str | Path):
        return costs
    return on_fabric(machine(costs), workload, algorithm)


def scheduler(spelling: str) -> Scheduler:
    """Return the scheduler of a name, its knobs set.

    Parameters
    ----------
    spelling
        ``p3``, ``p3:slice_elements=50000``, or ``outer+inner``: the outer one replaces only the parts of the policy that
        it sets.

    Returns
    -------
    Scheduler
        A callable ``(Workload, costs) -> Workload``; in place of costs a Topology or ``dgx-h100:2`` will do.

    Raises
    ------
    UsageError
        No such scheduler (it names near ones), no such knob, or a value outside the knob's range.

    Examples
    --------
    >>> import ringwright
    >>> step = ringwright.job("vgg16", gpus=8)
    >>> ringwright.scheduler("p3")(step, "dgx-h100:1").policy.label
    'p3'
    """
    return Scheduler(*registry.scheduler(spelling))
