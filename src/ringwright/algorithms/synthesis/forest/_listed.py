"""Which order of messages, in how many pieces, merged up to how many bytes: list scheduling for trees that share links."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.arcs_in_use import MOST_PS, most_ps
from ringwright.algorithms.list_schedule import back_and_forth
from ringwright.algorithms.synthesis.forest._choice import PiecedForest, ramp
from ringwright.algorithms.synthesis.forest._listed_steps import ListedSteps, piece_of
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from ringwright.algorithms.tree_rounds import TreeRounds
    from ringwright.bounds.forests import Forest
    from ringwright.engines.machine import Machine
    from ringwright.model.program import Program

COUNTS, HALVINGS = (2, 4, 8, 16, 32, 64), (0, 3)
FIRST = ((8, 3, 1.0), (4, 0, 0.0), (2, 0, 0.0))  # settings that are tried first
MERGED = 50  # bytes of a merged message over those that pass during a latency: 2 % of its time, where links block
STEPS, PIPELINED = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0), 0.25  # of these; that of links that do not block
QUICK, LONG = 2, 5  # runs forwards for each setting, and for the best
MOST_LISTED, MOST_RUN = 400_000, 8_000_000  # moves of a run, and of all runs together
GAIN = 0.999  # part of the best time that a setting must stay below to be better

Setting = tuple[int, int, float]  # pieces, halvings, size of merged messages


class ListSearch:
    """Orders for trees that are cut into pieces.

    ``program_of`` and ``rounds_of`` say what a candidate is without an order; ``most_pieces``, how many its smallest block has;
    ``enough_s``: nothing is sought below these seconds.
    """

    def __init__(
        self,
        forests: tuple[Forest, ...],
        made: Machine,
        program_of: Callable[[PiecedForest], Program],
        rounds_of: Callable[[PiecedForest], TreeRounds],
        most_pieces: int,
        enough_s: float,
        *,
        blocking: bool,
    ) -> None:
        self.forests, self.rounds_of, self.most_pieces = forests, rounds_of, most_pieces
        self.enough_s, self.blocking = enough_s, blocking
        self.whole = PiecedForest(forests, (1,), 1, False, 0.0)
        self.piece = piece_of(program_of(self.whole), made)
        net = self.piece.net
        passing = net.latency[net.hops] / np.maximum(net.ps_per_byte[net.hops], 1e-9)
        self.merge_bytes = MERGED * float(np.median(passing))
        self.left = MOST_RUN
        self.known: dict[Setting, PiecedForest | None] = {}

    @property
    def first_s(self) -> float:
        """Seconds of the first setting that is tried; inf where that cannot be."""
        one = self._tried(self._first[0])
        return float("inf") if one is None else one.time_s

    def best(self, must_stop: Callable[[], bool]) -> PiecedForest | None:
        """Return the candidate that takes the shortest time of those tried; None where even one piece is too many moves."""
        best: tuple[Setting, PiecedForest] | None = None
        todo, seen = list(self._first), set[Setting]()
        while todo and not must_stop():
            setting = todo.pop(0)
            seen.add(setting)
            one = self._tried(setting)
            if one is not None and (best is None or one.time_s < GAIN * best[1].time_s):
                best = setting, one
            if best is not None and best[1].time_s <= self.enough_s:
                break
            if best is not None and not todo:
                todo = [each for each in self._beside(best[0]) if each not in seen]
        if best is None:
            return None
        longer = self._run(best[0], LONG)
        return best[1] if longer is None or longer.time_s >= best[1].time_s else longer

    @property
    def _first(self) -> list[Setting]:
        return [each if self.blocking else (*each[:2], PIPELINED) for each in FIRST]

    def _tried(self, setting: Setting) -> PiecedForest | None:
        if setting not in self.known:
            self.known[setting] = self._run(setting, QUICK)
        return self.known[setting]

    def _run(self, setting: Setting, times: int) -> PiecedForest | None:
        """Return what so many runs forwards make of a setting; None where it is too many moves."""
        piece, sizes = self.piece, self._sizes(setting)
        moves = len(piece.moves.arc) * len(sizes)
        if len(sizes) > self.most_pieces or moves > MOST_LISTED or moves * (2 * times - 1) > self.left:
            return None
        self.left -= moves * (2 * times - 1)
        empty = dataclasses.replace(self.whole, sizes=sizes)
        size_bytes = piece.size_bytes(self.rounds_of(empty).layout, len(sizes))
        if most_ps(piece.net, float(size_bytes.sum()), moves) >= MOST_PS:
            return None
        urgency = (np.arange(len(sizes))[:, None] * (int(piece.step.max()) + 1) + piece.step).ravel()
        merge_bytes = int(setting[2] * self.merge_bytes)
        run = back_and_forth(piece.net, piece.moves, size_bytes, urgency, merge_bytes, times)
        return dataclasses.replace(empty, time_s=run.makespan / PS, listed=ListedSteps(piece, run, len(sizes)))

    def _sizes(self, setting: Setting) -> tuple[int, ...]:
        both = len(self.forests) > 1
        collects = self.forests[0].arcs.reversed
        return ramp(setting[0], setting[1], up=collects, down=both or not collects)

    def _beside(self, setting: Setting) -> Iterator[Setting]:
        """Yield settings that differ by one step: more pieces first."""
        values: tuple[Sequence[float], ...] = (COUNTS, HALVINGS, STEPS if self.blocking else (PIPELINED,))
        for at, steps in enumerate(values):
            index = list(steps).index(setting[at])
            for other in (index + 1, index - 1):
                if 0 <= other < len(steps):
                    near: list[float] = list(setting)
                    near[at] = steps[other]
                    yield int(near[0]), int(near[1]), near[2]
