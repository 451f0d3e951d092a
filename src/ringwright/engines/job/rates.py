"""Work in progress in a job: which resources it shares, at what rate it proceeds, and when it will end.

Operations that share a resource go at full rate while their shares add up to at most 1. Where they ask for more, those that ask
for little get it, and the others share the rest by their claims (max-min fairness on each resource); an operation goes at the
least rate that its resources leave it, and where one of them leaves it nothing it stands still. What has an infinite claim is no
operation but an outage, which has its share whoever else asks. Compute is slowed by the operations beside it. Whenever a rate
changes, what is left of the work is settled to the picosecond and its end is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, inf

from ringwright.engines.job.flat import FlatJob, slowed


def level(asking: Sequence[tuple[float, float]]) -> float:
    """Return what a resource gives at most for each unit of claim, to operations that ask for (share, claim); inf: all of it."""
    total, left = 0.0, 1.0
    for share, claim in asking:
        total += share
        if claim == inf:
            left -= share
    if total <= 1.0:
        return inf
    ordered = sorted((each for each in asking if each[1] < inf), key=lambda each: (each[0] / each[1], each[1]))
    left, claims = max(left, 0.0), 0.0
    for _, claim in reversed(ordered):
        claims += claim
    for share, claim in ordered:
        if share / claim > left / claims:
            return left / claims
        left, claims = left - share, claims - claim
    return inf


class Rates:
    """The compute tasks and operations in progress; ``post`` (time in ps, instance, version) says when an instance will end.

    An end counts only while its version is the instance's: later versions overrule it.
    """

    def __init__(self, flat: FlatJob, post: Callable[[int, int, int], None]) -> None:
        self.flat, self.post, n = flat, post, flat.n
        self.left, self.rate = flat.work_ps.tolist(), [1.0] * n
        self.since, self.version = [0] * n, [0] * n
        self.on: list[list[tuple[int, float, float]]] = [[] for _ in range(flat.n_resources)]  # instance, share, claim
        self.level = [inf] * flat.n_resources  # what a resource gives for each unit of claim
        self.computing: list[list[int]] = [[] for _ in range(flat.n_domains)]
        self.beside: list[list[int]] = [[] for _ in range(flat.n_domains)]
        self.sms = [0.0] * flat.n_domains  # of what is beside

    # ---------------------------------------------------------------------------------------------------------- compute
    def begin_compute(self, instance: int, now: int) -> None:
        """Start a task of a stream; a task belongs to the first of its domains."""
        domain = self.flat.domains(instance)[0]
        self.computing[domain].append(instance)
        self._begin(instance, self._compute_rate(instance, domain), now)

    def end_compute(self, instance: int) -> None:
        """Take a task of a stream out."""
        self.computing[self.flat.domains(instance)[0]].remove(instance)

    def _slow(self, domain: int, now: int) -> None:
        """What is beside the compute of a domain has changed."""
        if self.flat.interference.model == "none":
            return
        self.sms[domain] = 0.0
        for other in self.beside[domain]:
            self.sms[domain] += float(self.flat.sms[other])
        for instance in self.computing[domain]:
            self._settle(instance, self._compute_rate(instance, domain), now)

    def _compute_rate(self, instance: int, domain: int) -> float:
        flat = self.flat
        return 1.0 / slowed(flat.interference, self.sms[domain], len(self.beside[domain]), int(flat.tiles[instance]))

    # ------------------------------------------------------------------------------------------------------- the wire
    def begin_wire(self, instance: int, now: int) -> None:
        """Put an operation on the wire: operations that share its links slow down, and so may compute."""
        loads = self._loads(instance)
        for resource, share, claim in loads:
            self.on[resource].append((instance, share, claim))
        self._resettle(loads, now)
        self._begin(instance, self._wire_rate(instance), now)
        for domain in self.flat.domains(instance):
            self.beside[domain].append(instance)
            self._slow(domain, now)

    def end_wire(self, instance: int, now: int) -> None:
        """Take an operation off the wire."""
        loads = self._loads(instance)
        for resource, share, claim in loads:
            self.on[resource].remove((instance, share, claim))
        self._resettle(loads, now)
        for domain in self.flat.domains(instance):
            self.beside[domain].remove(instance)
            self._slow(domain, now)

    def _loads(self, instance: int) -> list[tuple[int, float, float]]:
        flat = self.flat
        rows = slice(flat.load_start[instance], flat.load_start[instance + 1])
        return list(zip(*(each[rows].tolist() for each in (flat.load, flat.share, flat.claim)), strict=True))

    def _resettle(self, loads: list[tuple[int, float, float]], now: int) -> None:
        """Find the levels anew, all of them before any rate; then settle each operation that this concerns, once."""
        changed = []
        for resource, _, _ in loads:
            before = self.level[resource]
            self.level[resource] = level([each[1:] for each in self.on[resource]])
            if self.level[resource] != before:
                changed.append(resource)
        for instance in dict.fromkeys(each[0] for resource in changed for each in self.on[resource]):
            if self.version[instance]:  # already scheduled: not the one that is just being put on the wire
                self._settle(instance, self._wire_rate(instance), now)

    def _wire_rate(self, instance: int) -> float:
        rate = 1.0
        for resource, share, claim in self._loads(instance):
            most = self.level[resource] * claim
            if most < share:
                rate = min(rate, most / share)
        return rate

    # ------------------------------------------------------------------------------------------------------------ ends
    def _begin(self, instance: int, rate: float, now: int) -> None:
        self.rate[instance], self.since[instance] = rate, now
        self._schedule(instance, now)

    def _settle(self, instance: int, rate: float, now: int) -> None:
        """Go on at another rate: count what was done at the old one."""
        if rate == self.rate[instance]:
            return
        done = (now - self.since[instance]) * self.rate[instance]
        self.left[instance] = max(0, self.left[instance] - floor(done + 0.5))
        self._begin(instance, rate, now)

    def _schedule(self, instance: int, now: int) -> None:
        self.version[instance] += 1
        left, rate = self.left[instance], self.rate[instance]
        if rate <= 0.0:
            return  # until a resource of it is there again
        self.post(now + (left if rate == 1.0 else ceil(left / rate)), instance, self.version[instance])
