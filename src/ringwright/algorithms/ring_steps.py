"""What one step of rings costs that run at once through many groups of a machine, the flows that share each link counted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class Rings:
    """Rings through groups that are at work at once: seconds of a step, and seconds a byte on the busiest link."""

    alpha_s: float
    beta_s: float


def rings(topology: Topology | None, members: np.ndarray) -> Rings:
    """Return what one step of rings through groups (rows of ``members``) takes, the flows that share each link counted.

    Without a machine every step is alike.
    """
    if topology is None:
        return Rings(1e-6, 1e-11)
    starts, links = topology.routes(members.ravel(), np.roll(members, -1, axis=1).ravel())
    alphas = np.add.reduceat(topology.latency_s[links], starts[:-1])
    flows = np.bincount(links, minlength=topology.n_links)
    used = flows > 0
    with np.errstate(divide="ignore"):
        beta = float((flows[used] / topology.rate[used]).max())
    for each in topology.groups:
        beta = max(beta, float(flows[each.links].sum()) / each.rate if each.rate else math.inf)
    return Rings(float(alphas.max()), beta)
