"""How long a plan should take, from what the probes measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.algorithms.published.plink.probing import Probes

ALIKE = 0.1  # rates that differ by less are taken as equal


def shares(group: Sequence[int], probes: Probes) -> np.ndarray:
    """Return which part of the data each member adds up: in proportion to its measured rate within the group.

    float64 of shape (members,), which add up to 1.
    """
    m = len(group)
    if m == 1:
        return np.ones(1)
    rate = (m - 1) / probes.slowness[np.ix_(group, group)].sum(axis=1)
    if rate.max() <= rate.min() * (1 + ALIKE):
        return np.full(m, 1 / m)
    return np.asarray(rate / rate.sum())


def plan_time_s(groups: Sequence[Sequence[int]], probes: Probes, size_bytes: float) -> float:
    """Return the seconds of both ways: sharded reduction inside each group, then between owners of the same shard."""
    k = len(groups)
    inside = max((_inside_s(group, probes, size_bytes) for group in groups), default=0.0)
    if k == 1:
        return 2 * inside
    across = max(_across_s(group, probes, size_bytes, k) for group in groups)
    return 2 * (inside + across)


def _inside_s(group: Sequence[int], probes: Probes, size_bytes: float) -> float:
    m = len(group)
    if m == 1:
        return 0.0
    members = np.ix_(group, group)
    slowness, share = probes.slowness[members], shares(group, probes)
    sends, receives = slowness @ share, slowness.sum(axis=0) * share
    latency = float(np.median(probes.latency_s[members][~np.eye(m, dtype=bool)]))
    return (m - 1) * latency + size_bytes * float(max(sends.max(), receives.max()))


def _across_s(group: Sequence[int], probes: Probes, size_bytes: float, k: int) -> float:
    others = np.setdiff1d(np.arange(len(probes.rate)), group)
    between = np.ix_(np.asarray(group), others)
    busiest = float((probes.slowness[between].mean(axis=1) * shares(group, probes)).max())
    return (k - 1) * float(np.median(probes.latency_s[between])) + size_bytes * (k - 1) / k * busiest
