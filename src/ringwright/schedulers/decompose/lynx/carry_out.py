"""Carries a choice out: what is computed again by rule, and each copy in its window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ringwright.graph.algebra import rewritten
from ringwright.graph.algebra.recompute import BACKWARD
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose._orders import Item, Pass, added, ordered, stretches
from ringwright.schedulers.decompose.lynx.layers import BACK, FORWARD, LayersOfClass, StageLayer, WindowBefore
from ringwright.schedulers.decompose.lynx.program import KEPT

Sources = Mapping[tuple[str, int], Mapping[str, str]]  # (class, layer) -> operation -> kept, demand or a window


def put(workload: Workload, stages: Sequence[LayersOfClass], sources: Sources, *, early: bool) -> Workload:
    """Return the workload with what the sources say computed again, where they say so.

    With ``early``, a backward pass right behind another one computes all of it again before it begins, while its stage waits.
    """
    layers = [layer for stage in stages for layer in stage.layers]
    todo = [step for layer in layers for step in _again(workload, layer, sources[layer.of, layer.number])]
    if not todo:
        return workload
    made = rewritten(workload, todo)
    return ordered(made, {stage.of: _line(workload, made, stage, sources, early=early) for stage in stages})


def _again(
    workload: Workload, layer: StageLayer, source: Mapping[str, str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the rule that computes a layer's values again, once for all of them."""
    names = {name for name, where in source.items() if where != KEPT}
    wanted: list[str] = []
    inside: set[str] = set()
    reads: list[str] = []
    read_back = {
        name for task in workload.tasks if task.of == layer.of and task.kind in BACKWARD for name, _ in task.reads
    }
    for each in layer.operations:
        if each.name not in names:
            continue
        task = workload.task.get(each.name)
        if task is None:
            payload = workload.payload[each.name]
            inside.add(payload.result)
            reads.append(payload.source)
            wanted += [payload.result] * each.is_needed
            continue
        inside.update(task.writes)
        reads += [name for name, far in task.reads if not far]
        wanted += [name for name in task.writes if name in read_back]
    if wanted:
        keep = [name for name in dict.fromkeys(reads) if name not in inside]
        yield "recompute", wanted[0], {"also": wanted[1:], "keep": keep}


def _line(before: Workload, made: Workload, stage: LayersOfClass, sources: Sources, *, early: bool) -> list[Item]:
    """Return the order of a class: each copy right before the task whose window it goes into, or where the rule put it.

    What a copy reads was kept, or is computed again no later: windows behind a forward pass are of the pass that it is of.
    """
    passes = stretches(made, stage.of)
    moves: dict[Item | Pass, list[Item]] = {}
    taken: set[Item] = set()
    for layer in stage.layers:
        mine = sources[layer.of, layer.number]
        again = [
            each.name for each in layer.operations if mine.get(each.name, KEPT) != KEPT and each.name in before.task
        ]
        windows = [stage.window(layer, mine[name]) for name in again]
        for at, name in enumerate(again):
            copy = added(before, made, f"{name}.again")
            for batch in range(made.micro_batches):
                item = copy, batch
                target = _target(stage, windows, at, (made.task[copy].slot, batch), early=early)
                if target is not None:
                    taken.add(item)
                    moves.setdefault(target, []).append(item)
    line: list[Item] = []
    for each, items in passes.items():
        line += moves.get(each, [])
        for item in items:
            if item not in taken:
                line += [*moves.get(item, ()), item]
    return line


def _target(
    stage: LayersOfClass, windows: Sequence[WindowBefore | None], at: int, mine: Pass, *, early: bool
) -> Item | Pass | None:
    """Return before what the copy ``at`` of a layer goes: a task, or its pass (``mine``) as a whole; None: where it is.

    Copies follow each other, so where no forward pass runs ahead that one of them was meant for, all are where the rule put them.
    """
    batch = mine[1]
    window, ahead = windows[at], stage.ahead.get(batch)
    if early and ahead is None and stage.waits(mine):
        return mine
    if window is None or (ahead is None and any(each is not None and each.in_pass == FORWARD for each in windows)):
        return None
    return window.task, batch if window.in_pass == BACK or ahead is None else ahead
