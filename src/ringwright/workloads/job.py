"""A whole training step, or a pass of inference, of a model on a device mesh, as a Workload.

Each pipeline stage is a class of ranks. A stage's chunk is a chain of segments with exchanges between them; its backward pass is
the chain reversed, where the gradient of the weights follows that of the inputs. Gradients, parameters that travel, updates,
and messages between stages complete it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ringwright.graph.pipelines import Order, PipelineSchedule, in_halves, order, schedule_of
from ringwright.model.values import Work
from ringwright.model.workload import Payload, RankClass, Resource, Task, Workload
from ringwright.workloads import parameters
from ringwright.workloads.flops import forward as works_of
from ringwright.workloads.grid import grid
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parts import ModelBlock
from ringwright.workloads.segments import Cutter, Exchange, Item, Segment
from ringwright.workloads.shares import cut, held, shares, tied_matrix, uncut_elements
from ringwright.workloads.stage import RankClassBuilder, backward, forward
from ringwright.workloads.stage_layers import chunks
from ringwright.workloads.stage_values import StageValues
from ringwright.workloads.step import StepSpec, refuse
from ringwright.workloads.task_work import SegmentWork
from ringwright.workloads.tensors import Tensors
from ringwright.workloads.times import Roofline, Seconds
from ringwright.workloads.two_sides import copies_told, two_sided
from ringwright.workloads.weight_versions import delayed


def job(
    card: ModelCard,
    step: StepSpec,
    roofline: Roofline,
    *,
    schedule: str = "1f1b",
    name: str = "",
    most: int | None = None,
) -> Workload:
    """Return the workload of one iteration; UsageError where the model cannot be shared out as ``step.parallel`` says.

    ``most`` micro-batches are laid out, if there are more: a pipeline repeats itself. ``schedule`` is one of
    ``ringwright.graph.pipelines.SCHEDULES``; it also says where the chunks lie.
    """
    refuse(card, step)
    laid_out, known = step.micro_batches if most is None else min(step.micro_batches, most), schedule_of(schedule)[0]
    devices, chunks_each = step.parallel.pp, step.parallel.vp
    orders = [
        order(schedule, devices, at, laid_out, chunks_each, trains=step.trains)
        for at in range(devices // known.sides or 1)
    ]
    if known.sides > 1:
        step = two_sided(step, known)
    elif known.folded and devices > 1:
        step = replace(step, parallel=replace(step.parallel, folded=True))
    made = _Builder(card, step, roofline).built(
        known, name or f"{card.size} {step.mode}", laid_out // known.sides, orders
    )
    return made if known.sides == 1 else made.saying(known.name, *copies_told(devices, laid_out))


class _Builder:
    def __init__(self, card: ModelCard, step: StepSpec, roofline: Roofline) -> None:
        self.card, self.step, self.roofline = card, step, roofline
        self.parallel, self.blocks = step.parallel, card.anatomy().blocks
        self.mesh, self.roles = grid(step.parallel)
        self.roles["embedding"] = self.roles["pp"]
        self.roles["mp"] = self.roles["dp"] if card.has_tables else ()
        self.works = works_of(
            card, step.micro_batch_size, step.sequence, step.parallel, mode=step.mode, width_bytes=step.width_bytes
        )
        self.cutter = Cutter(card, step, roofline)
        self.tensors = Tensors(card, step, self.mesh, self.roles)
        self.values: dict[str, StageValues] = {}
        self.segment_works: dict[tuple[object, ...], SegmentWork] = {}

    def built(self, schedule: PipelineSchedule, name: str, micro_batches: int, listed: Sequence[Order]) -> Workload:
        stages = [self._stage(at) for at in range(self.parallel.pp)]
        self._joined(stages)
        self._tied(stages)
        orders = {stage.name: slots for stage, slots in zip(stages, listed, strict=True)}
        values = tuple(value for stage in stages for value in self.values[stage.name].settled())
        if schedule.splits:
            orders = {of: in_halves(slots) for of, slots in orders.items()}
            for stage in stages:
                stage.tasks[:] = [_apart(task) for task in stage.tasks]
                stage.payloads |= {
                    name: _unheld(each) for name, each in stage.payloads.items() if each.op == "all-gather"
                }
        places = [{"pp": at} if self.parallel.pp > 1 else {} for at in range(len(stages))]
        made = Workload(
            name,
            self.mesh,
            tuple(RankClass(each.name, position) for each, position in zip(stages, places, strict=True)),
            tuple(task for stage in stages for task in stage.tasks),
            tuple(edge for stage in stages for edge in stage.edges),
            tuple(payload for stage in stages for payload in stage.payloads.values()),
            self._resources(),
            micro_batches,
            orders,
            values=values,
        )
        return delayed(made) if schedule.versions > 1 and self.step.trains else made

    def _resources(self) -> tuple[Resource, ...]:
        """Return the device's compute and, where it is known, what its memory holds (bytes)."""
        held = self.roofline.gpu.capacity_bytes
        return (Resource("compute"), *((Resource("memory", "tokens", held),) if held else ()))

    # --------------------------------------------------------------------------------------------------------- one stage
    def _stage(self, at: int) -> RankClassBuilder:
        layers = {block.name: position for position, block in enumerate(self.blocks)}
        made = RankClassBuilder(
            f"stage{at}" if self.parallel.pp > 1 else "all", self.roles, self.roofline.dtype, layers
        )
        self.values[made.name] = StageValues(made, self.tensors, self.cutter, self.segment_works)
        inner = [position for position, block in enumerate(self.blocks) if block.unit == "block"]
        owned: list[parameters.Held] = []
        for chunk, span in enumerate(chunks(self.card, self.parallel)[at]):
            opens, ends = at == chunk == 0, (at, chunk) == (self.parallel.last, self.parallel.vp - 1)
            mine = [self.blocks[inner[position]] for position in span]
            if opens:
                mine = [*self.blocks[: inner[0]], *mine]
            if ends:
                mine += self.blocks[inner[-1] + 1 :]
            owned += self._chunk(made, chunk, mine, opens=opens, ends=ends)
        if self.step.trains:
            parameters.updated(made, owned, self.step, self.roofline, self.mesh)
            self._uncut(made, at)
        elif self.parallel.pp == 1:
            made.after(made.last[0], made.first[0], 1)  # the next token needs this one
            if self.parallel.zero == 3:
                made.after(made.last[0], parameters.begin(made), 1)
        self.values[made.name].parameters()
        return made

    def _chunk(
        self, stage: RankClassBuilder, chunk: int, blocks: list[ModelBlock], *, opens: bool, ends: bool
    ) -> list[parameters.Held]:
        groups = [
            (block.name, block.unit == "block", self.cutter.items(block, self.works[block.name])) for block in blocks
        ]
        if opens:
            groups[0][2].extend(self.cutter.first("words"))
            decoder = next((at for at, group in enumerate(groups) if group[0] == "decoder0"), None)
            if decoder is not None:  # an encoder-decoder looks its targets up too
                groups.insert(decoder, ("targets", False, self.cutter.first("targets")))
        if ends:
            groups.append(("logits", False, self._answers(groups)))
        self._closed(chunk, groups)
        groups = self.cutter.gathered(chunk, groups, opens=opens, ends=ends)
        items = [item for _, _, each in groups for item in each]
        line = forward(stage, chunk, items)
        stage.first[chunk], stage.last[chunk] = _first(stage, chunk), line.before
        values = self.values[stage.name]
        if not self.step.trains:
            parameters.gathered(stage, chunk, groups, self.step) if self.parallel.zero == 3 else None
            values.chunk(chunk, groups, (), opens=opens, ends=ends)
            return []
        makers: dict[str, str] = {}
        backward(stage, chunk, groups, self.step.recompute == "full", makers)
        held = parameters.held(items, makers, self.step)
        parameters.summed(stage, held, self.step)
        if self.parallel.zero == 3:
            parameters.gathered(stage, chunk, groups, self.step)
        values.chunk(chunk, groups, held, opens=opens, ends=ends)
        return held

    def _closed(self, chunk: int, groups: list[tuple[str, bool, list[Item]]]) -> None:
        """Let a chunk begin and end with a segment, where messages from and to other stages can be fastened."""
        (first, _, opening), (last, _, closing) = groups[0], next(each for each in reversed(groups) if each[2])
        if isinstance(opening[0], Exchange):
            opening.insert(0, Segment(f"chunk{chunk}.in", first, Seconds()))
        if isinstance(closing[-1], Exchange):
            closing.append(Segment(f"chunk{chunk}.out", last, Seconds()))

    def _answers(self, groups: list[tuple[str, bool, list[Item]]]) -> list[Item]:
        """Return the logits, of a matrix of their own or the embedding's, with what is exchanged around them."""
        tied = self.works.get("logits", ())
        if tied:
            copied = self._tied_elements() if self.parallel.last else 0
            own = (("words", copied, False),) if copied else ()
            return self.cutter.last(self.cutter.segment("logits", "logits", "dense", list(tied), own))
        items = groups[-1][2]
        if self.card.takes_samples or groups[-1][0] != "head" or not isinstance(items[-1], Segment):
            return []
        return self.cutter.last(items.pop())  # type: ignore[arg-type]

    def _tied_elements(self) -> int:
        tied = tied_matrix(self.card)
        return sum(math.prod(shape) for shape in shares(tied, self.parallel)) if tied else 0

    def _uncut(self, stage: RankClassBuilder, at: int) -> None:
        """With sequence parallelism, sum over tp the gradients of what is not cut."""
        if not (self.parallel.sp and self.roles["tp"]):
            return
        blocks = [cut(block, self.parallel) for block in held(self.card, self.parallel, at)]
        last = [task.name for task in stage.tasks if task.kind in ("dO", "dW")][-1]
        updates = [(task.name, 0) for task in stage.tasks if task.kind == "U"]
        size = self.step.gradient_bytes * uncut_elements(blocks)
        stage.send("norms", "tp", ("all-reduce", size), [last], updates, per="step", dtype="float32")
        self.values[stage.name].copied("norms", size, last, [name for name, _ in updates])

    # ---------------------------------------------------------------------------------------------------- between stages
    def _joined(self, stages: list[RankClassBuilder]) -> None:
        """Add the messages between chunks: outputs forward, gradients backward."""
        size = self.step.width_bytes * self.step.load.sent_tokens * self.card.dims.get("hidden", 0)
        shape = self.parallel.shape
        for position in range(shape.stages - 1 if len(stages) * self.parallel.sides > 1 else 0):
            (here, chunk), (there, following) = shape.seat(position), shape.seat(position + 1)
            a, b = stages[here], stages[there]
            handing, taking = self.values[a.name].ends[chunk], self.values[b.name].ends[following]
            tasks, carried = (a.last[chunk], b.first[following]), (handing.handed, taking.taken)
            _handed((a, b), f"send.F{chunk}", size, tasks, carried)
            if self.step.trains:
                tasks, carried = (
                    (b.leaves[following], a.enters[chunk]),
                    (taking.taken_gradient, handing.handed_gradient),
                )
                _handed((b, a), f"send.B{following}", size, tasks, carried)

    def _tied(self, stages: list[RankClassBuilder]) -> None:
        """Sum the gradient of a matrix that the first and the last stage share."""
        elements = self._tied_elements()
        if not self.parallel.last or not elements or not self.step.trains:
            return
        first, last = stages[0], stages[-1]
        makers = (_maker(first, 0), _maker(last, last.layer("logits")))
        updates = tuple(
            (f"{stage.name}.U.{block}", 0) for stage, block in ((first, self.blocks[0].name), (last, "logits"))
        )
        first.payloads["embedding"] = Payload(
            "embedding",
            first.name,
            "all-reduce",
            self.step.gradient_bytes * elements,
            ("pp",),
            "embedding",
            makers,
            updates,
            joint=(last.name,),
            elements=elements,
        )


def _apart(task: Task) -> Task:
    """Return a task in a slot of its own kind: gradients of weights apart from those of inputs."""
    return replace(task, slot=("W", task.slot[1])) if task.kind == "dW" else task


def _unheld(gather: Payload) -> Payload:
    """Return a gather of a micro-batch that no gradient of weights keeps waiting, which may run much later."""
    makers = (name.replace(".dW.", ".dO.") for name in gather.producers)
    return replace(gather, producers=tuple(makers)) if gather.per == "micro-batch" else gather


def _handed(
    stages: tuple[RankClassBuilder, RankClassBuilder],
    label: str,
    size: int,
    tasks: tuple[str, str],
    carried: tuple[str, str],
) -> None:
    """Send what one stage made to the next one; where both are one, it is a copy that takes no time.

    Where a pipeline has two sides, devices of the middle go on with what the other side has made.
    """
    (one, other), (source, target), (handed, taken) = stages, tasks, carried
    if one is not other or one.roles["side"]:
        name = f"{one.name}.{label}"
        if one is not other:
            one.send(label, "pp", ("send-recv", size), [source], [(target, 0)], peer=other.name)
        elif size:
            one.send(label, "side", ("shift", size), [source], [(target, 0)])
            one.payloads[name] = replace(one.payloads[name], role="pp")
        one.carries(name, handed, taken)
        return
    near = next(task for task in one.tasks if task.name == source)
    name = one.task(label, "CTRL", 0.0, near.slot, "")
    one.after(source, name)
    one.after(name, target)
    if handed:
        one.reads(name, handed)
        one.writes(name, taken)
        one.work[name] = Work(meaning="copy")


def _first(stage: RankClassBuilder, chunk: int) -> str:
    return next(task.name for task in stage.tasks if task.slot == ("F", chunk))


def _maker(stage: RankClassBuilder, layer: int) -> str:
    """Return the last backward task of a block."""
    return [task.name for task in stage.tasks if task.kind in ("dO", "dW") and task.layer == layer][-1]
