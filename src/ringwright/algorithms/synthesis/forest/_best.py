"""Which forest, in which order, is fastest: candidates are run by the engine, from the one that its rounds say is best on."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.searching import ALPHA_OF
from ringwright.algorithms.synthesis.forest._choice import NEARLY, PiecedForest, beside, candidates
from ringwright.algorithms.synthesis.forest._listed import MOST_RUN, ListSearch
from ringwright.engines.choose import simulate
from ringwright.engines.machine import machine
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.algorithms.synthesis.forest._question import ForestQuestion
    from ringwright.bounds.forests import Forest

MOST_MOVES, MOST_TRIED = 400_000, 1_000_000  # of one candidate; of all that are run to see which is fastest
FAR_OFF = 1.1  # time by rounds over the fastest that was run, from which on a candidate is not
NEVER = 4_000_000
GOOD = 1.001  # time over what no forest is faster than, at which nothing more is run
ENOUGH = 1.003  # the same where runs take long
MANY_TRIED = 100_000  # moves that were run, from which on they take long
OPTIMA = 6  # of one linear program, of which the one is taken whose messages are fastest in an order
WORTH = 1.01  # time over what no forest is faster than, from which on orders of messages are sought


class ForestChoice:
    """The candidates of a question, run one after the other; ``blocking``: links are busy during their latency."""

    def __init__(self, question: ForestQuestion, pieces: int | None, *, blocking: bool) -> None:
        self.question, self.pieces, self.blocking = question, pieces, blocking
        self.alpha = ALPHA_OF["blocking" if blocking else "pipelined"]
        self.ran: dict[PiecedForest, int] = {}

    def best(self) -> PiecedForest:
        """Return what takes the shortest time: by its rounds, then by the engine, as far as a number of moves reaches.

        Of each form (variant, merged or apart, streams) the one that its rounds say is best is run; then, from the fastest on,
        what differs a little from it, as long as that gets faster. Where trees share links and the best is far from what they
        could do, messages are put in an order of their own; first of all, where each arc is one link: there the order is exact.
        """
        question = self.question
        sets = question.sets()
        exact = self._lists() and len(sets[0]) > 1 and self.is_direct
        every = candidates(sets, self.pieces, question.smallest, blocking=self.blocking, windows=not exact)
        if question.is_even:
            # Windows and ramps go by another numbering of chunks.
            flat = [each for each in every if each.steepness == 1 and not each.window]
            every = [each for each in flat if question.is_writable(each)] or [min(flat, key=question.moves)]
        fits = [each for each in every if question.moves(each) <= MOST_MOVES]
        if not fits:
            return self._least(every)
        if exact:
            self._list(sets[0], fits[0].time_s)
        self._run(fits)
        if not exact and self._lists():
            self._list(sets[0], min(self.ran.values(), default=0) / PS)
        return min(self.ran, key=lambda each: (self.ran[each], question.moves(each)), default=fits[0])

    def _run(self, fits: Sequence[PiecedForest]) -> None:
        """Run candidates until one is good, or none is better."""
        left, ran = MOST_TRIED, self.ran
        queue = self._by_form(fits)
        while queue:
            one = queue.pop(0)
            moves = self.question.moves(one)
            if one in ran or moves > left or (ran and one.time_s * PS > FAR_OFF * min(ran.values())):
                continue
            if ran and self.question.deadline.passed():
                break
            left -= moves
            self._time(one)
            good = GOOD if MOST_TRIED - left < MANY_TRIED else ENOUGH
            if ran[one] <= good * least_s(one.forests) * PS:
                break
            if not queue:
                flat = [each for each in ran if each.listed is None]
                queue = [each for each in beside(min(flat, key=lambda each: ran[each]), fits) if each not in ran]

    def _time(self, one: PiecedForest) -> None:
        program = self.question.program(one, alpha=self.alpha)
        self.ran[one] = simulate(program, self.question.machine, alpha=self.alpha).time_ps

    @property
    def is_direct(self) -> bool:
        """Whether each arc is one link."""
        return bool((np.diff(self.question.arcs.starts) == 1).all())

    def _lists(self) -> bool:
        """Whether an order of messages may be sought: nothing is asked that has none."""
        question = self.question
        return self.pieces is None and not question.is_even and question.variant != "rounds" and question.lists_moves

    def _list(self, forests: tuple[Forest, ...], best_s: float) -> None:
        """Seek an order of messages where that may gain enough over ``best_s``, and run it."""
        latency_s = sum(float(each.rounds.latency_s.sum()) for each in forests)
        if best_s < WORTH * (least_s(forests) + latency_s) or self.question.deadline.passed():
            return
        searches = [self._search(forests)]
        if self.is_direct:
            # Optima differ in how well their trees share links; none of them is faster, and many are quickly made.
            for more in range(1, OPTIMA):
                if searches[-1].first_s <= searches[-1].enough_s or self.question.deadline.passed():
                    break
                searches.append(self._search(self.question.packing(more).phases(0)))
        left, best = MOST_RUN, best_s
        for search in sorted(searches, key=lambda each: each.first_s):
            search.left = left
            one = search.best(self.question.deadline.passed)
            left = search.left
            if one is not None and one.time_s < best:
                best = one.time_s
                self._time(one)
            if best <= search.enough_s:
                break

    def _search(self, forests: tuple[Forest, ...]) -> ListSearch:
        question = self.question
        made, enough_s = machine(question.machine, self.alpha), ENOUGH * least_s(forests)
        smallest = question.smallest(forests)
        return ListSearch(forests, made, question.program, question.rounds, smallest, enough_s, blocking=self.blocking)

    def _by_form(self, fits: Sequence[PiecedForest]) -> list[PiecedForest]:
        """Return of each form one with few moves that is about as fast as its fastest: apart and merged in turn."""
        forms: dict[tuple[object, ...], list[PiecedForest]] = {}
        for each in fits:
            if each.steepness == 1 or not each.merged:  # merged ones get their ramp afterwards
                forms.setdefault((*each.form, each.steepness), []).append(each)
        near = ([each for each in form if each.time_s <= form[0].time_s * NEARLY] for form in forms.values())
        best = sorted((min(each, key=self.question.moves) for each in near), key=lambda each: each.time_s)
        kinds = [[each for each in best if each.merged is merged] for merged in (False, True)]
        return [each for pair in zip_longest(*kinds) for each in pair if each is not None]

    def _least(self, every: list[PiecedForest]) -> PiecedForest:
        """Return the candidate with the fewest moves, where all are many; raise DeclinedError where they are too many."""
        least = min(every, key=lambda each: (self.question.moves(each), each.time_s))
        moves = self.question.moves(least)
        if moves > NEVER:
            raise DeclinedError(
                f"the forest is {moves:,} moves, more than {NEVER:,}, and no symmetry of the machine folds it",
                where=f"{self.question.collective.p:,} ranks",
                remedy="a fabric without faults, or fewer ranks",
            )
        return least


def least_s(forests: Sequence[Forest]) -> float:
    """Return the seconds that no forests are faster than, all phases together."""
    return sum(each.least_s for each in forests)
