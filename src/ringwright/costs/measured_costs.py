"""Costs of operations from measured times: what a recording says, not what a simulated fabric gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ringwright.ground.errors import UsageError
from ringwright.model.stages import Stage

NOT_SHARED = ("send-recv",)  # what else was under way is in its time, which nobody has divided
LATENCY_TOLD = 2  # times the smallest size, from which on a line through sizes is more than what one of them was off by


class NotMeasuredError(UsageError):
    """Of an operation no time was measured."""


@dataclass(frozen=True)
class MeasuredOperation:
    """One measured operation."""

    op: str
    size_bytes: int
    role: str
    time_s: float
    communicator: str = ""  # what it shares with other operations: two on one communicator halve each other's rate


@dataclass(frozen=True)
class MeasuredCosts:
    """An operation takes the mean of what operations of its kind, role and size took.

    For sizes that were not measured (after a scheduler cut or joined operations) a line of latency and rate is laid through
    the measured sizes of the kind, or one of rate alone where they are nearly one size, which tells no latency. Below the
    smallest of them a piece takes its share of that one's time, for what a recording shows at that end is waiting as much as
    latency. Exact for the sizes measured, a guess for others. What else was under way is in the measured times, so operations
    of different communicators do not slow each other once more, nor messages at all. How far one operation took longer than the
    mean is known of its payload (``disturbed``).
    """

    samples: tuple[MeasuredOperation, ...]
    exact: dict[tuple[str, int, str], float] = field(default_factory=dict)
    lines: dict[str, tuple[float, float, int]] = field(default_factory=dict)  # s, s per byte, smallest size
    communicators: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Iterable[MeasuredOperation]) -> MeasuredCosts:
        """Return the costs of some measured operations; UsageError where there is none."""
        kept = tuple(samples)
        if not kept:
            raise UsageError("no operation was measured", remedy="name a fabric, or record with times")
        sums: dict[tuple[str, int, str], list[float]] = {}
        for each in kept:
            sums.setdefault((each.op, each.size_bytes, each.role), []).append(each.time_s)
        exact = {key: sum(times) / len(times) for key, times in sums.items()}
        ops = dict.fromkeys(each.op for each in kept)
        lines = {op: _line([each for each in kept if each.op == op]) for op in ops}
        return cls(kept, exact, lines, {each.role: each.communicator for each in reversed(kept)})

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase; NotMeasuredError for an operation of which none was measured."""
        communicator = "" if op in NOT_SHARED else self.communicators.get(role, "")
        loads = ((f"communicator {communicator}", 1.0),) if communicator else ()
        known = self.exact.get((op, size_bytes, role))
        if known is not None:
            return (Stage(known, loads=loads),)
        if op not in self.lines:
            raise NotMeasuredError(
                f"no {op} was measured", where=f"{size_bytes} B among {len(ranks)} ranks", remedy="name a fabric"
            )
        latency_s, s_per_byte, least = self.lines[op]
        share = min(1.0, size_bytes / least)
        return (Stage((latency_s + s_per_byte * max(size_bytes, least)) * share, loads=loads),)


def tell_latency(sizes: Iterable[int]) -> bool:
    """Return whether operations of these sizes, bytes, tell a latency apart from a rate: the largest is twice the smallest."""
    known = set(sizes)
    return bool(known) and max(known) >= LATENCY_TOLD * min(known)


def _line(samples: list[MeasuredOperation]) -> tuple[float, float, int]:
    """Return (s, s per byte, smallest size) of the least squares line, neither of the first two below 0."""
    n, least = len(samples), max(1, min(each.size_bytes for each in samples))
    mean_size = sum(each.size_bytes for each in samples) / n
    mean_time = sum(each.time_s for each in samples) / n
    spread = sum((each.size_bytes - mean_size) ** 2 for each in samples)
    slope = sum((s.size_bytes - mean_size) * (s.time_s - mean_time) for s in samples) / spread if spread else 0.0
    intercept = mean_time - slope * mean_size
    # One size, or nearly; or larger ones were not slower: all of it by rate.
    if slope <= 0 or intercept < 0 or not tell_latency(each.size_bytes for each in samples):
        return 0.0, mean_time / max(mean_size, 1.0), least
    return intercept, slope, least
