"""Patterns: how numbers depend on the axes of a block's range, read off an affine field or recognised in a list.

A value is base + sum of weight * ((slope * i_axis + offset) mod modulus) over digits. Unlike in a program's affine fields,
several digits may run along one axis: what rank r sends to its successor in an all-to-all is chunk r * p + (r + 1) mod p.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ringwright.model.program import Affine

if TYPE_CHECKING:
    import numpy as np

MOST_STEPS = 4  # different ones, of a list that is looked at
SHORT = 64  # values


class AxisTerm(NamedTuple):
    """One digit, its offset left out."""

    axis: int
    slope: int
    modulus: int
    weight: int

    @property
    def runs(self) -> bool:
        """Whether the value changes along the axis at all."""
        return self.weight != 0 and self.slope % self.modulus != 0


@dataclass(frozen=True, slots=True)
class IndexPattern:
    """Digits, an offset for each, and a base."""

    parts: tuple[AxisTerm, ...]
    offsets: tuple[int, ...]
    base: int

    def on(self, axis: int) -> list[int]:
        """Return the numbers of the digits that run along an axis."""
        return [number for number, part in enumerate(self.parts) if part.axis == axis and part.runs]

    def at(self, rows: np.ndarray) -> np.ndarray:
        """Return the values at rows of indices. int64 of shape (rows,)."""
        import numpy as np

        total = np.full(len(rows), self.base, np.int64)
        for part, offset in zip(self.parts, self.offsets, strict=True):
            total += part.weight * ((part.slope * rows[:, part.axis] + offset) % part.modulus)
        return total


def recognised(field: Affine | np.ndarray) -> IndexPattern | None:
    """Return the pattern of a block's field, None where a list has none that is known here."""
    if not isinstance(field, Affine):
        return recognise(field)
    parts = tuple(
        [AxisTerm(axis, slope, modulus, weight) for axis, (slope, _, modulus, weight) in enumerate(field.digits)]
    )
    return IndexPattern(parts, tuple([digit[1] for digit in field.digits]), field.base)


def recognise(values: np.ndarray) -> IndexPattern | None:
    """Return the pattern of a list as long as its digits' modulus: each digit grows by its weight and wraps once."""
    n = len(values)
    if n == 0:
        return None
    if n <= SHORT:
        return _recognised_short(values.tolist())
    import numpy as np

    steps = np.roll(values, -1) - values  # from each to the next, the last to the first
    usual, counts = np.unique(steps, return_counts=True)
    if len(usual) > MOST_STEPS:
        return None
    for step in usual[np.argsort(-counts, kind="stable")].tolist():
        wraps = np.flatnonzero(steps != step)
        pattern = _wraps(n, int(values[0]), wraps.tolist(), (step - steps[wraps]).tolist())
        if pattern is not None and np.array_equal(pattern.at(np.arange(n)[:, None]), values):
            return pattern
    return None


def _recognised_short(values: list[int]) -> IndexPattern | None:
    """Return the same of few values, for which arrays take longer than numbers."""
    n = len(values)
    steps = [after - before for before, after in zip(values, [*values[1:], values[0]], strict=True)]
    counts = Counter(steps)
    if len(counts) > MOST_STEPS:
        return None
    for step, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        wraps = [at for at, each in enumerate(steps) if each != step]
        pattern = _wraps(n, values[0], wraps, [step - steps[at] for at in wraps])
        if pattern is None:
            continue
        digits = [(part.weight, offset) for part, offset in zip(pattern.parts, pattern.offsets, strict=True)]
        if all(
            pattern.base + sum(weight * ((at + offset) % n) for weight, offset in digits) == value
            for at, value in enumerate(values)
        ):
            return pattern
    return None


def _wraps(n: int, first: int, wraps: list[int], fallen: list[int]) -> IndexPattern | None:
    """Return the digits that wrap at some of ``n`` values, where they fall by so much; ``first`` is the first value."""
    if any(drop % n for drop in fallen) or len(wraps) > 3:
        return None
    parts, offsets, base = [], [], first
    for at, drop in zip(wraps, fallen, strict=True):
        weight, offset = drop // n, -(at + 1) % n
        if weight < 0:
            return None
        parts.append(AxisTerm(0, 1, n, weight))
        offsets.append(offset)
        base -= weight * offset
    return IndexPattern(tuple(parts), tuple(offsets), base)
