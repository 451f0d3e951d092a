"""Which sends travel together, and when they start: an integer program over routes that are fixed, from a timetable on.

CP-SAT is given the order of sends over arcs between hosts, and chooses for each whether it joins the one before it (a message of
m sends takes alpha + m beta, and all arrive at its end); over all other arcs it orders them as well. What turns of the machine
map on each other starts together. Larger questions are improved send by send: how many go in each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.algorithms.synthesis.taccl.routing import orbits
from ringwright.ground.errors import MissingExtraError
from ringwright.ground.extras import install

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.taccl.search import Attempt, Search

MOST_EXACT = 200  # sends, those that turns map on each other counted once
TICKS = 1 << 20  # of the best time so far
SOLVED = ("OPTIMAL", "FEASIBLE")


def exact(search: Search, best: Attempt, seconds: float, seed: int) -> float | None:
    """Improve a timetable by CP-SAT in so many deterministic seconds; return the ps that its routes and order cannot beat.

    None where they are not known. MissingExtraError without OR-tools.
    """
    if not best.sends or best.time_ps <= 0:
        return None
    alike = _alike(search, best)
    if len(set(alike)) > MOST_EXACT:
        return None
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingExtraError(
            "taccl joins sends by OR-tools", extra="solve", remedy=f"{install('solve')}, or effort=0.5"
        ) from None
    model = _Model(best, alike, cp_model)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = seconds
    left = search.deadline.left_s
    if left < float("inf"):
        solver.parameters.max_time_in_seconds = max(left, 0.001)
    name = solver.status_name(solver.solve(model.model))
    search.deadline.passed()
    if name not in SOLVED:
        return None
    urgency = [-float(solver.value(model.start[of])) for of in alike]
    sizes = {arc: _groups([bool(solver.value(each)) for each in joined]) for arc, joined in model.joined.items()}
    search.try_order(best.sends, urgency, best.joining, f"{best.routing}; ordered by CP-SAT", sizes)
    return float(solver.best_objective_bound * model.tick_ps)


def resized(search: Search) -> None:
    """Improve how many sends each message between hosts has, one change after the other, as long as work is left."""
    best = search.best
    if best is None:
        return
    arcs = best.network.arcs
    rows: dict[int, list[int]] = {}
    for message in best.table.messages:
        if arcs[message.arc].remote:
            rows.setdefault(message.arc, []).append(len(message.sends))
    if not rows or len(set(map(tuple, rows.values()))) > 1:
        return
    sizes = next(iter(rows.values()))
    seen = {tuple(sizes)}
    improved = True
    while improved:
        improved = False
        for other in _beside(sizes):
            if search.left <= 0 or search.deadline.passed():
                return
            if tuple(other) in seen:
                continue
            seen.add(tuple(other))
            before = search.best.time_ps if search.best is not None else 0
            search.try_order(best.sends, best.urgency, best.joining, best.routing, dict.fromkeys(rows, other))
            if search.best is not None and search.best.time_ps < before:
                sizes, improved = other, True
                break


def _beside(sizes: list[int]) -> list[list[int]]:
    """Return the sizes with two neighbours joined, or some sends moved from one to the other."""
    changed = [[*sizes[:at], sizes[at] + sizes[at + 1], *sizes[at + 2 :]] for at in range(len(sizes) - 1)]
    for at in range(len(sizes) - 1):
        for some in (1, 2, 4, 8, 16):
            for here, there in ((at, at + 1), (at + 1, at)):
                if sizes[here] > some:
                    moved = list(sizes)
                    moved[here] -= some
                    moved[there] += some
                    changed.append(moved)
    return changed


def _groups(joined: Sequence[bool]) -> list[int]:
    """Return the sends of each message: of each but the first it is said whether it joins the one before."""
    sizes = [1]
    for each in joined:
        if each:
            sizes[-1] += 1
        else:
            sizes.append(1)
    return sizes


def _alike(search: Search, given: Attempt) -> list[int]:
    """Return for each send the first of those that turns map on it."""
    made, chunks = given.sends, search.demand.chunks
    of = orbits(chunks, search.wiring)
    at_chunk = {chunk.number: at for at, chunk in enumerate(chunks)}
    members: dict[int, list[int]] = {}
    for number, send in enumerate(made):
        members.setdefault(at_chunk[send.chunk], []).append(number)
    first: list[int] = list(range(len(made)))
    for at, numbers in members.items():
        for mine, theirs in zip(numbers, members[of.first[of.of[at]]], strict=True):
            first[mine] = theirs
    return first


@dataclass
class _Model:
    """The integer program: ``start`` and ``end`` of the first of all alike, ``joined`` by arc in the order of its sends."""

    given: Attempt
    alike: list[int]
    cp: Any
    start: dict[int, Any] = field(default_factory=dict)
    end: dict[int, Any] = field(default_factory=dict)
    joined: dict[int, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = self.cp.CpModel()
        self.tick_ps = max(1, self.given.time_ps // TICKS)
        self.most = self.given.time_ps * 17 // (16 * self.tick_ps) + 4 * len(set(self.alike))
        began = {send: message for message in self.given.table.messages for send in message.sends}
        for first in dict.fromkeys(self.alike):
            self.start[first] = self.model.new_int_var(0, self.most, f"start{first}")
            self.end[first] = self.model.new_int_var(0, self.most, f"end{first}")
            self.model.add_hint(self.start[first], began[first].start_ps // self.tick_ps)
        self._sends()
        self._resources()
        last = self.model.new_int_var(0, self.most, "time")
        for end in self.end.values():
            self.model.add(last >= end)
        self.model.minimize(last)

    def _ticks(self, time_ps: int) -> int:
        return time_ps // self.tick_ps  # rounded down, so that what the solver proves holds

    def _sends(self) -> None:
        """Add what comes after what, and the times of sends that travel alone."""
        given = self.given
        arcs = given.network.arcs
        order: dict[int, list[int]] = {}
        for message in given.table.messages:
            order.setdefault(message.arc, []).extend(message.sends)
        for number, send in enumerate(given.sends):
            first = self.alike[number]
            for before in send.after:
                self.model.add(self.start[first] >= self.end[self.alike[before]])
            if not arcs[send.arc].remote and first == number:
                self._alone(first)
        seen: dict[frozenset[int], int] = {}
        for arc, sends in order.items():
            if not arcs[arc].remote:
                continue
            key = frozenset(self.alike[each] for each in sends)
            if key in seen:
                self.joined[arc] = self.joined[seen[key]]
                continue
            seen[key] = arc
            self._together(arc, [self.alike[each] for each in sends])

    def _alone(self, first: int) -> None:
        send = self.given.sends[first]
        passing = self.given.network.passage(send.arc, send.size_bytes)
        self.model.add(self.end[first] == self.start[first] + self._ticks(passing.total_ps))

    def _together(self, arc: int, row: list[int]) -> None:
        """Add the sends of an arc between hosts, in their order, each with or behind the one before."""
        model, network = self.model, self.given.network
        whole = network.passage(arc, 0).total_ps
        self.joined[arc] = []
        carried: Any = None
        total = sum(self.given.sends[each].size_bytes for each in row)
        for at, first in enumerate(row):
            size = self.given.sends[first].size_bytes
            so_far = model.new_int_var(size, total, f"bytes{first}")
            if at == 0:
                model.add(so_far == size)
            else:
                joins, before = model.new_bool_var(f"joins{first}"), row[at - 1]
                self.joined[arc].append(joins)
                model.add(so_far == carried + size).only_enforce_if(joins)
                model.add(so_far == size).only_enforce_if(~joins)
                model.add(self.start[first] == self.start[before]).only_enforce_if(joins)
                model.add(self.end[first] == self.end[before]).only_enforce_if(joins)
                model.add(self.start[first] >= self.end[before]).only_enforce_if(~joins)
                self._ends(arc, before, carried, whole, ~joins)
            carried = so_far
        self._ends(arc, row[-1], carried, whole, None)

    def _ends(self, arc: int, first: int, carried: Any, whole: int, when: Any) -> None:
        """Add the end of a message whose last send it is: latency, and its bytes over the slowest link."""
        byte_ps = self.given.network.arcs[arc].byte_ps
        scale = 1 << 16
        per_byte = int(byte_ps * scale / self.tick_ps)
        lasts = scale * (self.end[first] - self.start[first] - self._ticks(whole)) >= per_byte * carried
        constraint = self.model.add(lasts)
        if when is not None:
            constraint.only_enforce_if(when)

    def _resources(self) -> None:
        """Add that each resource serves one message at a time, and that sums at one spot are made one after the other."""
        given = self.given
        arcs = given.network.arcs
        users: dict[int, dict[int, Any]] = {}
        writes: dict[tuple[int, int], dict[int, Any]] = {}
        shared: dict[int, set[int]] = {}
        for arc_number, arc in enumerate(arcs):
            for hop in arc.hops:
                shared.setdefault(hop.resource, set()).add(arc_number)
        for number, send in enumerate(given.sends):
            first = self.alike[number]
            passing = given.network.passage(send.arc, send.size_bytes)
            if send.adds:
                writes.setdefault((arcs[send.arc].dst, send.chunk), {})[first] = None
            for resource, begin, until in passing.busy:
                if not arcs[send.arc].remote:
                    users.setdefault(resource, {})[first] = (begin, until)
                elif len(shared[resource]) > 1:
                    users.setdefault(resource, {})[first] = None
        heads = self._heads()
        done: set[frozenset[int]] = set()
        for row in users.values():
            key = frozenset(row)
            if len(key) > 1 and key not in done:
                done.add(key)
                self.model.add_no_overlap([self._interval(first, span, heads) for first, span in row.items()])
        for row in writes.values():
            if len(row) > 1 and frozenset(row) not in done:
                done.add(frozenset(row))
                self.model.add_no_overlap([self._interval(first, None, heads) for first in row])

    def _heads(self) -> dict[int, Any]:
        """Return of each send between hosts whether it joins the one before it: then it is in that one's interval."""
        order: dict[int, list[int]] = {}
        for message in self.given.table.messages:
            order.setdefault(message.arc, []).extend(self.alike[send] for send in message.sends)
        return {
            first: joins
            for arc, joined in self.joined.items()
            for first, joins in zip(order[arc][1:], joined, strict=True)
        }

    def _interval(self, first: int, span: tuple[int, int] | None, heads: dict[int, Any]) -> Any:
        model = self.model
        if span is not None:
            begin, until = -(-span[0] // self.tick_ps), self._ticks(span[1])
            start = model.new_int_var(0, 2 * self.most, "")
            model.add(start == self.start[first] + begin)
            return model.new_fixed_size_interval_var(start, max(0, until - begin), "")
        lasts = model.new_int_var(0, self.most, "")
        model.add(lasts == self.end[first] - self.start[first])
        if first in heads:
            return model.new_optional_interval_var(self.start[first], lasts, self.end[first], ~heads[first], "")
        return model.new_interval_var(self.start[first], lasts, self.end[first], "")
