"""One question for CP-SAT: is there an algorithm of C chunks, S steps and R rounds, and which?

Instead of the time at which a chunk comes to a rank, a Boolean for each (flow, chunk, edge, step) says whether it is sent there
then, if the distances leave room for that; a rank has a chunk from the step on in which one of its edges brought it, and
gets it once. Two restrictions make large questions small, and only what they leave open is asked in full: all chunks
move alike under permutations of the ranks that map the machine onto itself (one variable for all images of a send), and
chunks with one target make no detours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ringwright.algorithms.synthesis.sccl._automorphisms import Permutation, edge_images, orbits
from ringwright.ground.errors import MissingExtraError

if TYPE_CHECKING:
    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.sccl.question import RoundsQuestion

ENDLESS = 1 << 20
Send = tuple[int, int, int, int]  # step, edge, flow, chunk of the flow
Key = tuple[int, int, int, int]  # flow, edge, chunk of the flow, step


@dataclass(frozen=True)
class AskedSearch:
    """Chunks of each flow, steps and rounds."""

    chunks: int
    steps: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.chunks} chunks, {self.steps} steps, {self.rounds} rounds"


@dataclass(frozen=True)
class RoundsSchedule:
    """An algorithm: its sends in order, and how many rounds each step lasts."""

    asked: AskedSearch
    sends: tuple[Send, ...]
    lasts: tuple[int, ...]


class Model:
    """The model of a question under restrictions.

    ``period``: steps so far apart fall into one round (of a batch that is repeated); ``fewest``: as few rounds as can be.
    """

    def __init__(
        self,
        question: RoundsQuestion,
        asked: AskedSearch,
        generators: tuple[Permutation, ...] = (),
        detour: int = ENDLESS,
        period: int = 0,
        fewest: bool = False,
    ) -> None:
        try:
            from ortools.sat.python import cp_model
        except ImportError:
            raise MissingExtraError("this search needs OR-tools (CP-SAT)", extra="solve", only=("ortools",)) from None
        self.question, self.asked, self.detour, self.period = question, asked, detour, period
        self.cp, self.model = cp_model, cp_model.CpModel()
        self.edges = question.wires.edges
        self._merge(generators)
        self.sends = {key: self.model.new_bool_var("") for key in self._possible()}
        self.has: dict[Key, Any] = {}
        self.lasts = [self.model.new_int_var(1, asked.rounds, "") for _ in range(asked.steps)]
        if fewest:
            self.model.add(sum(self.lasts) <= asked.rounds)
            self.model.minimize(sum(self.lasts))
        else:
            self.model.add(sum(self.lasts) == asked.rounds)
        self._arrivals()
        self._departures()
        self._limits()

    def _merge(self, generators: tuple[Permutation, ...]) -> None:
        """Find of each (flow, edge) and (flow, rank) the one that stands for all its images."""
        wires, flows = self.question.wires, self.question.flows
        number = {flow: at for at, flow in enumerate(flows)}
        moved = [
            [number[made[src], tuple(sorted(made[end] for end in ends))] for src, ends in flows] for made in generators
        ]
        edges = [edge_images(wires, made) for made in generators]
        self.first_edge = _paired(len(flows), len(self.edges), moved, edges)
        self.first_rank = _paired(len(flows), wires.p, moved, generators)

    def _possible(self) -> list[Key]:
        """Return the sends that a schedule may have: the chunk can be there by then, and be of use in time."""
        hops, steps = self.question.wires.hops, self.asked.steps
        keys = []
        for at, (src, ends) in enumerate(self.question.flows):
            for edge, (here, there) in enumerate(self.edges):
                first = self.first_edge[at * len(self.edges) + edge]
                if there == src or first != at * len(self.edges) + edge:
                    continue
                left = min(hops[there][end] for end in ends)
                if len(ends) == 1 and hops[src][here] + 1 + left > hops[src][ends[0]] + self.detour:
                    continue
                possible = [step for step in range(steps) if hops[src][here] <= step and step + 1 + left <= steps]
                keys += [(at, edge, chunk, step) for chunk in range(self.asked.chunks) for step in possible]
        return keys

    def _send(self, flow: int, edge: int, chunk: int, step: int) -> Any:
        first = self.first_edge[flow * len(self.edges) + edge]
        return self.sends.get((*divmod(first, len(self.edges)), chunk, step))

    def _arrivals(self) -> None:
        """A rank gets a chunk once at most, and one that it needs by the end."""
        p = self.question.wires.p
        entering: list[list[int]] = [[] for _ in range(p)]
        for edge, (_, there) in enumerate(self.edges):
            entering[there].append(edge)
        for flow, (src, ends) in enumerate(self.question.flows):
            for rank in range(p):
                if rank == src or self.first_rank[flow * p + rank] != flow * p + rank:
                    continue
                for chunk in range(self.asked.chunks):
                    self._arrival(flow, rank, chunk, entering[rank], is_needed=rank in ends)

    def _arrival(self, flow: int, rank: int, chunk: int, entering: Sequence[int], *, is_needed: bool) -> None:
        come: list[Any] = []
        for step in range(self.asked.steps):
            sent = [self._send(flow, edge, chunk, step) for edge in entering]
            come += [each for each in sent if each is not None]
            if come:
                self.has[flow, rank, chunk, step + 1] = held = self.model.new_bool_var("")
                self.model.add(sum(come) == held)
        if is_needed:
            self.model.add(sum(come) == 1)

    def _departures(self) -> None:
        """A rank sends what it has had since the step before."""
        p = self.question.wires.p
        for (flow, edge, chunk, step), sent in self.sends.items():
            here = self.edges[edge][0]
            if here == self.question.flows[flow][0]:
                continue
            first = self.first_rank[flow * p + here]
            held = self.has.get((first // p, first % p, chunk, step))
            if held is None:
                self.model.add(sent == 0)
            else:
                self.model.add_implication(sent, held)

    def _limits(self) -> None:
        """What crosses a limit in a step fits into the rounds that the step lasts; with a period, in all steps so far apart."""
        known: set[tuple[object, ...]] = set()
        apart = self.period or self.asked.steps
        for limit in self.question.wires.limits:
            firsts = [
                self.first_edge[flow * len(self.edges) + edge]
                for edge in limit.edges
                for flow in range(len(self.question.flows))
            ]
            crossing = sorted(Counter(firsts).items())
            if (key := (limit.chunks, *crossing)) in known:
                continue
            known.add(key)
            for first in range(min(apart, self.asked.steps)):
                terms = self._crossing(crossing, range(first, self.asked.steps, apart))
                if terms:
                    self.model.add(sum(terms) <= limit.chunks * self.lasts[first])

    def _crossing(self, crossing: Sequence[tuple[int, int]], steps: Sequence[int]) -> list[Any]:
        return [
            times * sent
            for first, times in crossing
            for chunk in range(self.asked.chunks)
            for step in steps
            if (sent := self.sends.get((*divmod(first, len(self.edges)), chunk, step))) is not None
        ]

    def solve(self, work: float, seed: int, deadline: Deadline) -> tuple[RoundsSchedule | bool | None, float]:
        """Return a schedule, False where there is none, None where neither was shown in time; and the work that it took."""
        from ringwright.algorithms.solving import solved

        solver, status = solved(self.model, work, seed, deadline)
        spent = float(solver.response_proto.deterministic_time)
        if status in (self.cp.OPTIMAL, self.cp.FEASIBLE):
            return self._schedule(solver), spent
        return False if status == self.cp.INFEASIBLE else None, spent

    def _schedule(self, solver: Any) -> RoundsSchedule:
        taken = {key for key, sent in self.sends.items() if solver.boolean_value(sent)}
        size = len(self.edges)
        sends = [
            (step, edge, flow, chunk)
            for flow in range(len(self.question.flows))
            for edge in range(size)
            for chunk in range(self.asked.chunks)
            for step in range(self.asked.steps)
            if (*divmod(self.first_edge[flow * size + edge], size), chunk, step) in taken
        ]
        lasts = tuple(solver.value(each) for each in self.lasts)
        return RoundsSchedule(replace(self.asked, rounds=sum(lasts)), tuple(self._used(sends)), lasts)

    def _used(self, sends: list[Send]) -> list[Send]:
        """Return the sends that bring a chunk nearer to who needs it: those that its targets are traced back to."""
        brought = {(flow, chunk, self.edges[edge][1]): (step, edge, flow, chunk) for step, edge, flow, chunk in sends}
        kept: set[Send] = set()
        for flow, (src, ends) in enumerate(self.question.flows):
            for chunk in range(self.asked.chunks):
                for end in ends:
                    rank = end
                    while rank != src and (send := brought[flow, chunk, rank]) not in kept:
                        kept.add(send)
                        rank = self.edges[send[1]][0]
        return sorted(kept)


def _paired(n: int, m: int, left: Sequence[Sequence[int]], right: Sequence[Sequence[int]]) -> list[int]:
    """Return the orbits of pairs, numbered ``first * m + second``, under maps of both at once."""
    images = [[a[one] * m + b[two] for one in range(n) for two in range(m)] for a, b in zip(left, right, strict=True)]
    return orbits(n * m, images)
