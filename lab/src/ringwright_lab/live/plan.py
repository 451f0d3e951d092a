"""What real ranks do with a scheduled Workload: its operations cut into pieces, and where each parameter lies in them.

The operations are those of ``ringwright.model.rewrites``, so the simulator and the ranks send the same bytes in the same pieces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites import Operation, operations
from ringwright.model.rewrites.kind import carried_by
from ringwright.model.workload import Queue, Workload
from ringwright_lab.live import halved

if TYPE_CHECKING:
    from ringwright.model.stages import Costs

ALL = -1
LEADER, STATIC = "leader", "static"
BOUNDARIES = (None, "barrier", "layer", "reads")


@dataclass(frozen=True)
class BufferSlice:
    """Where a parameter lies: operation, first element in its buffer, number of elements."""

    operation: int
    first: int
    elements: int


@dataclass(frozen=True)
class Unit:
    """Pieces that become ready together: one of them, or ALL of an operation; ``payloads`` are what they wait for."""

    operation: int
    piece: int
    payloads: tuple[str, ...]


@dataclass(frozen=True)
class LivePlan:
    """The operations of one step on real ranks. ``order`` is empty where a leader chooses.

    ``gathers`` are second halves of sums, by number; their parameters lie where those of the first half lie.
    ``first_needed`` says of parameters which layer of forward is the first to need them.
    """

    workload: Workload
    operations: tuple[Operation, ...]
    order: tuple[tuple[int, int], ...]
    gathers: Mapping[int, halved.HeldGather] = field(default_factory=dict)
    first_needed: Mapping[str, int] = field(default_factory=dict)

    @property
    def layered(self) -> bool:
        """Whether each layer of the next step waits for its own parameters only.

        Sums that are written and read in one all-reduce are read by layer as well.
        """
        return self.workload.policy.boundary in ("layer", "reads")

    @property
    def queue(self) -> Queue:
        """The queue of the policy."""
        return self.workload.policy.queue or Queue()

    @cached_property
    def places(self) -> dict[str, BufferSlice]:
        """Where each parameter lies."""
        slices = {}
        for at, operation in enumerate(self.operations):
            if at in self.gathers:
                continue
            first = 0
            for payload in operation.payloads:
                slices[payload.name] = BufferSlice(at, first, payload.elements)
                first += payload.elements
        return slices

    @cached_property
    def completed_by(self) -> dict[int, int]:
        """The gather that completes a scatter, by number."""
        return {gather.scatter: at for at, gather in self.gathers.items()}

    def gather_of(self, payload: str) -> int | None:
        """Return the gather that completes a parameter's sum, if there is one."""
        return self.completed_by.get(self.places[payload].operation)

    def elements(self, operation: int) -> int:
        """Return how many numbers an operation carries."""
        return sum(payload.elements for payload in self.operations[operation].payloads)

    def width(self, operation: int) -> int:
        """Return the bytes in which each of its numbers travels."""
        return self.operations[operation].size_bytes // max(self.elements(operation), 1)

    def span(self, operation: int, piece: int) -> tuple[int, int]:
        """Return the first element of a piece and the one after its last."""
        op, elements = self.operations[operation], self.elements(operation)
        if op.pieces == 1:
            return 0, elements
        width = self.width(operation)
        begin, end = (at * op.piece_bytes // width for at in (piece, piece + 1))
        return begin, elements if piece + 1 == op.pieces else end

    def carriers(self, payload: str) -> list[tuple[int, int]]:
        """Return the pieces that hold an element of a parameter, of second halves too."""
        part, gather = self.places[payload], self.gather_of(payload)
        if gather is not None:
            return [(part.operation, 0), (gather, 0)]
        return [
            (part.operation, piece)
            for piece in range(self.operations[part.operation].pieces)
            for begin, end in [self.span(part.operation, piece)]
            if begin < part.first + part.elements and end > part.first
        ]

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """What is announced: an operation, or each piece of one that several parameters share."""
        units = []
        for at, operation in enumerate(self.operations):
            names = tuple(payload.name for payload in operation.payloads)
            if at in self.gathers:
                units.append(Unit(at, ALL, ()))  # ready when its scatter is done and forward lets it go
                continue
            if operation.pieces == 1 or len(names) == 1:
                units.append(Unit(at, ALL, names))
                continue
            held = {name: self.carriers(name) for name in names}
            units += [
                Unit(at, piece, tuple(name for name in names if (at, piece) in held[name]))
                for piece in range(operation.pieces)
            ]
        return tuple(units)

    def pieces(self, unit: Unit) -> range:
        """Return the pieces of a unit."""
        if unit.piece == ALL:
            return range(self.operations[unit.operation].pieces)
        return range(unit.piece, unit.piece + 1)

    def piece_bytes(self, operation: int, piece: int) -> int:
        """Return how many bytes of a rank's data a piece holds."""
        begin, end = self.span(operation, piece)
        return (end - begin) * self.width(operation)

    def digest(self) -> bytes:
        """Return eight bytes that are equal where operations, pieces, order and policy are."""
        policy = self.workload.policy
        text = repr(
            (
                [
                    (op.name, op.op, op.size_bytes, op.piece_bytes, op.key, [p.name for p in op.payloads])
                    for op in self.operations
                ],
                self.order,
                sorted((at, each.scatter, each.opened_by) for at, each in self.gathers.items()),
                policy.boundary,
                policy.agreement,
                sorted(self.queue.windows.items()),
                self.queue.blocking,
                self.queue.random,
            )
        )
        return hashlib.blake2b(text.encode(), digest_size=8).digest()


def plan(workload: Workload, costs: Costs, drawn: Workload | None = None) -> LivePlan:
    """Return what ranks do; UsageError, with the reason, for a policy that no PyTorch process can carry out.

    ``drawn`` is what the scheduler was given, whose payloads are the parameters (None: it has changed none).
    """
    refuse(workload)
    halved.refuse(workload)
    drawn = drawn or workload
    ops = halved.with_members(operations(workload), workload, drawn)
    for operation in ops:
        if operation.op not in ("all-reduce", halved.SCATTER, halved.GATHER):
            raise UsageError(
                f"{operation.name} is {operation.op}; live ranks add up by all-reduce, or in its halves",
                remedy="a scheduler's knob that says so",
            )
        if operation.pieces > 1 and operation.piece_bytes < 8:
            raise UsageError(f"pieces of {operation.piece_bytes} B hold no number", remedy="a partition of 8 B or more")
    order = static_order(workload, costs, ops) if agreement(workload) == STATIC else ()
    return LivePlan(workload, ops, order, halved.gathers(ops, workload), halved.first_needed(drawn))


def agreement(workload: Workload) -> str:
    """Return how ranks come to one order: a leader tells it, or it is fixed beforehand."""
    policy, queue = workload.policy, workload.policy.queue or Queue()
    if queue.random is not None:
        return LEADER  # an order anew in each step
    if policy.agreement is None:
        return LEADER if queue.keys else STATIC
    if policy.agreement not in ("program", "index", "leader", "static", "server"):
        raise UsageError(f"'{policy.agreement}' is no agreement", remedy="program, index, leader, static or server")
    return LEADER if policy.agreement in ("leader", "server") else STATIC


def refuse(workload: Workload) -> None:
    """Raise UsageError for parts of a policy that PyTorch gives no means for."""
    policy = workload.policy
    reasons = {
        "order": (bool(policy.order), "the program of the model fixes the order of compute"),
        f"boundary '{policy.boundary}'": (policy.boundary not in BOUNDARIES, "there are barrier, layer and reads"),
    }
    for rewrite in policy.rewrites or ():
        touched = any(payload.role in rewrite.roles for payload in workload.payloads)
        touched = touched and rewrite.settings.get("names") != []  # nothing to substitute
        reasons[f"rewrite '{rewrite.kind}'"] = (
            touched and rewrite.kind not in carried_by("live"),
            "what travels are no plain sums; ringwright_lab.live.sparse and .factors do it, at the end of backward",
        )
    for part, (wrong, why) in reasons.items():
        if wrong:
            raise UsageError(
                f"live ranks cannot carry out the {part}: {why}",
                where=f"policy {policy.label}",
                remedy="leave that part to the simulator, or compose with a scheduler that sets it otherwise",
            )


def static_order(workload: Workload, costs: Costs, ops: Sequence[Operation]) -> tuple[tuple[int, int], ...]:
    """Return all (operation, piece) in the order fixed beforehand: that of the list, or by urgency as simulated.

    With urgencies it is the order in which the simulated step, on the measured times, starts them.
    """
    listed = [(at, piece) for at, operation in enumerate(ops) for piece in range(operation.pieces)]
    queue = workload.policy.queue or Queue()
    if workload.policy.agreement == "index" or not queue.keys:
        return tuple(listed)
    from ringwright.engines.job.run import simulate

    run = simulate(workload, costs)
    number = {operation.name: at for at, operation in enumerate(ops)}
    step = max(run.laid.steps - 2, 0)  # what lags a step behind goes in the one after it
    starts: dict[tuple[int, int], int] = {}
    for row in run.laid.rows:
        if row.what == "operation":
            behind = workload.payload[row.name].lag if row.name in workload.payload else 0
            for piece, start in enumerate(run.starts(row, step + behind).tolist()):
                at = (number[row.name], piece)
                starts[at] = min(starts.get(at, start), start)
    return tuple(sorted(listed, key=lambda each: (starts.get(each, 0), *each)))
