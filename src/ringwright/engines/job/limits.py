"""Gates and tokens of a job: which instances may start, and which queues to check again once that changes.

A queue that is refused is remembered where it was refused, at a gate of a domain or at a token pool, so that an opening or a
return wakes those it concerns and no others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from ringwright.engines.job.flat import FlatJob

_SLACK = 1e-9  # of a pool's capacity: amounts such as 0.1 leave rounding behind


class Limits:
    """Counts of what waits and runs, by domain, and the tokens left; ``touch`` marks a queue to be looked at again."""

    def __init__(self, flat: FlatJob, touch: Callable[[int], None]) -> None:
        self.flat, self.touch = flat, touch
        self.waiting = [[0] * flat.n_traffic for _ in range(flat.n_domains)]
        self.running = [[0] * flat.n_traffic for _ in range(flat.n_domains)]
        self.tagged = [[0] * flat.n_tags for _ in range(flat.n_domains)]
        self.tokens: list[float] = flat.capacity.tolist()
        self.slack = [_SLACK * capacity for capacity in self.tokens]
        self.shut: list[set[int]] = [set() for _ in range(flat.n_domains)]  # queues refused at a gate
        self.short: list[set[int]] = [set() for _ in self.tokens]  # queues refused tokens
        self.gates: dict[int, list[list[int]]] = {}  # by the class that they close
        lined = set()
        for closed, *gate in flat.gates.tolist():
            if gate[1] < 0 and gate[0] == closed and not gate[2]:
                lined.add(closed)  # closed by itself waiting: one line a domain
            else:
                self.gates.setdefault(closed, []).append(gate)
        self.lines: dict[int, list[list[tuple[int, int]]]] = {  # (key, arrival), sorted
            traffic: [[] for _ in range(flat.n_domains)] for traffic in lined
        }
        self.placed: dict[int, tuple[int, int]] = {}  # of an instance in a line

    # ----------------------------------------------------------------------------------------------------------- gates
    def arrive(self, instance: int, queue: int, key: tuple[int, int]) -> None:
        """Count an operation that could start; ``key`` is its urgency and its arrival."""
        traffic = int(self.flat.queues.traffic[queue])
        lines = self.lines.get(traffic)
        if lines is not None:
            self.placed[instance] = key
        for domain in self.flat.domains(instance):
            self.waiting[domain][traffic] += 1
            if lines is not None:
                insort(lines[domain], key)

    def start(self, instance: int, queue: int) -> None:
        """Count an operation as running and no longer as waiting."""
        traffic = int(self.flat.queues.traffic[queue])
        lines = self.lines.get(traffic)
        for domain in self.flat.domains(instance):
            self.waiting[domain][traffic] -= 1
            self.running[domain][traffic] += 1
            if lines is not None:
                del lines[domain][bisect_left(lines[domain], self.placed[instance])]
            self._wake(self.shut[domain])

    def finish(self, instance: int, queue: int) -> None:
        """Count a running operation no longer."""
        for domain in self.flat.domains(instance):
            self.running[domain][self.flat.queues.traffic[queue]] -= 1
            self._wake(self.shut[domain])

    def tag(self, instance: int, by: int) -> None:
        """Count a task of a stream that begins (1) or ends (-1) under its tag, if it has one."""
        tag = int(self.flat.tag[instance])
        if tag < 0:
            return
        domain = self.flat.domains(instance)[0]
        self.tagged[domain][tag] += by
        if by < 0:
            self._wake(self.shut[domain])

    def open(self, instance: int, queue: int) -> bool:
        """Say whether no gate of any of its domains is closed to an operation."""
        traffic = int(self.flat.queues.traffic[queue])
        gates, lines = self.gates.get(traffic, []), self.lines.get(traffic)
        for domain in self.flat.domains(instance) if gates or lines is not None else ():
            if lines is not None and lines[domain][0] < self.placed[instance]:
                self.shut[domain].add(queue)
                return False
            for by, tag, running in gates:
                counts = (self.running if running else self.waiting)[domain]
                if self.tagged[domain][tag] if tag >= 0 else counts[by]:
                    self.shut[domain].add(queue)
                    return False
        return True

    # ---------------------------------------------------------------------------------------------------------- tokens
    def take(self, instance: int, queue: int) -> bool:
        """Take what an instance wants at its start, all or nothing, and say whether it was there."""
        wanted: dict[int, float] = {}
        for pool, amount in self._amounts(instance):
            if amount > 0:
                wanted[pool] = wanted.get(pool, 0.0) + amount
        for pool, amount in wanted.items():
            if self.tokens[pool] + self.slack[pool] < amount:
                self.short[pool].add(queue)
                return False
        for pool, amount in wanted.items():
            self.tokens[pool] -= amount
        return True

    def give(self, instance: int) -> None:
        """Put back what an instance returns at its end."""
        for pool, amount in self._amounts(instance):
            if amount < 0:
                self.tokens[pool] -= amount
                self._wake(self.short[pool])

    def _amounts(self, instance: int) -> list[tuple[int, float]]:
        flat = self.flat
        rows = slice(flat.token_start[instance], flat.token_start[instance + 1])
        return list(zip(flat.token[rows].tolist(), flat.amount[rows].tolist(), strict=True))

    def _wake(self, queues: set[int]) -> None:
        for queue in queues:  # their order does not matter: marked queues are looked at by number
            self.touch(queue)
        queues.clear()
