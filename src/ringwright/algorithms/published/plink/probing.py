"""Measuring a network from its ends: every pair once, every host with one partner at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

SAMPLES = 5  # of which the median counts
OUTLIER = 5.0  # farther from the truth than this factor is clipped
# What is assumed where nothing can be probed: 10 Gb/s Ethernet in a cloud.
LATENCY_S, RATE = 20e-6, 1.25e9


@dataclass(frozen=True)
class Probes:
    """Latency (s) and rate (bytes/s) of every pair of places, symmetric, p x p; the diagonal is 0 and infinite."""

    latency_s: np.ndarray
    rate: np.ndarray

    @cached_property
    def slowness(self) -> np.ndarray:
        """Seconds per byte. float64 of shape (p, p)."""
        return 1.0 / self.rate

    def distance(self) -> np.ndarray:
        """Return how far hosts are from each other: latency and slowness, each in units of its median.

        float64 of shape (p, p).
        """
        away = ~np.eye(len(self.rate), dtype=bool)
        parts = (part / max(float(np.median(part[away])), 1e-30) for part in (self.latency_s, self.slowness))
        return np.asarray(sum(np.where(away, part, 0.0) for part in parts))


def assumed(p: int) -> Probes:
    """Return equal pairs."""
    away = ~np.eye(p, dtype=bool)
    return Probes(np.where(away, LATENCY_S, 0.0), np.where(away, RATE, np.inf))


def rounds(p: int) -> list[np.ndarray]:
    """Return the rounds of a tournament, each (pairs, 2): all pairs meet once, nobody twice in a round.

    Each is int64 of shape (pairs, 2).
    """
    seats = p + p % 2  # with an odd number somebody rests
    if p < 2:
        return []
    turning, away = seats - 1, np.arange(1, seats // 2)
    schedule = []
    for turn in range(turning):
        left = np.concatenate(([turning], (turn + away) % turning))
        right = np.concatenate(([turn], (turn - away) % turning))
        pairs = np.sort(np.stack((left, right), axis=1), axis=1)
        schedule.append(pairs[pairs[:, 1] < p])
    return schedule


def probe(
    topology: Topology,
    ranks: Sequence[int],
    *,
    noise: float = 0.0,
    seed: int = 0,
    samples: int = SAMPLES,
    chosen: Sequence[int] | None = None,
) -> Probes:
    """Return what a round-based measurement sees; pairs of a round share links, so that thin uplinks show.

    ``noise`` is the relative deviation of one sample. ``chosen`` limits it to some rounds; other pairs are then NaN.
    """
    p = len(ranks)
    schedule = rounds(p)
    numbers = range(len(schedule)) if chosen is None else chosen
    latency, rate = np.full((p, p), np.nan), np.full((p, p), np.nan)
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(rate, np.inf)
    if p > 1:
        pairs = np.concatenate([schedule[number] for number in numbers])
        turn = np.repeat(np.asarray(numbers), [len(schedule[number]) for number in numbers])
        seen = _see(topology, np.asarray(ranks, np.int64)[pairs], turn)
        generator = np.random.default_rng(seed)
        for matrix, true in zip((latency, rate), seen, strict=True):
            blur = 1 + noise * generator.standard_normal((samples, len(pairs)))
            value = true * np.clip(np.median(blur, axis=0), 1 / OUTLIER, OUTLIER)
            matrix[pairs[:, 0], pairs[:, 1]] = matrix[pairs[:, 1], pairs[:, 0]] = value
    return Probes(latency, rate)


def _see(topology: Topology, pairs: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return latency and rate of each pair of ranks: means of both ways, links shared within a round."""
    src, dst = np.concatenate((pairs, pairs[:, ::-1])).T
    starts, links = topology.routes(src, dst)
    flow = np.repeat(np.arange(len(src)), np.diff(starts))
    keys = np.tile(turn, 2)[flow] * topology.n_links + links
    _, which, sharing = np.unique(keys, return_inverse=True, return_counts=True)
    share = np.full(len(src), np.inf)
    np.minimum.at(share, flow, topology.rate[links] / sharing[which])
    latency = np.bincount(flow, weights=topology.latency_s[links], minlength=len(src))
    n = len(pairs)
    return (latency[:n] + latency[n:]) / 2, 2 / (1 / share[:n] + 1 / share[n:])
