"""What an operation is made of on a fabric: its phases, what is done in each, and the groups that do it at the same time."""

from __future__ import annotations

import math

from ringwright.model.stages import hops_of
from ringwright.model.workload import SHIFTS

RING, COPY = "send-recv", "copy"


def phases_of(
    op: str, size_bytes: int, ranks: tuple[int, ...]
) -> list[tuple[str, int, tuple[tuple[int, ...], ...], str]]:
    """Return the phases of an operation: what is done, its size, the groups that do it at the same time, and the phase's name."""
    if op == "push-pull":
        halves = (("reduce-scatter", "push"), ("all-gather", "pull"))
        return [(each, size_bytes, (ranks,), phase) for each, phase in halves]
    if op == "factors":
        return [("all-gather", size_bytes * len(ranks), (ranks,), "")]
    kind, hops = hops_of(op)
    if kind in SHIFTS:
        return [(RING if kind == "shift" else COPY, size_bytes, tuple(rounds_of(ranks, hops)), "")]
    return [(op, size_bytes, (ranks,), "")]


def parts_of(op: str) -> tuple[str, ...]:
    """Return what is done in each phase of an operation."""
    return tuple(each[0] for each in phases_of(op, 1, (0, 1)))


def rounds_of(ranks: tuple[int, ...], hops: int) -> list[tuple[int, ...]]:
    """Return the ranks in rounds, each of which sends to the next one of its round: that from which it is ``hops`` away."""
    many = len(ranks)
    rounds = math.gcd(hops, many)
    return [tuple(ranks[(first - hops * at) % many] for at in range(many // rounds)) for first in range(rounds)]
