"""The routing program: routes of all chunks at once, by an integer program without an order of sends (TACCL's first stage).

Its time is at least that of every chunk alone on its way, and at least what each link has to carry; which chunk goes first is
left open, so that it is small. Chunks that turns of the machine map on each other share their variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import MissingExtraError
from ringwright.ground.extras import install

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.taccl.routing import Route, Router

MOST_BINARIES = 1_500
NODES = 200  # of branch and bound
CONNECTION = 0.01  # of a tick for each connection through a switch, as the paper weighs them
GAP = 0.005
SPREAD = 0.05  # what the most used link inside a host weighs against the time


def routes(router: Router, seconds: float) -> list[Route] | None:
    """Return routes of the first chunk of each orbit, within so many seconds; None where the program is too large or finds none.

    MissingExtraError without SciPy.
    """
    program = _Program(router)
    if not 0 < program.binaries <= MOST_BINARIES:
        return None
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError:
        raise MissingExtraError(
            "taccl routes by SciPy's HiGHS", extra="solve", remedy=f"{install('solve')}, or effort=0.5"
        ) from None
    matrix = csr_array((program.values, (program.rows, program.columns)), shape=(len(program.least), program.count))
    options = {"node_limit": NODES, "mip_rel_gap": GAP} | ({"time_limit": seconds} if seconds < float("inf") else {})
    answer = milp(
        program.cost(),
        integrality=program.integral(),
        bounds=Bounds(np.zeros(program.count), program.most_of()),
        constraints=LinearConstraint(matrix, program.least, program.most),
        options=options,
    )
    return None if answer.x is None else program.chosen(answer.x)


@dataclass
class _Program:
    """Variables: the time, the load of the fullest link inside, then each chunk's arcs (0 or 1) and when it is at each node."""

    router: Router
    count: int = 2
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        router = self.router
        self.chunks = [router.chunks[first] for first in router.orbits.first]
        self.allowed = [router.allowed(chunk) for chunk in self.chunks]
        self.binaries = sum(map(len, self.allowed))
        if not 0 < self.binaries <= MOST_BINARIES:
            return
        self.used: list[dict[int, int]] = []
        self.at: list[dict[int, int]] = []
        for chunk, allowed in zip(self.chunks, self.allowed, strict=True):
            self.used.append({arc: self._new() for arc in allowed})
            nodes = {router.wiring.arcs[arc].dst for arc in allowed} | {chunk.origin}
            self.at.append({node: self._new() for node in sorted(nodes)})
        self.connections = self._connected() if router.wiring.policy else {}
        self.unit_ps = max(
            (self._time(number, arc) for number, row in enumerate(self.allowed) for arc in row), default=1
        )
        for number in range(len(self.chunks)):
            self._tree(number)
        self._loads()

    def _new(self) -> int:
        self.count += 1
        return self.count - 1

    def _row(self, entries: Sequence[tuple[int, float]], least: float, most: float) -> None:
        for column, value in entries:
            self.rows.append(len(self.least))
            self.columns.append(column)
            self.values.append(value)
        self.least.append(least)
        self.most.append(most)

    def _time(self, number: int, arc: int) -> int:
        return max(1, self.router.network.passage(arc, self.chunks[number].size_bytes).total_ps)

    def _tree(self, number: int) -> None:
        """Add that a chunk comes to each place that needs it once, to others at most once, and only from where it is."""
        arcs, chunk = self.router.wiring.arcs, self.chunks[number]
        used, at = self.used[number], self.at[number]
        into: dict[int, list[int]] = {node: [] for node in at}
        for arc in used:
            into[arcs[arc].dst].append(arc)
        far = self._latest(number)
        for node, come in into.items():
            entries = [(used[arc], 1.0) for arc in come]
            if node == chunk.origin:
                self._row([(at[node], 1.0), *entries], 0.0, 0.0)
                continue
            self._row(entries, 1.0 if node in chunk.targets else 0.0, 1.0)
            if node in chunk.targets:
                self._row([(0, 1.0), (at[node], -1.0)], 0.0, np.inf)
        for arc, column in used.items():
            here, there, lasts = arcs[arc].src, arcs[arc].dst, self._time(number, arc) / self.unit_ps
            if here not in at:
                self._row([(column, 1.0)], 0.0, 0.0)
                continue
            # It is there no earlier than here and the time of the arc, where the arc is used.
            self._row([(at[there], 1.0), (at[here], -1.0), (column, -(lasts + far))], -far, np.inf)
            if here != chunk.origin:
                self._row([*((used[each], 1.0) for each in into[here]), (column, -1.0)], 0.0, np.inf)
        hosts = self.router.wiring.hosts
        doors: dict[int, list[int]] = {}
        for arc in used:
            if arcs[arc].remote:
                doors.setdefault(hosts[arcs[arc].dst], []).append(arc)
        for row in doors.values():
            self._row([(used[arc], 1.0) for arc in row], 1.0, 1.0)

    def _latest(self, number: int) -> float:
        """Return a time at which a chunk alone is everywhere, whatever sensible way it takes."""
        longest = max(self._time(number, arc) for arc in self.allowed[number])
        return len(self.at[number]) * longest / self.unit_ps

    def _loads(self) -> None:
        """Add that the time is no less than what each resource carries, all images of a chunk counted."""
        router = self.router
        load: dict[int, dict[int, float]] = {}
        remote: set[int] = set()
        for number, (chunk, used) in enumerate(zip(self.chunks, self.used, strict=True)):
            for turn in router.images[number]:
                for arc, column in used.items():
                    image = router.turned((arc,), turn)[0]
                    for resource, begin, until in router.network.passage(image, chunk.size_bytes).busy:
                        row = load.setdefault(resource, {})
                        row[column] = row.get(column, 0.0) + (until - begin) / self.unit_ps
                        remote |= {resource} if router.wiring.arcs[image].remote else set()
        seen: set[tuple[tuple[int, float], ...]] = set()
        for resource, row in load.items():
            entries = tuple((column, -value) for column, value in sorted(row.items()))
            if entries not in seen:
                seen.add(entries)
                self._row([(0, 1.0), *entries], 0.0, np.inf)
                if resource not in remote:
                    self._row([(1, 1.0), *entries], 0.0, np.inf)

    def _connected(self) -> dict[int, int]:
        """Add a variable for each connection of the first host, 1 where any chunk goes over it; its images count as it does."""
        router = self.router
        between, turns = router.wiring.between, router.wiring.turns or (tuple(range(router.wiring.p)),)
        first: dict[int, int] = {}
        for arc, each in enumerate(router.wiring.arcs):
            if not each.remote:
                first[arc] = min(between[turn[each.src], turn[each.dst]] for turn in turns)
        columns = {arc: self._new() for arc in sorted(set(first.values()))}
        for used in self.used:
            for arc, column in used.items():
                if arc in first:
                    self._row([(columns[first[arc]], 1.0), (column, -1.0)], 0.0, np.inf)
        if router.wiring.policy == "uc-max":
            for arc, column in columns.items():
                users = [used[each] for used in self.used for each in used if first.get(each) == arc]
                self._row([(column, 1.0), *((user, -1.0) for user in users)], -np.inf, 0.0)
        return columns

    def cost(self) -> np.ndarray:
        """Return what is made least: the time, a little of the load inside, and of connections by the policy.

        float64 of shape (count,).
        """
        cost = np.zeros(self.count)
        cost[0], cost[1] = 1.0, SPREAD
        sign = -1.0 if self.router.wiring.policy == "uc-max" else 1.0
        cost[list(self.connections.values())] = sign * CONNECTION
        return cost

    def integral(self) -> np.ndarray:
        """Return which variables are whole. uint8 of shape (count,)."""
        whole = np.zeros(self.count, np.uint8)
        for used in self.used:
            whole[list(used.values())] = 1
        return whole

    def most_of(self) -> np.ndarray:
        """Return the most that each variable can be. float64 of shape (count,)."""
        most = np.full(self.count, np.inf)
        for used in self.used:
            most[list(used.values())] = 1.0
        most[list(self.connections.values())] = 1.0
        return most

    def chosen(self, values: np.ndarray) -> list[Route]:
        """Return the routes of a solution: the arcs that lead to targets, those nearer to the origin first."""
        arcs = self.router.wiring.arcs
        routes: list[Route] = []
        for chunk, used in zip(self.chunks, self.used, strict=True):
            into = {arcs[arc].dst: arc for arc, column in used.items() if values[column] > 0.5}
            routes.append(self.router.tree(chunk, into))
        return routes
