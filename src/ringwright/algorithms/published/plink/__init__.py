"""PLink: find the racks that a cloud hides, aggregate inside them first, and adapt when the network changes.

Idea: probe every pair of hosts, embed and cluster them into locality groups, and reduce in each group by shards: a host adds
    up its shards for the group, owners of the same shard add up across groups, and results flow back the same way. Watch
    the time of every round; when it stays above the prediction, probe again and swap hosts between groups.
Cost: 2 [(m-1) alpha_1 + (m-1)/m n beta_1 + (k-1) alpha_2 + (k-1)/k n/m beta_2] for k groups of m hosts.
Knobs: noise=0 of the probes, relative; seed=0; groups (None: inferred; a number: as many, host by host; or lists of places);
    shards in all (None: one a host, or four where groups or measured rates differ); adapt=none (stale: probed before the
    fabric's faults, and kept; watch: the same, then watched round by round, and once the last ``window`` (5) rounds took
    ``threshold`` (1.2) times the prediction, half the pairs are probed again and hosts swapped).
Holds: bytes sent are 2(p-1) n whatever the groups; between groups a host sends 2(k-1)/k n/m instead of up to 2n.
Figure: up to 2.3x the training throughput on Azure and EC2 (abstract).
Source: Luo, West, Nelson, Krishnamurthy, Ceze: PLink, MLSys 2020. Parameters of clustering and thresholds are ours.
Declines: all but all-reduce.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.published.plink.adaptation import Monitor, adapted, watch
from ringwright.algorithms.published.plink.grouping import infer_groups
from ringwright.algorithms.published.plink.plan import OPS, ShardPlan
from ringwright.algorithms.published.plink.prediction import plan_time_s
from ringwright.algorithms.published.plink.probing import Probes, assumed, probe, rounds
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range, Ranks, Seed
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

__all__ = [
    "OPS",
    "Monitor",
    "Probes",
    "ShardPlan",
    "adapted",
    "infer_groups",
    "plan_time_s",
    "plink",
    "probe",
    "rounds",
]


def plink(
    collective: Collective,
    topology: Topology | None = None,
    *,
    noise: Annotated[float, Range(0, 1)] = 0.0,
    seed: Seed = 0,
    groups: Ranks | Sequence[Sequence[int]] | None = None,
    shards: Annotated[int, Range(1, 1024)] | None = None,
    adapt: Literal["stale", "watch"] | None = None,
    window: Annotated[int, Range(1, 1000)] = 5,
    threshold: Annotated[float, Range(1, 1000)] = 1.2,
) -> Program:
    """Return the two-level plan for what the probes find on the topology."""
    require_op("plink", collective, OPS)
    require_commutative("plink", collective)
    p = collective.p
    if p == 1:
        return nothing("plink", collective)
    before = topology if topology is None or adapt is None else dataclasses.replace(topology, faults=())
    probes = assumed(p) if before is None else probe(before, collective.group, noise=noise, seed=seed)
    if groups is None:
        grouped = infer_groups(probes, collective.size_bytes, seed)
    elif isinstance(groups, int):
        grouped = even_groups(p, groups)
    else:
        grouped = [list(group) for group in groups]
    _require_partition(grouped, p)
    said = {}
    if adapt == "watch" and topology is not None:
        watched = watch(grouped, probes, topology, collective, Monitor(1.0, window, threshold), noise=noise, seed=seed)
        grouped, probes, said = watched.groups, watched.probes, {"algorithm": watched.said}
    made = ShardPlan(collective, grouped, probes, shards).program()
    return dataclasses.replace(made, knobs={**made.knobs, **said})


def even_groups(p: int, count: int) -> list[list[int]]:
    """Return ``count`` groups of neighbouring places, as equal as they can be."""
    if not 1 <= count <= p:
        raise UsageError(f"groups={count}: {p} hosts make 1 to {p} groups", remedy=f"groups=1 to groups={p}")
    edges = [i * p // count for i in range(count + 1)]
    return [list(range(first, last)) for first, last in pairwise(edges)]


def _require_partition(groups: list[list[int]], p: int) -> None:
    if sorted(index for group in groups for index in group) != list(range(p)) or not all(groups):
        raise UsageError(f"groups must name each of the {p} places once", where=f"groups {groups}"[:80])
