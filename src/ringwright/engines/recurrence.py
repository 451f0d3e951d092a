"""The recurrence engine: times step by step, without queue and without laying the program out.

Each message starts when its slots are ready and each resource serves messages in program order, so times follow from times
of earlier steps alone. The state is when each slot was last written and read, and when each resource is free. The answer is
that of the event engine, to the picosecond, or none: where messages would be served in another order than that of the
program, or one step's messages meet at a resource from different hops, it declines.

Left out: what the event engine leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.engines.event_loop import ServiceTimes
from ringwright.engines.events import LEFT_OUT
from ringwright.engines.flat import copied, delays, handshakes, on_the_wire, places, routes, step_pieces
from ringwright.engines.machine import FOREVER
from ringwright.engines.result import Run
from ringwright.ground.errors import DeclinedError, InfeasibleError
from ringwright.model.program import Affine

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.model.program import Program, Step

MOST_PLACES = 1 << 25  # two times each: 512 MiB


def run(program: Program, machine: Machine, late: np.ndarray | None = None) -> Run:
    """Run a program step by step; raise DeclinedError where program order is not the order of arrival.

    ``late``: when each node of the machine comes, int64 ps; messages wait for both their ends.
    """
    if program.schedule is not None:
        raise DeclinedError("its order is declared thread block by thread block, not step by step")
    if machine.pacers is not None:
        raise DeclinedError("slots of the network's nodes hold its results back")
    slots = program.n_nodes * program.layout.slots
    if slots > MOST_PLACES:
        raise DeclinedError(f"{slots:,} slots are more than {MOST_PLACES:,}")
    state = _State(program, machine)
    if late is not None:
        state.come = late[state.place]
    for number, step in enumerate(program.steps()):
        if step.count:
            state.step(step, number)
    return Run(
        state.carried[:0],
        state.carried[:0],
        state.last,
        state.events,
        "recurrence",
        LEFT_OUT,
        unfolded_because="the recurrence takes every message",
    ).with_loads(machine, state.carried)


@dataclass(frozen=True)
class _Routes:
    """Who sends to whom in a step: the same for all steps of a phase."""

    hops: np.ndarray  # a row per message, padded with -1
    delay: np.ndarray
    byte_ps: np.ndarray
    shared: tuple[bool, ...]  # per hop: whether messages of the step meet there


class _State:
    def __init__(self, program: Program, machine: Machine) -> None:
        import numpy as np

        self.program, self.machine = program, machine.carrying(program)
        self.place = places(program)
        self.come = np.zeros(program.n_nodes, np.int64)
        self.written = np.zeros(program.n_nodes * program.layout.slots, np.int64)
        self.read = np.zeros_like(self.written)
        self.free = np.zeros(machine.n, np.int64)
        self.arrived = np.full(machine.n, -1, np.int64)
        self.carried = np.zeros(machine.n, np.int64)
        self.service = ServiceTimes(machine)
        self.changing = np.zeros(machine.n, bool)
        self.changing[[resource for resource, _, _ in machine.changes]] = True
        self.delaying = np.zeros(machine.n, bool)
        self.delaying[[resource for resource, _, _ in machine.delays]] = True
        self.last = self.events = 0
        self._routes: dict[object, _Routes] = {}

    def step(self, step: Step, number: int) -> None:
        """Send all messages of a step."""
        import numpy as np

        src, dst, size, adds, _, owner, reads, writes, _ = step_pieces(self.program, step.blocks)
        if any(block.multicast for block in step.blocks):
            raise DeclinedError("it sends to many at once")
        if step.loop:
            raise DeclinedError("its loops wait for each other")
        route = self._find(step, src, dst, adds)
        delay = route.delay + copied(size, route.byte_ps)
        size = on_the_wire(self.machine, size, self.place[src], self.place[dst])
        delay += handshakes(self.machine, self.place[src], self.place[dst], size)
        pieces = np.maximum(self.written[reads], np.maximum(self.written[writes], self.read[writes]))
        time = np.maximum(self.come[src], self.come[dst])
        np.maximum.at(time, owner, pieces)
        end = self._send(route, size, time + delay, number)
        self.last = max(self.last, int(end.max()))
        ends = end[owner]
        np.maximum.at(self.read, reads, ends)
        np.maximum.at(self.written, writes, ends)

    def _find(self, step: Step, src: np.ndarray, dst: np.ndarray, adds: np.ndarray) -> _Routes:
        key = None
        if all(isinstance(block.src, Affine) and isinstance(block.dst, Affine) for block in step.blocks):
            key = tuple((block.op, block.shape, block.src, block.dst, block.channel) for block in step.blocks)
        if key is None or key not in self._routes:
            found = self._lay(src, dst, adds)
            if key is None:
                return found
            self._routes[key] = found
        return self._routes[key]

    def _lay(self, src: np.ndarray, dst: np.ndarray, adds: np.ndarray) -> _Routes:
        import numpy as np

        starts, hops = routes(self.machine, self.place[src], self.place[dst], adds)
        lengths = np.diff(starts)
        width = int(lengths.max(initial=0))
        rows = np.full((len(src), width), -1, np.int64)
        rows[np.arange(width) < lengths[:, None]] = hops
        shared, seen = [], np.zeros(self.machine.n, bool)
        for hop in range(width):
            column = rows[:, hop][rows[:, hop] >= 0]
            if seen[column].any():
                first = int(column[seen[column]][0])
                raise DeclinedError(f"messages of one step meet at {self.machine.label(first)} from different hops")
            seen[column] = True
            shared.append(len(np.unique(column)) < len(column))
        return _Routes(rows, *delays(self.machine, starts, hops), tuple(shared))

    def _send(self, route: _Routes, size: np.ndarray, time: np.ndarray, number: int) -> np.ndarray:
        """Return when each message has arrived."""
        import numpy as np

        entry, tail = time, time.copy()
        for hop, shared in enumerate(route.shared):
            column = route.hops[:, hop]
            going = np.flatnonzero(column >= 0)
            order = going[np.lexsort((going, entry[going], column[going]))] if shared else going
            begin, latency = np.zeros_like(entry), np.zeros_like(entry)
            for turn in _turns(column[order]) if shared else (slice(None),):
                self._serve(order[turn], column, (entry, begin, latency, tail), size, number)
            self.events += len(going)
            np.add.at(self.carried, column[going], size[going])
            if hop + 1 < len(route.shared):
                whole = (route.hops[:, hop + 1] >= 0) & self.machine.whole[route.hops[:, hop + 1]]
                entry = np.where(column >= 0, np.where(whole, tail, begin + latency), entry)
        return tail

    def _serve(
        self, who: np.ndarray, column: np.ndarray, times: tuple[np.ndarray, ...], size: np.ndarray, number: int
    ) -> None:
        """Serve messages that each go over a resource of their own."""
        import numpy as np

        entry, begin, latency, tail = times
        at = column[who]
        late = entry[who] < self.arrived[at]
        if late.any():
            where = self.machine.label(int(at[late][0]))
            raise DeclinedError(f"step {number} overtakes an earlier one at {where}")
        self.arrived[at] = entry[who]
        starts = np.maximum(entry[who], self.free[at])
        stop = self._stops(at, starts, size[who], number)
        after = self.machine.latency[at]
        for row in np.flatnonzero(self.delaying[at]).tolist():
            after[row] = self.service.latency(int(at[row]), int(starts[row]))
        self.free[at] = np.where(self.machine.holds[at], stop + after, stop)
        begin[who], latency[who] = starts, after
        tail[who] = np.maximum(stop, tail[who]) + after

    def _stops(self, at: np.ndarray, starts: np.ndarray, size: np.ndarray, number: int) -> np.ndarray:
        import numpy as np

        with np.errstate(invalid="ignore"):
            needed = np.ceil(size * self.machine.ps_per_byte[at])
        stop = starts + np.where(needed < FOREVER, needed, 0).astype(np.int64)
        stop[~(needed < FOREVER) | np.isinf(self.machine.ps_per_byte[at])] = FOREVER
        for row in np.flatnonzero(self.changing[at]).tolist():
            stop[row] = min(self.service.end(int(at[row]), int(starts[row]), int(size[row])), FOREVER)
        if (stop >= FOREVER).any():
            dead = self.machine.label(int(at[stop >= FOREVER][0]))
            raise InfeasibleError(
                "a message never arrives",
                where=f"step {number}, {dead}",
                remedy="end the fault (until 2s), or choose an algorithm that avoids the dead link",
            )
        return stop


def _turns(resources: np.ndarray) -> list[np.ndarray]:
    """Cut messages sorted by resource into rounds in which each resource serves one."""
    import numpy as np

    fresh = np.ones(len(resources), bool)
    fresh[1:] = resources[1:] != resources[:-1]
    first = np.maximum.accumulate(np.where(fresh, np.arange(len(resources)), 0))
    turn = np.arange(len(resources)) - first
    order = np.argsort(turn, kind="stable")
    bounds = np.searchsorted(turn[order], np.arange(int(turn.max(initial=0)) + 2))
    return [order[bounds[i] : bounds[i + 1]] for i in range(len(bounds) - 1)]
