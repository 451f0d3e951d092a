"""The Workload: when things happen in one step of a job, as plain data that repeats.

Tasks are templates: one per class of ranks, run once a micro-batch or once a step. Payloads are what tasks hand to other
ranks. Edges carry an iteration distance, so one Workload describes every step of a training run. The policy, which says how
payloads become operations and in which order they are sent, is data too (five parts), so a scheduler is a function from
Workload to Workload, and every rank that reads the same Workload decides alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ringwright.ground.errors import UsageError
from ringwright.ground.notebook import card, line
from ringwright.model.values import Applied, Value, Work

KINDS = ("F", "B", "dO", "dW", "U", "C", "CTRL")  # forward, backward, its halves, update, communication, control
PER = ("micro-batch", "step")
PHASES = {"F": "forward", "B": "backward", "dO": "backward", "dW": "backward", "U": "optimizer"}  # as Traces call them
# What a file of ours says of itself.
FORMAT, SCHEMA_VERSION = "ringwright.workload", 1
PARTS = ("rewrites", "order", "queue", "boundary", "agreement")
OPS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "broadcast",
    "reduce",
    "send-recv",
    "push-pull",
    "push",
    "pull",
    "shift",
    "copy",  # a shift by copy engines, each of which reads another rank's memory
    "factors",
)


ON = " on "  # between an operation and the network that it names, where costs are asked
SHIFTS = ("shift", "copy")  # every rank gets what another one holds, so many ranks further on


@dataclass(frozen=True)
class Mesh:
    """The ranks as a grid: (name, size) of each axis, outermost first; the last one varies fastest with the rank."""

    axes: tuple[tuple[str, int], ...] = (("dp", 1),)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Size by axis."""
        return dict(self.axes)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(size for _, size in self.axes)

    @cached_property
    def strides(self) -> dict[str, int]:
        """How far apart in rank two neighbours along an axis are."""
        strides, stride = {}, 1
        for name, size in reversed(self.axes):
            strides[name] = stride
            stride *= size
        return strides

    def place(self, rank: int) -> dict[str, int]:
        """Return the coordinates of a rank."""
        return {name: rank // self.strides[name] % size for name, size in self.axes}

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """Return the rank at these coordinates; absent ones are 0."""
        return sum(self.strides[name] * at for name, at in coordinates.items())

    def extent(self, axes: tuple[str, ...]) -> int:
        """Return how many ranks a group along these axes has."""
        return math.prod(self.sizes[name] for name in axes)

    def group(self, axes: tuple[str, ...], rank: int) -> tuple[int, ...]:
        """Return the ranks that differ from ``rank`` along ``axes`` only, ascending."""
        coordinates = self.place(rank)
        first = rank - sum(coordinates[name] * self.strides[name] for name in axes)
        ranks = [first]
        for name, size in self.axes:
            if name in axes:
                ranks = [each + at * self.strides[name] for each in ranks for at in range(size)]
        return tuple(ranks)


def turn_of(batch: int, micro_batches: int) -> tuple[int, int]:
    """Return the micro-batch that an entry of an order is for, and how many steps before the entry's own it is of."""
    return (batch, 0) if batch >= 0 else (batch + micro_batches, 1)


@dataclass(frozen=True)
class RankClass:
    """Ranks that run the same tasks: those at ``at`` (coordinates of some axes; none: all ranks)."""

    name: str
    at: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Work of one rank of class ``of``, ``seconds`` long when alone.

    ``slot`` is (phase, virtual stage): tasks of one slot run one after another in the order in which they are listed.
    ``tag`` is what gates of the queue may name. ``demands`` are (resource, amount): taken at the start, or, where negative,
    given back at the end. ``reads`` are (value, how many steps before), ``writes`` values; ``work`` is what it computes.
    With a ``lag`` it does, in each step, the work of so many steps before.
    """

    name: str
    of: str
    kind: str
    seconds: float = 0.0
    layer: int = 0
    slot: tuple[str, int] = ("F", 0)
    per: str = "micro-batch"
    stream: str = "compute"
    tag: str = ""
    demands: tuple[tuple[str, float], ...] = ()
    reads: tuple[tuple[str, int], ...] = ()
    writes: tuple[str, ...] = ()
    work: Work | None = None
    lag: int = 0


@dataclass(frozen=True)
class Edge:
    """``dst`` waits for ``src`` of ``distance`` iterations before."""

    src: str
    dst: str
    distance: int = 0


@dataclass(frozen=True)
class Payload:
    """Bytes that ranks along ``axes`` exchange, and who makes and uses them.

    ``size_bytes`` is the nccl-tests size column. ``consumers`` are (task, iteration distance). ``merges`` names what it may
    share an operation with (an empty name: nothing); ``joint`` lists further classes whose ranks take part; ``peer`` is
    the class that a send-recv goes to. ``elements`` counts numbers, for partitions given in parameters. ``factors`` are the
    rows and columns of a matrix whose gradient is a sum of outer products, and ``samples`` how many of them one rank sums in
    one payload (0: not known). ``source`` and ``result`` are the values before and after; of a shift or copy, the result is what
    the rank ``hops`` further on holds. ``lag`` as of tasks. ``network`` names the one that carries it, where ranks have
    several. ``disturbed``: how many times as long as its like it took where it was recorded, by what else was under way.
    """

    name: str
    of: str
    op: str
    size_bytes: int
    axes: tuple[str, ...]
    role: str
    producers: tuple[str, ...]
    consumers: tuple[tuple[str, int], ...]
    per: str = "step"
    layer: int = 0
    dtype: str = "float32"
    elements: int = 0
    merges: str = ""
    peer: str = ""
    joint: tuple[str, ...] = ()
    factors: tuple[int, int] | None = None
    root: int = 0
    samples: int = 0
    source: str = ""
    result: str = ""
    hops: int = 1
    lag: int = 0
    network: str = ""
    disturbed: float = 1.0

    @property
    def asked(self) -> str:
        """What cost models are asked for: a shift from further on says from where, a named network which."""
        op = self.op if self.op not in SHIFTS or self.hops == 1 else f"{self.op}@{self.hops}"
        return asked_on(op, self.network)


def asked_on(op: str, network: str) -> str:
    """Return how cost models are asked for an operation on a network; an empty name: the usual one."""
    return f"{op}{ON}{network}" if network else op


def sends_earlier(payload: Payload, writer: Task | None) -> bool:
    """Whether an operation sends what the step before left: of parameters that are gathered once a micro-batch.

    What is written once a step, behind its micro-batches, cannot be sent within one of them.
    """
    return payload.per == "micro-batch" and writer is not None and writer.per == "step"


@dataclass(frozen=True)
class Resource:
    """What tasks and operations of one rank use: ``serial``, ``shared`` (in proportion) or ``tokens`` (``capacity`` of them)."""

    name: str
    discipline: str = "serial"
    capacity: float = 1.0


# --------------------------------------------------------------------------------------------------------------- policy
@dataclass(frozen=True)
class Rewrite:
    """How payloads of ``roles`` become operations: a kind of ``model.rewrites.kinds``, and the settings of its file."""

    kind: str
    roles: tuple[str, ...] = ("dp",)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Gate:
    """Traffic of class ``closed`` does not start while class ``by`` is ``waiting`` or ``running``, or a task tagged so runs.

    A class closed by itself ``waiting`` goes by urgency, then by ready time, over all its queues on a rank: as if they were one.
    """

    closed: int
    by: int | str
    state: str = "waiting"


@dataclass(frozen=True)
class Queue:
    """Which ready operation goes next.

    ``keys`` (payload -> number) order operations, small first; equal or absent keys go by the time they became ready.
    ``windows`` (role -> (amount, "bytes" or "operations")) limit what is started and not yet done; without one the limit is
    one operation. ``blocking``: the most urgent operation, when it does not fit, keeps the others back too; such a queue
    may overshoot its window by that operation. ``traffic`` (role, or the network of those that name one -> class) is for
    ``gates``. ``issue_s`` is what starting
    an operation costs the issuing thread. ``random`` (a seed) draws an order anew each iteration, the
    same on all ranks, and however many iterations there are.
    """

    keys: Mapping[str, int] = field(default_factory=dict)
    windows: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    traffic: Mapping[str, int] = field(default_factory=dict)
    gates: tuple[Gate, ...] = ()
    blocking: bool = True
    issue_s: float = 0.0
    random: int | None = None


@dataclass(frozen=True)
class Policy:
    """Five parts, None where no scheduler has set one (then: whole payloads, the workload's own order, first come first served,
    a barrier at the end of the step, the order of the program). ``by`` names who set each part.
    """

    rewrites: tuple[Rewrite, ...] | None = None
    order: Mapping[str, tuple[tuple[str, int], ...]] | None = None  # class -> (task, micro-batch)
    queue: Queue | None = None
    boundary: str | None = None  # barrier | layer | reads (all have been written before the next step reads any)
    agreement: str | None = None  # program | index | leader | static | server
    by: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The schedulers that set its parts, the last one first."""
        return "+".join(dict.fromkeys(reversed(list(self.by.values())))) or "none"


@dataclass(frozen=True)
class Workload:
    """One step of a job on a device mesh, ready to be scheduled, simulated, or run.

    Parameters
    ----------
    name, mesh
        What to call it, and the ranks as a grid of named axes.
    classes
        Classes of ranks that run the same tasks.
    tasks
        Work of one rank, in seconds when alone.
    edges
        What waits for what, perhaps of an iteration before.
    payloads
        What ranks exchange, in bytes (the nccl-tests size column), who makes it and who needs it.
    resources
        What tasks and operations share on a rank.
    micro_batches, order
        Micro-batches of a step, and the model's own order of them by class. In an order, a negative micro-batch is of the step
        before (-1: its last one): it is left to run behind the first passes of the next step.
    policy
        How payloads become operations and in which order they are sent; ``with_policy`` sets parts of it.
    values
        What tasks read and write and payloads carry: bytes, dimensions, and how they lie on the mesh.
    applied
        The rules that rewrote the graph, in the order in which they did (``ringwright.graph.algebra``).
    assumptions
        Every default that was taken, in words.

    Examples
    --------
    >>> import ringwright
    >>> step = ringwright.job("llama3-8b", gpus=16, parallel="tp8")
    >>> step.mesh.sizes["tp"], step.policy.label
    (8, 'none')
    >>> len(step.gradients()) > 0
    True
    """

    name: str
    mesh: Mesh
    classes: tuple[RankClass, ...]
    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...] = ()
    payloads: tuple[Payload, ...] = ()
    resources: tuple[Resource, ...] = ()
    micro_batches: int = 1
    order: Mapping[str, tuple[tuple[str, int, int], ...]] = field(default_factory=dict)  # the model's own
    policy: Policy = field(default_factory=Policy)
    assumptions: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    applied: tuple[Applied, ...] = ()

    @cached_property
    def task(self) -> dict[str, Task]:
        """Tasks by name."""
        return {task.name: task for task in self.tasks}

    @cached_property
    def payload(self) -> dict[str, Payload]:
        """Payloads by name."""
        return {payload.name: payload for payload in self.payloads}

    @cached_property
    def value(self) -> dict[str, Value]:
        """Values by name."""
        return {value.name: value for value in self.values}

    def with_policy(self, slug: str, **parts: Any) -> Workload:
        """Return it with these parts of the policy set by ``slug``; UsageError for a part that does not exist."""
        strange = set(parts) - set(PARTS)
        if strange:
            raise UsageError(f"a policy has no part '{min(strange)}'", remedy=f"one of: {', '.join(PARTS)}")
        kept = {part: who for part, who in self.policy.by.items() if part not in parts}
        by = {**kept, **dict.fromkeys(parts, slug)}  # the last one at the end
        return replace(self, policy=replace(self.policy, **parts, by=by))

    def without_values(self) -> Workload:
        """Return it with nothing said of what its tasks read, write and compute, for one whose tasks are no longer those."""
        tasks = tuple(replace(task, reads=(), writes=(), work=None) for task in self.tasks)
        payloads = tuple(replace(payload, source="", result="") for payload in self.payloads)
        return replace(self, tasks=tasks, payloads=payloads, values=()) if self.values else self

    def saying(self, slug: str, *text: str) -> Workload:
        """Return it with what a scheduler found out or decided, for people, behind its assumptions."""
        return replace(self, assumptions=(*self.assumptions, *(f"{slug}: {each}" for each in text)))

    def schedule(self, of: str) -> tuple[tuple[str, int, int], ...]:
        """Return the model's own order of slots on the ranks of a class: (phase, virtual stage, micro-batch)."""
        if self.order.get(of):
            return self.order[of]
        phases = list(dict.fromkeys(t.slot for t in self.tasks if t.of == of and t.per == "micro-batch"))
        return tuple((phase, chunk, at) for at in range(self.micro_batches) for phase, chunk in phases)

    def line(self, of: str) -> list[tuple[str, int]]:
        """Return (task, micro-batch) of a class in the order of one step, without what runs once a step."""
        chosen = (self.policy.order or {}).get(of)
        if chosen:
            return list(chosen)
        slots: dict[tuple[str, int], list[str]] = {}
        for task in self.tasks:
            if task.of == of and task.per == "micro-batch":
                slots.setdefault(task.slot, []).append(task.name)
        return [(name, batch) for phase, chunk, batch in self.schedule(of) for name in slots.get((phase, chunk), ())]

    def group(self, of: str, axes: tuple[str, ...]) -> tuple[int, ...]:
        """Return the ranks along ``axes`` of the first rank of a class."""
        at = next(each.at for each in self.classes if each.name == of)
        return self.mesh.group(axes, self.mesh.rank(at))

    def gradients(self, roles: tuple[str, ...] = ("dp", "edp")) -> list[Payload]:
        """Return the payloads of ``roles`` that are sent once a step, in the order of the tasks that make them."""
        at = {task.name: index for index, task in enumerate(self.tasks)}
        payloads = [each for each in self.payloads if each.per == "step" and each.role in roles]
        return sorted(payloads, key=lambda each: max((at[name] for name in each.producers), default=0))

    def _repr_html_(self) -> str:
        axes = " x ".join(f"{name} {size}" for name, size in self.mesh.axes)
        facts: dict[str, object] = {
            "ranks": f"{self.mesh.size:,} ({axes})",
            "classes of ranks": len(self.classes),
            "tasks": len(self.tasks),
            "payloads": len(self.payloads),
            "micro-batches": self.micro_batches,
            "policy": self.policy.label,
        }
        return card(f"Workload: {self.name}", facts | {"assumed": "; ".join(self.assumptions)})

    def __repr__(self) -> str:
        size = f"{self.mesh.size} ranks, {len(self.classes)} classes, {len(self.tasks)} tasks, {len(self.payloads)} payloads"
        return line(f"Workload({self.name}, {size}, policy {self.policy.label})")
