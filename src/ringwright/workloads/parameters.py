"""What happens to a stage's parameters in a step: their gradients are summed, they are updated, and they may travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringwright.model.workload import Mesh, Task
from ringwright.workloads.segments import Item, Segment
from ringwright.workloads.stage import RankClassBuilder
from ringwright.workloads.step import StepSpec
from ringwright.workloads.tables import touched
from ringwright.workloads.task_work import update_work
from ringwright.workloads.times import Roofline

FUSED = "gradients"


@dataclass(frozen=True)
class Held:
    """A layer's parameters on one rank: where they are, how many, who shares them, and the task that made the gradient.

    Of a table, which no other rank has, they are those of the rows that a step looks up, and the role is empty.
    """

    block: str
    layer: str
    elements: int
    role: str
    maker: str
    factors: tuple[int, int] | None


def held(items: Sequence[Item], makers: Mapping[str, str], step: StepSpec) -> list[Held]:
    """Return the parameters of a chunk's segments."""
    shared, made = step.parallel.ep > 1, list[Held]()
    for item in items:
        if isinstance(item, Segment):
            rows = touched(item.works, step.width_bytes)
            for layer, elements, expert in item.parameters:
                role = "" if layer in rows else "edp" if expert and shared else "dp"
                number = min(rows.get(layer, elements), elements)
                made.append(Held(item.block, layer, number, role, makers[item.name], item.factors.get(layer)))
    return made


def summed(stage: RankClassBuilder, held: Sequence[Held], step: StepSpec) -> None:
    """Add a payload for each layer's gradient; with zero1 the parameters travel too, after their update."""
    zero = step.parallel.zero
    for each in held:
        update, label = f"{stage.name}.U.{each.block}", f"{each.block}.{each.layer}"
        size = step.gradient_bytes * each.elements
        stage.send(
            label,
            each.role,
            ("reduce-scatter" if zero else "all-reduce", size),
            [each.maker],
            [(update, 0)],
            per="micro-batch" if zero == 3 else "step",
            layer=stage.layer(each.block),
            elements=each.elements,
            merges="" if zero == 3 else FUSED,
            factors=each.factors,
            samples=_samples(each, step),
            dtype="float32" if step.gradient_bytes == 4 else stage.dtype,
        )
        if zero == 1:
            first = first_of(stage, each.block)
            stage.send(
                f"{label}.again",
                each.role,
                ("all-gather", step.width_bytes * each.elements),
                [update],
                [(first, 1)],
                per="step",
                layer=stage.layer(each.block),
                elements=each.elements,
                merges="parameters",
            )


def _samples(each: Held, step: StepSpec) -> int:
    """Return how many outer products one gradient is the sum of: a sample is one of a matrix of a model of images."""
    if each.factors is None:
        return 0
    return step.micro_batch_size * (1 if step.parallel.zero == 3 else step.micro_batches)


def first_of(stage: RankClassBuilder, block: str) -> str:
    """Return the first forward task of a block."""
    layer = stage.layer(block)
    return next(task.name for task in stage.tasks if task.kind == "F" and task.layer == layer)


def updated(stage: RankClassBuilder, held: Sequence[Held], step: StepSpec, roofline: Roofline, mesh: Mesh) -> None:
    """Add one update a block, which its next forward pass waits for; a rank updates its share where states are shared out."""
    elements: dict[str, float] = {}
    for each in held:
        ranks = mesh.extent(stage.roles[each.role]) if step.parallel.zero else 1
        elements[each.block] = elements.get(each.block, 0.0) + each.elements / ranks
    for block, number in elements.items():
        name = f"{stage.name}.U.{block}"
        stage.tasks.append(
            Task(name, stage.name, "U", roofline.update(number), stage.layer(block), ("U", 0), per="step")
        )
        stage.work[name] = update_work(number)
        if step.parallel.zero != 1 or not stage.roles["dp"]:
            stage.after(name, first_of(stage, block), 1)
        if step.parallel.zero == 3:
            stage.after(name, begin(stage), 1)


def gathered(
    stage: RankClassBuilder, chunk: int, groups: Sequence[tuple[str, bool, list[Item]]], step: StepSpec
) -> None:
    """Fully sharded: gather each unit before its forward and before its backward pass, one unit ahead.

    What does not repeat is one unit, kept from its forward pass to its backward pass (``fully_shard`` of PyTorch).
    """
    units: list[tuple[str, bool, str, str, dict[str, int]]] = []
    root: dict[str, int] = {}
    for block, repeats, items in groups:
        sizes = _sizes(items, step)
        segments = [item.name for item in items if isinstance(item, Segment)]
        if not sizes:
            continue
        if repeats:
            units.append((block, True, segments[0], segments[-1], sizes))
        else:
            root = {role: root.get(role, 0) + sizes.get(role, 0) for role in {**root, **sizes}}
    if root and step.mode != "decode":
        first = next(item.name for _, _, items in groups for item in items if isinstance(item, Segment))
        units.insert(0, ("root", False, first, first, root))
    _ahead(
        stage,
        chunk,
        "gather",
        [(name, f"{stage.name}.F.{first}", sizes) for name, _, first, _, sizes in units],
        "F",
        step,
    )
    if step.trains:
        start = "R." if step.recompute == "full" else "dO."
        back = [
            (name, f"{stage.name}.R.{name}" if start == "R." else f"{stage.name}.dO.{last}", sizes)
            for name, again, _, last, sizes in reversed(units)
            if again
        ]
        _ahead(stage, chunk, "regather", back, "B", step)


def begin(stage: RankClassBuilder) -> str:
    """Return the task that stands for the begin of a step: what is gathered first can be, once all has been updated."""
    name = f"{stage.name}.begin"
    if all(task.name != name for task in stage.tasks):
        stage.tasks.append(Task(name, stage.name, "CTRL", per="step"))
    return name


def _sizes(items: Sequence[Item], step: StepSpec) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for item in items:
        for _, elements, expert in item.parameters if isinstance(item, Segment) else ():
            role = "edp" if expert and step.parallel.ep > 1 else "dp"
            sizes[role] = sizes.get(role, 0) + elements
    return sizes


def _ahead(
    stage: RankClassBuilder,
    chunk: int,
    label: str,
    units: Sequence[tuple[str, str, dict[str, int]]],
    slot: str,
    step: StepSpec,
) -> None:
    """Let a gather start when the unit before its user starts: after the task that precedes that unit's first."""
    listed = [task.name for task in stage.tasks if task.slot == (slot, chunk)]
    for at, (name, user, sizes) in enumerate(units):
        position = listed.index(units[at - 1][1]) if at else 0
        producers = [listed[position - 1]] if position else [stage.last[chunk]] if slot == "B" else [begin(stage)]
        for role, elements in sizes.items():
            if stage.widened(f"{label}.{name}.{role}", step.width_bytes * elements, elements, user):
                continue  # both ends of the model are on this device: what does not repeat is one unit
            stage.send(
                f"{label}.{name}.{role}",
                role,
                ("all-gather", step.width_bytes * elements),
                producers,
                [(user, 0)],
                layer=stage.layer(name),
                elements=elements,
            )
