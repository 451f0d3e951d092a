"""F backwards: a task that is several kernels becomes a task for each, which hand each other what they make."""

from __future__ import annotations

from dataclasses import replace

from ringwright.graph.algebra.computation import HANDED
from ringwright.graph.algebra.editing import StepGraph
from ringwright.graph.algebra.rule import Refused, rule, task_at
from ringwright.model.values import Change, Value


@rule("open", "f = f_n . ... . f_1: the kernels of a task as tasks")
def opened(graph: StepGraph, at: str) -> Change:
    """Put the parts of a task in its place, in order."""
    task = task_at(graph, at)
    work = task.work
    if work is None or len(work.parts) < 2:
        raise Refused("nothing says that it is several kernels", "a task whose work has parts")
    if task.demands:
        raise Refused(f"it holds {task.demands[0][0]} all the while", "a task without demands")
    held, handed, made = 0, list[Value](), []
    named = str(work.settings.get("same_as", task.name))
    labels = list(work.settings.get("outputs", range(len(task.writes))))
    for number, part in enumerate(work.parts):
        reads = (*((value.name, 0) for value in handed), *(task.reads[each] for each in part.reads))
        writes = [task.writes[each] for each in part.writes]
        made_by = [*(labels[each] for each in part.writes), *([HANDED] if part.dims else [])]
        handed = []
        if part.dims:
            value = Value(
                graph.fresh(f"{at}.handed{number}"),
                task.of,
                part.size_bytes,
                part.dims,
                part.layout,
                "buffer",
                task.per,
            )
            graph.values[value.name] = value
            handed, held = [value], held + part.size_bytes
        made.append(
            graph.add(
                replace(
                    task,
                    name=graph.fresh(f"{at}.part{number}"),
                    seconds=task.seconds * part.share,
                    reads=reads,
                    writes=(*writes, *(value.name for value in handed)),
                    work=replace(part.work, settings={"same_as": named, "part": number, "outputs": made_by}),
                ),
                task,
            )
        )
    flops = sum(part.work.flops for part in work.parts) - work.flops
    apart = not any(part.dims for part in work.parts)  # then each is waited for
    graph.drop(task, made if apart else [made[-1]])
    return Change({}, 0, flops, held)
