"""Centauri's operation tier: in which form, and in how many chunks, a stretch of work and collectives takes the least time.

A collective's form is a chain of legs, each on a network of its own: whole; by substitution; by groups inside and across; or
both. Chunks pipeline over compute and networks. What is kept are the choices that nothing beats in both time and memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import asked_on
from ringwright.schedulers.search import list_scheduled

WHOLE = "whole"
FEW = 8  # ranks up to which a ring's shifts are operations of their own; more would only be more latencies
COMPUTE = "compute"
PROBED = 1 << 24  # bytes of what shows which links a level loads
WORTH = 0.95  # a form whose busiest network is not free this much sooner is only another risk


@dataclass(frozen=True)
class ComputedPart:
    """A task of a stretch: ``seconds`` as a whole, and ``more_s`` for each part more."""

    seconds: float
    more_s: float = 0.0


@dataclass(frozen=True)
class SentPart:
    """A collective of a stretch; ``size_bytes`` is the nccl-tests size.

    ``inside``: so many ranks of its group are neighbours (0: no levels). ``sums``: what it adds up is a sum along its own axes
    alone, so that an exchange can bring the terms.
    """

    op: str
    size_bytes: int
    ranks: tuple[int, ...]
    role: str
    inside: int = 0
    sums: bool = True
    network: str = ""


@dataclass(frozen=True)
class Leg:
    """One operation of a form: what goes over which level among which ranks, on a network that is named or the usual one."""

    op: str
    size_bytes: int
    ranks: tuple[int, ...]
    level: str = WHOLE
    network: str = ""

    @property
    def asked(self) -> str:
        """What cost models are asked for."""
        return asked_on(self.op, self.network)


Stretch = tuple[ComputedPart | SentPart, ...]


@dataclass(frozen=True)
class Axes:
    """The axes of the search that are on; ``lone``: chunks of collectives without work beside them too."""

    substitution: bool = True
    groups: bool = True
    chunks: tuple[int, ...] = (1, 2, 4, 8)
    lone: bool = True


@dataclass(frozen=True)
class PartitionChoice:
    """A form for each collective of a stretch and a number of chunks: seconds, and bytes that it holds besides."""

    forms: tuple[str, ...]
    chunks: int
    seconds: float
    held_bytes: int = 0


def legs(sent: SentPart, form: str) -> tuple[Leg, ...]:
    """Return the operations of a collective in a form; see ``forms``."""
    listed = _legs(sent, form)
    return tuple(replace(each, network=sent.network) for each in listed) if sent.network else listed


def _legs(sent: SentPart, form: str) -> tuple[Leg, ...]:
    op, size, ranks, m = sent.op, sent.size_bytes, sent.ranks, sent.inside
    p = len(ranks)
    if form == WHOLE:
        return (Leg(op, size, ranks),)
    if form == "scatter-gather":
        return (Leg("reduce-scatter", size, ranks), Leg("all-gather", size, ranks))
    if form == "exchange":
        return (Leg("all-to-all", size, ranks),)
    if form == "ring":
        return (Leg("shift", -(-size // p), ranks),) * (p - 1)
    near, far, share = ranks[:m], ranks[::m], -(-size // m)
    if op == "all-reduce":
        first, last = Leg("reduce-scatter", size, near, "inside"), Leg("all-gather", size, near, "inside")
        middle = ("all-reduce",) if form == "levels" else ("reduce-scatter", "all-gather")
        return (first, *(Leg(each, share, far, "across") for each in middle), last)
    if op == "all-to-all":
        return (Leg(op, size, near, "inside"), Leg(op, size, far, "across"))
    pair = (Leg(op, size, near, "inside"), Leg(op, share, far, "across"))
    return pair if op == "reduce-scatter" else pair[::-1]


def forms(sent: SentPart, axes: Axes) -> list[str]:
    """Return the forms of a collective that the axes allow: substituted (S1, S6 to S8), by levels (S2 to S5), or both."""
    listed, small = [WHOLE], len(sent.ranks) <= FEW
    if axes.substitution:
        listed += {
            "all-reduce": ["scatter-gather"],
            "reduce-scatter": [*(["exchange"] if sent.sums else []), *(["ring"] if small else [])],
            "all-gather": ["ring"] if small else [],
        }.get(sent.op, [])
    if axes.groups and sent.inside:
        listed += ["levels", *(["levels-scatter-gather"] if axes.substitution and sent.op == "all-reduce" else [])]
    return listed


def pipelined(parts: Sequence[tuple[str, float, float]], chunks: int) -> float:
    """Return how long a chain of (resource, seconds of the first chunk, of each further one) takes in chunks.

    Two resources with ``a`` and ``b`` seconds a chunk take ``a + (chunks - 1) max(a, b) + b``. A chunk goes from part to part,
    a resource works on one at a time, on what has the longest way to the end first.
    """
    times, after, on = (
        dict[tuple[int, int], float](),
        dict[tuple[int, int], list[tuple[int, int]]](),
        dict[tuple[int, int], str](),
    )
    for at, (resource, first, further) in enumerate(parts):
        for chunk in range(chunks):
            node = at, chunk
            times[node], on[node] = further if chunk else first, resource
            after[node] = [(at - 1, chunk)] * (at > 0) + [(at, chunk - 1)] * (chunk > 0)
    return list_scheduled(times, after, on).makespan


@dataclass(frozen=True, eq=False)
class OperationTier:
    """Chooses for stretches under a cost model, asked at powers of four of bytes: between them times are on straight lines."""

    costs: Costs
    least_bytes: int = 1 << 18
    _known: dict[tuple[Stretch, Axes], tuple[PartitionChoice, ...]] = field(default_factory=dict, repr=False)
    _asked: dict[tuple[Leg, str], float] = field(default_factory=dict, repr=False)

    def pareto(self, stretch: Stretch, axes: Axes) -> tuple[PartitionChoice, ...]:
        """Return the choices that none beats in time and memory, the fastest first."""
        if (stretch, axes) not in self._known:
            self._known[stretch, axes] = _frontier(self._candidates(stretch, axes))
        return self._known[stretch, axes]

    def _candidates(self, stretch: Stretch, axes: Axes) -> Iterator[PartitionChoice]:
        kinds = list(dict.fromkeys(each for each in stretch if isinstance(each, SentPart)))
        smallest = min(each.size_bytes for each in kinds)
        alone = not any(isinstance(each, ComputedPart) for each in stretch)
        for chunks in axes.chunks:
            if chunks > 1 and (smallest // chunks < self.least_bytes or (alone and not axes.lone)):
                continue
            pieces = {each: replace(each, size_bytes=-(-each.size_bytes // chunks)) for each in kinds}
            for chosen in product(*(self._worth(pieces[each], axes) for each in kinds)):
                form = dict(zip(kinds, chosen, strict=True))
                parts = list(self._parts(stretch, chunks, pieces, form))
                mine = tuple(form[each] for each in stretch if isinstance(each, SentPart))
                held = sum(_held(each, form[each], chunks) for each in stretch if isinstance(each, SentPart))
                yield PartitionChoice(mine, chunks, pipelined(parts, chunks), held)

    def _worth(self, piece: SentPart, axes: Axes) -> list[str]:
        """Return the forms that can be worth it: whose busiest network is free sooner than the whole collective's."""
        listed = forms(piece, axes)
        if len(listed) == 1:
            return listed
        most = WORTH * self.busy_s(piece, WHOLE)[WHOLE]
        return [form for form in listed if form == WHOLE or max(self.busy_s(piece, form).values()) < most]

    def busy_s(self, piece: SentPart, form: str) -> dict[str, float]:
        """Return the seconds of a collective in a form, by network."""
        busy: dict[str, float] = {}
        for leg in legs(piece, form):
            busy[leg.level] = busy.get(leg.level, 0.0) + self.leg_s(leg, piece.role)
        return busy

    def leg_s(self, leg: Leg, role: str) -> float:
        """Return the seconds of one operation alone."""
        low = 1 << ((max(1, leg.size_bytes).bit_length() - 1) & ~1)
        at_low = self._seconds(replace(leg, size_bytes=low), role)
        if low == leg.size_bytes:
            return at_low
        part = (leg.size_bytes - low) / (3 * low)
        return at_low + part * (self._seconds(replace(leg, size_bytes=4 * low), role) - at_low)

    def _seconds(self, leg: Leg, role: str) -> float:
        if (leg, role) not in self._asked:
            self._asked[leg, role] = seconds(self.costs, leg.asked, leg.size_bytes, leg.ranks, role)
        return self._asked[leg, role]

    def levels(self, sent: SentPart) -> int:
        """Return how many neighbours of a group are a level, so that the busiest network is free soonest; 0: no levels.

        Levels that load the same links are one network, however they are called.
        """
        best, chosen = WORTH * self.leg_s(legs(sent, WHOLE)[0], sent.role), 0
        for inside in range(2, len(sent.ranks) // 2 + 1):
            if len(sent.ranks) % inside == 0 and self._apart(replace(sent, inside=inside)):
                busy = max(self.busy_s(replace(sent, inside=inside), "levels").values())
                if busy < best:
                    best, chosen = busy, inside
        return chosen

    def _apart(self, sent: SentPart) -> bool:
        """Whether the legs of two levels load no link together with more than it has."""
        loads: dict[str, dict[object, float]] = {}
        for leg in legs(replace(sent, size_bytes=PROBED), "levels"):
            for stage in self.costs.stages(leg.asked, leg.size_bytes, leg.ranks, sent.role):
                mine = loads.setdefault(leg.level, {})
                for resource, share in (*stage.links, *stage.loads):
                    mine[resource] = max(share, mine.get(resource, 0.0))
        one, other = loads["inside"], loads["across"]
        return all(
            share + other.get(resource, 0.0) <= 1.0 + 1e-9 for resource, share in one.items() if resource in other
        )

    def _parts(
        self, stretch: Stretch, chunks: int, pieces: Mapping[SentPart, SentPart], form: Mapping[SentPart, str]
    ) -> Iterator[tuple[str, float, float]]:
        for each in stretch:
            if isinstance(each, ComputedPart):
                share = each.seconds / chunks
                yield COMPUTE, share, share + each.more_s
            else:
                for leg in legs(pieces[each], form[each]):
                    took = self.leg_s(leg, each.role)
                    yield f"{each.ranks} {leg.level} {leg.network}", took, took


def _held(sent: SentPart, form: str, chunks: int) -> int:
    """Return the bytes of values in between, and of the parts that a whole is cut into or joined from."""
    between = [leg.size_bytes for leg in legs(sent, form)[:-1]]
    return sum(between) + (sent.size_bytes if chunks > 1 else 0)


def _frontier(candidates: Iterator[PartitionChoice]) -> tuple[PartitionChoice, ...]:
    kept: list[PartitionChoice] = []
    for each in sorted(candidates, key=lambda each: (each.seconds, each.held_bytes, each.chunks, each.forms)):
        if not kept or each.held_bytes < kept[-1].held_bytes:
            kept.append(each)
    return tuple(kept)
