"""A program as what each rank does: sends, receives and calculations, and which of them wait for which.

The order is the one that the data need (see ``engines.hazards``), also for declared programs: simulators of other houses
have no thread blocks and no FIFOs, so that order and depth are left behind. Aggregating nodes are further ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import gather
from ringwright.engines.hazards import hazards
from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    from ringwright.model.program import Program

SEND, RECV, CALC = 1, 2, 3
MOST_WAITS = 20_000_000


@dataclass(frozen=True)
class Operations:
    """Operations of all ranks in one table, sorted by rank, in an order in which they can happen.

    ``peer`` and ``tag`` are -1 for calculations; ``size_bytes`` is 0 for them, ``time_s`` for all others. Operation
    ``after[i]`` waits for ``before[i]``, of the same rank. A tag numbers the messages from one rank to another.
    """

    rank: np.ndarray
    kind: np.ndarray
    peer: np.ndarray
    size_bytes: np.ndarray
    time_s: np.ndarray
    tag: np.ndarray
    before: np.ndarray
    after: np.ndarray
    n_ranks: int

    @property
    def starts(self) -> np.ndarray:
        """Where each rank's operations begin, and the last ones end. int64 of shape (n_ranks + 1,)."""
        return np.searchsorted(self.rank, np.arange(self.n_ranks + 1))


def operations(program: Program, *, reduce_rate: float = float("inf")) -> Operations:
    """Return the operations of all ranks; sums take their bytes divided by ``reduce_rate`` (B/s).

    Raises InfeasibleError where the waits are more than could be written.
    """
    pieces = gather(program)
    n = len(pieces.src)
    edges = hazards(pieces.message, pieces.step[pieces.message], pieces.reads, pieces.writes, n)
    if len(edges.before) > MOST_WAITS:
        raise InfeasibleError(f"{program.name} has more than {MOST_WAITS:,} waits", remedy="export it for fewer ranks")
    turn = np.append(pieces.step.astype(np.int64), np.zeros(edges.joins, np.int64))
    at, turn = _joins(pieces.src, pieces.dst, edges.before, edges.after, turn, n)
    adds = pieces.adds & np.isfinite(reduce_rate)
    owner, part = _parts(pieces.src != pieces.dst, adds, edges.joins)
    # What concerns messages, with a row for each join behind them.
    blank = np.zeros(edges.joins, np.int64)
    src, dst, size, tag = (
        np.append(column, blank)
        for column in (pieces.src, pieces.dst, pieces.size_bytes, _tags(pieces.src, pieces.dst, program.n_nodes))
    )
    src[n:] = dst[n:] = at[n:]
    time = np.append(np.where(adds, pieces.size_bytes / reduce_rate, 0.0), blank)
    rank = np.where(part == 0, src[owner], dst[owner])
    order = np.lexsort((part, owner, turn[owner], rank))
    owner, part, rank = owner[order], part[order], rank[order]
    number = np.full((3, n + edges.joins), -1, np.int64)
    number[part, owner] = np.arange(len(order))
    before, after = _waits(number, rank, edges.before, edges.after)
    sums = part == CALC - 1
    return Operations(
        rank,
        part + 1,
        np.where(sums, -1, np.where(part == 0, dst[owner], src[owner])),
        np.where(sums, 0, size[owner]),
        np.where(sums, time[owner], 0.0),
        np.where(sums, -1, tag[owner]),
        before,
        after,
        program.n_nodes,
    )


def _parts(far: np.ndarray, adds: np.ndarray, joins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return message (or join) and part (0 send, 1 receive, 2 calculation) of every operation."""
    away, calc = np.flatnonzero(far), np.flatnonzero(~far | adds)
    owner = np.concatenate((away, away, calc, np.arange(len(far), len(far) + joins)))
    return owner, np.repeat([0, 1, 2], [len(away), len(away), len(calc) + joins])


def _joins(
    src: np.ndarray, dst: np.ndarray, before: np.ndarray, after: np.ndarray, turn: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank that each join stands at (the one that all its messages touch), and its place in the order."""
    at = np.append(src, np.full(len(turn) - n, -1))
    into = np.flatnonzero(after >= n)
    for mine, other in zip(after[into].tolist(), before[into].tolist(), strict=True):
        turn[mine] = max(turn[mine], turn[other])
    ends: dict[int, set[int]] = {}
    for mine, other in (
        *zip(after.tolist(), before.tolist(), strict=True),
        *zip(before.tolist(), after.tolist(), strict=True),
    ):
        if mine >= n:
            pair = {int(src[other]), int(dst[other])}
            ends[mine] = ends.get(mine, pair) & pair
    for mine, ranks in ends.items():
        at[mine] = max(ranks)
    return at, turn


def _tags(src: np.ndarray, dst: np.ndarray, nodes: int) -> np.ndarray:
    pair = src * nodes + dst
    order = np.argsort(pair, kind="stable")
    tags = np.empty(len(pair), np.int64)
    tags[order] = np.arange(len(pair)) - np.searchsorted(pair[order], pair[order])
    return tags


def _waits(
    number: np.ndarray, rank: np.ndarray, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which operation waits for which: a sum for its receive, and whatever shares a rank with what comes first."""
    sends, receives, sums = number
    done = np.where(sums >= 0, sums, receives)  # what says that a message has arrived and has been added
    first = np.where(receives >= 0, receives, sums)
    pairs = [(receives[(receives >= 0) & (sums >= 0)], sums[(receives >= 0) & (sums >= 0)])]
    for earlier in (sends, done):
        for later in (sends, first):
            a, b = earlier[before], later[after]
            both = (a >= 0) & (b >= 0)
            both[both] = rank[a[both]] == rank[b[both]]
            pairs.append((a[both], b[both]))
    left, right = (np.concatenate(column) for column in zip(*pairs, strict=True))
    keys = np.unique(right * (len(rank) + 1) + left)
    return keys % (len(rank) + 1), keys // (len(rank) + 1)
