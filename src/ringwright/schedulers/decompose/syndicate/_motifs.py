"""Syndicate's motifs: pieces of operations, each on a network, and how long a step of them takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, permutations, product

from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import ON, Payload, Workload
from ringwright.schedulers.search import list_scheduled

UPDATE, WORK = "U", "work"
WHOLE, HALVES, LEVELS = "whole", "scatter-gather", "levels"
OPS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
Segments = tuple[tuple[tuple[str, float], ...], ...]  # of each motif of each segment: its network and its seconds


@dataclass(frozen=True)
class OperationPlan:
    """How operations of a kind are done: a template, and for each segment the network of each of its motifs."""

    template: str
    networks: tuple[tuple[str, ...], ...]

    @property
    def motifs(self) -> int:
        """How many motifs one operation has."""
        return sum(len(each) for each in self.networks)


@dataclass(frozen=True)
class MotifPlan:
    """A plan for each kind of operation, and the kinds by priority, the most urgent first."""

    kinds: tuple[OperationPlan, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class OperationKind:
    """Operations that are done alike: what one of them is, and the names of all."""

    payload: Payload
    ranks: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def templates(self) -> tuple[str, ...]:
        """Compositions whose outcome is the operation."""
        several = len(self.payload.axes) > 1
        mine = (HALVES,) if self.payload.op == "all-reduce" else ()
        return (WHOLE, *mine, *((LEVELS,) if several else ()))


def legs(op: str, template: str) -> tuple[str, ...]:
    """Return the operations of a template, one behind another; by levels the first is inside, the second across."""
    if template == HALVES:
        return ("reduce-scatter", "all-gather")
    if template == LEVELS:
        return ("reduce-scatter", "all-reduce", "all-gather") if op == "all-reduce" else (op, op)
    return (op,)


def kinds_of(workload: Workload) -> tuple[OperationKind, ...]:
    """Return the kinds of collectives of several ranks whose values are known, in the order of the payloads."""
    alike: dict[tuple[object, ...], list[Payload]] = {}
    for payload in workload.payloads:
        known = payload.source in workload.value and payload.result in workload.value and not payload.joint
        if payload.op in OPS and known and not payload.lag and workload.mesh.extent(payload.axes) > 1:
            alike.setdefault((payload.op, payload.role, payload.axes, payload.per, payload.size_bytes), []).append(
                payload
            )
    return tuple(
        OperationKind(each[0], workload.group(each[0].of, each[0].axes), tuple(payload.name for payload in each))
        for each in alike.values()
    )


@dataclass(frozen=True)
class SentWork:
    """A payload of a class: its kind (-1: of none), the queue of the usual network, and the tasks before and behind it."""

    kind: int
    queue: str
    makers: tuple[int, ...]
    users: tuple[int, ...]


@dataclass(frozen=True)
class ClassWork:
    """What a class of ranks does in a step, by numbers of its tasks: seconds, what each runs on and after, what it sends."""

    seconds: tuple[float, ...]
    resources: tuple[str, ...]
    after: tuple[tuple[int, ...], ...]
    sent: tuple[SentWork, ...]


@dataclass(frozen=True, eq=False)
class MotifTimes:
    """Tells how long a step takes under a plan: one stream of work, and one queue for each network.

    Each class of ranks is scheduled by itself, micro-batches once; a step ends when work and motifs have. ``inside``: how many
    ranks of a group along several axes are neighbours.
    """

    workload: Workload
    costs: Costs
    kinds: tuple[OperationKind, ...]
    asked: dict[tuple[str, str, int, tuple[int, ...], str], float] = field(default_factory=dict)
    timed: dict[MotifPlan, float] = field(default_factory=dict)
    motifs: dict[tuple[int, OperationPlan], Segments] = field(default_factory=dict)

    @cached_property
    def _kind_of(self) -> Mapping[str, int]:
        return {name: at for at, kind in enumerate(self.kinds) for name in kind.names}

    @cached_property
    def _that_wait(self) -> frozenset[str]:
        """Return the tasks that wait for another of their step; the others can begin it."""
        waiting = {edge.dst for edge in self.workload.edges if not edge.distance}
        sent = (each for payload in self.workload.payloads for each in payload.consumers)
        return frozenset(waiting.union(name for name, distance in sent if not distance))

    def makespan(self, plan: MotifPlan) -> float:
        """Return the seconds of a step of the class that takes longest."""
        if plan not in self.timed:
            self.timed[plan] = max(self._of_class(each, plan) for each in self._classes)
        return self.timed[plan]

    @cached_property
    def _classes(self) -> tuple[ClassWork, ...]:
        """Return the work of each class of ranks; of classes that do alike, one."""
        return tuple(dict.fromkeys(self._work(each.name) for each in self.workload.classes))

    def _work(self, of: str) -> ClassWork:
        line = list(dict.fromkeys(name for name, _ in self.workload.line(of)))
        mine = [task for task in self.workload.tasks if task.of == of]
        at = {task.name: number for number, task in enumerate(mine)}
        once = [task.name for task in mine if task.per == "step" and task.kind != UPDATE]
        later = self._that_wait
        line = [*(name for name in once if name not in later), *line, *(name for name in once if name in later)]
        after: list[list[int]] = [[] for _ in mine]
        for before, name in pairwise(line):
            after[at[name]] = [at[before]]
        for edge in self.workload.edges:
            if not edge.distance and {edge.src, edge.dst} <= at.keys():
                after[at[edge.dst]].append(at[edge.src])
        sent = tuple(
            SentWork(
                self._kind_of.get(payload.name, -1),
                f"{payload.role} {payload.axes}",
                tuple(at[name] for name in payload.producers if name in at),
                tuple(at[name] for name, distance in payload.consumers if name in at and not distance),
            )
            for payload in self.workload.payloads
            if payload.of == of
        )
        on = set(line)
        resources = tuple(WORK if task.name in on else f"{at[task.name]} alone" for task in mine)
        return ClassWork(tuple(task.seconds for task in mine), resources, tuple(map(tuple, after)), sent)

    def _of_class(self, work: ClassWork, plan: MotifPlan) -> float:
        times, on = dict(enumerate(work.seconds)), dict(enumerate(work.resources))
        after = {at: list(each) for at, each in enumerate(work.after)}
        urgency = dict.fromkeys(times, 0.0)
        turn = {kind: -float(at) for at, kind in enumerate(plan.order)}
        kinds = [self._motifs(at, each) for at, each in enumerate(plan.kinds)]
        for each in work.sent:
            ends = _send(each, kinds, (times, after, on))
            urgency |= dict.fromkeys(range(len(urgency), len(times)), turn.get(each.kind, 0.0))
            for user in each.users:
                after[user] += ends
        return list_scheduled(times, after, on, urgency.__getitem__).makespan

    def _motifs(self, kind: int, mine: OperationPlan) -> Segments:
        """Return, segment by segment, the network of each motif and the seconds that it takes."""
        if (kind, mine) not in self.motifs:
            self.motifs[kind, mine] = tuple(
                tuple((network, self._motif_s(kind, mine, leg, network)) for leg, network in enumerate(networks))
                for networks in mine.networks
            )
        return self.motifs[kind, mine]

    def _motif_s(self, kind: int, mine: OperationPlan, leg: int, network: str) -> float:
        one = self.kinds[kind]
        size = -(-one.payload.size_bytes // len(mine.networks))
        op, ranks = legs(one.payload.op, mine.template)[leg], one.ranks
        if mine.template == LEVELS:
            inside = self.workload.mesh.sizes[one.payload.axes[-1]]
            outer = leg == 1 if one.payload.op in ("all-reduce", "reduce-scatter", "all-to-all") else leg == 0
            ranks = ranks[::inside] if outer else ranks[:inside]
            size = -(-size // inside) if outer and one.payload.op != "all-to-all" else size
        key = (op, network, size, ranks, one.payload.role)
        if key not in self.asked:
            spelled = f"{op}{ON}{network}" if network else op
            self.asked[key] = seconds(self.costs, spelled, size, ranks, one.payload.role)
        return self.asked[key]


def _send(
    sent: SentWork, kinds: Sequence[Segments], into: tuple[dict[int, float], dict[int, list[int]], dict[int, str]]
) -> list[int]:
    """Add the motifs of a payload, and return those that end it."""
    times, after, on = into
    if sent.kind < 0:
        at = len(times)
        times[at], after[at], on[at] = 0.0, list(sent.makers), sent.queue
        return [at]
    ends = []
    for motifs in kinds[sent.kind]:
        before = list(sent.makers)
        for network, motif_s in motifs:
            at = len(times)
            times[at], after[at], on[at] = motif_s, before, network or sent.queue
            before = [at]
        ends += before
    return ends


def plain(kinds: Sequence[OperationKind], networks: Sequence[str]) -> MotifPlan:
    """Return the plan that a library has: whole operations on the usual network, by their order."""
    return MotifPlan(tuple(OperationPlan(WHOLE, ((networks[0],),)) for _ in kinds), tuple(range(len(kinds))))


def every_plan(
    kinds: Sequence[OperationKind], networks: Sequence[str], segments: Sequence[int], most_motifs: int
) -> Iterator[MotifPlan]:
    """Yield all plans of at most so many motifs: for exhaustive search of small jobs."""
    listed = [
        [
            OperationPlan(template, tuple(zip(*[iter(chosen)] * many, strict=True)))
            for template in kind.templates
            for many in (len(legs(kind.payload.op, template)),)
            for count in segments
            for chosen in product(networks, repeat=count * many)
            if count * many <= most_motifs
        ]
        for kind in kinds
    ]
    for chosen in product(*listed):
        if sum(each.motifs for each in chosen) <= most_motifs:
            for order in permutations(range(len(kinds))):
                yield MotifPlan(chosen, order)
