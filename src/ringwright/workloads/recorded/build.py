"""Plans of ranks to a Workload: tasks per class, payloads among classes, and how long each payload took by itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ringwright.model.rewrites import operations
from ringwright.model.workload import Edge, Mesh, Payload, Policy, Queue, Resource, Task, Workload
from ringwright.workloads.recorded import alike, update
from ringwright.workloads.recorded.grid import RecordedMesh, no_grid
from ringwright.workloads.recorded.isolated_times import own_times
from ringwright.workloads.recorded.plan import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PAIRS,
    SUMMED,
    CommEvent,
    RankStep,
    RecordedCall,
)

KIND = {FORWARD: "F", BACKWARD: "B"}
BY = "recording"  # who set what of the policy was recorded
REACHES_ON = (
    "sums of gradients reached into the next step: they go in the order in which they went, and forward waits for each"
)
OUT_OF_TURN = "what was ready first was not always sent first: operations go in the order in which they went"
AT_ONCE_S = 1e-9
CONTROL = "control"  # the stream of what takes no time
RESOURCES = (Resource("compute"), Resource("link.tx", "shared"), Resource("link.rx", "shared"))


@dataclass
class Built:
    """A workload; per payload the seconds that it took by itself (None: not measured), and the communicator it was on."""

    workload: Workload
    own_s: dict[str, float | None]
    communicators: dict[str, str]


def build(name: str, plans: Mapping[int, RankStep], grid: RecordedMesh, *, timed: bool, explicit: bool) -> Built:
    """Return the workload of one step; ``explicit``: the source says who waits for whom, and nothing more is assumed."""
    made, stands, notes = alike.classes(plans, grid, timed=timed)
    for plan in plans.values():
        own_times(plan, lambda each: _queue(each, grid))
    builder = _Builder(plans, grid, list(made), stands)
    for each in made:
        builder.take(each)
    if explicit and builder.to_the_next():
        notes.append("what nobody waits for within the step is waited for by the begin of the next one")
    payloads = tuple(held.payload(grid.mesh) for held in builder.payloads.values() if held.makers)
    kept = [held for held in builder.payloads.values() if held.makers]
    if explicit:
        policy = Policy(boundary="layer", by={"boundary": BY})
    elif any(plan.reaches_on for plan in plans.values()):
        policy = Policy(queue=_as_sent(kept), boundary="layer", by={"queue": BY, "boundary": BY})
        notes.append(REACHES_ON)
    else:
        policy = Policy()
    if builder.updated:
        notes += update.NOTES
    workload = Workload(
        name,
        grid.mesh,
        tuple(made.values()),
        tuple(builder.tasks),
        tuple(builder.edges),
        payloads,
        RESOURCES,
        policy=policy,
        assumptions=tuple(notes),
    )
    if explicit and not _in_turn(workload, kept):
        queued = replace(policy, queue=_in_order(kept), by={**policy.by, "queue": BY})
        workload = replace(workload, policy=queued, assumptions=(*workload.assumptions, OUT_OF_TURN))
    communicators = {held.name: str(held.first.communicator) for held in kept}
    return Built(workload, {held.name: held.own_s() for held in kept}, communicators)


@dataclass
class _Held:
    """A payload under construction."""

    name: str
    op: str
    of: str
    role: str
    axes: tuple[str, ...]
    first: RecordedCall
    peer: str = ""
    joint: list[str] = field(default_factory=list)
    makers: list[str] = field(default_factory=list)
    users: list[tuple[str, int]] = field(default_factory=list)
    calls: list[RecordedCall] = field(default_factory=list)
    is_gradient: bool = False
    layer: int = 0

    def payload(self, mesh: Mesh) -> Payload:
        """Return it; a root that is no rank of the group is taken as the first."""
        call, size = self.first, mesh.extent(self.axes)
        return Payload(
            self.name,
            self.of,
            self.op,
            max(each.size_bytes for each in self.calls),
            self.axes,
            self.role,
            tuple(dict.fromkeys(self.makers)),
            tuple(dict.fromkeys(self.users)),
            layer=self.layer,
            dtype=call.dtype,
            per="step" if self.is_gradient else "micro-batch",
            elements=call.elements,
            merges="gradients" if self.is_gradient else "",
            peer=self.peer,
            joint=tuple(each for each in dict.fromkeys(self.joint) if each != self.of),
            root=call.root if 0 <= call.root < size else 0,
        )

    def begins(self) -> float:
        """Return when the first rank began it, s; infinite where no rank's time is known."""
        return min((call.start_s for call in self.calls if call.start_s is not None), default=math.inf)

    def ready(self) -> float:
        """Return when the last rank was ready for it, s; infinite where the source does not tell that from waiting."""
        handed_in = [call.enqueue_s for call in self.calls if call.enqueue_s is not None and not call.waits_inside]
        return max(handed_in, default=math.inf)

    def own_s(self) -> float | None:
        """Return how long it took where nobody was waited for any more."""
        ends = [call.end_s for call in self.calls if call.end_s is not None]
        begins = [call.start_s for call in self.calls if call.start_s is not None]
        lasted = [call.own_s for call in self.calls if call.own_s is not None]
        if not lasted:
            return None
        if self.op == "send-recv" and len(ends) == len(begins) == 2:
            return min(max(ends) - max(begins), max(lasted)) if max(ends) > max(begins) else min(lasted)
        return min(lasted)


class _Builder:
    """Classes are taken one by one; a payload of several classes is made by the first and joined by the others."""

    def __init__(
        self, plans: Mapping[int, RankStep], grid: RecordedMesh, names: list[str], stands: Mapping[str, int]
    ) -> None:
        self.plans, self.grid, self.names, self.stands = plans, grid, names, stands
        self.tasks: list[Task] = []
        self.edges: list[Edge] = []
        self.payloads: dict[tuple[Any, ...], _Held] = {}
        self.updated = False
        self.separate = len(names) == grid.mesh.size

    def take(self, of: str) -> None:
        """Add the tasks of a class, and its part in payloads."""
        plan = self.plans[self.stands[of]]
        changes = update.updates(plan)
        self.updated = self.updated or bool(changes)
        chain = len(plan.pieces) if not changes else plan.tail or 0
        named = self._pieces(of, plan, chain)
        prefix = f"{of}." if len(self.names) > 1 else ""
        turns: Counter[tuple[Any, ...]] = Counter()
        by_sent = {each.sent: each for each in changes}
        held = []
        for at, sent in enumerate(plan.sent):
            payload = self._payload(of, plan.rank, sent.call, turns, is_gradient=sent.is_gradient)
            held.append(payload)
            payload.is_gradient = payload.is_gradient or _sums(sent, plan, payload.role)
            if sent.call.op != "recv":
                payload.makers += [named[one] for one in sent.producers if one < len(named)] or [self._begin(of, named)]
            change = by_sent.get(at)
            if change is not None:
                payload.layer = change.layer
                task = Task(f"{prefix}U.{at}", of, "U", change.seconds, change.layer, ("U", 0), "step")
                self.tasks.append(task)
                self.edges.append(Edge(task.name, named[change.needed_by], 1))
                payload.users.append((task.name, 0))
            else:
                payload.users += _users(sent, plan, named)
        for one, other, steps in dict.fromkeys(plan.chained):
            if plan.sent[other].call.op != "recv":  # that a receiver is ready is nobody's to wait for
                self._chain(of, prefix, (held[one], held[other]), steps)

    def to_the_next(self) -> bool:
        """Let the first work of the next step wait for what nobody waits for; say whether there was any."""
        first: dict[str, str] = {}
        for task in self.tasks:
            if task.kind != "CTRL":
                first.setdefault(task.of, task.name)
        idle = [held for held in self.payloads.values() if held.makers and not held.users]
        for held in idle:
            ends = (held.peer,) if held.op == "send-recv" else dict.fromkeys((held.of, *held.joint))
            held.users += [(first[of], 1) for of in ends if of in first]
        used = {edge.src for edge in self.edges} | {name for held in self.payloads.values() for name in held.makers}
        loose = [task for task in self.tasks if task.kind == "CTRL" and task.name not in used and task.of in first]
        self.edges += [Edge(task.name, first[task.of], 1) for task in loose]
        return bool(idle or loose)

    def _pieces(self, of: str, plan: RankStep, chain: int) -> list[str]:
        """Add the tasks of the pieces before the update and return their names."""
        prefix = f"{of}." if len(self.names) > 1 else ""
        pieces = plan.pieces[:chain]
        order = [(FORWARD, "", BACKWARD, OPTIMIZER).index(each.phase) for each in pieces if each.stream != CONTROL]
        apart = order == sorted(order) and any(each.phase == FORWARD for each in pieces)
        explicit = bool(plan.edges)
        named = []
        for at, piece in enumerate(pieces):
            kind = KIND.get(piece.phase, "U" if explicit and piece.phase == OPTIMIZER else "B" if apart else "F")
            kind, stream = ("CTRL", "compute") if piece.stream == CONTROL else (kind, piece.stream)
            slot = ("B" if apart and piece.phase != FORWARD else "F", 0)
            named.append(f"{prefix}{kind}{at}")
            per = "step" if kind == "U" and plan.updates_late else "micro-batch"
            self.tasks.append(Task(named[-1], of, kind, piece.seconds, 0, slot, per, stream=stream))
        self.edges += [Edge(named[src], named[dst]) for src, dst in plan.edges if max(src, dst) < chain]
        self.edges += [Edge(named[src], named[dst], 1) for src, dst in plan.later if max(src, dst) < chain]
        return named

    def _begin(self, of: str, named: list[str]) -> str:
        """Return the task that is there when a step begins, for calls that wait for no work."""
        name = f"{of}.begin" if len(self.names) > 1 else "begin"
        if all(task.name != name for task in self.tasks):
            self.tasks.append(Task(name, of, "CTRL"))
            last = {task.stream: task.name for task in self.tasks if task.name in set(named) and task.kind != "CTRL"}
            self.edges += [Edge(each, name, 1) for each in last.values()]
        return name

    def _chain(self, of: str, prefix: str, pair: tuple[_Held, _Held], steps: int) -> None:
        name = f"{prefix}between.{pair[0].name}.{pair[1].name}"
        self.tasks.append(Task(name, of, "CTRL"))
        pair[0].users.append((name, steps))
        pair[1].makers.append(name)

    def _payload(
        self, of: str, rank: int, call: RecordedCall, turns: Counter[tuple[Any, ...]], *, is_gradient: bool
    ) -> _Held:
        axes, number = self.grid.axes[call.communicator], call.communicator
        role = _role(self.grid.roles[number], call.op, is_gradient=is_gradient)
        key: tuple[Any, ...]
        if call.op in PAIRS:
            other = self._class_of(self.grid.rank_of(number, call.peer, rank), of)
            ends = (other, of) if call.op == "recv" else (of, other)
            key = ("pair", *ends, axes, call.op if of == other else "")  # with itself: what goes out does not come in
            key = (*key, turns[key, call.op])
            turns[key[:-1], call.op] += 1
            held = self.payloads.get(key)
            if held is None:
                where = "" if len(self.grid.mesh.axes) == 1 else f"{'-'.join(axes)}."
                between = f"{of}.{call.op}" if len(self.names) > 1 else call.op
                between = ".".join(ends) if ends[0] != ends[1] else between
                name = f"{role}.{where}{between}.{key[-1]}"
                held = self.payloads[key] = _Held(name, "send-recv", ends[0], role, axes, call, peer=ends[1])
        else:
            group = self._group(of, rank, number)
            key = ("group", role, axes, group)
            key = (*key, turns[key])
            turns[key[:-1]] += 1
            held = self.payloads.get(key)
            if held is None:
                where = "" if len(self.grid.mesh.axes) == 1 else f"{'-'.join(axes)}."
                where += "" if len(group) == len(self.names) else f"{group[0]}."
                name = f"{role}.{where}{key[-1]}"
                held = self.payloads[key] = _Held(name, call.op, of, role, axes, call, is_gradient=is_gradient)
            if len(group) > 1:
                held.joint.append(of)
        held.calls.append(call)
        if call.op not in PAIRS and not self.separate:
            held.calls += self._others(rank, call)
        return held

    def _group(self, of: str, rank: int, number: int) -> tuple[str, ...]:
        """Return the classes that take part; WorkloadError for a part of a group whose ranks are not all there are of them."""
        if len(self.names) == 1:
            return (of,)
        members = self.grid.group(number, rank)
        taking = tuple(sorted({self._class_of(member, of) for member in members}))
        if number in self.grid.parts:
            every = self.grid.mesh.group(self.grid.axes[number], rank)
            if {member for member in every if self._class_of(member, of) in taking} != set(members):
                raise no_grid(number, members)
        return taking

    def _class_of(self, rank: int, default: str) -> str:
        if rank < 0 or len(self.names) == 1:
            return default
        coordinates = self.grid.mesh.place(rank)
        for name in self.names:
            known = self.grid.mesh.place(self.stands[name])
            axes = [axis for axis in coordinates if f"{axis}{known[axis]}" in name.split("-")]
            if all(coordinates[axis] == known[axis] for axis in axes):
                return name
        return default

    def _others(self, rank: int, call: RecordedCall) -> list[RecordedCall]:
        """Return the same call on the recorded ranks that are not in a class of their own."""
        calls = []
        for other, plan in self.plans.items():
            if other != rank:
                calls += [
                    each.call
                    for each in plan.sent
                    if each.call.communicator == call.communicator
                    and each.call.turn == call.turn
                    and each.call.op == call.op
                ]
        return calls


def _sums(sent: CommEvent, plan: RankStep, role: str) -> bool:
    """Say whether a call of a source with dependencies sums gradients: what the backward pass made, among replicas."""
    makers = [plan.pieces[at].phase for at in sent.producers]
    return sent.call.op in SUMMED and role in ("dp", "edp") and bool(makers) and set(makers) == {BACKWARD}


def _in_turn(workload: Workload, payloads: list[_Held]) -> bool:
    """Say whether what the same ranks send for the same began in the order in which they were ready for it.

    What was ready at one moment is sent in the order in which a step lists it.
    """
    turn = {each.name: at for at, each in enumerate(operations(workload))}
    queues: dict[tuple[Any, ...], list[tuple[float, float, int]]] = {}
    for held in payloads:
        if held.ready() < math.inf:
            taking = (held.of, held.peer, *sorted({*held.joint} - {held.of}))
            line = queues.setdefault((held.role, held.axes, taking), [])
            line.append((held.begins(), held.ready(), turn[held.name]))
    sent = [pair for each in queues.values() for pair in pairwise(sorted(each))]
    return all(
        ready < after - AT_ONCE_S or (ready < after + AT_ONCE_S and a < b) for (_, ready, a), (_, after, b) in sent
    )


def _as_sent(payloads: list[_Held]) -> Queue:
    """Return the order in which sums of gradients began; what else is sent goes when it is ready."""
    return _in_order([held for held in payloads if held.is_gradient])


def _in_order(payloads: list[_Held]) -> Queue:
    return Queue(keys={held.name: at for at, held in enumerate(sorted(payloads, key=_Held.begins))})


def _queue(each: CommEvent, grid: RecordedMesh) -> tuple[object, ...]:
    """Return behind which others a call waits: those of its role along its axes."""
    number = each.call.communicator
    return _role(grid.roles[number], each.call.op, is_gradient=each.is_gradient), grid.axes[number]


def _role(said: str, op: str, *, is_gradient: bool) -> str:
    """Return the role of a payload: that of its communicator, else what its operation is for."""
    if is_gradient and said in ("", "world", "fsdp", "dp"):
        return "dp"
    if said == "fsdp":
        return "dp"
    if said and said != "world":
        return said
    return {"all-to-all": "ep", "send": "pp", "recv": "pp", "send-recv": "pp"}.get(op, "world")


def with_notes(built: Built, notes: tuple[str, ...]) -> Built:
    """Return it with more assumptions, before its own."""
    workload = replace(built.workload, assumptions=tuple(dict.fromkeys((*notes, *built.workload.assumptions))))
    return Built(workload, built.own_s, built.communicators)


def _users(sent: CommEvent, plan: RankStep, named: list[str]) -> list[tuple[str, int]]:
    users = sent.consumers or ((plan.tail,) if sent.is_gradient and plan.tail is not None else ())
    here = [(named[one], 0) for one in users if one < len(named)]
    return [*here, *((named[one], 1) for one in sent.later if one < len(named))]
