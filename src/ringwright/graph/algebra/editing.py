"""A Workload's graph under change: take out, put in, and let who waits for whom follow from the values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ringwright.graph.algebra.indexed import Indexed
from ringwright.graph.algebra.waits import Node, OtherWaits, edges_of, ends_of
from ringwright.model.values import LOCAL, RELAY, Placement, Value, Work
from ringwright.model.workload import Payload, Policy, Task, Workload, sends_earlier

COPIES = "CTRL"  # the kind of tasks that only say which bytes are which


class StepGraph:
    """The parts of a Workload by name, in order; ``done`` puts them together again."""

    def __init__(self, workload: Workload) -> None:
        self.before = workload
        self.mesh, self.classes = workload.mesh, workload.classes
        computed = {each.name: each for each in workload.tasks if not _is_relay(each)}
        self.tasks = Indexed(computed, lambda task: task.writes, lambda task: [name for name, _ in task.reads])
        sent = {each.name: each for each in workload.payloads}
        self.payloads = Indexed(sent, lambda each: [each.result], lambda each: [each.source])
        self.values = {each.name: each for each in workload.values}
        self.policy = workload.policy
        self.waits = OtherWaits(self)
        # Tasks by number, in order; those that were put in right before or behind another one, until ``settle`` moves them there.
        self._number = {name: at for at, name in enumerate(self.tasks)}
        self._line = list(range(len(self.tasks)))
        self._before: dict[int, list[int]] = {}
        self._behind: dict[int, list[int]] = {}
        self._numbers = len(self.tasks)

    # ---------------------------------------------------------------------------------------------------- questions
    def extent(self, axes: Iterable[str]) -> int:
        """Return how many ranks a group along axes has."""
        return math.prod(self.mesh.sizes[axis] for axis in axes)

    def writer(self, name: str) -> Node | None:
        """Return the task or payload that writes a value; None of an input."""
        writers: list[Node] = [*self.tasks.writers(name), *self.payloads.writers(name)]
        return writers[0] if writers else None

    def readers(self, name: str) -> list[Node]:
        """Return the tasks and payloads that read a value, of this step or a later one."""
        return [*self.tasks.readers(name), *self.payloads.readers(name)]

    def fresh(self, name: str) -> str:
        """Return a name like this one that nothing has."""
        at, made = 1, name
        while made in self.tasks or made in self.payloads or made in self.values:
            at, made = at + 1, f"{name}~{at}"
        return made

    def with_part(self, slug: str, **parts: Any) -> Policy:
        """Return the policy with these parts set by ``slug``."""
        return replace(self.before, policy=self.policy).with_policy(slug, **parts).policy

    def sent_now(self, payload: Payload) -> Payload:
        """Return the operation, after a copy where it sends what the step before left, or gathers in another type of elements.

        What it sends is of its own step then, and as wide as what arrives.
        """
        writer, state, result = (
            self.writer(payload.source),
            self.values.get(payload.source),
            self.values.get(payload.result),
        )
        if state is None or result is None:
            return payload
        earlier = isinstance(writer, Task) and sends_earlier(payload, writer)
        if not earlier and (payload.op != "all-gather" or state.dtype == result.dtype):
            return payload
        like = result if payload.op == "all-gather" else state
        more = {"dims": state.dims, "layout": state.layout, "kind": "buffer", "per": payload.per}
        made = self.value(like, f"{payload.name}.sent", **more)
        copy = self.copying(f"{payload.name}.read", payload, "copy", {}, [state], [made])
        self.change(copy, reads=((state.name, int(earlier)),))
        changed = self.change(payload, source=made.name)
        assert isinstance(changed, Payload)  # noqa: S101 - what was changed is what is returned
        return changed

    # ------------------------------------------------------------------------------------------------------ changes
    def value(self, like: Value, name: str, **changes: Any) -> Value:
        """Add a value like another one, with its bytes in proportion to its elements, and return it."""
        made = replace(like, name=self.fresh(name), **changes)
        if "size_bytes" not in changes and (size_bytes := self._bytes(like, made)) != like.size_bytes:
            made = replace(made, size_bytes=size_bytes)
        self.values[made.name] = made
        return made

    def _bytes(self, like: Value, made: Value) -> int:
        if (like.dims, like.layout) == (made.dims, made.layout):
            return like.size_bytes
        old, new = (math.prod(each.held(self.mesh.sizes).values()) for each in (like, made))
        return like.size_bytes if not old else -(-like.size_bytes * new // old)

    def copying(
        self,
        name: str,
        near: Node,
        meaning: str,
        settings: Mapping[str, Any],
        reads: Iterable[Value],
        writes: Iterable[Value],
        lag: int | None = None,
        *,
        behind: bool = False,
    ) -> Task:
        """Add a task that takes no time: it says which bytes of what it reads are those that it writes.

        It stands before ``near`` or ``behind`` it, and does the work of the same step, if no other ``lag`` is given.
        """
        slot, stream = (near.slot, near.stream) if isinstance(near, Task) else self._slot(near)
        return self.add(
            Task(
                self.fresh(name),
                near.of,
                COPIES,
                0.0,
                near.layer,
                slot,
                near.per,
                stream,
                reads=tuple((each.name, 0) for each in reads),
                writes=tuple(each.name for each in writes),
                work=Work(meaning=meaning, settings=settings),
                lag=near.lag if lag is None else lag,
            ),
            near,
            behind=behind,
        )

    def _slot(self, payload: Payload) -> tuple[tuple[str, int], str]:
        """Return where the tasks are that use what an operation brings, or make what it takes."""
        ends = [*self.tasks.readers(payload.result), *self.tasks.writers(payload.source)]
        behind = [name for name, _ in self.waits.ahead(payload)]
        ends += [self.tasks[name] for name in (*behind, *self.waits.behind(payload))]
        mine = [each for each in ends if each.of == payload.of]
        same = [each for each in mine if each.per == payload.per] or mine
        return (same[0].slot, same[0].stream) if same else (("U", 0), "compute")

    def add(self, task: Task, near: Node | None = None, *, behind: bool = False) -> Task:
        """Add a task, right before ``near`` or ``behind`` it where that is a task (``settle`` puts it there)."""
        number, self._numbers = self._numbers, self._numbers + 1
        if isinstance(near, Task) and near.name in self.tasks:
            (self._behind if behind else self._before).setdefault(self._number[near.name], []).append(number)
        else:
            self._line.append(number)
        self.tasks[task.name], self._number[task.name] = task, number
        return task

    def settle(self) -> None:
        """Bring the tasks into order: those that were added come right before or behind those beside which they were."""
        if not self._before and not self._behind:
            return
        line, stack = list[int](), self._line[::-1]
        while stack:
            number = stack.pop()
            before = self._before.pop(number, [])
            if before:
                stack += [number, *reversed(before)]
            else:
                line.append(number)
                stack += reversed(self._behind.pop(number, []))
        name_of = {number: name for name, number in self._number.items() if name in self.tasks}
        self._line = [number for number in line if number in name_of]
        self.tasks = self.tasks.sorted_by(name_of[number] for number in self._line)

    def send(self, like: Payload, name: str, op: str, source: Value, result: Value, **changes: Any) -> Payload:
        """Add a payload like another one that turns one value into another, and return it."""
        made = replace(
            like,
            name=self.fresh(name),
            op=op,
            source=source.name,
            result=result.name,
            size_bytes=sent_bytes(op, source, result),
            producers=(),
            consumers=(),
            **changes,
        )
        self.payloads[made.name] = made
        return made

    def change(self, node: Node, **changes: Any) -> Node:
        """Change a task or payload where it stands."""
        held: Any = self.tasks if isinstance(node, Task) else self.payloads
        held[node.name] = replace(held[node.name], **changes)
        changed: Node = held[node.name]
        return changed

    def drop(self, node: Node, instead: Iterable[Node] = ()) -> None:
        """Take out a task or payload; what waits for it otherwise than for its values waits for what stands instead."""
        (self.tasks if isinstance(node, Task) else self.payloads).pop(node.name)
        self.waits.instead[node.name] = [each.name for each in instead]

    def hold(self, payload: Payload, node: Node) -> None:
        """Let a payload begin behind a task or an operation though it needs nothing of it: what hands it its bytes waits."""
        begins = self.writer(payload.source)
        if not (isinstance(begins, Task) and begins.kind == COPIES and self.readers(payload.source) == [payload]):
            value = self.values[payload.source]
            made = self.value(value, f"{value.name}.held")
            begins = self.copying(f"{payload.name}.held", payload, "copy", {}, [value], [made])
            self.change(payload, source=made.name)
        self.waits.add(node, begins.name, 0 if isinstance(node, Task) else payload.lag - node.lag)

    def tidy(self) -> None:
        """Take out values that nothing writes or reads, and copies of bytes that nobody reads."""
        while True:
            read = {name for task in self.tasks.values() for name, _ in task.reads}
            read |= {each.source for each in self.payloads.values()}
            outputs = set(self.before.value)
            idle = [
                task
                for task in self.tasks.values()
                if task.kind == COPIES and task.writes and not any(n in read or n in outputs for n in task.writes)
            ]
            if not idle:
                break
            for task in idle:
                self.drop(task)
        used = read | {name for task in self.tasks.values() for name in task.writes}
        used |= {each.result for each in self.payloads.values()}
        self.values = {name: value for name, value in self.values.items() if name in used}

    # ---------------------------------------------------------------------------------------------------------- end
    def done(self) -> Workload:
        """Return the Workload, its edges and ends of payloads as its values and what was said besides ask for."""
        self.settle()
        self.tidy()
        self._relay()
        self.settle()
        made_by, used_by = ends_of(self.tasks.values(), self.payloads.values())
        payloads = []
        for name, payload in self.payloads.items():
            makers = [each for each in (f"{name}.begins",) if each in self.tasks]
            makers += [*made_by.get(name, ()), *self.waits.behind(payload)]
            users = [*used_by.get(name, ()), *self.waits.ahead(payload)]
            payloads.append(
                replace(payload, producers=tuple(dict.fromkeys(makers)), consumers=tuple(dict.fromkeys(users)))
            )
        made = replace(
            self.before,
            mesh=self.mesh,
            classes=self.classes,
            tasks=tuple(self.tasks.values()),
            payloads=tuple(payloads),
            values=tuple(self.values.values()),
            policy=replace(
                self.policy,
                order=self._ordered() if self.policy.order else None,
                queue=self.waits.queue(self.policy.queue),
            ),
        )
        return replace(made, edges=tuple(dict.fromkeys([*self.waits.edges(), *edges_of(made)])))

    def _relay(self) -> None:
        """Let an operation on what another one brought, or on an input, begin behind a task, as every operation does."""
        written = {name: task for task in self.tasks.values() for name in task.writes}
        brought = {each.result for each in self.payloads.values()}
        for name, payload in self.payloads.items():
            there = payload.source not in written or sends_earlier(payload, written[payload.source])
            if payload.source and there and not self.waits.behind(payload):
                reads = [self.values[payload.source]] if payload.source in brought else []
                self.copying(f"{name}.begins", payload, RELAY, {}, reads, [])

    def _ordered(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """Return the order of tasks: what stands for a task at its place, what is new before what it is listed before."""
        orders = {}
        for of, listed in (self.policy.order or {}).items():
            order = [(name, batch) for old, batch in listed for name in self.waits.stand([old])]
            order = list(dict.fromkeys(reversed(order)))[::-1]  # what stands for several is where the last of them was
            mine = [each for each in self.tasks.values() if each.of == of and each.per == "micro-batch"]
            there = set(order)
            for at in range(len(mine) - 1, -1, -1):
                for batch in range(self.before.micro_batches):
                    if (mine[at].name, batch) not in there:
                        behind = (mine[at + 1].name, batch) if at + 1 < len(mine) else None
                        order.insert(order.index(behind) if behind in there else len(order), (mine[at].name, batch))
                        there.add((mine[at].name, batch))
            orders[of] = tuple(order)
        return orders


def _is_relay(task: Task) -> bool:
    return task.work is not None and task.work.meaning == RELAY


def sent_bytes(op: str, source: Value, result: Value) -> int:
    """Return the size column of nccl-tests for an operation from one value to another: an all-gather's is its result's."""
    return result.size_bytes if op == "all-gather" else source.size_bytes


def placed(layout: Iterable[Placement], axes: Iterable[str], *how: Placement) -> tuple[Placement, ...]:
    """Return a layout without its placements along ``axes``, and with ``how`` behind it."""
    gone = set(axes)
    return (*(each for each in layout if each.axis not in gone), *how)


def dims_of(value: Value) -> dict[str, int]:
    """Return the size of each dimension of the whole of a value."""
    return dict(value.dims)


def times_of(graph: StepGraph, node: Node) -> int:
    """Return how often a node runs in a step."""
    return graph.before.micro_batches if node.per == "micro-batch" else 1


def local(axis: str) -> Placement:
    """Return the placement of values that are each rank's own."""
    return Placement(axis, LOCAL)
