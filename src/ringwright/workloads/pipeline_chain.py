"""A pipeline of equal stages, as papers on schedules reason about it: what passes take, what is kept, sent and summed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ringwright.graph.pipelines import Shape, in_halves, order, schedule_of
from ringwright.ground.errors import UsageError
from ringwright.model.values import PARTIAL, SLICED, Placement, Value
from ringwright.model.workload import Edge, Mesh, Payload, RankClass, Resource, Task, Workload
from ringwright.workloads.weight_versions import delayed

WIDTH = 4  # bytes of an element
Reads = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one stage for one micro-batch: forward, gradients of its inputs, gradients of its weights; and of its update."""

    forward_s: float = 1.0
    inputs_s: float = 1.0
    weights_s: float = 1.0
    update_s: float = 0.0


def pipeline_chain(
    devices: int,
    micro_batches: int,
    chunks: int = 1,
    *,
    times: StageTimes | None = None,
    schedule: str = "1f1b",
    replicas: int = 1,
    elements: int = 0,
    message_bytes: int = WIDTH,
    sharded: bool = False,
    splits: bool | None = None,
) -> Workload:
    """Return one training step of ``devices`` x ``chunks`` equal stages.

    Parameters
    ----------
    devices, micro_batches, chunks
        Devices of the pipeline, micro-batches of a step, stages on each device.
    times
        Seconds of a stage; all passes take one where none are given.
    schedule
        Order of the passes, one of ``ringwright.graph.pipelines.SCHEDULES``; it also says where stages lie.
    replicas, elements
        Pipelines that share gradients, and parameters of a stage (4 bytes each; 0: nothing is summed).
    message_bytes
        What one stage hands to the next for a micro-batch.
    sharded
        Parameters are gathered before each pass of each micro-batch, and gradients scattered after it (FSDP).
    splits
        Whether gradients of inputs and of weights are tasks of their own; None: where the schedule says so. Whole backward
        passes hand on their gradients when both are done.

    Raises
    ------
    UsageError
        Where the schedule is not made for the pipeline, or replicas cannot share the elements evenly.
    """
    known = schedule_of(schedule)[0]
    if elements % (max(1, replicas) * known.sides):
        what = f"{elements} parameters over {replicas * known.sides} replicas"
        raise UsageError(what, remedy="a multiple of the replicas")
    splits, replicas = known.splits if splits is None else splits, replicas if elements else 1
    listed = [order(schedule, devices, at, micro_batches, chunks) for at in range(max(1, devices // known.sides))]
    shape = known.halved(devices, micro_batches, chunks)
    axes = (("pp", shape.devices), *((("side", known.sides),) if known.sides > 1 else ()), ("dp", replicas))
    sharing = tuple((name, size) for name, size in axes[1:] if size > 1)
    made = _Stages(shape, times or StageTimes(), sharing, elements, message_bytes, sharded and bool(sharing), splits)
    for at in range(shape.stages):
        made.add(at)
    orders = {f"device{at}": slots for at, slots in enumerate(listed)}
    if splits:
        orders = {of: in_halves(slots) for of, slots in orders.items()}
    step = Workload(
        "pipeline",
        Mesh(axes),
        tuple(RankClass(f"device{at}", {"pp": at}) for at in range(shape.devices)),
        tuple(made.tasks),
        tuple(made.edges),
        tuple(made.payloads),
        (Resource("compute"), Resource("link.tx", "shared"), Resource("link.rx", "shared")),
        shape.micro_batches,
        orders,
        values=tuple(made.values),
    )
    return delayed(step) if known.versions > 1 else step


@dataclass
class _Stages:
    """Tasks, payloads and values of one stage after another."""

    shape: Shape
    times: StageTimes
    sharing: tuple[tuple[str, int], ...]  # axes of replicas, and how long they are
    elements: int
    message_bytes: int
    sharded: bool
    splits: bool
    tasks: list[Task] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def add(self, stage: int) -> None:
        """Add a stage: its passes, what it hands on, and its parameters where it has some."""
        device, chunk = self.shape.seat(stage)
        of, last = f"device{device}", stage == self.shape.stages - 1
        weights = self._parameters(stage, of) if self.elements else {}
        taken = ((f"in{stage}", 0),) if stage else ()
        asked = (f"out{stage}" if last else f"asked{stage}", 0)
        for name in ("kept", "out", "got"):
            self._value(f"{name}{stage}", of)
        one = Task(f"F{stage}", of, "F", self.times.forward_s, stage, ("F", chunk))
        reads, writes = (*taken, *weights.get("F", ())), (f"out{stage}", f"kept{stage}")
        self.tasks.append(replace(one, reads=reads, writes=writes))
        needs, gradient = ((f"kept{stage}", 0), asked), (f"gradient{stage}",) if self.elements else ()
        self._backward(stage, one, (needs, weights.get("B", ())), gradient)
        if not last:
            self._hand(f"F{stage}", f"F{stage + 1}", f"out{stage}", f"in{stage + 1}")
        if stage:
            self._hand(self._inputs(stage), self._inputs(stage - 1), f"got{stage}", f"asked{stage - 1}")

    def _inputs(self, stage: int) -> str:
        """Return the task that makes the gradient of a stage's input."""
        return f"{'I' if self.splits else 'B'}{stage}"

    def _backward(self, stage: int, near: Task, reads: tuple[Reads, Reads], gradient: tuple[str, ...]) -> None:
        """Add the backward pass of a stage, in halves or whole."""
        (needs, weights), times, chunk = reads, self.times, near.slot[1]
        first, got = self._inputs(stage), (f"got{stage}",)
        one = replace(near, name=first, kind="dO", seconds=times.inputs_s, slot=("B", chunk), reads=(*needs, *weights))
        self.edges.append(Edge(f"F{stage}", first))
        if not self.splits:
            whole = times.inputs_s + times.weights_s
            self.tasks.append(replace(one, kind="B", seconds=whole, writes=(*got, *gradient)))
            return
        last = replace(near, name=f"W{stage}", kind="dW", seconds=times.weights_s, slot=("W", chunk), reads=needs)
        self.tasks += [replace(one, writes=got), replace(last, writes=gradient)]
        self.edges += [Edge(first, last.name), Edge(near.name, last.name)]

    def _value(self, name: str, of: str, **more: object) -> None:
        size, how = {"size_bytes": self.message_bytes, "dims": (("tokens", 1),)}, {"layout": self._own()}
        self.values.append(Value(name, of, **{**size, **how, **more}))  # type: ignore[arg-type]

    def _own(self) -> tuple[Placement, ...]:
        return self._along("local")

    @property
    def replicas(self) -> int:
        """How many ranks hold a stage."""
        return math.prod(size for _, size in self.sharing)

    def _along(self, how: str, dim: str = "") -> tuple[Placement, ...]:
        return tuple(Placement(axis, how, dim) for axis, _ in self.sharing)

    def _hand(self, src: str, dst: str, source: str, result: str) -> None:
        """Send what a task made to the next one, which gets it from a copy where both are on one device."""
        one, chunk = next(task for task in self.tasks if task.name == src), int(dst[1:])
        there, users = f"device{self.shape.seat(chunk)[0]}", [dst]
        if dst[0] == "I":
            users.append(f"W{chunk}")
        self._value(result, there)
        ends = {"source": source, "result": result}
        if one.of == there and ("side", 2) in self.sharing:
            consumers = tuple((each, 0) for each in users)
            moved = Payload(
                f"{src}-{dst}", there, "shift", self.message_bytes, ("side",), "pp", (src,), consumers, "micro-batch"
            )
            self.payloads.append(replace(moved, **ends))  # type: ignore[arg-type]
            return
        if one.of == there:
            copy = Task(f"{src}-{dst}", there, "CTRL", layer=one.layer, slot=one.slot)
            self.tasks.append(replace(copy, reads=((source, 0),), writes=(result,)))
            self.edges += [Edge(src, copy.name), *(Edge(copy.name, each) for each in users)]
            return
        consumers = tuple((each, 0) for each in users)
        sent = Payload(
            f"{src}-{dst}", one.of, "send-recv", self.message_bytes, ("pp",), "pp", (src,), consumers, "micro-batch"
        )
        self.payloads.append(replace(sent, peer=there, **ends))  # type: ignore[arg-type]

    def _parameters(self, stage: int, of: str) -> dict[str, Reads]:
        """Add parameters, their gradients, sum and update; return what passes read of them."""
        size, dims = WIDTH * self.elements, (("parameters", self.elements),)
        whole: dict[str, object] = {"size_bytes": size, "dims": dims, "layout": (), "per": "step"}
        shares: dict[str, object] = dict(whole)
        if self.sharded:
            shares |= {"size_bytes": size // self.replicas, "layout": self._along(SLICED, "parameters")}
        partial = self._along(PARTIAL)
        name, gradient, total, per = f"weights{stage}", f"gradient{stage}", f"gradient{stage}", "step"
        if self.sharded:
            per = "micro-batch"
        self._value(name, of, **{**shares, "kind": "parameter"})
        self._value(gradient, of, **{**whole, "layout": partial, "kind": "gradient", "per": per})
        maker, update = f"{'W' if self.splits else 'B'}{stage}", f"U{stage}"
        if self.replicas > 1:
            total = f"total{stage}"
            self._value(total, of, **{**shares, "kind": "gradient"})
            self._collective(f"sum{stage}", of, (gradient, total), maker, update, per)
        else:
            self.edges.append(Edge(maker, update))
        one = Task(update, of, "U", self.times.update_s, stage, ("U", 0), "step")
        self.tasks.append(replace(one, reads=((total, 0), (name, 1)), writes=(name,)))
        if self.sharded:
            return {phase: ((self._gathered(stage, of, phase, whole), 0),) for phase in ("F", "B")}
        self.edges.append(Edge(update, f"F{stage}", 1))
        return dict.fromkeys(("F", "B"), ((name, 1),))

    def _gathered(self, stage: int, of: str, phase: str, whole: dict[str, object]) -> str:
        """Add a gather before each pass of a phase: it begins with what the step before has updated."""
        begin, shard, result = f"{phase}begin{stage}", f"{phase}shard{stage}", f"{phase}weights{stage}"
        layout, size = self._along(SLICED, "parameters"), WIDTH * self.elements // self.replicas
        self._value(shard, of, **{**whole, "size_bytes": size, "layout": layout, "kind": "buffer"})
        self._value(result, of, **{**whole, "kind": "buffer", "per": "micro-batch"})
        one = Task(begin, of, "CTRL", layer=stage, per="step")
        self.tasks.append(replace(one, reads=((f"weights{stage}", 1),), writes=(shard,)))
        self.edges.append(Edge(f"U{stage}", begin, 1))
        user = f"F{stage}" if phase == "F" else self._inputs(stage)
        self._collective(f"{phase}gather{stage}", of, (shard, result), begin, user, "micro-batch")
        return result

    def _collective(self, name: str, of: str, ends: tuple[str, str], maker: str, user: str, per: str) -> None:
        """Add an operation among the replicas of a stage: a sum of gradients or, sharded, one of its halves."""
        op = "all-gather" if "gather" in name else "reduce-scatter" if self.sharded else "all-reduce"
        axes = tuple(axis for axis, _ in self.sharing)
        one = Payload(name, of, op, WIDTH * self.elements, axes, "dp", (maker,), ((user, 0),), per)
        merges, (source, result) = "" if self.sharded else "gradients", ends
        layer = int("".join(filter(str.isdigit, user)))
        self.payloads.append(
            replace(one, layer=layer, elements=self.elements, merges=merges, source=source, result=result)
        )
