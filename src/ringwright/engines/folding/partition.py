"""Classes of nodes, of pairs that send, and of resources: the coarsest division in which all of a class do the same.

Pairs are of one class where they make the same moves in the same blocks, between nodes of the same classes, over resources of
the same classes. Nodes are of one class where their pairs are, and resources where all is that passes them. How many there are of
a class does not count: a message that waits for seven others that are alike waits for one. The division begins with what
differs by itself and is cut until nothing changes (colour refinement); what it rests on is then checked without hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.engines.flat import paced, routes
from ringwright.ground.errors import DeclinedError
from ringwright.ground.hashing import following

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.folding.move_lists import MoveList, MoveLists
    from ringwright.engines.machine import Machine


class CoarsestPartition:
    """Classes of ``nodes`` (of the program), ``pairs`` that send and ``resources``, as numbers.

    A pair is ``src`` and ``dst`` on a ``channel``, and whether its messages are added up (``adds``).

    ``routes`` are the resources of each pair, a row each, padded with -1. ``pair_of`` gives for each list the pair of its moves.
    """

    def __init__(self, lists: MoveLists, machine: Machine, slot: np.ndarray) -> None:
        import numpy as np

        self.machine = machine
        channels, channel = np.unique([each.channel for each in lists.lists], return_inverse=True)
        keys = [
            (((on * len(slot) + each.src) * len(slot) + each.dst) << 1) | each.adds
            for each, on in zip(lists.lists, channel.tolist(), strict=True)
        ]
        pairs, owner = np.unique(np.concatenate(keys), return_inverse=True)
        self.pair_of = np.split(owner, np.cumsum([len(each) for each in keys])[:-1])
        self.adds, ends = (pairs & 1) > 0, (pairs >> 1) % len(slot) ** 2
        self.src, self.dst = ends // len(slot), ends % len(slot)
        self.channel = channels[(pairs >> 1) // len(slot) ** 2]
        src, dst = slot[self.src], slot[self.dst]
        starts, hops = paced(machine, self.channel, src, dst, *routes(machine, src, dst, self.adds))
        lengths = np.diff(starts)
        self.routes = np.full((len(pairs), int(lengths.max(initial=0))), -1, np.int64)
        self.routes[np.arange(self.routes.shape[1]) < lengths[:, None]] = hops
        self._moves = self._moved(lists)
        self.nodes = np.zeros(len(slot), np.int64)
        self.pairs = _sets(*self._moves, len(pairs))
        self.resources = _alike(machine)
        self._refine()

    def split(self, pairs: np.ndarray) -> bool:
        """Tell pairs apart that are numbered differently; return whether that changed anything."""
        before = int(self.pairs.max())
        self.pairs = joined(self.pairs, pairs)
        if int(self.pairs.max()) == before:
            return False
        self._refine()
        return True

    def positions(self, classes: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Return the least index of each class of pairs in a list, by which its messages come in order; its pairs are given.

        int64 of shape (classes,); without meaning for classes that are not in the list.
        """
        import numpy as np

        out = np.full(int(self.pairs.max(initial=0)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(out, classes, index)
        return out

    def _moved(self, lists: MoveLists) -> tuple[np.ndarray, np.ndarray]:
        """Return (pair, what it moves in which list): equal numbers are the same slots in all blocks of that list."""
        import numpy as np

        rows, first = [], 0
        for each, pair in zip(lists.lists, self.pair_of, strict=True):
            labels = _slots(each, lists, pair)
            rows.append((pair, labels + first))
            first += int(labels.max(initial=-1)) + 1
        owners, told = zip(*rows, strict=True)
        return np.concatenate(owners), np.concatenate(told)

    def _refine(self) -> None:
        count = -1
        while count != (count := sum(int(each.max(initial=0)) for each in (self.nodes, self.pairs, self.resources))):
            self.pairs = joined(self.pairs, self.nodes[self.src], self.nodes[self.dst])
            for hop in range(self.routes.shape[1]):
                self.pairs = joined(self.pairs, self._passed(hop))
            self.nodes = joined(self.nodes, _sets(*self._ends(), len(self.nodes)))
            self.resources = joined(self.resources, _sets(*self._users(), self.machine.n))

    def _passed(self, hop: int) -> np.ndarray:
        import numpy as np

        column = self.routes[:, hop]
        return np.where(column >= 0, self.resources[column] + 1, 0)

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (node, class of a pair that begins or ends there)."""
        import numpy as np

        return np.concatenate((self.src, self.dst)), np.concatenate((self.pairs * 2, self.pairs * 2 + 1))

    def _users(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (resource, class of a pair and the number of its hop that passes there)."""
        import numpy as np

        width = self.routes.shape[1]
        used = self.routes >= 0
        return self.routes[used], (self.pairs[:, None] * width + np.arange(width))[used]

    def check(self) -> None:
        """Raise DeclinedError unless all of each class have the very same moves, pairs and users."""
        for (owner, told), labels in (
            (self._moves, self.pairs),
            (self._ends(), self.nodes),
            (self._users(), self.resources),
        ):
            if not _is_shared(owner, told, labels):
                raise DeclinedError("two hashes of its classes met")  # one time in 2**64


def joined(*labels: np.ndarray) -> np.ndarray:
    """Return numbers from 0 on that are equal where all of the given ones are. int64 of their shape."""
    import numpy as np

    out = np.zeros(len(labels[0]), np.int64)
    for label in labels:
        _, dense = np.unique(label, return_inverse=True)
        _, out = np.unique(out * (int(dense.max(initial=0)) + 1) + dense, return_inverse=True)
    return out


def _sets(owner: np.ndarray, told: np.ndarray, n: int) -> np.ndarray:
    """Return a number for each of ``n`` owners that is equal for equal sets of what is told of them. Of shape (n,)."""
    import numpy as np

    span = int(told.max(initial=0)) + 1
    keys = np.unique(owner * span + told)
    sums = np.zeros(n, np.uint64)
    np.add.at(sums, keys // span, following((keys % span).astype(np.uint64)))
    return np.unique(sums, return_inverse=True)[1]


def _is_shared(owner: np.ndarray, told: np.ndarray, labels: np.ndarray) -> bool:
    """Whether what is told of one owner is told of all that have its label."""
    import numpy as np

    span = int(told.max(initial=0)) + 1
    keys = np.unique(owner * span + told)
    of, counts = np.unique(labels[keys // span] * span + keys % span, return_counts=True)
    return bool((counts == np.bincount(labels)[of // span]).all())


def _slots(moves: MoveList, lists: MoveLists, pair: np.ndarray) -> np.ndarray:
    """Return a number for each move: equal where all blocks give equal slots, and it is the pair's first, second, ... move."""
    import numpy as np

    order = np.argsort(pair, kind="stable")
    turn = np.empty(len(pair), np.int64)
    turn[order] = np.arange(len(pair)) - np.searchsorted(pair[order], pair[order])
    kinds = {pattern.kind for row in moves.rows for pattern in (row.chunk, row.to)}
    patterns = [lists.kinds[kind] for kind in sorted(kinds)]
    return joined(turn, *[pattern for pattern in patterns if pattern is not None])


def _alike(machine: Machine) -> np.ndarray:
    """Return a number for each resource that is equal for what serves alike, faults included."""
    import numpy as np

    top = machine.topology
    told: dict[int, list[tuple[str, int, float]]] = {}
    for what, rows in (("rate", machine.changes), ("latency", machine.delays)):
        for resource, time, value in rows:
            told.setdefault(resource, []).append((what, time, value))
    number: dict[tuple[tuple[str, int, float], ...], int] = {(): 0}
    touched = np.zeros(machine.n, np.int64)
    for resource, faults in told.items():
        touched[resource] = number.setdefault(tuple(faults), len(number))
    kind = np.concatenate((top.link_class.astype(np.int64), np.full(machine.n - top.n_links, -1)))
    return joined(machine.ps_per_byte, machine.latency, machine.whole, machine.holds, machine.sends, kind, touched)
