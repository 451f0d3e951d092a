"""Which rank, NIC, host or path explains the slow cells of a matrix of pairs, with as few culprits as possible."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

LEAST_SLOWDOWN = 1.5
LEAST_TOGETHER = 3  # slow cells of one part that are no chance
PURITY = 0.8  # of a culprit's cells that must be slow
MOST_CULPRITS = 8
_NOISES = 5.0  # standard deviations of the healthy cells

Cell = tuple[int, int]


@dataclass(frozen=True)
class Slow:
    """One culprit; ``kind`` is sender, receiver, rank, nic, host (these two also with -sender, -receiver) or path.

    ``cells`` of its ``known`` cells are slow.
    """

    kind: str
    name: str
    ranks: tuple[int, ...]
    cells: int
    known: int
    factor: float

    @property
    def says(self) -> str:
        """What is slow, in words."""
        means = {
            "sender": "is slow to everybody: its sending side",
            "receiver": "is slow from everybody: its receiving side",
            "rank": "is slow to and from everybody",
            "nic": "is slow for all of its ranks",
            "host": "is slow for all of its ranks",
            "nic-sender": "is slow for all of its ranks, when they send",
            "nic-receiver": "is slow for all of its ranks, when they receive",
            "host-sender": "is slow for all of its ranks, when they send",
            "host-receiver": "is slow for all of its ranks, when they receive",
            "path": "is slow while its ends are not: the path between them",
        }
        return f"{self.name} {means[self.kind]}"

    @property
    def confidence(self) -> float:
        """Grow with the share of cells that are slow, their number, and the factor; a single cell stays modest."""
        support = 1 - 0.5 ** min(self.cells, 6)
        return min(0.95, self.cells / self.known * (0.5 + 0.45 * support) * min(1.0, self.factor / LEAST_SLOWDOWN))


def explained(
    slowdown: Mapping[Cell, float], hosts: dict[int, str] | None = None, nics: dict[int, str] | None = None
) -> list[Slow]:
    """Return what explains the slow cells of ``slowdown``, by (rank that sends, rank that receives), the largest first.

    ``hosts`` and ``nics`` name those of each rank; what they say stays unused where it is absent. Cells that
    differ as by noise yield nothing, and so do more than half of them slow: nothing stands out.
    """
    slow, known = _slow(slowdown)
    if not slow or len(slow) * 2 > len(known):
        return []
    candidates = _candidates(known, hosts or {}, nics or {})
    culprits: list[Slow] = []
    left = set(slow)
    while left and len(culprits) < MOST_CULPRITS:
        best = max(candidates, key=lambda item: _worth(item[3], left, slow), default=None)
        if best is None or _worth(best[3], left, slow)[0] <= 0:
            break
        kind, name, ranks, cells = best
        hit = cells & slow
        culprits.append(Slow(kind, name, ranks, len(hit), len(cells), _median(slowdown, hit)))
        left -= cells
    whole = _intermittent(candidates, left)
    if whole is not None:
        kind, name, ranks, cells = whole
        culprits.append(Slow(kind, name, ranks, len(cells & left), len(cells), _median(slowdown, cells & left)))
        left -= cells
    for src, dst in sorted(left)[: MOST_CULPRITS - len(culprits)]:
        culprits.append(Slow("path", f"rank {src} to rank {dst}", (src, dst), 1, 1, slowdown[src, dst]))
    return culprits


def _slow(slowdown: Mapping[Cell, float]) -> tuple[set[Cell], set[Cell]]:
    """Return slow and known cells. Centre and noise come from the fast cells (10th and 30th percentile), which stay healthy
    where less than half are slow."""
    known = {pair for pair, factor in slowdown.items() if 0 < factor < math.inf}
    if len(known) < 4:
        return set(), known
    logs = np.log([slowdown[pair] for pair in known])
    low, middle = np.quantile(logs, (0.1, 0.3))
    sigma = float(middle - low) / (1.2816 - 0.5244)  # percentiles of a normal distribution
    centre = float(middle) + 0.5244 * sigma
    limit = centre + max(math.log(LEAST_SLOWDOWN), _NOISES * sigma)
    return {(a, b) for a, b in known if math.log(slowdown[a, b]) >= limit}, known


def _candidates(
    known: set[Cell], hosts: dict[int, str], nics: dict[int, str]
) -> list[tuple[str, str, tuple[int, ...], set[Cell]]]:
    """Return kind, name, ranks and cells of all that could be slow, the narrower first."""
    rows: dict[int, set[Cell]] = defaultdict(set)
    columns: dict[int, set[Cell]] = defaultdict(set)
    for src, dst in known:
        rows[src].add((src, dst))
        columns[dst].add((src, dst))
    candidates: list[tuple[str, str, tuple[int, ...], set[Cell]]] = []
    ranks_known = sorted(rows.keys() | columns.keys())
    for rank in ranks_known:
        candidates.append(("sender", f"rank {rank}", (rank,), rows[rank]))
        candidates.append(("receiver", f"rank {rank}", (rank,), columns[rank]))
    candidates += [("rank", f"rank {rank}", (rank,), rows[rank] | columns[rank]) for rank in ranks_known]
    for kind, names in (("nic", nics), ("host", hosts)):
        groups: dict[str, list[int]] = defaultdict(list)
        for rank, name in names.items():
            groups[name].append(rank)
        for name, ranks in sorted(groups.items()):
            inside = set(ranks)
            if len(inside) < 2:
                continue
            out, into = ({cell for rank in ranks for cell in side[rank]} for side in (rows, columns))
            for what, cells in ((f"{kind}-sender", out), (f"{kind}-receiver", into), (kind, out | into)):
                leaving = {(a, b) for a, b in cells if not (a in inside and b in inside)}
                candidates.append((what, name, tuple(sorted(inside)), leaving))
    return [item for item in candidates if len(item[3]) > 1]


def _worth(cells: set[Cell], left: set[Cell], slow: set[Cell]) -> tuple[int, float]:
    """Rank a candidate: how many unexplained slow cells it covers, if nearly all of its cells are slow; then its purity."""
    if not cells:
        return 0, 0.0
    purity = len(cells & slow) / len(cells)
    new = len(cells & left)
    return (new, purity) if purity >= PURITY and new >= 2 else (0, 0.0)


def _intermittent(
    candidates: list[tuple[str, str, tuple[int, ...], set[Cell]]], left: set[Cell]
) -> tuple[str, str, tuple[int, ...], set[Cell]] | None:
    """Return the narrowest part to which all the slow cells that are left belong: what is slow at times only, a flapping link,
    slows some cells of its own and no others."""
    if len(left) < LEAST_TOGETHER:
        return None
    fitting = [item for item in candidates if left <= item[3]]
    return min(fitting, key=lambda item: len(item[3]), default=None)


def _median(slowdown: Mapping[Cell, float], cells: set[Cell]) -> float:
    return float(np.median([slowdown[cell] for cell in cells])) if cells else 1.0
