"""The parts of which the learnt factor is the sum, each a Gaussian process with a variance of its own, and their covariances.

A part belongs to a level: all systems share it, or an owner (a system), one of its settings, or one table has it to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ringwright.costs.learnt.call import NUMBERS, WHERE, Points
from ringwright.costs.transports import MEDIA, NVLINK

LEVELS = ("shared", "owner", "setting", "table")
WIDE, MIDDLE = 4.0, 2.0  # of ln size, over which a part changes
FAR = 1.5  # of ln nodes
EARLY_BYTES, EARLY_WIDTH = 4 << 20, 1.2  # where latency ends to count, and over how much of ln size
SMALL_BYTES, LARGE_BYTES = 64 << 10, 64 << 20
BLOCK = 1 << 15  # pairs of points that are taken together: what is made of them stays in a core's cache

Covariance = np.ndarray


@dataclass
class CovarianceFactors:
    """What covariances of two sets of points are products of: where they are alike, and how near in size and nodes they lie."""

    one: Points
    other: Points
    _alike: dict[tuple[str, ...], np.ndarray] = field(default_factory=dict, repr=False)
    _near: dict[tuple[str, float], np.ndarray] = field(default_factory=dict, repr=False)

    def alike(self, names: tuple[str, ...]) -> np.ndarray:
        """Return which points have all of some fields in common. bool of shape (points of one, points of other)."""
        if names not in self._alike:
            *before, name = names
            made = getattr(self.one, name)[:, None] == getattr(self.other, name)[None]
            self._alike[names] = made & self.alike(tuple(before)) if before else made
        return self._alike[names]

    def near(self, name: str, width: float) -> np.ndarray:
        """Return how near points lie in a field, 1 where they are at one place. float64 of that shape."""
        if (name, width) not in self._near:
            apart = getattr(self.one, name)[:, None] - getattr(self.other, name)[None]
            self._near[name, width] = np.exp(-0.5 * (apart / width) ** 2)
        return self._near[name, width]


@dataclass(frozen=True)
class Part:
    """One part: alike where the fields of ``same`` are, smooth over ln size (``size``) and ln nodes (``nodes``).

    ``early``: only where latency counts. ``linear``: in proportion to ln nodes. ``number``: what a number of the machine does.
    """

    name: str
    level: str
    same: tuple[str, ...] = ("medium",)
    size: float = 0.0
    nodes: float = 0.0
    early: bool = False
    linear: bool = False
    number: int | None = None
    inside: bool | None = None  # in one node only, or between nodes only

    def covariance(self, factors: CovarianceFactors) -> Covariance:
        """Return the covariance at variance 1; ``factors`` are those of all parts. float64 of shape (points of one, of other)."""
        one, other = factors.one, factors.other
        made = np.ones((len(one), len(other)))
        for name, width in (("size", self.size), ("nodes", self.nodes)):
            if width:
                made *= factors.near(name, width)
        for weigh in self._weights():
            made *= weigh(one)[:, None] * weigh(other)[None]
        return made * factors.alike(self.same) if self.same else made

    def variance(self, points: Points) -> np.ndarray:
        """Return the diagonal of the covariance of points with themselves. float64 of shape (points,)."""
        made = np.ones(len(points))
        for weigh in self._weights():
            made *= weigh(points) ** 2
        return made

    def _weights(self) -> Iterable[Callable[[Points], np.ndarray]]:
        if self.early:
            yield lambda points: 1 / (1 + np.exp((points.size - np.log(EARLY_BYTES)) / EARLY_WIDTH))
        if self.linear:
            yield lambda points: points.nodes
        if self.number is not None:
            yield lambda points: points.follows[:, self.number or 0]
        if self.inside is not None:
            yield lambda points: ((points.medium == MEDIA.index(NVLINK)) == self.inside).astype(float)


def _made() -> Iterable[Part]:
    yield Part("all", "shared", ())
    yield Part("medium", "shared")
    yield Part("medium over size", "shared", size=WIDE)
    yield Part("medium by nodes", "shared", linear=True)
    yield Part("medium, early", "shared", size=WIDE, early=True)
    yield Part("operation", "shared", ("medium", "op"))
    yield Part("operation, early", "shared", ("medium", "op"), size=WIDE, early=True)
    yield Part("operation over size and nodes", "shared", ("medium", "op"), size=WIDE, nodes=FAR)
    yield Part("transport", "shared", ("transport",))
    yield Part("transport over size", "shared", ("transport",), size=WIDE)
    yield Part("transport over size and nodes", "shared", ("transport",), size=WIDE, nodes=FAR)
    yield Part("transport, early", "shared", ("transport",), size=WIDE, nodes=FAR, early=True)
    own = ("owner", "medium")
    yield Part("owner", "owner", own)
    yield Part("owner over size", "owner", own, size=WIDE)
    yield Part("owner by nodes", "owner", own, linear=True)
    yield Part("owner by operation", "owner", (*own, "op"))
    yield Part("owner by operation over size", "owner", (*own, "op"), size=MIDDLE)
    yield Part("owner over size and nodes", "owner", own, size=MIDDLE, nodes=FAR)
    yield Part("owner, early", "owner", own, size=MIDDLE, early=True)
    yield Part("owner by operation, early", "owner", (*own, "op"), size=MIDDLE, early=True)
    yield Part("owner over size and nodes, early", "owner", own, size=MIDDLE, nodes=FAR, early=True)
    mine = ("setting", "medium")
    yield Part("setting", "setting", mine)
    yield Part("setting over size", "setting", mine, size=WIDE)
    yield Part("setting over size and nodes", "setting", mine, size=MIDDLE, nodes=FAR)
    yield Part("setting by operation over size", "setting", (*mine, "op"), size=MIDDLE)
    yield Part("setting, early", "setting", mine, size=MIDDLE, early=True)
    for inside in (True, False):
        where = "in a node" if inside else "between nodes"
        yield Part(f"table {where}", "table", ("table",), inside=inside)
        yield Part(f"table over size {where}", "table", ("table",), size=WIDE, inside=inside)
    yield Part("table, early", "table", ("table",), size=MIDDLE, early=True)
    for level, same in (("shared", ("medium",)), ("owner", own), ("setting", mine)):
        for number in range(NUMBERS):
            yield Part(f"number {number}, {level}", level, same, number=number)


PARTS = tuple(_made())
SHARED_WEIGHTS = tuple(each for each in PARTS if each.level == "shared" and each.number is not None)
SHARED_CURVES = tuple(each for each in PARTS if each.level == "shared" and each.number is None)
OWN = tuple(each for each in PARTS if each.level != "shared")
# Scatter of single times: by what carries them, over Slingshot apart where few nodes take part, and by size.
_KINDS = ("nvlink", "slingshot", "tcp", "slingshot, few nodes", "other")
_REGIONS = ("small", "middle", "large")
_FEW = np.log(4.5)  # ln nodes
SCATTERS = tuple(f"{kind}, {region}" for kind in _KINDS for region in _REGIONS)


def summed(parts: Iterable[Part], variances: Mapping[str, float], one: Points, other: Points) -> Covariance:
    """Return the covariance of some parts together. float64 of shape (points of one, points of other)."""
    mine = [part for part in parts if variances[part.name]]
    made = np.zeros((len(one), len(other)))
    rows = max(1, BLOCK // max(1, len(other)))
    for first in range(0, len(one), rows):
        block = slice(first, first + rows)
        factors = CovarianceFactors(one.at(block), other)
        for part in mine:
            made[block] += variances[part.name] * part.covariance(factors)
    return made


def spread(parts: Iterable[Part], variances: Mapping[str, float], points: Points) -> np.ndarray:
    """Return the variance of some parts together at each point. float64 of shape (points,)."""
    made = np.zeros(len(points))
    for part in parts:
        made += variances[part.name] * part.variance(points)
    return made


def scatter_of(points: Points) -> np.ndarray:
    """Return which scatter each point has, an index into ``SCATTERS``; int64 of shape (points,)."""
    kinds = np.full(len(points), len(_KINDS) - 1)
    for at, name in enumerate(_KINDS[:3]):
        kinds[points.transport == WHERE[name]] = at
    kinds[(points.transport == WHERE["slingshot"]) & (points.nodes <= _FEW)] = 3
    small, large = points.size <= np.log(SMALL_BYTES), points.size >= np.log(LARGE_BYTES)
    return kinds * len(_REGIONS) + np.where(small, 0, np.where(large, 2, 1))


def scattered(variances: Mapping[str, float], points: Points) -> np.ndarray:
    """Return the variance of a single time at each point. float64 of shape (points,)."""
    each: np.ndarray = np.array([variances[name] for name in SCATTERS])[scatter_of(points)]
    return each
