"""Operations of which a recording has none, such as both halves of an all-reduce: taken to last as long as their bytes say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.costs.measured import MeasuredCosts, NotMeasuredError
from ringwright.costs.stages import VOLUME, Stage
from ringwright.studies.jobs.recorded import Changed

if TYPE_CHECKING:
    from ringwright.costs.stages import Costs
    from ringwright.studies.jobs.study import PolicyResult


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


def measured_of(costs: Costs) -> LikenedCosts | None:
    """Return the measured times that costs rest on; None where they are simulated."""
    inner = costs.measured if isinstance(costs, Changed) else costs
    return inner if isinstance(inner, LikenedCosts) else None


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
