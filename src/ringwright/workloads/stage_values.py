"""All values of a stage: the tensors of its passes, chunk by chunk, its parameters, and what it hands to other stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ringwright.model.values import PARTIAL, Placement, Value
from ringwright.workloads.backward_values import Backward
from ringwright.workloads.dataflow import Pass, SegmentFlow
from ringwright.workloads.forward_values import Part, walk
from ringwright.workloads.layer_values import cache
from ringwright.workloads.layer_work import LayerWork
from ringwright.workloads.parameter_values import Owned, ParameterValues, owned
from ringwright.workloads.parameters import Held
from ringwright.workloads.segments import Cutter, Item, Segment
from ringwright.workloads.stage import RankClassBuilder
from ringwright.workloads.task_parts import KernelLayers, Makers, parts
from ringwright.workloads.task_work import SegmentWork, layers_of, segment_work
from ringwright.workloads.tensors import OWN, PART, Tensors
from ringwright.workloads.update_parts import parted

Groups = Sequence[tuple[str, bool, list[Item]]]


@dataclass
class ChunkEnds:
    """What a chunk takes from the one before and hands on, and their gradients; empty where there is none."""

    taken: str = ""
    handed: str = ""
    taken_gradient: str = ""
    handed_gradient: str = ""


@dataclass
class _Block:
    """One group of a chunk in both directions: whether it is run once more, where it starts, its parts, and its ends."""

    again: bool
    start: str
    added: list[str]
    forward: list[Part]
    backward: list[Part]
    ends: list[tuple[str, str]]  # of the pass that is run once more and of the first one


@dataclass
class StageValues:
    """Fills in what the tasks of a stage read, write and compute, once they are all there."""

    stage: RankClassBuilder
    tensors: Tensors
    cutter: Cutter
    works: dict[tuple[object, ...], SegmentWork]
    ends: dict[int, ChunkEnds] = field(default_factory=dict)
    owned: list[Owned] = field(default_factory=list)
    chunks: list[Groups] = field(default_factory=list)
    layers: dict[tuple[LayerWork, ...], tuple[KernelLayers, ...]] = field(default_factory=dict)
    makers: dict[str, tuple[Segment, Makers]] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)  # task of a pass that is run once more -> that of the first one

    def chunk(self, number: int, groups: Groups, held: Sequence[Held], *, opens: bool, ends: bool) -> None:
        """Add the tensors of a chunk whose tasks and payloads are there."""
        step, items = self.tensors.step, [item for _, _, each in groups for item in each]
        line = self._line("F")
        ports = self.ends[number] = ChunkEnds()
        if not opens and self.tensors.model.dims.get("hidden"):
            taken = self.tensors.tensor(
                f"{self.stage.name}.chunk{number}.input",
                self.stage.name,
                PART if step.parallel.sg else OWN,
                "hidden",
                line.hidden,
            )
            line.made[taken.name] = taken
            ports.taken = line.stream = line.current = taken.name
        blocks = [self._block(line, group) for group in groups]
        ports.handed = "" if ends else line.stream
        for block in blocks:
            self._noted(block.forward, "F", line)
        if step.trains:
            self._backward(line, blocks, ports)
        for name in self._named(ports):
            self.stage.keep(line.made[name])
        self._working(items)
        self.owned += owned(items, self.tensors, held)
        self.chunks.append(groups)

    def parameters(self) -> None:
        """Add parameters and what goes with them, once all chunks, gradients and updates are there."""
        step, made = self.tensors.step, ParameterValues(self.stage, self.tensors)
        (made.trained if step.trains else made.fixed)(self.owned)
        repeats = {block: again for groups in self.chunks for block, again, _ in groups}
        phases = {"F": "gather", "R": "regather", "dO": "regather"}
        if step.parallel.zero == 3:
            made.gathered(self.owned, repeats)
        for groups in self.chunks:
            items = [item for _, _, each in groups for item in each]
            made.used(items, phases, repeats, 1 if step.trains else 0)

    def copied(self, label: str, size_bytes: int, writer: str, readers: Sequence[str]) -> None:
        """Add a copy of gradients that is summed over tensor parallel ranks by a payload of the stage."""
        name, axes = f"{self.stage.name}.{label}", self.tensors.tp
        if name not in self.stage.payloads:
            return
        dims = (("copied", size_bytes // self.tensors.step.gradient_bytes),)  # elements of several layers
        before = Value(f"{name}.copy", self.stage.name, size_bytes, dims, (), "buffer", "step")
        partial = replace(before, layout=tuple(Placement(axis, PARTIAL) for axis in axes))
        after = replace(before, name=f"{name}.sum")
        self.stage.keep(partial, after)
        self.stage.carries(name, partial.name, after.name)
        self.stage.writes(writer, partial.name)
        for task in readers:
            self.stage.reads(task, after.name)

    def settled(self) -> tuple[Value, ...]:
        """Return the values that somebody reads or sends, once all is said; tasks and payloads know of them."""
        stage = self.stage
        used = {name for each in stage.read.values() for name in each}
        used |= {name for ends in stage.carried.values() for name in ends}
        kept = {name: value for name, value in stage.values.items() if name in used or value.per == "step"}
        for task, names in stage.written.items():
            stage.written[task] = {name: None for name in names if name in kept}
        self._parted()
        if self.tensors.step.trains:
            parted(stage, self.owned, self.tensors)
        self._told_alike()
        stage.settled()
        return tuple(kept.values())

    def _told_alike(self) -> None:
        """Let the tasks of a pass that is run once more say whose function they are, and both what each of their values is.

        A pass that begins at a value of its first task leaves out what made that one: the others follow from it.
        """
        for task, first in self.again.items():
            held = [name for name in self.stage.written.get(first, ()) if name in self.stage.read.get(task, ())]
            for each in (task, first):
                writes = tuple(_label(name) for name in self.stage.written.get(each, ()))
                settings = {"same_as": first, "outputs": writes}
                settings |= {"begins": _label(held[0])} if held and each == first else {}
                self.stage.work[each] = replace(self.stage.work[each], settings=settings)

    # ------------------------------------------------------------------------------------------------------------ passes
    def _line(self, phase: str) -> Pass:
        flash = self.cutter.roofline.gpu.flash
        return Pass(self.tensors, self.stage.name, phase, frozenset(self.stage.payloads), flash)

    def _block(self, line: Pass, group: tuple[str, bool, list[Item]]) -> _Block:
        """Walk a group forward, and once more where it is recomputed: from its first sum, which is kept."""
        name, repeats, items = group
        before, pending = line.stream, [*line.pending]
        if name == "decoder0" and not line.encoded:
            before, pending = "", [line.targets]
        forward = walk(line, items)
        again = self.tensors.step.trains and self.tensors.step.recompute == "full" and repeats
        if not again:
            return _Block(False, "", [], forward, forward, [])
        first = next(item for item in items if isinstance(item, Segment))
        summed = line.name(first.name, "stream")
        start = (summed if summed in line.made else pending[0]) if pending else before
        second = self._line("R")
        second.made, second.stream, second.current, second.encoded = line.made, start, start, line.encoded
        backward = walk(second, items)
        self._noted(backward, "R", line)
        ends = [*zip([second.stream, *second.pending], [line.stream, *line.pending], strict=True)]
        return _Block(True, start, [before, *pending], forward, backward, ends)

    def _noted(self, parts: Sequence[Part], phase: str, line: Pass) -> None:
        """Tell tasks and payloads of a pass what they read, write and carry."""
        for part in parts:
            if isinstance(part, SegmentFlow):
                task = f"{self.stage.name}.{phase}.{part.item.name}"
                if phase == "R":
                    self.again[task] = f"{self.stage.name}.F.{part.item.name}"
                self.stage.reads(task, *part.reads)
                self.stage.writes(task, *(value.name for value in part.writes))
                self.stage.keep(*part.writes)
                self._caches(task, part)
                self.makers[f"{phase}.{part.item.name}"] = part.item, part.makers
            elif part.before != part.after:
                self.stage.carries(f"{self.stage.name}.{phase}.{part.item.name}", part.before, part.after)
                self.stage.keep(line.made[part.after])

    def _backward(self, line: Pass, blocks: Sequence[_Block], ports: ChunkEnds) -> None:
        made, tasks = Backward(self.stage, line), frozenset(task.name for task in self.stage.tasks)
        if ports.handed:
            ports.handed_gradient = f"{ports.handed}.gradient_taken"
            value = replace(line.made[ports.handed], name=ports.handed_gradient)
            line.made[value.name] = value
            made.gradients[ports.handed] = value.name
        for before, block in zip([None, *blocks[:-1]][::-1], reversed(blocks), strict=True):
            for name, first in block.ends:
                if first in made.gradients:
                    made.gradients[name] = made.gradients[first]
            made.walk(block.backward, tasks)
            if block.again and before is not None and not before.again:
                self._unrepeated_mask(block, made)
            if block.again and block.start in made.gradients:
                made.share([name for name in block.added if name], made.gradients[block.start], self._first(block))
        ports.taken_gradient = made.gradients.get(ports.taken, "")
        self.stage.keep(*made.values.values())
        for name in made.kept:
            line.made[name] = replace(line.made[name], kind="activation")
            if name in self.stage.values:
                self.stage.keep(line.made[name])
        line.made.update(made.values)

    def _unrepeated_mask(self, block: _Block, made: Backward) -> None:
        """Keep the mask of what is added before the first block that is run once more: nothing makes it again."""
        first = next(part for part in block.forward if isinstance(part, SegmentFlow))
        masks = [name for name in first.inner if name.endswith("dropout_mask")][:1]
        self.stage.reads(self._first(block), *masks)
        made.kept.update(masks)

    def _first(self, block: _Block) -> str:
        """Return the backward task of a block's first segment, the last one of its backward pass."""
        return f"{self.stage.name}.dO." + next(
            part.item.name for part in block.forward if isinstance(part, SegmentFlow)
        )

    def _named(self, ports: ChunkEnds) -> list[str]:
        return [name for name in (ports.taken, ports.handed_gradient) if name]

    def _caches(self, task: str, flow: SegmentFlow) -> None:
        """Let attention or a recurrence read the cache where the model answers."""
        if self.tensors.step.trains or not any(work.kind in ("attention", "scan") for work in flow.item.works):
            return
        value = cache(self.tensors, self.stage.name, flow.item.block)
        self.stage.keep(value)
        self.stage.reads(task, value.name)

    # -------------------------------------------------------------------------------------------------------------- work
    def _parted(self) -> None:
        """Say what tasks do one after another, and which of their values each part reads and writes."""
        names = [name for name, payload in self.stage.payloads.items() if payload.role == "tp"]
        ends = [self.stage.carried[name] for name in names if name in self.stage.carried]
        sent = {result for _, result in ends}, {source for source, _ in ends}
        for label, (item, makers) in self.makers.items():
            if item.works not in self.layers:
                self.layers[item.works] = layers_of(self.cutter, item.works) if item.turn < 0 and not item.turns else ()
            layers, tasks = self.layers[item.works], {f"{self.stage.name}.{label}": "forward"}
            again = f"R.{item.name}" in self.makers
            if not (again and label.startswith("F.")):  # backward reads what the pass that is run once more made
                tasks[f"{self.stage.name}.dO.{item.name}"] = "inputs"
            for task, phase in tasks.items() if layers else ():
                work = self.stage.work.get(task)
                if work is not None:
                    both = list(self.stage.read.get(task, ())), list(self.stage.written.get(task, ()))
                    self.stage.work[task] = replace(work, parts=parts(layers, phase, both, makers, sent, self.tensors))

    def _working(self, items: Sequence[Item]) -> None:
        """Say what the tasks of segments compute; blocks are alike, so it is worked out once for all of them."""
        for item in items:
            if not isinstance(item, Segment):
                continue
            key = (item.works, item.turns if item.turn >= 0 else 0)
            if key not in self.works:
                share = 1.0 / item.turns if item.turn >= 0 else 1.0
                self.works[key] = segment_work(self.cutter, item.works, share)
            made = self.works[key]
            for phase, work in (("F", made.forward), ("R", made.forward), ("dO", made.inputs), ("dW", made.weights)):
                self.stage.work[f"{self.stage.name}.{phase}.{item.name}"] = work


def _label(name: str) -> str:
    """Return what a value is, whichever pass wrote it."""
    return name.rpartition(".")[2]
