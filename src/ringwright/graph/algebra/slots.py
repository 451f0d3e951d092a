"""E again: the passes of a rank in another order, by virtual stage or layer, without a word of the tasks that they consist of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ringwright.graph.algebra.editing import StepGraph
from ringwright.graph.algebra.rule import Refused, rule
from ringwright.graph.pipelines import PHASES
from ringwright.graph.pipelines.shape import BACKWARD, FORWARD, INPUTS, WEIGHTS
from ringwright.model.values import Change
from ringwright.model.workload import Task

UNITS = ("chunk", "layer")
SLOTS = {"F": FORWARD, "B": BACKWARD, "W": BACKWARD}  # of a task -> the pass it belongs to


@rule("slots", "passes of ranks in another order: forward, backward or its halves, of a virtual stage and micro-batch")
def slots(graph: StepGraph, at: str, orders: Mapping[str, Sequence[Sequence[object]]], by: str = "chunk") -> Change:
    """Run passes in these orders of (F, B, I or W; chunk or layer; micro-batch), by class; B is I and W as they are listed.

    The classes of a pipeline change together, for one alone would wait for another that waits for it; ``at`` is one of them.
    """
    known = {each.name for each in graph.before.classes}
    strange = [each for each in (at, *orders) if each not in known]
    if strange or at not in orders:
        listed = ", ".join(sorted(known)[:5])
        raise Refused("it is no class of ranks" if at not in known else "it has no order", f"orders of {listed}")
    if by not in UNITS:
        raise Refused(f"passes are not told apart by '{by}'", f"by: {' or '.join(UNITS)}")
    made = {of: _line(_passes(graph, of, by), each, by) for of, each in orders.items()}
    for of, line in made.items():
        _complete(graph, of, line)
    graph.policy = graph.with_part("slots", order={**(graph.policy.order or {}), **made})
    return Change()


def _line(
    passes: Mapping[tuple[str, int], Sequence[Task]], slots: Sequence[Sequence[object]], by: str
) -> tuple[tuple[str, int], ...]:
    """Return the tasks of passes one after another."""
    line: list[tuple[str, int]] = []
    for phase, unit, batch in ((str(phase), int(str(unit)), int(str(batch))) for phase, unit, batch in slots):
        tasks = passes.get((phase, unit))
        if tasks is None:
            what = f"it has no pass {phase} of {by} {unit}" if phase in PHASES else f"'{phase}' is no pass"
            raise Refused(what, f"{', '.join(PHASES)} of {by} {', '.join(map(str, sorted({u for _, u in passes})))}")
        line += [(task.name, batch) for task in tasks]
    return tuple(line)


def _complete(graph: StepGraph, of: str, line: Sequence[tuple[str, int]]) -> None:
    """Refuse an order that runs a task of the class not at all for a micro-batch, or twice."""
    counts = Counter(line)
    for task in graph.tasks.values():
        if task.of == of and task.per == "micro-batch":
            for batch in range(graph.before.micro_batches):
                times = counts.pop((task.name, batch), 0)
                if times != 1:
                    said = f"{times} times" if times else "never"
                    raise Refused(f"{task.name} runs {said} for micro-batch {batch}", "every pass once")
    if counts:
        name, batch = min(counts)
        raise Refused(f"{name} has no micro-batch {batch}", f"micro-batches 0 to {graph.before.micro_batches - 1}")


def _passes(graph: StepGraph, at: str, by: str) -> dict[tuple[str, int], list[Task]]:
    """Return the tasks of each pass of a class, as they are listed."""
    passes: dict[tuple[str, int], list[Task]] = {}
    for task in graph.tasks.values():
        if task.of != at or task.per != "micro-batch":
            continue
        known = SLOTS.get(task.slot[0])
        if known is None:
            raise Refused(f"{task.name} is of no forward or backward pass", "'order', by the names of tasks")
        unit = task.slot[1] if by == "chunk" else task.layer
        passes.setdefault((known, unit), []).append(task)
        if known == BACKWARD:
            for half in (INPUTS, WEIGHTS):
                passes.setdefault((half, unit), [])
            passes[WEIGHTS if task.kind == "dW" else INPUTS, unit].append(task)
    return passes
