"""Whether learnt times tell which of two measured alternatives is faster: node counts and settings of one system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.costs.learnt.trusted import MeasuredCall, chance, joint

if TYPE_CHECKING:
    from ringwright.costs.learnt import Prior

APART = (1.2, 2.0)  # measured ratios from which on a pair counts
SURE = 0.75  # chance from which on a pair is decided


def choices(
    asked: Sequence[MeasuredCall], own: Mapping[str, Sequence[MeasuredCall]], prior: Prior
) -> list[Mapping[str, Any]]:
    """Return for each ratio how many pairs there are, the share that is decided, and the share of these that is right.

    A pair is two tables of one system and operation at one size, measured ``apart`` times apart or more. It is decided where
    the chance that one is faster is 75 %; what both err by in common cancels. ``own`` holds tables that may be learnt from, by
    system.
    """
    counts = {apart: np.zeros(3, int) for apart in APART}
    for owner in dict.fromkeys(each.call.owner for each in asked):
        mine = [each for each in asked if each.call.owner == owner]
        together = joint([each.call for each in mine], own.get(owner, ()), prior)
        sizes = [(each.call.op, size) for each in mine for size in each.call.sizes_bytes]
        measured = np.log([time_s for each in mine for time_s in each.times_s])
        alike: dict[tuple[str, int], list[int]] = defaultdict(list)
        for at, key in enumerate(sizes):
            alike[key].append(at)
        for rows in map(np.array, alike.values()):
            if len(rows) > 1:
                one, other = np.triu_indices(len(rows), 1)
                above, sigma = (each[one, other] for each in together.apart(rows))
                truth = measured[rows][one] - measured[rows][other]
                _count(counts, truth, chance(above, sigma))
    return [
        {
            "apart": apart,
            "pairs": int(pairs),
            "decided": float(decided / pairs) if pairs else None,
            "right": float(right / decided) if decided else None,
        }
        for apart, (pairs, decided, right) in counts.items()
    ]


def _count(counts: dict[float, np.ndarray], truth: np.ndarray, slower: np.ndarray) -> None:
    """Add pairs, decided ones and right ones to the counts of each ratio."""
    is_decided = np.maximum(slower, 1 - slower) >= SURE
    right = is_decided & ((slower > 0.5) == (truth > 0))
    for apart in counts:
        wanted = np.abs(truth) >= np.log(apart)
        counts[apart] += np.array([wanted.sum(), (wanted & is_decided).sum(), (wanted & right).sum()])
