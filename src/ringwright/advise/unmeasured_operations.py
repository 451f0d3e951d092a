"""Operations of which a recording has none, such as both halves of an all-reduce: taken to last as long as their bytes say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.costs.measured_costs import MeasuredCosts, NotMeasuredError
from ringwright.jobs.recorded_job import Changed, below_recorded
from ringwright.model.rewrites.operations import operations
from ringwright.model.stages import VOLUME, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.jobs.study import PolicyResult
    from ringwright.model.stages import Costs
    from ringwright.model.workload import Workload


@dataclass(frozen=True)
class LikenedCosts:
    """Measured times; an operation that was not measured takes those of one that was, by the bytes of the busiest rank."""

    measured: MeasuredCosts

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases; NotMeasuredError where nothing stands for the operation."""
        try:
            return self.measured.stages(op, size_bytes, ranks, role)
        except NotMeasuredError:
            other = self.stands_for(op)
            if other is None:
                raise
        p = max(2, len(ranks))
        share = VOLUME[op](p) / VOLUME[other](p)
        return tuple(
            replace(each, wire_s=each.wire_s * share, latency_s=each.latency_s * share)
            for each in self.measured.stages(other, size_bytes, ranks, role)
        )

    def stands_for(self, op: str) -> str | None:
        """Return the operation whose times an operation takes: itself, or the measured one of most bytes; None for neither."""
        if op in self.measured.lines or op not in VOLUME:
            return op if op in self.measured.lines else None
        known = {each.op: 0 for each in self.measured.samples if each.op in VOLUME}
        for each in self.measured.samples:
            if each.op in known:
                known[each.op] += each.size_bytes
        return max(known, key=lambda each: (known[each], each), default=None)


@dataclass(frozen=True)
class MendedLinks:
    """Measured times without a slow link: operations over it take so many ``times`` less for their bytes, and as long to begin.

    ``slow`` are the ranks behind it, ``host_of`` the hosts of ranks where they are known: what stays in one host does not use it.
    """

    measured: LikenedCosts
    slow: tuple[int, ...]
    times: float
    host_of: Mapping[int, str]

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases."""
        stages = self.measured.stages(op, size_bytes, ranks, role)
        hosts = {self.host_of.get(rank, str(rank)) for rank in ranks}
        if len(hosts) < 2 or not set(self.slow).intersection(ranks):
            return stages
        known = self.measured.measured
        begin_s = known.lines[op][0] if op in known.lines else 0.0
        return tuple(
            replace(each, wire_s=min(each.wire_s, begin_s + (each.wire_s - begin_s) / self.times)) for each in stages
        )


def measured_of(costs: Costs) -> LikenedCosts | None:
    """Return the measured times that costs rest on; None where they are simulated."""
    while isinstance(costs, Changed | MendedLinks):
        costs = costs.measured
    return costs if isinstance(costs, LikenedCosts) else None


def too_small(costs: Costs, plan: Workload) -> str:
    """Say that most bytes of a step go in pieces far below all that was recorded, of which nothing tells what one takes; else "".

    What any piece takes, however small, is added up over all of them: a step of many may last many times as long.
    """
    known = measured_of(costs)
    if known is None:
        return ""
    said = below_recorded(operations(plan), known.measured, known.stands_for)
    return f"{said}; record a run with pieces of such a size" if said else ""


def told_unmeasured(result: PolicyResult) -> tuple[str, ...]:
    """Say which operations of a step the recording does not have: of another size, or none of their kind; nothing of a model."""
    known = measured_of(result.costs)
    if known is None:
        return ()
    sent = result.undisturbed.laid.operations
    sizes = [
        each for each in sent if any((each.op, size, each.role) not in known.measured.exact for size in each.sizes())
    ]
    other = {each.op: known.stands_for(each.op) for each in sent if each.op not in known.measured.lines}
    told = [f"{len(sizes)} of {len(sent)} operations are of sizes that were not recorded"] if sizes else []
    return (
        *told,
        *(f"no {op} was recorded: {like} stands for it by its bytes" for op, like in sorted(other.items()) if like),
    )
