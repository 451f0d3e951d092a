"""The search: routes with more or less regard to load, sends joined in several ways, and the timetable that ends first.

Work is counted in sends put into a timetable, so that the same question gets the same answer on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.algorithms.synthesis.taccl import contiguity, relaxed
from ringwright.algorithms.synthesis.taccl.demands import Demands, sends
from ringwright.algorithms.synthesis.taccl.ordering import ArcTimes, Joining, Send, Timetable, list_schedule, tails
from ringwright.algorithms.synthesis.taccl.routing import Route, Router

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.taccl.sketch import LogicalTopology


@dataclass(frozen=True)
class Routing:
    """How routes are made: see ``Router.greedy``; ``direct`` chunks take the shortest ways whatever links carry."""

    weight: float
    reach: float = 1.0
    direct: int = 0
    entrances: bool = True


# From wide, balanced trees with one chunk that goes the shortest ways, to the shortest ways for all.
TREES = (Routing(1, 0, 1), Routing(0), Routing(16, 0.2, 1), Routing(16), Routing(1, 0.5), Routing(4, 0, 2))
PATHS = (Routing(0), Routing(4), Routing(1), Routing(16))
MOST_PROVED = 3  # sets of routes whose order is proved
RATIOS = (1.0, 5.0, 2.0, math.inf, 8.0, 3.0)


@dataclass
class Attempt:
    """A timetable, and what it was made from."""

    demand: Demands
    network: ArcTimes
    sends: list[Send]
    urgency: list[float]
    table: Timetable
    joining: Joining
    routing: str
    sizes: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def time_ps(self) -> int:
        """When the last message has arrived."""
        return self.table.time_ps


class Search:
    """The best timetable so far of one cut of a collective; ``left`` is how many sends may still be put into one."""

    def __init__(
        self,
        demand: Demands,
        wiring: LogicalTopology,
        deadline: Deadline,
        work: int,
        *,
        blocking: bool,
        hops: bool = False,
    ) -> None:
        self.demand, self.wiring, self.deadline, self.left, self.hops = demand, wiring, deadline, work, hops
        self.network = ArcTimes(wiring.arcs, blocking)
        self.best: Attempt | None = None
        self.tops: list[Attempt] = []  # the best of each set of routes
        self.least_ps: float | None = None  # below which no order of the routes that were proved is

    @property
    def result(self) -> Attempt:
        """The best timetable; there is one from the first routes on."""
        assert self.best is not None  # noqa: S101 - ``run`` always tries its first routes
        return self.best

    def run(self) -> None:
        """Try routes and ways to join, the most promising first."""
        trees = any(len(chunk.targets) > 1 for chunk in self.demand.chunks)
        first = self.demand.chunks[0] if self.demand.chunks else None
        plans = TREES if trees and first is not None else PATHS
        several = len(set(self.wiring.hosts)) > 1
        for routing in (*plans, *((Routing(0, entrances=False),) if several and trees else ())):
            if self.best is not None and (self.left <= 0 or self.deadline.passed()):
                return
            self.try_routes(*self.routes(routing), f"greedy, weight {routing.weight:g}, reach {routing.reach:g}")

    def proved(self, seconds: float, seed: int) -> None:
        """Improve what was found by integer programs: routes of all chunks at once, then the order of the best timetables."""
        if self.deadline.passed():
            return
        self._program()
        for tried in sorted(self.tops, key=lambda each: each.time_ps)[:MOST_PROVED]:
            if self.deadline.passed():
                return
            least = contiguity.exact(self, tried, seconds, seed)
            if least is not None:
                self.least_ps = least if self.least_ps is None else min(self.least_ps, least)
        contiguity.resized(self)

    def _router(self, wiring: LogicalTopology) -> Router:
        return Router(self.demand.chunks, wiring, ArcTimes(wiring.arcs, self.network.blocking), hops=self.hops)

    def _program(self) -> None:
        """Try the routes of the integer program, where it is small enough."""
        pair: list[list[Route]] = []
        for wanted, wiring in ((self.demand.gathers, self.wiring.reversed()), (self.demand.spreads, self.wiring)):
            if not wanted:
                pair.append([()] * len(self.demand.chunks))
                continue
            router = self._router(wiring)
            routes = relaxed.routes(router, self.deadline.left_s)
            if routes is None:
                return
            pair.append(router.whole(routes))
        self.try_routes(pair[0], pair[1], "integer program")

    def routes(self, routing: Routing) -> tuple[list[Route], list[Route]]:
        """Return the routes up and down of all chunks."""
        pair: list[list[Route]] = []
        for wanted, wiring in ((self.demand.gathers, self.wiring.reversed()), (self.demand.spreads, self.wiring)):
            if not wanted:
                pair.append([()] * len(self.demand.chunks))
                continue
            router = self._router(wiring)
            routes = router.greedy(routing.weight, reach=routing.reach, entrances=routing.entrances)
            router.load = {}
            for at in range(max(0, len(routes) - routing.direct), len(routes)):
                routes[at] = router.route(self.demand.chunks[router.orbits.first[at]], 0)
            pair.append(router.whole(routes))
        return pair[0], pair[1]

    def try_routes(self, up: Sequence[Route], down: Sequence[Route], said: str) -> None:
        """Try the ways to join for some routes."""
        made = sends(self.demand, self.wiring, up, down)
        urgency = [float(tail) for tail in tails(made, self.network)]
        top: Attempt | None = None
        for joining in self._joinings(made):
            if self.best is not None and (self.left <= 0 or self.deadline.passed()):
                break
            tried = self.try_order(made, urgency, joining, said)
            top = tried if top is None or tried.time_ps < top.time_ps else top
        self.tops += [] if top is None else [top]

    def try_order(
        self,
        made: list[Send],
        urgency: list[float],
        joining: Joining,
        said: str,
        sizes: Mapping[int, Sequence[int]] | None = None,
    ) -> Attempt:
        """Return one timetable, which is remembered where it is the best so far."""
        self.left -= len(made)
        ordered = self.wiring.ordered
        table = list_schedule(made, self.network, joining, urgency, own_first=ordered, sizes=sizes)
        tried = Attempt(self.demand, self.network, made, urgency, table, joining, said, sizes or {})
        if self.best is None or tried.time_ps < self.best.time_ps:
            self.best = tried
        return tried

    def _joinings(self, made: Sequence[Send]) -> Iterator[Joining]:
        """Yield ways to join; the arcs inside hosts join all that is ready, or nothing."""
        used = {send.arc for send in made}
        remote = any(self.wiring.arcs[arc].remote for arc in used)
        yield Joining()
        for ratio in RATIOS[1:] if remote else ():
            yield Joining(ratio)
        for ratio in RATIOS if remote else (1.0,):
            yield Joining(ratio, math.inf)
        if remote:
            yield Joining(math.inf, math.inf, hold=True)
            yield Joining(2.0, math.inf, hold=True)
        else:
            yield Joining(1.0, 2.0)
