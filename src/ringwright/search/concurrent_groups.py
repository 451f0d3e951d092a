"""Groups of one job that communicate at the same time: each planned alone and run together, and all planned as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from ringwright.algorithms.searching import ALPHA_OF
from ringwright.algorithms.synthesis.forest import forest
from ringwright.algorithms.synthesis.forest.joint_forests import together as planned
from ringwright.bounds.joint_bounds import JointBound, joint_bound
from ringwright.calls.provenance import AskedOf, asked_of
from ringwright.engines.choose import simulate
from ringwright.engines.concurrent_programs import simulate_together
from ringwright.ground.errors import UsageError
from ringwright.ground.units import parse_size
from ringwright.model.collective import Collective
from ringwright.search.proof import is_right
from ringwright.search.replan import WORTH

if TYPE_CHECKING:
    from ringwright.ground.stepwise import Advance
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

SCHEMA = "ringwright.together/1"
AXES = "--groups tp=8,dp=2: the first runs fastest, the product is the number of ranks"
CALL = "--beside 'all-reduce 1G on dp'"


@dataclass(frozen=True)
class GroupCall:
    """A collective that every group along an axis does: ``groups`` are ranks of the machine."""

    op: str
    size_bytes: int
    axis: str
    groups: tuple[tuple[int, ...], ...]

    @property
    def label(self) -> str:
        """What it is, for people."""
        return f"{self.op} in {len(self.groups):,} groups of {len(self.groups[0]):,} along {self.axis}"

    def collectives(self) -> list[Collective]:
        """Return the collective of each group; a root is its first rank."""
        return [Collective(self.op, group, self.size_bytes) for group in self.groups]


@dataclass(frozen=True)
class GroupRow:
    """When the groups of a call are done, the last of them: microseconds from the common start.

    ``alone_us``: planned alone, with nothing else on the machine; ``beside_us``: planned alone, all calls at the same time;
    ``together_us``: planned as one.
    """

    op: str
    size_bytes: int
    axis: str
    groups: int
    ranks: int
    alone_us: float
    beside_us: float
    together_us: float
    verified: bool | None


@dataclass(frozen=True)
class SharedMachine:
    """Calls at the same time on one machine: when all are done, by both plans, beside what no plan is faster than."""

    asked: AskedOf
    fabric: str
    link_model: str
    rows: tuple[GroupRow, ...]
    apart_us: float
    together_us: float
    bound: JointBound
    forest_us: float
    least_us: float
    stopped: bool
    programs: tuple[Program, ...] = field(repr=False)

    @property
    def best_us(self) -> float:
        """When all are done by the better plan."""
        return min(self.apart_us, self.together_us)

    @property
    def gap(self) -> float:
        """The better plan's time over the bound, less one."""
        return self.best_us / (self.bound.time_s * 1e6) - 1 if self.bound.time_s else 0.0

    @property
    def verdict(self) -> str:
        """What planning together gains, in a sentence."""
        saves = 1 - self.together_us / self.apart_us if self.apart_us else 0.0
        both = f"{self.together_us:,.2f} us instead of {self.apart_us:,.2f} us"
        if saves >= WORTH:
            return f"plan together: all are done after {both}, {saves:.1%} less"
        if saves > 0:
            return f"plan each group alone: together saves {saves:.1%}, less than {WORTH:.0%} ({both})"
        return f"plan each group alone: together is no faster ({both})"

    def document(self) -> dict[str, object]:
        """Return the object of schema ``ringwright.together/1``."""
        facts = asdict(self.bound)
        return {
            "schema": SCHEMA,
            "asked": self.asked,
            "fabric": self.fabric,
            "link_model": self.link_model,
            "rows": [asdict(row) for row in self.rows],
            "apart_us": self.apart_us,
            "together_us": self.together_us,
            "bound_us": self.bound.time_s * 1e6,
            "gap": self.gap,
            "certificate": {name: value for name, value in facts.items() if name != "time_s"},
            "forest_us": self.forest_us,
            "least_us": self.least_us,
            "verdict": self.verdict,
            "stopped": self.stopped,
            "ground": {
                "engine": ["events"],
                "link_model": self.link_model,
                "left_out": ["what a library's software adds to a message", "that calls begin at different times"],
                "bound": "all collectives across each of the cuts tried, from the links' rates and latencies alone",
                "least": "what the linear program proves for trees of these groups over the machine's routes",
            },
        }


def grouped(axes: str, ranks: Sequence[int]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return the groups along each axis of ``tp=8,dp=2`` over ranks: the first axis runs fastest.

    Raises UsageError where the text is not understood, or the product is not the number of ranks.
    """
    sizes: dict[str, int] = {}
    for part in axes.split(","):
        name, equals, digits = part.strip().partition("=")
        if not name or not equals or not digits.isdecimal() or int(digits) < 1 or name in sizes:
            raise UsageError(f"'{part}' is no axis and its size", where=f"groups '{axes}'", remedy=AXES)
        sizes[name] = int(digits)
    if math.prod(sizes.values()) != len(ranks):
        raise UsageError(
            f"{' x '.join(map(str, sizes.values()))} is not {len(ranks):,} ranks", where=f"groups '{axes}'", remedy=AXES
        )
    made: dict[str, tuple[tuple[int, ...], ...]] = {}
    stride = 1
    for name, size in sizes.items():
        first = [at for at in range(len(ranks)) if at // stride % size == 0]
        made[name] = tuple(tuple(ranks[at + step * stride] for step in range(size)) for at in first)
        stride *= size
    return made


def call(text: str, groups: dict[str, tuple[tuple[int, ...], ...]]) -> GroupCall:
    """Return what ``all-reduce 1G on dp`` asks for; raise UsageError where that is not understood."""
    words = text.split()
    if len(words) != 4 or words[2] != "on":
        raise UsageError(f"'{text}' is no collective, size and axis", remedy=CALL)
    if words[3] not in groups:
        raise UsageError(f"no axis is named '{words[3]}'", where=f"'{text}'", remedy=f"one of: {', '.join(groups)}")
    return GroupCall(words[0], parse_size(words[1]), words[3], groups[words[3]])


def share(
    calls: Sequence[GroupCall],
    topology: Topology,
    *,
    link_model: str = "pipelined",
    seed: int = 0,
    budget_s: float | None = None,
    progress: Advance | None = None,
) -> SharedMachine:
    """Plan all groups of some calls, each alone and all as one, and run both plans at the same time on one machine.

    Raises UsageError for an operation without trees, InfeasibleError where data cannot get where they must.
    """
    collectives = [each for call in calls for each in call.collectives()]
    owner = [at for at, call in enumerate(calls) for _ in call.groups]
    alpha, total = ALPHA_OF[link_model], len(collectives) + 1
    bound = joint_bound(collectives, topology, alpha=alpha)
    alone: list[Program] = []
    for number, each in enumerate(collectives):
        if progress is not None:
            progress(number, total, each.label)
        alone.append(forest(each, topology, link_model=link_model, seed=seed, budget=budget_s))  # type: ignore[arg-type]
    if progress is not None:
        progress(total - 1, total, "all as one")
    joint = planned(collectives, topology, link_model=link_model, seed=seed, budget_s=budget_s)
    alone_us = [simulate(each, topology, alpha=alpha).time_s * 1e6 for each in alone]
    beside_us, together_us = (
        (simulate_together(programs, topology, alpha).ends_ps / 1e6).tolist() for programs in (alone, joint.programs)
    )
    rows = []
    for at, call in enumerate(calls):
        mine = [number for number, each in enumerate(owner) if each == at]
        alone_last, beside_last, together_last = (
            max(times[number] for number in mine) for times in (alone_us, beside_us, together_us)
        )
        proved = [is_right(joint.programs[number], topology) for number in mine]
        verified = False if False in proved else None if None in proved else True
        facts = call.op, call.size_bytes, call.axis, len(mine), len(call.groups[0])
        rows.append(GroupRow(*facts, alone_last, beside_last, together_last, verified))
    if progress is not None:
        progress(total, total, "")
    return SharedMachine(
        asked_of(topology, seed=seed),
        topology.name,
        link_model,
        tuple(rows),
        max(beside_us),
        max(together_us),
        bound,
        joint.forest_s * 1e6,
        joint.least_s * 1e6,
        joint.stopped or any(each.knobs.get("stopped") for each in alone),
        tuple(joint.programs if max(together_us) <= max(beside_us) else alone),
    )
