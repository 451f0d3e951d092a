"""Which chunks, merged how far, in which order of the lots: runs of the greedy matching, the shortest wins.

A *setting* is (chunks of a block, most chunks of a message, taper, yards, rarest first). From a few settings the search goes on
to neighbours of the best so far, as long as its tries and its work last; what is left goes into further seeds of the best. The
work is counted in deliveries, so that the same question finds the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.networks import ArcNetwork
from ringwright.algorithms.synthesis.expand._loop import Wanted, matched
from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    from ringwright.algorithms.arcs_in_use import TimedMessages
    from ringwright.algorithms.searching import Deadline

CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MERGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TAPERS = (0, 2, 3)
FIRST = ((1, 1, 0), (1, 8, 0), (2, 1, 0), (4, 1, 0), (12, 2, 2), (48, 8, 2))  # chunks, merge, taper
WORK = 2_000_000  # of all runs together, at the least one run
MOST_DELIVERIES = 150_000  # of one run, where fewer are possible
FINALISTS = 3

Setting = tuple[int, int, int, int, int]  # chunks, merge, taper, yards, rarest first


@dataclass(frozen=True)
class GreedyPhase:
    """One gathering or exchange: arcs as data flow in a run, chunks by number of chunks of a block, and what makes it complete.

    ``collects``: it is run backwards, from the end to the start.
    """

    net: ArcNetwork
    roots: np.ndarray
    targets: np.ndarray
    far: np.ndarray
    deliveries: int  # of one chunk of each block, at the least
    collects: bool = False


@dataclass(frozen=True)
class Find:
    """A run for each phase of a question."""

    setting: Setting
    seed: int
    makespan: int
    runs: tuple[TimedMessages, ...]


class GreedySearch:
    """The runs of one question: phases over the same chunks, whose sizes ``sizes(chunks)`` says."""

    def __init__(
        self,
        phases: Sequence[GreedyPhase],
        yards: Sequence[np.ndarray],
        sizes: Callable[[int], np.ndarray],
        most_chunks: int,
        seed: int,
        deadline: Deadline,
    ) -> None:
        self.phases, self.yards, self.sizes, self.most_chunks = phases, yards, sizes, most_chunks
        self.seed, self.deadline = seed, deadline
        self.work = 0
        self.finds: dict[tuple[Setting, int], Find | None] = {}

    @cached_property
    def deliveries(self) -> int:
        """Deliveries of one chunk a block, all phases."""
        return sum(phase.deliveries for phase in self.phases)

    @cached_property
    def effort(self) -> int:
        """The work of one chunk a block: its deliveries, each as often as arcs wait for what it occupies."""
        return sum(phase.deliveries * _waiting(phase.net) for phase in self.phases)

    def best(self, tries: int, chunks: int | None, merge: int | None) -> list[Find]:
        """Return the shortest finds of ``tries`` runs, the best first; chunks and merge as given, where they are."""
        allowed = _Allowed(
            (chunks,) if chunks else [each for each in CHUNKS if self._fits(each)],
            (merge,) if merge else MERGES,
            TAPERS,
            range(len(self.yards)),
        )
        try:
            self._climb(allowed, tries)
            self._draw(tries)
        except KeyboardInterrupt:
            self.deadline.interrupted()
        good = sorted(filter(None, self.finds.values()), key=lambda each: (each.makespan, each.setting, each.seed))
        if not good:
            raise InfeasibleError(
                "the greedy matching did not get every chunk where it must",
                where=f"{len(self.finds)} runs",
                remedy="ringwright bound all-gather --topology FILE",
            )
        return good[:FINALISTS]

    def _fits(self, chunks: int) -> bool:
        return chunks == 1 or (chunks <= self.most_chunks and chunks * self.deliveries <= MOST_DELIVERIES)

    def _may(self, tries: int, chunks: int) -> bool:
        """Return whether a further run is within the tries, the work and the budget."""
        if not self.finds:
            return True
        if len(self.finds) >= tries or self.deadline.passed():
            return False
        return self.work + chunks * self.effort <= WORK

    def _climb(self, allowed: _Allowed, tries: int) -> None:
        """Try the first settings, then neighbours of the best as long as they are better or new."""
        for setting in allowed.first():
            if self._may(tries, setting[0]):
                self._run(setting, self.seed)
        tried = None
        while (best := self._leader()) is not None and best.setting != tried:
            tried = best.setting
            for setting in allowed.beside(tried):
                if self._may(tries, setting[0]):
                    self._run(setting, self.seed)

    def _draw(self, tries: int) -> None:
        """Spend what is left on further seeds of the best setting."""
        best = self._leader()
        for number in range(1, tries):
            if best is None or not self._may(tries, best.setting[0]):
                break
            self._run(best.setting, self.seed + number)

    def _leader(self) -> Find | None:
        good = [each for each in self.finds.values() if each is not None]
        return min(good, key=lambda each: (each.makespan, each.setting, each.seed), default=None)

    def _run(self, setting: Setting, seed: int) -> None:
        if (setting, seed) in self.finds:
            return
        chunks, merge, taper, yards, rarest = setting
        runs = []
        self.work += chunks * self.effort
        sizes = self.sizes(chunks)
        for phase in self.phases:
            roots, targets = np.repeat(phase.roots, chunks), np.repeat(phase.targets, chunks)
            wanted = Wanted(roots, targets, sizes, phase.far, self.yards[yards])
            run = matched(phase.net, wanted, merge, taper, seed, rarest=bool(rarest))
            if not _is_complete(run, phase, chunks):
                self.finds[setting, seed] = None
                return
            runs.append(run)
        self.finds[setting, seed] = Find(setting, seed, sum(run.makespan for run in runs), tuple(runs))


def _waiting(net: ArcNetwork) -> int:
    """Return how many arcs share a resource, half of the mean over what an arc passes; 1 at the least."""
    arcs_on = np.bincount(net.hops, minlength=1)[net.hops]
    return max(1, int(arcs_on.mean()) // 2) if len(arcs_on) else 1


def _is_complete(run: TimedMessages, phase: GreedyPhase, chunks: int) -> bool:
    if not len(phase.far):
        return len(run.pieces) == phase.deliveries * chunks
    last = np.full(len(phase.roots) * chunks, -1, np.int64)
    last[run.pieces] = np.repeat(phase.net.dst[run.arc], np.diff(run.starts))  # in the order in which they start
    target = np.repeat(phase.targets, chunks)
    return bool(((last == target) | (np.repeat(phase.roots, chunks) == target)).all())


@dataclass(frozen=True)
class _Allowed:
    chunks: Sequence[int]
    merges: Sequence[int]
    tapers: Sequence[int]
    yards: Sequence[int]

    def first(self) -> Iterator[Setting]:
        """Yield the settings to begin with, moved to what is allowed."""
        made: dict[Setting, None] = {}
        for chunks, merge, taper in FIRST:
            near = min(self.chunks, key=lambda each: abs(each - chunks))
            joined = min(self.merges, key=lambda each: abs(each - merge))
            for yards in reversed(self.yards):
                made[near, joined, taper if joined > 1 else 0, yards, 0] = None
        yield from made

    def beside(self, setting: Setting) -> Iterator[Setting]:
        """Yield the settings that differ by one step in one respect."""
        for at, values in enumerate((self.chunks, self.merges, self.tapers, self.yards, (0, 1))):
            index = list(values).index(setting[at])
            for other in (index + 1, index - 1):
                if 0 <= other < len(values):
                    near = list(setting)
                    near[at] = values[other]
                    chunks, merge, taper, yards, rarest = near
                    yield chunks, merge, taper if merge > 1 else 0, yards, rarest
