"""Resources up to symmetry: whether a machine looks the same to all images of a move.

Routes are looked up for every image, never assumed. A resource that the i-th image of a move uses is labelled (class, i); all
further moves must agree with the labels, and all resources of a class must be alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.engines.flat import routes
from ringwright.engines.folding.mesh import View
from ringwright.ground.errors import DeclinedError
from ringwright.model.program import ADDING
from ringwright.model.software import NO_SOFTWARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ringwright.engines.folding.families import BlockFamily
    from ringwright.engines.folding.mesh import SymmetryGroup
    from ringwright.engines.machine import Machine


class Orbits:
    """The classes of a machine's resources under a group."""

    def __init__(self, machine: Machine, mesh: SymmetryGroup, *, fluid: bool = False) -> None:
        import numpy as np

        self.fluid = fluid  # what shares a resource is served at once: no order that could differ
        self.machine, self.mesh = machine, mesh
        self.of = np.full(machine.n, -1, np.int32)  # class of each resource, -1 where nobody uses it
        self.element = np.zeros(machine.n, np.int64)
        self.first: list[int] = []  # a resource of each class
        self._all = np.arange(mesh.order)

    def cover(self, families: Sequence[BlockFamily], slot: np.ndarray) -> None:
        """Label all routes of a program; raise DeclinedError where they are not images of each other."""
        import numpy as np

        seen = set()
        for family in families:
            block = family.block
            adds = block.op in ADDING
            key = (block.shape, family.src, family.dst, adds)
            if key in seen:
                continue
            seen.add(key)
            src, dst = (slot[ends] for ends in block.arrays()[:2])
            starts, hops = routes(self.machine, src, dst, np.full(len(src), adds))
            view = View(self.mesh.axes, family)
            self._cover(view, starts, hops)
        self._require_alike()

    def _cover(self, view: View, starts: np.ndarray, hops: np.ndarray) -> None:
        import numpy as np

        lengths = view.arranged(np.diff(starts))
        if not len(hops):
            return
        if (lengths != lengths[:, :1]).any():
            raise DeclinedError("routes differ in length")
        moves = view.arranged(np.arange(len(starts) - 1))
        users: dict[int, list[tuple[int, np.ndarray, int]]] = {}
        for orbit, length in enumerate(lengths[:, 0].tolist()):
            route = []
            for hop in range(length):
                resources = hops[starts[moves[orbit]] + hop]
                number, shift = self._label(resources)
                route.append((number, int(resources[0])))
                users.setdefault(number, []).append((orbit, shift, hop))
            if not self.fluid:
                self._require_pause(route)
        if len(moves) > 1 and not self.fluid:
            self._require_order(moves, users)

    def _label(self, resources: np.ndarray) -> tuple[int, np.ndarray]:
        """Return the class of one hop's resources, and how the images are shifted against the class."""
        import numpy as np

        known = self.of[resources]
        if (known == -1).all():
            if len(np.unique(resources)) < len(resources):
                raise DeclinedError(f"images of a move share {self.machine.label(int(resources[0]))}")
            self.of[resources] = len(self.first)
            self.element[resources] = self._all
            self.first.append(int(resources[0]))
            return len(self.first) - 1, np.zeros(len(self.mesh.axes), np.int64)
        if (known != known[0]).any():
            raise DeclinedError(f"{self.machine.label(int(resources[0]))} is used differently from its images")
        shifts = self._digits(self.element[resources]) - self._digits(self._all)
        for column, axis in enumerate(self.mesh.axes):
            shifts[:, column] %= axis.order
        if (shifts != shifts[0]).any():
            raise DeclinedError(f"routes over {self.machine.label(int(resources[0]))} do not turn with the ranks")
        return int(known[0]), shifts[0]

    def _digits(self, elements: np.ndarray) -> np.ndarray:
        """Return group elements as turns, a column per axis (the last runs fastest)."""
        import numpy as np

        return np.stack(np.unravel_index(elements, [axis.order for axis in self.mesh.axes]), axis=1).astype(np.int64)

    def _require_pause(self, route: list[tuple[int, int]]) -> None:
        """A route may come back to a class only later: who is first would otherwise depend on the rank's number."""
        numbers = [number for number, _ in route]
        if len(set(numbers)) == len(numbers):
            return
        latency = self.machine.latency
        for at, number in enumerate(numbers):
            again = numbers.index(number, at + 1) if number in numbers[at + 1 :] else at
            if again > at and not any(latency[resource] for _, resource in route[at:again]):
                raise DeclinedError("images of a move meet at one instant")

    def _require_order(self, moves: np.ndarray, users: dict[int, list[tuple[int, np.ndarray, int]]]) -> None:
        """Moves of one block that meet at a resource must do so in one order everywhere, that of the representatives."""
        import numpy as np

        orders = [axis.order for axis in self.mesh.axes]
        digits = self._digits(self._all)
        for entries in users.values():
            if len({orbit for orbit, _, _ in entries}) < 2:
                continue
            touching = []
            for orbit, shift, _ in sorted(entries, key=lambda entry: entry[0]):
                image = (digits - shift) % orders
                touching.append(moves[orbit][np.ravel_multi_index(image.T, orders)])
            rows = np.stack(touching)
            late = np.diff(rows, axis=0) < 0  # an orbit may come twice: equal numbers are one message
            if late.any():
                raise DeclinedError("moves of one step share a link in an order that differs from rank to rank")

    def _require_alike(self) -> None:
        """Raise DeclinedError where resources of a class differ, or a fault touches some of them only."""
        import numpy as np

        used = np.flatnonzero(self.of >= 0)
        like = np.array(self.first, np.int64)[self.of[used]]
        machine, top = self.machine, self.machine.topology
        columns = [machine.ps_per_byte, machine.latency, machine.whole, machine.holds, machine.sends]
        if machine.software != NO_SOFTWARE:
            columns.append(np.concatenate((top.link_class, np.full(machine.n - top.n_links, -1))))
        for column in columns:
            differs = np.flatnonzero(column[used] != column[like])
            if len(differs):
                raise DeclinedError(f"{machine.label(int(used[differs[0]]))} is not like its images")
        changes: dict[int, list[tuple[int, float]]] = {}
        for resource, time, value in (*machine.changes, *machine.delays):
            changes.setdefault(resource, []).append((time, value))
        touched = {int(self.of[resource]) for resource in changes if self.of[resource] >= 0}
        for resource in np.flatnonzero(np.isin(self.of, list(touched))).tolist():
            if changes.get(resource) != changes.get(self.first[self.of[resource]]):
                raise DeclinedError(f"a fault breaks the symmetry at {machine.label(resource)}")
