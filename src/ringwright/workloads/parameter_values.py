"""Parameters, gradients and states of the optimizer as values, and what of them tasks and payloads read and write.

Where parameters are in 16 bits, Adam keeps a copy in 4 bytes beside its two moments; gradients are added up in their own type.
With zero1 states are shared out, gradients not (Megatron-LM's distributed optimizer adds up in one buffer and scatters that).
Fully sharded, a rank has its part of all of them in 4 bytes, and parameters of a unit in 16 bits while it works on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ringwright.model.values import PARTIAL, SLICED, Placement, Value
from ringwright.workloads.parameters import Held
from ringwright.workloads.replicas import has_ddp
from ringwright.workloads.segments import Item, Segment
from ringwright.workloads.stage import RankClassBuilder
from ringwright.workloads.tables import touched
from ringwright.workloads.tensors import Tensors

SINGLE, MOMENTS = 4, 2


@dataclass(frozen=True)
class Owned:
    """A layer's parameters on a rank: block, layer, how many, the role that shares them, the axes that cut them.

    ``touched`` are those of a table's rows that a step looks up: they alone have gradients, and plain gradient descent no states.
    """

    block: str
    layer: str
    elements: int
    role: str
    cut: tuple[str, ...]
    maker: str = ""
    touched: int | None = None


def owned(items: Sequence[Item], tensors: Tensors, held: Sequence[Held] = ()) -> Iterator[Owned]:
    """Yield the parameters of a chunk's segments, with the task that makes their gradients."""
    parallel, makers = tensors.step.parallel, {(each.block, each.layer): each.maker for each in held}
    for item in items:
        if not isinstance(item, Segment):
            continue
        cuts, rows = {work.name: work.cut for work in item.works}, touched(item.works, tensors.step.width_bytes)
        for layer, elements, expert in item.parameters:
            shared = expert and parallel.ep > 1
            cut = tensors.roles["ep"] if shared else tensors.tp if cuts.get(layer, "rows") else ()
            role, maker = "edp" if shared else "dp", makers.get((item.block, layer), "")
            yield Owned(item.block, layer, elements, role, cut, maker, rows.get(layer))


@dataclass(frozen=True)
class ParameterValues:
    """Adds the values of a stage's parameters."""

    stage: RankClassBuilder
    tensors: Tensors

    @property
    def zero(self) -> int:
        """What is shared out: nothing (0), states (1), or everything (3)."""
        return self.tensors.step.parallel.zero

    def trained(self, layers: Sequence[Owned]) -> None:
        """Add parameters with gradients and states; each block's update reads and writes those of its layers."""
        for each in layers:
            self._states(each)
            self._gradient(each)
        if has_ddp(self.tensors.model, self.tensors.step.parallel) and self.stage.roles["dp"]:
            size = self.tensors.step.gradient_bytes * sum(each.elements for each in layers if each.touched is None)
            name = f"{self.stage.name}.buckets"
            self.stage.keep(self.tensors.numbers(name, self.stage.name, size, size, "buffer"))

    def fixed(self, layers: Sequence[Owned]) -> None:
        """Add parameters that nothing changes."""
        for each in layers:
            self._parameter(each, self._ranks(each) if self.zero == 3 else ())

    def used(
        self, items: Sequence[Item], phases: Mapping[str, str], repeats: Mapping[str, bool], distance: int
    ) -> None:
        """Let tasks read the parameters of their segments: ``phases`` (F, dO ...) -> the gather that brings them, if sharded."""
        known = {task.name for task in self.stage.tasks}
        for item in items:
            if not isinstance(item, Segment) or not item.parameters:
                continue
            unit = item.block if repeats.get(item.block, False) else "root"
            for phase, gather in phases.items():
                task = f"{self.stage.name}.{phase}.{item.name}"
                if task in known:
                    self._reads(task, item, unit, gather if unit != "root" else "gather", distance)

    def gathered(self, layers: Sequence[Owned], repeats: Mapping[str, bool]) -> None:
        """Say what gathers of sharded parameters bring: all layers of a unit, in the type they are worked with."""
        units: dict[tuple[str, str], list[Owned]] = {}
        for each in layers:
            units.setdefault((each.block if repeats.get(each.block, False) else "root", each.role), []).append(each)
        for (unit, role), mine in units.items():
            blocks = list(dict.fromkeys(each.block for each in mine))
            elements = sum(each.elements for each in mine)
            for label in ("gather", "regather"):
                payload = f"{self.stage.name}.{label}.{unit}.{role}"
                if payload in self.stage.payloads:
                    size = self.tensors.step.width_bytes * elements
                    made = self.tensors.numbers(f"{payload}.parameters", self.stage.name, elements, size, "buffer")
                    made = Value(made.name, made.of, size, made.dims, (), "buffer", "micro-batch", self.stage.dtype)
                    self.stage.keep(made)
                    self.stage.carries(payload, self._unit(blocks[0], role) if len(blocks) == 1 else "", made.name)

    # ------------------------------------------------------------------------------------------------------- one layer
    def _ranks(self, each: Owned) -> tuple[str, ...]:
        return self.stage.roles[each.role]

    def _name(self, each: Owned, what: str) -> str:
        return f"{self.stage.name}.{each.block}.{each.layer}.{what}"

    def _unit(self, block: str, role: str) -> str:
        return f"{self.stage.name}.{block}.{role}.parameters"

    def _reads(self, task: str, item: Segment, unit: str, gather: str, distance: int) -> None:
        shared = self.tensors.step.parallel.ep > 1
        for layer, _, expert in item.parameters:
            role = "edp" if expert and shared else "dp"
            payload = f"{self.stage.name}.{gather}.{unit}.{role}"
            if payload in self.stage.payloads:
                self.stage.reads(task, f"{payload}.parameters")
                continue
            name = f"{self.stage.name}.{item.block}.{layer}.parameters"
            sharded = self._unit(item.block, role)
            self.stage.reads(task, sharded if sharded in self.stage.values else name, distance=distance)

    def _parameter(self, each: Owned, shared: tuple[str, ...]) -> str:
        """Add a layer's parameters, or, fully sharded, those of its block together."""
        step, ranks = self.tensors.step, self.tensors.mesh.extent(shared)
        if self.zero != 3:
            name = self._name(each, "parameters")
            size = step.width_bytes * each.elements
            self._keep(name, each, size, "parameter", dtype=self.stage.dtype)
            return name
        name = self._unit(each.block, each.role)
        before = self.stage.values.get(name)
        width = SINGLE if step.trains else step.width_bytes
        size = -(-width * each.elements // ranks) + (before.size_bytes if before else 0)
        elements = each.elements + (before.dims[0][1] if before else 0)
        self.stage.keep(self.tensors.numbers(name, self.stage.name, elements, size, "parameter", shared=shared))
        return name

    def _states(self, each: Owned) -> None:
        step, update = self.tensors.step, f"{self.stage.name}.U.{each.block}"
        if each.touched is not None:
            parameters = self._parameter(each, ())
            self.stage.reads(update, parameters, distance=1)
            self.stage.writes(update, parameters)
            return
        shared = self._ranks(each) if self.zero else ()
        master = SINGLE if step.width_bytes < SINGLE and self.zero != 3 else 0
        size = -(-(master + MOMENTS * SINGLE) * each.elements // self.tensors.mesh.extent(shared))
        states = self._keep(self._name(each, "states"), each, size, "optimizer", shared=shared)
        parameters = self._parameter(each, shared if self.zero == 3 else ())
        again = f"{self.stage.name}.{each.block}.{each.layer}.again"
        if again in self.stage.payloads:
            ranks = self.tensors.mesh.extent(shared)
            part = -(-step.width_bytes * each.elements // ranks)
            own = self._keep(
                self._name(each, "own_parameters"), each, part, "parameter", shared=shared, dtype=self.stage.dtype
            )
            self.stage.carries(again, own, parameters)
            parameters = own
        self.stage.reads(update, states, parameters, distance=1)
        self.stage.writes(update, states, parameters)

    def _gradient(self, each: Owned) -> None:
        step, update = self.tensors.step, f"{self.stage.name}.U.{each.block}"
        payload, ranks = f"{self.stage.name}.{each.block}.{each.layer}", self._ranks(each)
        dtype = "float32" if step.gradient_bytes == SINGLE else self.stage.dtype
        number = each.elements if each.touched is None else min(each.touched, each.elements)
        size = step.gradient_bytes * number
        whole = step.parallel.sp and not each.cut and each.role == "dp"  # of parts of the sequence
        uncut = tuple(Placement(axis, PARTIAL) for axis in self.tensors.tp if whole)
        name = self._name(each, "gradient")
        if payload not in self.stage.payloads:
            self.stage.reads(update, self._keep(name, each, size, "gradient", layout=uncut, dtype=dtype))
            self.stage.writes(each.maker, name)
            return
        partial = tuple(Placement(axis, PARTIAL) for axis in ranks)
        kind = ("buffer", "micro-batch") if self.zero == 3 else ("gradient", "step")
        self._keep(name, each, size, kind[0], shared_by=ranks, layout=(*partial, *uncut), per=kind[1], dtype=dtype)
        self.stage.writes(each.maker, name)
        parts = self.tensors.mesh.extent(ranks) if self.zero else 1
        width = SINGLE if self.zero == 3 else step.gradient_bytes
        shared = ranks if self.zero else ()
        summed = self._keep(
            self._name(each, "gradient_sum"),
            each,
            -(-width * each.elements // parts),
            "gradient",
            shared=shared,
            shared_by=ranks,
            layout=uncut,
            dtype=dtype,
        )
        self.stage.carries(payload, name, summed)
        self.stage.reads(update, summed)

    def _keep(
        self,
        name: str,
        each: Owned,
        size: int,
        kind: str,
        *,
        shared: tuple[str, ...] = (),
        shared_by: tuple[str, ...] = (),
        layout: tuple[Placement, ...] = (),
        per: str = "step",
        dtype: str = "float32",
    ) -> str:
        """Add a value with a number for each parameter, filled up to what ``shared_by`` ranks can share out."""
        ranks = self.tensors.mesh.extent(shared or shared_by)
        whole = -(-each.elements // ranks) * ranks * self.tensors.mesh.extent(each.cut)
        lies = tuple(Placement(axis, SLICED, "elements") for axis in (*each.cut, *shared))
        self.stage.keep(Value(name, self.stage.name, size, (("elements", whole),), (*lies, *layout), kind, per, dtype))
        return name
