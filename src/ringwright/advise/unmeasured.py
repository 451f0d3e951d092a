"""Operations of which a recording has none, such as both halves of an all-reduce: taken to last as long as their bytes say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ringwright.costs.measured import MeasuredCosts, NotMeasuredError
from ringwright.costs.stages import VOLUME, Stage

SEND = "send-recv"


@dataclass(frozen=True)
class LikenedCosts:
    """Measured times; an operation that was not measured takes those of one that was, by the bytes that leave the busiest rank.

    ``likened`` collects what was asked for that was not measured: operation -> the one that stands for it.
    """

    measured: MeasuredCosts
    likened: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases; NotMeasuredError where nothing stands for the operation."""
        try:
            return self.measured.stages(op, size_bytes, ranks, role)
        except NotMeasuredError:
            other = self._like(op)
            if other is None:
                raise
        self.likened[op] = other
        p = max(2, len(ranks))
        share = VOLUME[op](p) / VOLUME[other](p)
        return tuple(
            replace(each, wire_s=each.wire_s * share, latency_s=each.latency_s * share)
            for each in self.measured.stages(other, size_bytes, ranks, role)
        )

    def _like(self, op: str) -> str | None:
        """Return the measured operation of most bytes whose volume is known as well; None where there is none."""
        if op not in VOLUME:
            return None
        known = {each.op: 0 for each in self.measured.samples if each.op in VOLUME}
        for each in self.measured.samples:
            if each.op in known:
                known[each.op] += each.size_bytes
        return max(known, key=lambda each: (known[each], each), default=None)
