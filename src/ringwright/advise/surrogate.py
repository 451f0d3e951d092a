"""What setups that were not simulated probably take, learnt from those that were: a Gaussian process over settings.

Two setups are alike as far as the settings of their slots are: the same setting, one system with near numbers, or different
systems. Half of what is told adds up over slots, half is of all of them together, so that settings which help only with each
other are found. What a bound says is where it begins from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringwright.advise.settings import Setting, Setup

OCTAVES = 2.0  # by which a knob differs for settings to be half alike
OTHER_WORDS, OTHER_SYSTEM = 0.85, 0.25  # how alike settings are whose words, or whose system, differ
LEAST_SPREAD = 0.02  # of logarithms of steps
NOISE = 1e-6


@dataclass(frozen=True)
class Likeness:
    """How alike settings are: per slot the number of each setting (0: as today), and a matrix float64 (settings, settings)."""

    slots: tuple[str, ...]
    numbers: tuple[dict[str, int], ...]
    matrices: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, slots: dict[str, tuple[Setting, ...]]) -> Likeness:
        """Return it for what may be set."""
        numbers = tuple({each.spelling: at + 1 for at, each in enumerate(listed)} for listed in slots.values())
        matrices = tuple(
            np.array([[_alike(a, b) for b in (None, *listed)] for a in (None, *listed)]) for listed in slots.values()
        )
        return cls(tuple(slots), numbers, matrices)

    def rows(self, setups: Sequence[Setup]) -> np.ndarray:
        """Return setups as numbers of their settings: int64 of shape (setups, slots)."""
        rows = [
            [known.get(each.spelling(slot), 0) for slot, known in zip(self.slots, self.numbers, strict=True)]
            for each in setups
        ]
        return np.array(rows, np.int64).reshape(len(setups), len(self.slots))

    def between(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return how alike rows are: float64 of shape (left, right), from 0 to 1."""
        if not self.slots:
            return np.ones((len(left), len(right)))
        each = np.array([matrix[np.ix_(left[:, at], right[:, at])] for at, matrix in enumerate(self.matrices)])
        return np.asarray(0.5 * each.mean(axis=0) + 0.5 * each.prod(axis=0))


def _alike(a: Setting | None, b: Setting | None) -> float:
    if a is None or b is None:
        return 1.0 if a is b else OTHER_SYSTEM
    if a.spelling == b.spelling:
        return 1.0
    if a.system != b.system or a.layer != b.layer:
        return OTHER_SYSTEM
    if not a.numbers or a.numbers.keys() != b.numbers.keys():
        return OTHER_WORDS
    apart = math.sqrt(sum((a.numbers[name] - b.numbers[name]) ** 2 for name in a.numbers)) / OCTAVES
    return max(OTHER_SYSTEM, math.exp(-math.log(2) * apart))


@dataclass(frozen=True)
class Guess:
    """Of each row: the mean of the step's logarithm, and its standard deviation. float64 of shape (rows,)."""

    mean: np.ndarray
    sigma: np.ndarray

    def improvement(self, best: float) -> np.ndarray:
        """Return by how much the logarithm is expected to fall below ``best``. float64 of shape (rows,)."""
        ahead = best - self.mean
        scaled = np.divide(ahead, self.sigma, out=np.zeros_like(ahead), where=self.sigma > 0)
        density = np.exp(-0.5 * scaled**2) / math.sqrt(2 * math.pi)
        below = 0.5 * (1 + np.array([math.erf(each / math.sqrt(2)) for each in scaled.tolist()]))
        return np.where(self.sigma > 0, ahead * below + self.sigma * density, np.maximum(ahead, 0.0))


def guessed(
    likeness: Likeness, known: np.ndarray, steps: np.ndarray, begins: np.ndarray, asked: np.ndarray, begin: np.ndarray
) -> Guess:
    """Return what rows ``asked`` probably take, given logarithms ``steps`` of rows ``known``.

    ``begins`` and ``begin`` are where known and asked rows begin from, logarithms: those of their bounds.
    """
    residual = steps - begins
    middle = float(residual.mean())
    spread = max(LEAST_SPREAD, float(residual.std()))
    among = likeness.between(known, known) + NOISE * np.eye(len(known))
    across = likeness.between(asked, known)
    solved = np.linalg.solve(among, residual - middle)
    explained = np.einsum("ij,ji->i", across, np.linalg.solve(among, across.T))
    sigma = spread * np.sqrt(np.maximum(1.0 - explained, 0.0))
    return Guess(begin + middle + across @ solved, sigma)
