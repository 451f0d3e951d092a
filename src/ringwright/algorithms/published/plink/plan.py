"""The two-level sharded plan as a program.

The vector is cut into shards, and each shard into as many pieces as there are groups. In every group a shard has one owner;
piece j of a shard is added up by its owner in group j.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.placement import is_regular
from ringwright.algorithms.published.plink.prediction import shares
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, explicit

if TYPE_CHECKING:
    from ringwright.algorithms.published.plink.probing import Probes
    from ringwright.model.collective import Collective

OPS = ("all-reduce",)
FINE = 4  # shards for each host of the largest group, where hosts differ


class ShardPlan:
    """Who owns what: ``owner[i, q]`` is the place that owns shard q in group i."""

    def __init__(
        self, collective: Collective, groups: list[list[int]], probes: Probes, shards: int | None = None
    ) -> None:
        self.collective, self.groups = collective, groups
        parts = [shares(group, probes) for group in groups]
        largest = max(map(len, groups))
        self.is_even = all(len(part) == largest and np.allclose(part, part[0]) for part in parts)
        self.shards = shards or (largest if self.is_even else FINE * largest)
        self.owner = np.stack(
            [np.repeat(group, apportion(part, self.shards)) for group, part in zip(groups, parts, strict=True)]
        )

    def program(self) -> Program:
        """Return the program."""
        collective, k, m = self.collective, len(self.groups), max(map(len, self.groups))
        n, pieces = float(collective.size_bytes), self.shards * k
        terms, reduced = [], 0.0
        if m > 1:
            terms.append(Term(2 * (m - 1), 2 * n * (m - 1) / m, "level0"))
            reduced += n * (m - 1) / m
        if k > 1:
            terms.append(Term(2 * (k - 1), 2 * n * (k - 1) / k / m, "level1"))
            reduced += n * (k - 1) / k / m
        even = self.is_even and self.shards == m and collective.size_bytes % (pieces * collective.unit_bytes) == 0
        knobs: dict[str, object] = {"groups": k, "shards": self.shards}
        if is_regular(self.groups):
            knobs["factors"] = (m, k)
        return Program(
            "plink",
            collective,
            cut(collective, pieces),
            self.steps,
            2 * ((m > 1) + (k > 1)),
            Cost(tuple(terms), 2 * n * (collective.p - 1), reduced, is_even=even),
            knobs=knobs,
        )

    def steps(self) -> Iterator[Step]:
        """Yield reduction and results inside the groups, around those between the groups."""
        inside = any(len(group) > 1 for group in self.groups)
        if inside:
            yield Step(tuple(self._inside(Op.REDUCE)), "reduce in group")
        if len(self.groups) > 1:
            yield Step(tuple(self._across(Op.REDUCE)), "reduce across")
            yield Step(tuple(self._across(Op.SEND)), "result across")
        if inside:
            yield Step(tuple(self._inside(Op.SEND)), "result in group")

    def _inside(self, op: Op) -> Iterator[Block]:
        """Every member and every owner of its group, whole shards; each member begins with its next neighbour."""
        k = len(self.groups)
        first = np.arange(self.shards) * k
        for number, group in enumerate(self.groups):
            owner, m = self.owner[number], len(group)
            seat = np.searchsorted(np.sort(group), owner)
            member = np.sort(group)
            for away in range(1, m):
                other = member[(seat - away) % m]
                src, dst = (other, owner) if op is Op.REDUCE else (owner, member[(seat + away) % m])
                yield explicit(op, src, dst, first, span=k)

    def _across(self, op: Op) -> Iterator[Block]:
        """Owners of the same shard in different groups: piece j goes to, or comes from, group j."""
        k = len(self.groups)
        shard = np.arange(self.shards)
        for away in range(1, k):
            for group in range(k):
                other = (group + away) % k
                piece = other if op is Op.REDUCE else group
                yield explicit(op, self.owner[group], self.owner[other], shard * k + piece)


def apportion(part: np.ndarray, seats: int) -> np.ndarray:
    """Return how many of ``seats`` each part gets, by largest remainders. int64 of shape (parts,)."""
    exact = part / part.sum() * seats
    count: np.ndarray = np.floor(exact + 1e-9).astype(np.int64)
    rest = np.argsort(count - exact, kind="stable")[: seats - int(count.sum())]
    count[rest] += 1
    return count
