"""The levels of a machine as a group of ranks sees them.

Levels are the fabric's axes where the group fills a part of their grid, else hosts of equally many ranks, else one level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

FLAT = "rank"


@dataclass(frozen=True)
class MachineLevels:
    """Names and sizes of the levels above one device, outermost first; ``order`` lists the group's members by their digits.

    ``order`` is int64 of shape (members,): the place in the group of each device, the last level fastest.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    order: np.ndarray


def levels_of(topology: Topology | None, group: Sequence[int]) -> MachineLevels:
    """Return the levels of a group on a machine."""
    ranks = np.asarray(group, np.int64)
    flat = MachineLevels((FLAT,), (len(ranks),), np.arange(len(ranks)))
    if topology is None or len(ranks) == 1:
        return flat
    for names, digits in _digits(topology, ranks):
        if (made := _filled(names, digits)) is not None:
            return made
    return flat


def _digits(topology: Topology, ranks: np.ndarray) -> list[tuple[list[str], list[np.ndarray]]]:
    """Return the digits of the ranks, outermost first: along the fabric's axes, or host and number within it."""
    choices, names, digits, stride = [], [], [], 1
    if math.prod(size for _, size in topology.axes) == topology.n_ranks:
        for name, size in topology.axes:
            names.append(name)
            digits.append(ranks // stride % size)
            stride *= size
        choices.append((names[::-1], digits[::-1]))
    if topology.hosts is not None:
        host = np.asarray(topology.hosts, np.int64)[ranks]
        within = np.array([int((host[:at] == host[at]).sum()) for at in range(len(host))], np.int64)
        choices.append((["host", FLAT], [host, within]))
    return choices


def _filled(names: Sequence[str], digits: Sequence[np.ndarray]) -> MachineLevels | None:
    """Return the levels where the ranks are all of a grid of their digits; None where they are not."""
    sizes = [len(np.unique(digit)) for digit in digits]
    if math.prod(sizes) != len(digits[0]):
        return None
    wide = [at for at, size in enumerate(sizes) if size > 1]
    order = np.lexsort([digits[at] for at in reversed(wide)])
    return MachineLevels(tuple(names[at] for at in wide), tuple(sizes[at] for at in wide), order)


def given_levels(factors: Sequence[int], p: int) -> MachineLevels:
    """Return levels of these sizes, fastest first, for ranks in their own order; UsageError where they do not make p."""
    if math.prod(factors) != p or min(factors, default=1) < 1:
        raise UsageError(
            f"the product of the factors {'x'.join(map(str, factors))} is not {p}, the number of ranks",
            remedy="factors=8x16: 16 hosts of 8 ranks",
        )
    sizes = tuple(size for size in reversed(factors) if size > 1)
    return MachineLevels(tuple(f"level{at}" for at in reversed(range(len(sizes)))), sizes, np.arange(p))
