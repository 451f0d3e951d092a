"""Incast: how many different sources send to one receiver at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

PERCENTILES = (50, 95, 99)


class Incast(NamedTuple):
    """Percentiles and maximum of the degree, by time, while at least one source sends; None where no transfer takes time."""

    p50: int | None = None
    p95: int | None = None
    p99: int | None = None
    largest: int | None = None


def incast(to: np.ndarray, source: np.ndarray, start_s: np.ndarray, end_s: np.ndarray) -> Incast:
    """Return the incast degree over all receivers; two transfers of one source at once count once.

    A value of each column for each transfer; receivers and sources are numbers. A transfer that takes no time is at no
    time beside another: it does not count.
    """
    import numpy as np

    lasts = end_s > start_s
    if not lasts.any():
        return Incast()
    to, source, start_s, end_s = to[lasts], source[lasts], start_s[lasts], end_s[lasts]
    # Of one pair a source's number of open transfers, of which only 0 and more count: a change of +1, -1 or 0 to the degree.
    moments = np.concatenate((start_s, end_s))
    changes = np.repeat([1, -1], len(start_s))
    to, source = np.tile(to, 2), np.tile(source, 2)
    order = np.lexsort((-changes, moments, source, to))  # a pair's next transfer opens before its last one closes
    to, moments, changes, source = to[order], moments[order], changes[order], source[order]
    is_open = np.cumsum(changes) > 0  # each pair's changes sum to 0, so the sum runs on through all pairs
    was_open = np.concatenate(([False], is_open[:-1]))
    turns = is_open != was_open
    return _by_time(to[turns], moments[turns], np.where(is_open[turns], 1, -1))


def _by_time(to: np.ndarray, moments: np.ndarray, changes: np.ndarray) -> Incast:
    """Return the degree from when sources begin (+1) and cease (-1) to send to each receiver."""
    import numpy as np

    order = np.lexsort((changes, moments, to))  # who ceases at a moment is gone when another begins
    moments, to, degrees = moments[order], to[order], np.cumsum(changes[order])
    seconds = np.append(np.diff(moments), 0.0)
    seconds[np.append(np.diff(to) != 0, True)] = 0.0
    counts = degrees > 0
    spent = np.bincount(degrees[counts], weights=seconds[counts])
    share = np.cumsum(spent) / spent.sum()
    p50, p95, p99 = (int(np.argmax(share >= percent / 100 - 1e-12)) for percent in PERCENTILES)
    return Incast(p50, p95, p99, int(np.flatnonzero(spent).max()))
