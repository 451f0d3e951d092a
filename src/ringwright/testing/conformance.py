"""The conformance suite for algorithms of your own: ``check_algorithm(my_algorithm, ops=("all-reduce",))``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ringwright.contracts.algorithm import FABRICS, GROUP_SIZES, SIZES, Case, Outcome, examine

if TYPE_CHECKING:
    from ringwright.program import Program

__all__ = ["Case", "Outcome", "check_algorithm"]


def check_algorithm(
    algorithm: Callable[..., Program],
    ops: Sequence[str],
    *,
    group_sizes: Sequence[int] = GROUP_SIZES,
    sizes: Sequence[str] = tuple(SIZES),
    fabrics: Sequence[str] = FABRICS,
) -> list[Outcome]:
    """Return the outcome of every check for every collective, group size, buffer size and fabric."""
    name = getattr(algorithm, "__name__", "algorithm").replace("_", "-")
    return [
        examine(Case(name, op, p, size, fabric), algorithm)
        for op in ops
        for p in group_sizes
        for size in sizes
        for fabric in fabrics
    ]
