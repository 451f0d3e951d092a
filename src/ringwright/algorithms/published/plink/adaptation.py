"""When the network changes: notice it, probe some pairs again, and swap hosts between groups while that helps."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.published.plink.prediction import plan_time_s
from ringwright.algorithms.published.plink.probing import Probes, probe, rounds

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

CHANGED = (
    0.7  # a host has changed whose rate is less than this times the old one, or the old one less than this times it
)


@dataclass
class Monitor:
    """Compares each round's time with the prediction, less the constant error that the first window shows.

    It triggers when the ratio has been above ``threshold`` for a whole window.
    """

    predicted_s: float
    window: int = 5
    threshold: float = 1.2
    _first: list[float] = field(default_factory=list, repr=False)
    _last: deque[float] = field(default_factory=deque, repr=False)

    def observe(self, measured_s: float) -> bool:
        """Take one round's time; return whether to adapt now."""
        ratio = measured_s / self.predicted_s
        if len(self._first) < self.window:
            self._first.append(ratio)
            return False
        self._last.append(ratio / median(self._first))
        if len(self._last) > self.window:
            self._last.popleft()
        return len(self._last) == self.window and min(self._last) > self.threshold


def adapted(
    groups: Sequence[Sequence[int]],
    probes: Probes,
    topology: Topology,
    ranks: Sequence[int],
    size_bytes: float,
    *,
    noise: float = 0.0,
    seed: int = 0,
    sample: float = 0.5,
) -> tuple[list[list[int]], Probes]:
    """Return groups and probes after measuring a sample of the rounds again."""
    fresh = refresh(probes, topology, ranks, noise=noise, seed=seed, sample=sample)
    return swap_hosts(groups, fresh, size_bytes), fresh


@dataclass(frozen=True)
class Watched:
    """The groups in the end, what is known of the network then, and what happened, in words."""

    groups: list[list[int]]
    probes: Probes
    said: str


def watch(
    groups: list[list[int]],
    probes: Probes,
    topology: Topology,
    collective: Collective,
    monitor: Monitor,
    *,
    noise: float = 0.0,
    seed: int = 0,
) -> Watched:
    """Watch three windows of rounds: the first on the network as it was probed, the others on it with all its faults.

    A round takes what the plan takes on the network as it is, with ``noise``, relative. Where the monitor triggers, half of
    the pairs are probed again and hosts are swapped while that helps.
    """
    size_bytes, ranks = collective.size_bytes, collective.group
    latest = topology.at(max((fault.time_s for fault in topology.faults), default=0.0))
    now = probe(latest, ranks)
    draw = np.random.default_rng(seed)
    predicted_s = plan_time_s(groups, probes, size_bytes)
    monitor.predicted_s = predicted_s
    for number in range(3 * monitor.window):
        real_s = plan_time_s(groups, probes if number < monitor.window else now, size_bytes)
        if not monitor.observe(real_s * (1 + noise * float(draw.uniform(-1, 1)))):
            continue
        regrouped, fresh = adapted(groups, probes, latest, ranks, size_bytes, noise=noise, seed=seed)
        moved = sum(len(set(new) - set(old)) for new, old in zip(regrouped, groups, strict=True))
        after = number + 1 - monitor.window
        return Watched(regrouped, fresh, f"adapted {after} rounds after the change, {moved} hosts moved")
    return Watched(groups, probes, "watched, nothing to adapt")


def refresh(old: Probes, topology: Topology, ranks: Sequence[int], *, noise: float, seed: int, sample: float) -> Probes:
    """Measure some rounds again; where a host's pairs have all changed, scale its other pairs alike."""
    total = len(rounds(len(ranks)))
    count = min(total, max(1, round(sample * total)))
    chosen = np.sort(np.random.default_rng(seed).permutation(total)[:count])
    seen = probe(topology, ranks, noise=noise, seed=seed, chosen=chosen.tolist())
    known = np.isfinite(seen.rate)
    ratio = np.where(known, seen.rate / np.where(known, old.rate, 1.0), np.nan)
    factor = np.array([_change(row[np.isfinite(row)]) for row in ratio])
    both = np.where(factor[:, None] * factor[None, :] < 1, np.minimum(factor[:, None], factor[None, :]), 1.0)
    np.fill_diagonal(both, 1.0)
    measured = np.isfinite(seen.latency_s) & known
    return Probes(np.where(measured, seen.latency_s, old.latency_s), np.where(measured, seen.rate, old.rate * both))


def _change(ratios: np.ndarray) -> float:
    if not len(ratios):
        return 1.0
    typical = float(np.median(ratios))
    return 1.0 if CHANGED < typical < 1 / CHANGED else typical


def swap_hosts(groups: Sequence[Sequence[int]], probes: Probes, size_bytes: float) -> list[list[int]]:
    """Swap hosts between groups, each time the two that help most, until no swap shortens the predicted time."""
    now = [list(group) for group in groups]
    best = plan_time_s(now, probes, size_bytes)
    while True:
        tried = [(plan_time_s(swapped, probes, size_bytes), swapped) for swapped in _swaps(now, probes)]
        shortest, swapped = min(tried, key=lambda pair: pair[0], default=(best, now))
        if shortest >= best * (1 - 1e-9):
            return now
        best, now = shortest, swapped


def _swaps(groups: list[list[int]], probes: Probes) -> list[list[list[int]]]:
    """Return all groupings one swap away in which a host moves that is far from its group."""
    swaps = []
    for i, group in enumerate(groups):
        if len(group) < 2:
            continue
        far = max(group, key=lambda host: float(probes.distance()[host, group].sum()))
        for j, other in enumerate(groups):
            for host in other if i != j else ():
                swapped = [list(members) for members in groups]
                swapped[i][group.index(far)], swapped[j][other.index(host)] = host, far
                swaps.append(swapped)
    return swaps
