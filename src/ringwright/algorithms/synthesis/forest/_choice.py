"""Which forest, in how many pieces: what rounds of trees take, added up without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.tree_moves import is_listed

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.forest._listed_steps import ListedSteps
    from ringwright.bounds.forests import Forest, Rounds

PIECES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
STREAMS = (1, 2, 3)
APART = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
HALVINGS, MERGED_HALVINGS = (0, 3, 5), (0, 1, 2, 3)
WINDOWS = (3, 4, 6)
MOST_RAMPED = 48  # merged pieces beyond which a ramp gains nothing
NEARLY = 1.002  # a time that is longer by less is worth fewer pieces


@dataclass(frozen=True, eq=False)
class PiecedForest:
    """Forests, one a phase, and how the data run through them; ``time_s`` is what the rounds take together.

    ``sizes`` are those of the pieces, relative to each other. Pieces run in ``streams``: a piece goes on when as many others have
    gone, so that links are busy with those while its data are under way. ``merged``: what two ranks have for each other in a
    round is one message. ``window``: so many pieces of a tree are under way at a time, 0 for any number.
    ``listed``: the order of a run that its messages are put in.
    """

    forests: tuple[Forest, ...]
    sizes: tuple[int, ...]
    streams: int
    merged: bool
    time_s: float
    window: int = 0
    listed: ListedSteps | None = None

    @property
    def pieces(self) -> int:
        """Pieces, one behind the other."""
        return len(self.sizes)

    @property
    def form(self) -> tuple[bool, bool, int, int]:
        """What it is besides its pieces: by rounds, merged, streams, window."""
        return self.forests[0].by_rounds, self.merged, self.streams, self.window

    @property
    def steepness(self) -> int:
        """The largest piece over the smallest: 1 where all are alike."""
        return max(self.sizes) // min(self.sizes)


def beside(one: PiecedForest, every: Sequence[PiecedForest]) -> list[PiecedForest]:
    """Return those of its form that differ a little: more or fewer pieces, or a ramp that is steeper or less so."""
    same = [each for each in every if each.form == one.form]
    alike = [each for each in same if each.steepness == one.steepness]
    more = [each for each in alike if each.pieces > one.pieces]
    fewer = [each for each in alike if each.pieces < one.pieces]
    made = [*sorted(more, key=lambda each: each.pieces)[:1], *sorted(fewer, key=lambda each: -each.pieces)[:1]]
    for steepness in sorted({each.steepness for each in same} - {one.steepness}):
        if steepness in (one.steepness * 2, one.steepness // 2) or not one.merged:
            other = [each for each in same if each.steepness == steepness]
            made.append(min(other, key=lambda each: (abs(each.pieces - one.pieces), each.time_s)))
            made.append(min(other, key=lambda each: each.time_s))
    return made


def candidates(
    forests: Sequence[tuple[Forest, ...]],
    pieces: int | None,
    most_of: Callable[[Sequence[Forest]], int],
    *,
    blocking: bool,
    windows: bool = True,
) -> list[PiecedForest]:
    """Return all that may be best, merged ones and such as are not, the shortest time first.

    ``pieces`` that are asked for are at most ``most_of`` the forests: those that their smallest block has. Without ``windows``
    trees of two phases that share links are not sent apart.
    """
    made: list[PiecedForest] = []
    for each in forests:
        most_pieces = max(most_of(each), 1)
        counts = () if pieces is None else (min(pieces, most_pieces),)
        made += _merged(each, counts or PIECES, most_pieces, blocking=blocking)
        made += _apart(each, counts or APART, most_pieces, blocking=blocking, windows=windows)
    return sorted(made, key=lambda each: (each.time_s, each.pieces, each.streams))


def _merged(each: tuple[Forest, ...], counts: Sequence[int], most: int, *, blocking: bool) -> Iterator[PiecedForest]:
    rounds = [forest.rounds for forest in each]
    for count in counts:
        for halvings in MERGED_HALVINGS if count <= MOST_RAMPED else (0,):
            sizes = _ramped(each, count, halvings)
            for streams in STREAMS if len(sizes) <= most else ():
                if streams <= count:
                    time = time_s(rounds, sizes, streams, blocking=blocking)
                    yield PiecedForest(each, sizes, streams, True, time)


def _apart(
    each: tuple[Forest, ...], counts: Sequence[int], most: int, *, blocking: bool, windows: bool
) -> Iterator[PiecedForest]:
    rounds, turns = [forest.rounds for forest in each], each[0].arcs.symmetry
    # Where one phase follows another, too much that is collected at once keeps the other waiting: windows alone help.
    waits = len(each) > 1 and (turns is None or (len(turns.bases) > 1 and is_listed(turns)))
    for count in () if waits and not windows else counts:
        for halvings in HALVINGS if not waits else (0,):
            sizes = _ramped(each, count, halvings)
            if len(sizes) <= most:
                time = apart_s(rounds, sizes, blocking=blocking)
                widths = [window for window in WINDOWS if window < count] if waits else [0]
                yield from (PiecedForest(each, sizes, 1, False, time, window) for window in widths)


def _ramped(each: tuple[Forest, ...], count: int, halvings: int) -> tuple[int, ...]:
    is_reversed = each[0].arcs.reversed
    return ramp(count, halvings, up=is_reversed, down=len(each) > 1 or not is_reversed)


def ramp(count: int, halvings: int, *, up: bool, down: bool) -> tuple[int, ...]:
    """Return the sizes of equal pieces of which the first (``up``) or the last (``down``) is halved again and again.

    What is left to do when the last piece has come is little then; trees that collect begin with the small ones.
    """
    if not halvings:
        return (1,) * count
    falling = (*(1 << power for power in range(halvings - 1, -1, -1)), 1)
    body = (1 << halvings,) * max(count - up - down, 0)
    return (*(reversed(falling) if up else ()), *body, *(falling if down else ()))


def apart_s(phases: Sequence[Rounds], sizes: Sequence[int], *, blocking: bool) -> float:
    """Return what phases take where every tree sends its own messages, each as soon as its data are there.

    The most loaded resource is busy all the time, but for the latency of each arc on the way and for the last piece, whose trees
    go on when that resource is done with it.
    """
    each = [
        phase.seconds.sum(axis=0) + (len(sizes) * phase.moves.sum(axis=0) * phase.busy_s if blocking else 0.0)
        for phase in phases
    ]
    busy = np.sum(each, axis=0)
    tail_s = latency_s = 0.0
    for phase in phases:
        last = min(sizes[0], sizes[-1]) / sum(sizes)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = phase.moves / phase.messages
        alike = np.where(np.isfinite(ratio), ratio, 1.0).max(axis=1, initial=1.0)
        behind = slice(1, None)
        tail_s += last * float((phase.seconds.max(axis=1) / alike)[behind].sum())
        latency_s += float(phase.latency_s.sum())
    return float(busy.max()) + tail_s + latency_s


def time_s(phases: Sequence[Rounds], sizes: Sequence[int], streams: int, *, blocking: bool) -> float:
    """Return what the rounds of phases take where each waits for the most loaded resource of those before.

    ``sizes`` are those of the pieces, relative to each other. The data of a round have come a latency after its last byte left,
    and go on in the round ``streams`` later. A link that blocks is busy for the latency of each message besides its bytes.
    """
    if not phases:
        return 0.0
    pieces, share = len(sizes), np.asarray(sizes, float) / sum(sizes)
    depths = [len(phase.latency_s) for phase in phases]
    total = (sum(depths) - 1) * streams + pieces
    busy = np.zeros((total, phases[0].seconds.shape[1]))
    latency_s, first = np.zeros(total), 0
    for phase in phases:
        fixed_s = phase.messages * phase.busy_s if blocking else np.zeros_like(phase.seconds)
        for depth in range(len(phase.latency_s)):
            running = slice((first + depth) * streams, (first + depth) * streams + pieces)
            busy[running] += share[:, None] * phase.seconds[depth] + fixed_s[depth]
            used = phase.seconds[depth] + fixed_s[depth] > 0
            waits = phase.latency_s[depth] - (phase.busy_s[used].min(initial=np.inf) if blocking else 0.0)
            latency_s[running] = np.maximum(latency_s[running], waits)
        first += len(phase.latency_s)
    ends: list[float] = []
    for number, each_s in enumerate(busy.max(axis=1).tolist()):
        there = ends[number - streams] + float(latency_s[number - streams]) if number >= streams else 0.0
        ends.append(max(ends[-1] if ends else 0.0, there) + each_s)
    last = zip(ends[-streams:], latency_s[-streams:].tolist(), strict=True)
    return max(end + float(late) for end, late in last)
