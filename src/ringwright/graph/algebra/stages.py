"""Programs of computation and communication, stage by stage: every value has a layout, and a stage that does not fit is refused.

A value is ``local`` (every rank has its own), ``replicated`` (all have the same) or ``sliced`` along a dimension (rank i has
block i). Source: Jangda et al., ASPLOS 2022 (CoCoNet). What a program means and costs follows from the graph that it becomes;
rules (``ringwright.graph.algebra.RULES``) transform it.

Examples
--------
>>> from ringwright.graph.algebra.stages import StageProgram
>>> step = StageProgram(ranks=4, n=8)
>>> gradient = step.input("g", "n", "local")
>>> weights = step.input("w", "n", kind="parameter")
>>> total = step.all_reduce("sum", gradient)
>>> step.update(weights, step.pointwise("w1", "update", weights, total))
StageValue(w: n, replicated)
>>> [payload.op for payload in step.done().payloads]
['all-reduce']
>>> step.pointwise("wrong", "add", gradient, step.scatter("part", total, "n"))
Traceback (most recent call last):
ringwright.errors.UsageError: wrong: g is local, part is sliced by n: they do not meet
  at:  stage wrong
  try: all_reduce what is local, or all_gather what is sliced
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.graph.algebra.editing import COPIES, dims_of, local
from ringwright.ground.errors import UsageError
from ringwright.model.values import LOCAL, SLICED, Placement, Value, Work
from ringwright.model.workload import Mesh, Payload, RankClass, Task, Workload

AXIS, GROUPS = "rank", "group"
REPLICATED = "replicated"
LAYOUTS = (LOCAL, REPLICATED, SLICED)
KINDS = ("activation", "parameter", "gradient", "optimizer")
FUNCTIONS = ("add", "subtract", "multiply", "scale", "square", "relu", "copy", "update", "dropout")


@dataclass(frozen=True)
class StageValue:
    """A value of a program, as it is after so many steps (``late`` 1: what the step before left)."""

    value: Value
    late: int = 0

    @property
    def layout(self) -> str:
        """local, replicated or sliced."""
        lies = self.value.along(AXIS)
        return REPLICATED if lies is None else SLICED if lies.how == SLICED else LOCAL

    @property
    def dim(self) -> str:
        """The dimension that is sliced; empty where none is."""
        return (self.value.along(AXIS) or Placement(AXIS, "")).dim

    @property
    def told(self) -> str:
        """The layout in words."""
        return f"{self.layout} by {self.dim}" if self.dim else self.layout

    def __repr__(self) -> str:
        dims = " ".join(name for name, _ in self.value.dims) or "a number"
        return f"StageValue({self.value.name}: {dims}, {self.told})"


class StageProgram:
    """A program under construction for ``ranks`` ranks, or ``groups`` of so many; ``dims`` are the sizes of whole dimensions.

    Every stage returns a :class:`StageValue` and raises UsageError for operands that its type rule rejects.
    """

    def __init__(self, ranks: int, groups: int = 1, **dims: int) -> None:
        axes = (((GROUPS, groups),) if groups > 1 else ()) + ((AXIS, ranks),)
        self.ranks, self.groups = ranks, groups
        self._build = Build(Mesh(axes), **dims)

    # ------------------------------------------------------------------------------------------------------------- inputs
    def input(
        self, name: str, dims: str, layout: str = REPLICATED, dim: str = "", *, kind: str = "activation", group: int = 0
    ) -> StageValue:
        """Add an input with dimensions ``dims`` (names with spaces between); ``dim`` is the one that is sliced.

        A ``parameter`` or ``optimizer`` state is what the step before left, see ``update``.
        """
        if layout not in LAYOUTS or kind not in KINDS or (layout == SLICED) != bool(dim):
            raise _refused(
                name,
                f"an input that is {layout} {dim} and a {kind}".replace("  ", " "),
                f"layout: {', '.join(LAYOUTS)}",
            )
        strange = [each for each in (*dims.split(), *([dim] if dim else [])) if each not in self._build.dims]
        if strange or (dim and dim not in dims.split()):
            raise _refused(
                name, f"'{(strange or [dim])[0]}' is no dimension of it", f"one of: {', '.join(self._build.dims)}"
            )
        self._fresh(name)
        lies = (sliced(AXIS, dim),) if dim else (local(AXIS),) if layout == LOCAL else ()
        made = self._build.value(name, dims, *lies, kind=kind)
        return self._kept(made, group, 1 if kind in ("parameter", "optimizer") else 0)

    # ------------------------------------------------------------------------------------------------------------ compute
    def pointwise(self, name: str, fn: str, *operands: StageValue, seconds: float = 0.0, **settings: Any) -> StageValue:
        """Add an element-wise stage of ``FUNCTIONS``.

        Equal layouts stay; what is replicated takes the layout of the others; local and sliced do not meet. The first operand
        has all dimensions; others may lack some (broadcast). Element types must be equal.
        """
        if fn not in FUNCTIONS or not operands:
            raise _refused(name, f"'{fn}' of {len(operands)} operands is no stage", f"fn: {', '.join(FUNCTIONS)}")
        lies, dim = self._met(name, operands)
        first = operands[0].value
        missing = [d for each in operands for d, _ in each.value.dims if d not in dims_of(first)]
        if missing:
            raise _refused(
                name, f"{first.name} has no dimension '{missing[0]}'", "the operand with all dimensions first"
            )
        if len({each.value.dtype for each in operands}) > 1:
            told = ", ".join(f"{each.value.name} is {each.value.dtype}" for each in operands)
            raise _refused(name, f"element types differ: {told}", "cast one of them")
        if lies == SLICED and dim not in dims_of(first):
            raise _refused(name, f"{first.name} has no {dim}, by which others are sliced", "reduce_tensor first")
        reads = [self._as(name, each, lies, dim) for each in operands]
        placed = (sliced(AXIS, dim),) if lies == SLICED else (local(AXIS),) if lies == LOCAL else ()
        return self._task(name, "pointwise", reads, " ".join(dims_of(first)), placed, seconds, {"fn": fn, **settings})

    def cast(self, name: str, operand: StageValue, dtype: str) -> StageValue:
        """Add a stage that changes the type of the elements, and no value that both types have."""
        made = self.pointwise(name, "copy", operand)
        self._build.values[-1] = replace(made.value, dtype=dtype)
        return StageValue(self._build.values[-1])

    def dropout(self, name: str, operand: StageValue, counter: int) -> StageValue:
        """Add a stage that drops elements by a counter and their position, which is the same on whatever rank they are."""
        return self.pointwise(name, "dropout", operand, counter=counter, keyed="position")

    def matmul(self, name: str, one: StageValue, other: StageValue, dims: str, *, seconds: float = 0.0) -> StageValue:
        """Add a product that sums over the dimensions that ``dims`` lacks.

        Operands that are sliced by a dimension that is summed up give local terms; sliced by another one, a sliced product.
        """
        self._alike(name, (one, other))
        kept, hows = dims.split(), {one.layout, other.layout} - {REPLICATED}
        if len(hows) > 1 or (one.dim and other.dim and one.dim != other.dim):
            raise _refused(name, f"{one!r} and {other!r} do not meet", "slice both by one dimension, or none")
        dim = one.dim or other.dim
        if LOCAL in hows:
            placed: tuple[Placement, ...] = (local(AXIS),)
        else:
            placed = () if not dim else (sliced(AXIS, dim),) if dim in kept else (partial(AXIS),)
        whole = [each for each in (one, other) if dim and not each.dim and dim in dims_of(each.value)]
        reads = [
            self.scatter(f"{name}.{each.value.name}", each, dim) if each in whole else each for each in (one, other)
        ]
        if LOCAL in hows:
            reads = [self._as(name, each, LOCAL if each.layout == LOCAL else REPLICATED, "") for each in reads]
        return self._task(name, "einsum", reads, dims, placed, seconds, {})

    def reduce_tensor(self, name: str, operand: StageValue, *, seconds: float = 0.0) -> StageValue:
        """Add the sum over all elements: a number, local where the operand is local or sliced."""
        value, made = operand, operand
        for at, (dim, _) in enumerate(operand.value.dims):
            rest = " ".join(each for each, _ in value.value.dims if each != dim)
            lies = value.value.along(AXIS)
            placed = () if lies is None else (partial(AXIS),) if lies.dim == dim else (lies,)
            label = name if at + 1 == len(operand.value.dims) else f"{name}.{dim}"
            made = value = self._task(label, "sum", [value], rest, placed, seconds, {"along": dim})
        return made

    def update(self, state: StageValue, made: StageValue) -> StageValue:
        """Let what a stage made take the place of a parameter or state; both lie alike. Later stages see the new one."""
        old = state.value
        if old.kind not in ("parameter", "optimizer") or state.late != 1:
            raise _refused(
                old.name, "it is no state that the step before left", "an input of kind parameter or optimizer"
            )
        if (state.layout, state.dim, old.dims, old.dtype) != (made.layout, made.dim, made.value.dims, made.value.dtype):
            raise _refused(old.name, f"{made!r} cannot take the place of {state!r}", "as-slice, or all_gather it")
        for at, task in enumerate(self._build.tasks):
            reads = tuple((old.name if name == made.value.name else name, late) for name, late in task.reads)
            writes = tuple(old.name if name == made.value.name else name for name in task.writes)
            self._build.tasks[at] = replace(task, reads=reads, writes=writes)
        for at, payload in enumerate(self._build.payloads):
            result = old.name if payload.result == made.value.name else payload.result
            source = old.name if payload.source == made.value.name else payload.source
            self._build.payloads[at] = replace(payload, source=source, result=result)
        self._build.values = [each for each in self._build.values if each.name != made.value.name]
        return StageValue(old, 0)

    # ------------------------------------------------------------------------------------------------------ communication
    def all_reduce(self, name: str, operand: StageValue) -> StageValue:
        """Sum what is local; all ranks have the sum."""
        return self._sent(name, "all-reduce", self._terms(name, operand), ())

    def reduce_scatter(self, name: str, operand: StageValue, dim: str) -> StageValue:
        """Sum what is local; rank i has block i of the sum along ``dim``."""
        return self._sent(name, "reduce-scatter", self._terms(name, operand), (self._block(name, operand, dim),))

    def all_gather(self, name: str, operand: StageValue) -> StageValue:
        """Put the slices together on all ranks."""
        return self._sent(name, "all-gather", self._of(name, operand, SLICED), ())

    def broadcast(self, name: str, operand: StageValue, root: int = 0) -> StageValue:
        """Give all ranks what one of them has."""
        return self._sent(name, "broadcast", self._of(name, operand, LOCAL), (), root=root)

    def reduce(self, name: str, operand: StageValue, root: int = 0) -> StageValue:
        """Sum what is local on one rank; others have zeros."""
        return self._sent(name, "reduce", self._terms(name, operand), (local(AXIS),), root=root)

    def scatter(self, name: str, operand: StageValue, dim: str) -> StageValue:
        """Take each rank's own slice of what all have: nothing is sent."""
        cut = self._block(name, self._of(name, operand, REPLICATED), dim)
        dims = " ".join(dims_of(operand.value))
        made = self._task(name, "slice", [operand], dims, (cut,), 0.0, {"axis": AXIS, "dim": dim})
        self._build.tasks[-1] = replace(self._build.tasks[-1], kind=COPIES)
        return made

    def send(self, name: str, operand: StageValue) -> StageValue:
        """Send a value to the same rank of the next group; it lies there as it lay here."""
        group = self._group(operand.value)
        if group + 1 >= self.groups:
            raise _refused(name, f"there is no group behind group {group}", "StageProgram(ranks, groups=2)")
        made = self._sent(name, "send-recv", operand, operand.value.layout, role="pp", axes="", peer=f"g{group + 1}")
        return self._kept(made.value, group + 1)

    # ---------------------------------------------------------------------------------------------------------------- end
    def done(self, name: str = "program") -> Workload:
        """Return the program as a Workload."""
        made = self._build.step(name)
        if self.groups == 1:
            return made
        classes = tuple(RankClass(f"g{at}", {GROUPS: at}) for at in range(self.groups))
        return replace(made, classes=classes)

    # -------------------------------------------------------------------------------------------------------- below stages
    def _met(self, name: str, operands: Sequence[StageValue]) -> tuple[str, str]:
        """Return the layout that operands share; UsageError where they do not meet."""
        self._alike(name, operands)
        hows = {each.layout for each in operands} - {REPLICATED}
        dims = {each.dim for each in operands if each.dim}
        if len(hows) > 1 or len(dims) > 1:
            told = ", ".join(f"{each.value.name} is {each.told}" for each in operands)
            raise _refused(name, f"{told}: they do not meet", "all_reduce what is local, or all_gather what is sliced")
        return (hows.pop() if hows else REPLICATED), (dims.pop() if dims else "")

    def _alike(self, name: str, operands: Sequence[StageValue]) -> None:
        groups = {self._group(each.value) for each in operands}
        if len(groups) > 1:
            raise _refused(name, "operands of several groups", "send it to the group that needs it")

    def _of(self, name: str, operand: StageValue, layout: str) -> StageValue:
        if operand.layout != layout:
            raise _refused(name, f"{operand.value.name} is {operand.told}, not {layout}", f"what is {layout}")
        return operand

    def _block(self, name: str, operand: StageValue, dim: str) -> Placement:
        size = dims_of(operand.value).get(dim)
        if size is None or size % self.ranks:
            what = f"{operand.value.name} has no dimension '{dim}' that {self.ranks} ranks can share out"
            raise _refused(name, what, "a number cannot be sliced; a dimension that is a multiple of the ranks")
        return sliced(AXIS, dim)

    def _terms(self, name: str, operand: StageValue) -> StageValue:
        """Return what is local as the terms of a sum."""
        lies = self._of(name, operand, LOCAL).value.along(AXIS)
        return operand if lies == partial(AXIS) else self._copy(f"{name}.terms", operand, partial(AXIS))

    def _as(self, name: str, operand: StageValue, layout: str, dim: str) -> StageValue:
        """Return an operand as it must lie beside the others."""
        if layout == SLICED and operand.layout == REPLICATED and dim in dims_of(operand.value):
            return self.scatter(f"{name}.{operand.value.name}", operand, dim)
        if layout == LOCAL and operand.value.along(AXIS) != local(AXIS):
            return self._copy(f"{name}.{operand.value.name}", operand, local(AXIS))
        return operand

    def _copy(self, name: str, operand: StageValue, lies: Placement) -> StageValue:
        made = self._task(name, "copy", [operand], " ".join(dims_of(operand.value)), (lies,), 0.0, {})
        self._build.tasks[-1] = replace(self._build.tasks[-1], kind=COPIES)
        return made

    def _task(
        self,
        name: str,
        meaning: str,
        reads: Sequence[StageValue],
        dims: str,
        lies: tuple[Placement, ...],
        seconds: float,
        settings: Mapping[str, Any],
    ) -> StageValue:
        self._fresh(name)
        group, first = self._group(reads[0].value), reads[0].value
        made = self._build.value(name, dims, *lies, kind="activation")
        made = replace(made, dtype=first.dtype)
        self._build.values[-1] = made
        work = Work(
            float(made.size_bytes), sum(each.value.size_bytes for each in reads), made.size_bytes, meaning, settings
        )
        listed = tuple((each.value.name, each.late) for each in reads)
        task = Task(name, "all", "F", seconds, slot=("F", 0), per="step", reads=listed, writes=(name,), work=work)
        self._build.tasks.append(task)
        return self._kept(made, group)

    def _sent(
        self, name: str, op: str, operand: StageValue, lies: tuple[Placement, ...], *, axes: str = AXIS, **more: Any
    ) -> StageValue:
        self._fresh(name)
        more = {"role": "tp", **more}
        if operand.late:
            operand = self._copy(f"{name}.kept", operand, *operand.value.layout)
        made = self._build.send(f"{name}.op", op, operand.value, axes, *lies, **more)
        self._build.payloads[-1] = replace(self._build.payloads[-1], name=name, result=name)
        made = replace(made, name=name, dtype=operand.value.dtype)
        self._build.values[-1] = made
        return self._kept(made, self._group(operand.value))

    def _fresh(self, name: str) -> None:
        taken = {task.name for task in self._build.tasks} | {each.name for each in self._build.payloads}
        if name in taken | {each.name for each in self._build.values}:
            raise _refused(name, "another stage or input is called so", "a name of its own")

    def _group(self, value: Value) -> int:
        return int(value.of[1:]) if self.groups > 1 else 0

    def _kept(self, value: Value, group: int, late: int = 0) -> StageValue:
        """Note which group a value, and what makes it, are of."""
        of = f"g{group}" if self.groups > 1 else "all"
        at = next(at for at, each in enumerate(self._build.values) if each.name == value.name)
        self._build.values[at] = replace(value, of=of)
        if self._build.tasks and self._build.tasks[-1].writes == (value.name,):
            self._build.tasks[-1] = replace(self._build.tasks[-1], of=of)
        last: Payload | None = self._build.payloads[-1] if self._build.payloads else None
        if last is not None and last.result == value.name and last.op != "send-recv":
            self._build.payloads[-1] = replace(last, of=of)
        elif last is not None and last.result == value.name:
            self._build.payloads[-1] = replace(last, of=f"g{group - 1}")
        return StageValue(self._build.values[at], late)


def _refused(stage: str, what: str, remedy: str) -> UsageError:
    return UsageError(f"{stage}: {what}", where=f"stage {stage}", remedy=remedy)
