"""How a strategy chooses: by threshold, by trying all, by list scheduling, by annealing, or by an integer program.

Every chooser asks functions of the caller for costs, counts what it asks against a budget, and draws by a seed: the same question
gets the same answer on every machine. A budget is a number of evaluations, never a time.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from ringwright.ground.errors import InfeasibleError, MissingExtraError, UsageError
from ringwright.ground.stepwise import tally

Candidate = TypeVar("Candidate", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)
LISTED = 4  # nodes of a list schedule that are as much work as an instance of a job
BUDGET = 1_000


@dataclass(frozen=True)
class Chosen(Generic[Candidate]):
    """What was chosen: the candidate, its cost, how many were evaluated, and whether none can be better (``is_best``)."""

    candidate: Candidate
    cost: float
    evaluated: int
    is_best: bool


@dataclass
class _Asked(Generic[Candidate]):
    """Costs that were asked for, each once; the best so far, the earliest of equals."""

    cost: Callable[[Candidate], float]
    known: dict[Candidate, float] = field(default_factory=dict)
    best: Candidate | None = None

    def of(self, candidate: Candidate) -> float:
        if candidate not in self.known:
            cost = float(self.cost(candidate))
            if math.isnan(cost):
                raise UsageError(f"the cost of {candidate} is no number", remedy="a cost, or inf for what cannot be")
            self.known[candidate] = cost
            if self.best is None or cost < self.known[self.best]:
                self.best = candidate
        return self.known[candidate]

    def choice(self, *, is_best: bool) -> Chosen[Candidate]:
        if self.best is None or self.known[self.best] == math.inf:
            raise InfeasibleError(
                f"none of {len(self.known):,} candidates is possible", remedy="other candidates, or a larger budget"
            )
        return Chosen(self.best, self.known[self.best], len(self.known), is_best)


def threshold(candidates: Sequence[Candidate], is_enough: Callable[[Candidate], bool]) -> Candidate:
    """Return the first candidate that is enough, else the last: what grows along a line has one place to stop.

    UsageError without candidates.
    """
    if not candidates:
        raise UsageError("there is nothing to choose from", remedy="one candidate or more")
    return next((each for each in candidates if is_enough(each)), candidates[-1])


def enumerated(
    candidates: Iterable[Candidate],
    cost: Callable[[Candidate], float],
    *,
    bound: Callable[[Candidate], float] | None = None,
    budget: int = BUDGET,
) -> Chosen[Candidate]:
    """Return the cheapest candidate, those left out whose ``bound`` (a cost it cannot fall below) is no better.

    With more candidates than the budget the first are tried, and ``is_best`` is false. InfeasibleError where all cost inf.
    """
    asked, several = _Asked(cost), iter(candidates)
    for candidate in several:
        if bound is not None and asked.best is not None and bound(candidate) >= asked.known[asked.best]:
            continue
        if len(asked.known) >= budget and candidate not in asked.known:
            return asked.choice(is_best=False)
        asked.of(candidate)
    return asked.choice(is_best=True)


def annealed(
    start: Candidate,
    neighbour: Callable[[Candidate, random.Random], Candidate],
    cost: Callable[[Candidate], float],
    *,
    budget: int = BUDGET,
    seed: int = 0,
    hot: float = 0.1,
    cold: float = 1e-4,
) -> Chosen[Candidate]:
    """Return the best candidate of a walk that takes worse ones less and less often (simulated annealing).

    ``hot`` and ``cold`` are temperatures at its beginning and end, as shares of the first cost; between them it falls by the
    same factor at each step. A candidate that was seen costs nothing of the budget; ten times as many steps are the most.
    Source: Kirkpatrick, Gelatt, Vecchi: Optimization by Simulated Annealing, Science 1983.
    """
    if budget < 1 or not 0 < cold <= hot:
        raise UsageError(f"a walk of {budget} evaluations from {hot} to {cold}", remedy="1 or more, 0 < cold <= hot")
    draw, asked = random.Random(seed), _Asked(cost)  # noqa: S311 - a walk, no secret
    at, now = start, asked.of(start)
    scale = now if 0 < now < math.inf else 1.0
    for _ in range(10 * budget):
        if len(asked.known) >= budget:
            break
        share = len(asked.known) / budget
        temperature = scale * hot * (cold / hot) ** share
        other = neighbour(at, draw)
        cost_there = asked.of(other)
        worse = cost_there - now
        if worse <= 0 or (worse < math.inf and draw.random() < math.exp(-worse / temperature)):
            at, now = other, cost_there
    return asked.choice(is_best=False)


@dataclass(frozen=True)
class Listed(Generic[Name]):
    """A list schedule: when each node starts, in the order in which they do, and when the last one ends. Seconds."""

    starts: Mapping[Name, float]
    makespan: float

    @property
    def order(self) -> tuple[Name, ...]:
        """The nodes in the order in which they start."""
        return tuple(sorted(self.starts, key=lambda name: self.starts[name]))


def list_scheduled(
    seconds: Mapping[Name, float],
    after: Mapping[Name, Iterable[Name]],
    on: Mapping[Name, str],
    urgency: Callable[[Name], float] | None = None,
) -> Listed[Name]:
    """Return when nodes start that run ``seconds`` each, ``after`` others, one at a time ``on`` a resource each.

    Whenever a resource is free, the most urgent ready node starts: large first, without ``urgency`` by the longest way to the end
    (the critical path), and by the order in which ``seconds`` lists them. UsageError for nodes that wait for each other.
    """
    tally(len(seconds) // LISTED)
    return _Listing(seconds, after, on, urgency).run()


class _Listing(Generic[Name]):
    """A list schedule in the making: nodes and resources by number, who is ready on which resource, and who ends when."""

    def __init__(
        self,
        seconds: Mapping[Name, float],
        after: Mapping[Name, Iterable[Name]],
        on: Mapping[Name, str],
        urgency: Callable[[Name], float] | None,
    ) -> None:
        self.names = list(seconds)
        number = {name: at for at, name in enumerate(self.names)}
        self.seconds = list(seconds.values())
        self.before = [
            list(dict.fromkeys([number[each] for each in after.get(name, ()) if each in number])) for name in self.names
        ]
        resources: dict[str, int] = {}
        self.on = [resources.setdefault(on[name], len(resources)) for name in self.names]
        self.users: list[list[int]] = [[] for _ in self.names]
        for at, earlier in enumerate(self.before):
            for each in earlier:
                self.users[each].append(at)
        urgent = map(urgency, self.names) if urgency else _tails(self.seconds, self.before, self._topological())
        self.rank = [-each for each in urgent]
        self.missing = [len(earlier) for earlier in self.before]
        self.ready: list[list[tuple[float, int]]] = [[] for _ in resources]
        self.offered: dict[int, int] = {}  # resource -> how many had something ready before it
        self.touched: set[int] = set()  # resources that are free since, or on which something is ready since
        self.busy = [0.0] * len(resources)
        self.ending: list[tuple[float, int]] = []
        self.starts: dict[Name, float] = {}

    def run(self) -> Listed[Name]:
        for at, count in enumerate(self.missing):
            if not count:
                self._offer(at)
        now = 0.0
        while len(self.starts) < len(self.seconds):
            self._begin(now)
            if not self.ending:
                self._topological()  # which says who waits for itself
            now = self.ending[0][0]
            self._end(now)
        ends = (at + taken for at, taken in zip(map(self.starts.__getitem__, self.names), self.seconds, strict=True))
        return Listed(self.starts, max(ends, default=0.0))

    def _offer(self, at: int) -> None:
        resource = self.on[at]
        heapq.heappush(self.ready[resource], (self.rank[at], at))
        self.offered.setdefault(resource, len(self.offered))
        self.touched.add(resource)

    def _begin(self, now: float) -> None:
        """Start the most urgent node of each resource that is free."""
        touched = self.touched if len(self.touched) < 2 else sorted(self.touched, key=self.offered.__getitem__)
        for resource in touched:
            waiting = self.ready[resource]
            while waiting and self.busy[resource] <= now:
                at = heapq.heappop(waiting)[1]
                self.starts[self.names[at]] = now
                self.busy[resource] = end = now + self.seconds[at]
                heapq.heappush(self.ending, (end, at))
        self.touched.clear()

    def _end(self, now: float) -> None:
        """Let those go on that waited for what ends now."""
        while self.ending and self.ending[0][0] <= now:
            at = heapq.heappop(self.ending)[1]
            self.touched.add(self.on[at])
            for user in self.users[at]:
                self.missing[user] -= 1
                if not self.missing[user]:
                    self._offer(user)

    def _topological(self) -> list[int]:
        """Return the nodes, each behind those that it waits for; UsageError for nodes that wait for each other."""
        missing = [len(earlier) for earlier in self.before]
        order = [at for at, count in enumerate(missing) if not count]
        for at in order:
            for user in self.users[at]:
                missing[user] -= 1
                if not missing[user]:
                    order.append(user)
        if len(order) < len(missing):
            stuck = next(name for name, count in zip(self.names, missing, strict=True) if count)
            raise UsageError(f"{stuck} waits for itself, through others", remedy="nodes that wait in no circle")
        return order


def _tails(seconds: Sequence[float], before: Sequence[Sequence[int]], order: Sequence[int]) -> list[float]:
    """Return the longest way from the start of each node to the end."""
    tail = list(seconds)
    for at in reversed(order):
        for each in before[at]:
            tail[each] = max(tail[each], seconds[each] + tail[at])
    return tail


@dataclass(frozen=True)
class Constraints:
    """Constraints of an integer program: ``least <= sum of coefficient * variable <= most``, each row by variable."""

    coefficients: tuple[Mapping[str, float], ...]
    least: tuple[float, ...]
    most: tuple[float, ...]


@dataclass(frozen=True)
class Solved:
    """The solution of an integer program: values by variable, its cost, and how far it is from the best at most (a share)."""

    values: Mapping[str, float]
    cost: float
    gap: float


def integer_program(
    cost: Mapping[str, float],
    rows: Constraints,
    *,
    whole: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    nodes: int = 100_000,
) -> Solved:
    """Return variables that keep all rows at the least cost, by HiGHS (branch and bound, at most ``nodes`` of it).

    ``whole`` variables are integers; without ``bounds`` a variable is 0 or more. UsageError for a row of an unknown variable,
    InfeasibleError where no solution exists or none was found, MissingExtraError without SciPy.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError:
        raise MissingExtraError("integer programs need SciPy", extra="solve") from None
    names = {name: at for at, name in enumerate(cost)}
    strange = next((each for row in rows.coefficients for each in row if each not in names), None)
    if strange is not None:
        raise UsageError(
            f"a row has a variable '{strange}' without a cost", remedy="a cost of 0 for what costs nothing"
        )
    given = bounds or {}
    limits = Bounds(*np.array([given.get(name, (0.0, math.inf)) for name in names]).T)
    entries = [(at, names[name], value) for at, row in enumerate(rows.coefficients) for name, value in row.items()]
    at, column, value = zip(*entries, strict=True) if entries else ((), (), ())
    matrix = csr_array((value, (at, column)), shape=(len(rows.coefficients), len(names)))
    constraints = [LinearConstraint(matrix, rows.least, rows.most)] if entries else []
    integers = set(whole)
    solution = milp(
        np.array(list(cost.values()), float),
        integrality=np.array([name in integers for name in names], int),
        bounds=limits,
        constraints=constraints,
        options={"node_limit": nodes},
    )
    if solution.x is None:
        raise InfeasibleError(f"the integer program has no solution: {solution.message}", remedy="fewer or weaker rows")
    values = {
        name: float(round(each)) if name in integers else float(each)
        for name, each in zip(names, solution.x, strict=True)
    }
    return Solved(values, float(solution.fun), float(solution.mip_gap or 0.0))
