"""Training ImageNet in four minutes: fusion, a hierarchical all-reduce for small messages, the ring for large ones.

Idea: with 1,000 GPUs the 2(p-1) steps of a ring dominate for the many small tensors of a network. Fuse them, reduce inside each
    group to a master, run the ring among the masters alone, broadcast back; take the plain ring where bytes dominate. Fusing
    is a policy of the job: --policy gradientflow:theta_mb=4 --algorithm imagenet-4-minutes is the paper's pipeline (pools of
    theta, sent in 16 bits, the cheaper algorithm for each).
Cost: 4(k-1) alpha_1 + 4(k-1)/k n beta_1 + 2(m-1) alpha_2 + 2(m-1)/m n beta_2 with m = p/k masters and chains of k ranks in k
    segments; ring 2(p-1) alpha_2 + 2(p-1)/p n beta_2.
Knobs: group (the hosts; without, about sqrt(p/2)); segments=group; eta, the size from which the ring is taken (None: the
    cheaper by ``predicted_s``; 0: always the ring; inf: never); inner=chain for reduce and broadcast, outer=ring.
Holds: steps 4(k-1) + 2(m-1), 186 for p=1024 and k=16; groups may be unequal; the choice is the cheaper in the model.
Figure: all-reduce up to 3x (AlexNet) and 11x (ResNet-50) faster than NCCL on 1,024 P40 (abstract).
Source: Jia et al., arXiv 1807.11205.
Declines: all but all-reduce. Phases follow one another, as in the paper: none starts before the one before has
    ended. A single group does start early, and takes less than the declared cost.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.compose import Algorithm, beside, embed, lift
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.pipelined_tree import PipelinedTree
from ringwright.algorithms.placement import by_host, is_regular
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range, Ranks, Segments
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Program, Step, Term, cut, nothing

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
# Without a topology: RDMA over 100 Gb/s Ethernet, a few us a hop (the paper's network).
ALPHA_S, BETA_S = 5e-6, 1 / 12.5e9
INSIDE, ACROSS = "level0", "level1"


def imagenet_4_minutes(
    collective: Collective,
    topology: Topology | None = None,
    *,
    group: Ranks | None = None,
    segments: Segments | None = None,
    eta: Annotated[float, Range(0, math.inf, "B")] | None = None,
    inner: Algorithm | None = None,
    outer: Algorithm = ring,
) -> Program:
    """Return the hierarchical program, or the ring's, whichever is cheaper for the size."""
    require_op("imagenet-4-minutes", collective, OPS)
    require_commutative("imagenet-4-minutes", collective)
    if collective.p == 1:
        return nothing("imagenet-4-minutes", collective)
    groups = groups_of(collective, topology, group)
    flat = _flat(collective, [index for members in groups for index in members], len(groups))
    plan = _Hierarchy(collective, groups, segments or len(max(groups, key=len)), inner or chain, outer).program()
    if eta is None:
        price = prices(topology, collective, groups)
        is_large = predicted_s(flat, price) < predicted_s(plan, price)
    else:
        is_large = collective.size_bytes >= eta
    return flat if is_large else plan


def groups_of(collective: Collective, topology: Topology | None, group: int | None = None) -> list[list[int]]:
    """Return the places of each group, its master first: hosts, or ``group`` places each (the last group may be short)."""
    if group is None:
        hosts = by_host(collective, topology)
        if 1 < len(hosts) < collective.p:
            return hosts
        group = max(1, round(math.sqrt(collective.p / 2)))
    if group < 1:
        raise UsageError(f"group={group} is below 1", remedy="group=8")
    order = [index for host in by_host(collective, topology) for index in host]
    return [order[first : first + group] for first in range(0, len(order), group)]


def _flat(collective: Collective, order: list[int], groups: int) -> Program:
    made = dataclasses.replace(ring(collective), name="imagenet-4-minutes", knobs={"choice": "ring", "groups": groups})
    if order == list(range(collective.p)):
        return made
    return dataclasses.replace(made, make_steps=lambda: embed(ring(collective).steps(), order))


def chain(collective: Collective, topology: Topology | None = None, *, segments: int = 1) -> Program:
    """Return reduce or broadcast along the ranks in order, towards or from rank 0, in segments."""
    del topology
    tree = PipelinedTree(range(-1, collective.p - 1))
    up = collective.op == "reduce"
    hops = collective.p - 1
    n_steps = tree.n_steps(segments, up=up, down=not up)
    path = float(cut(collective, segments).chunk_bytes.max(initial=0)) * n_steps
    return Program(
        "chain",
        collective,
        cut(collective, segments),
        lambda: tree.steps(segments, up=up, down=not up),
        n_steps,
        Cost((Term(n_steps, path),), float(collective.size_bytes) * hops, path if up else 0.0),
    )


class _Hierarchy:
    """The three phases. A chunk stands at (segment of the phases inside groups, chunk of the phase between masters)."""

    def __init__(
        self, collective: Collective, groups: list[list[int]], segments: int, inner: Algorithm, outer: Algorithm
    ) -> None:
        self.collective, self.groups = collective, groups
        knobs = {"segments": segments} if inner is chain else {}
        size, dtype = collective.size_bytes, collective.dtype

        def inside(op: str) -> list[Program]:
            return [inner(Collective(op, range(len(g)), size, dtype), **knobs) for g in groups if len(g) > 1]

        self.up, self.down = inside("reduce"), inside("broadcast")
        self.across = outer(Collective("all-reduce", range(len(groups)), size, dtype)) if len(groups) > 1 else None
        self.columns = self.across.layout.n_chunks if self.across else 1
        self.rows = math.lcm(*(each.layout.n_chunks for each in self.up + self.down))

    def program(self) -> Program:
        """Return the program; every piece of a segment goes to another part of the masters' ring."""
        collective, across = self.collective, self.across
        longest = [max(phase, key=lambda each: each.n_steps) for phase in (self.up, self.down) if phase]
        terms = [dataclasses.replace(term, level=INSIDE) for each in longest for term in each.cost.terms]
        terms += [dataclasses.replace(term, level=ACROSS) for term in (across.cost.terms if across else ())]
        phases = [*self.up, *self.down, *([across] if across else [])]
        path = [*longest, *([across] if across else [])]
        even = collective.size_bytes % (self.rows * self.columns * collective.unit_bytes) == 0
        cost = Cost(
            tuple(terms),
            sum(each.cost.sent_bytes for each in phases),
            sum(each.cost.reduced_bytes for each in path),
            is_even=even and len({len(group) for group in self.groups}) == 1,
        )
        knobs: dict[str, object] = {"choice": "hierarchical", "groups": len(self.groups)}
        if is_regular(self.groups):
            knobs["factors"] = (len(self.groups[0]), len(self.groups))
        return Program(
            "imagenet-4-minutes",
            collective,
            cut(collective, self.rows * self.columns),
            self._steps,
            sum(each.n_steps for each in path),
            cost,
            knobs=knobs,
        )

    def _steps(self) -> Iterator[Step]:
        yield from self._inside(self.up, "reduce to master")
        if self.across:
            # A chunk of the ring is one piece of every segment, so that no master starts before its group has ended.
            steps = lift(self.across.steps(), 1, 1, [(self.rows, 0, self.columns)], "between masters")
            yield from embed(steps, [group[0] for group in self.groups])
        yield from self._inside(self.down, "broadcast")

    def _inside(self, phase: Sequence[Program], label: str) -> Iterator[Step]:
        busy = [group for group in self.groups if len(group) > 1]
        for_each = zip(phase, busy, strict=True)
        wide = self.rows * self.columns
        return beside(
            *(embed(lift(each.steps(), 1, wide // each.layout.n_chunks, [], label), g) for each, g in for_each)
        )


# ----------------------------------------------------------------------------------------------------------- the model
def prices(
    topology: Topology | None, collective: Collective, groups: list[list[int]]
) -> dict[str, tuple[float, float]]:
    """Return (seconds a message, seconds a byte) inside a group and across, read from the topology's routes."""
    inside = next(((g[0], g[1]) for g in groups if len(g) > 1), None)
    across = (groups[0][0], groups[1][0]) if len(groups) > 1 else None
    by_level = {INSIDE: _price(topology, collective, inside), ACROSS: _price(topology, collective, across)}
    slower = max(by_level.values(), key=lambda price: price[1])
    return {**by_level, "": by_level[ACROSS] if across else slower}


def _price(topology: Topology | None, collective: Collective, pair: tuple[int, int] | None) -> tuple[float, float]:
    import numpy as np

    if pair is None:
        return 0.0, 0.0
    if topology is None:
        return ALPHA_S, BETA_S
    src, dst = (np.array([collective.group[index]]) for index in pair)
    links = topology.routes(src, dst)[1]
    software = max(
        (topology.message_s.get(topology.classes[topology.link_class[link]], 0.0) for link in links), default=0
    )
    rate = float(topology.rate[links].min(initial=np.inf))
    return float(topology.latency_s[links].sum()) + software, 1 / rate


def predicted_s(program: Program, price: dict[str, tuple[float, float]]) -> float:
    """Return the seconds of a program's declared critical path; a level without a price has that of the slowest."""
    return sum(
        term.messages * price.get(term.level, price[""])[0] + term.size_bytes * price.get(term.level, price[""])[1]
        for term in program.cost.terms
    )


def fuse(tensor_bytes: Sequence[int], threshold: int) -> list[tuple[int, ...]]:
    """Return the tensors of each all-reduce, by number: a pool closes once it exceeds the threshold, or at the end."""
    pools: list[tuple[int, ...]] = []
    pool: list[int] = []
    held = 0
    for number, size in enumerate(tensor_bytes):
        pool.append(number)
        held += size
        if held > threshold:
            pools.append(tuple(pool))
            pool, held = [], 0
    return [*pools, tuple(pool)] if pool else pools
