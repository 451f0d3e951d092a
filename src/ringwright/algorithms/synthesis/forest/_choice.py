"""Which forest, in how many pieces: what rounds of trees take, added up without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.costs.forests import Forest, Rounds

PIECES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
STREAMS = (1, 2, 3)


@dataclass(frozen=True)
class Candidate:
    """Forests, one a phase, and into how many pieces the data are cut; ``time_s`` is what the rounds take together.

    Pieces run in ``streams``: a piece goes on when as many others have gone, so that links are busy with those while its data
    are under way.
    """

    forests: tuple[Forest, ...]
    pieces: int
    streams: int
    time_s: float


def candidates(
    forests: Sequence[tuple[Forest, ...]], pieces: Sequence[int], most_pieces: int, *, blocking: bool
) -> list[Candidate]:
    """Return each set of forests with each number of pieces and streams, the shortest time first; of equals the fewest pieces."""
    made = [
        Candidate(each, count, streams, time_s([forest.rounds for forest in each], count, streams, blocking=blocking))
        for each in forests
        for count in pieces
        for streams in STREAMS
        if (count == 1 or count <= most_pieces) and streams <= count
    ]
    return sorted(made, key=lambda each: (each.time_s, each.pieces, each.streams))


def time_s(phases: Sequence[Rounds], pieces: int, streams: int, *, blocking: bool) -> float:
    """Return what the rounds of phases take where each waits for the most loaded resource of those before.

    The data of a round have come a latency after its last byte left, and go on in the round ``streams`` later. A link that blocks
    is busy for the latency of each message besides its bytes.
    """
    if not phases:
        return 0.0
    depths = [len(phase.latency_s) for phase in phases]
    total = (sum(depths) - 1) * streams + pieces
    busy = np.zeros((total, phases[0].seconds.shape[1]))
    latency_s, first = np.zeros(total), 0
    for phase in phases:
        each = phase.seconds / pieces + (phase.messages * phase.busy_s if blocking else 0.0)
        for depth in range(len(phase.latency_s)):
            under_way = slice((first + depth) * streams, (first + depth) * streams + pieces)
            busy[under_way] += each[depth]
            waits = phase.latency_s[depth] - (phase.busy_s[each[depth] > 0].min(initial=np.inf) if blocking else 0.0)
            latency_s[under_way] = np.maximum(latency_s[under_way], waits)
        first += len(phase.latency_s)
    ends: list[float] = []
    for number, each_s in enumerate(busy.max(axis=1).tolist()):
        there = ends[number - streams] + float(latency_s[number - streams]) if number >= streams else 0.0
        ends.append(max(ends[-1] if ends else 0.0, there) + each_s)
    return max(end + late for end, late in zip(ends[-streams:], latency_s[-streams:].tolist(), strict=True))
