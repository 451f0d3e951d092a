"""C of a backward pass: a whole one becomes that of the inputs, which the layer before waits for, and that of the weights."""

from __future__ import annotations

from dataclasses import replace

from ringwright.graph.algebra.editing import StepGraph
from ringwright.graph.algebra.rule import Refused, rule, task_at
from ringwright.graph.algebra.shares import share_of
from ringwright.model.values import Change, Work


@rule("split-backward", "B = I beside W: gradients of inputs, and of weights, each from what B reads")
def split_backward(graph: StepGraph, at: str, share: float = 0.5) -> Change:
    """Make two tasks of a whole backward one: the first has ``share`` of its time and what is no gradient of weights."""
    task = task_at(graph, at)
    if task.kind != "B" or (task.work and task.work.meaning):
        raise Refused("it is no backward task of unknown content", "a task of kind B that computes both gradients")
    if not 0 < share < 1:
        raise Refused(f"a share of {share:g} leaves nothing for the other half", "share: between 0 and 1")
    late = [at for at, name in enumerate(task.writes) if graph.values[name].kind == "gradient"]
    if not late and not graph.waits.is_update_behind(task.name):
        raise Refused("it makes no gradient of weights", "a backward task of a layer with parameters")
    early = [at for at in range(len(task.writes)) if at not in late]
    halves = []
    for kind, part, mine in (("dO", share, early), ("dW", 1 - share, late)):
        fields = share_of(task, part)
        work = replace(fields["work"], settings={"same_as": _same(task.work, task.name), "outputs": mine})
        made = replace(
            task,
            name=graph.fresh(f"{task.name}.{'inputs' if kind == 'dO' else 'weights'}"),
            kind=kind,
            seconds=fields["seconds"],
            writes=tuple(task.writes[each] for each in mine),
            work=work,
        )
        halves.append(graph.add(made, task))
    graph.waits.halve(task, *halves)
    return Change()


def _same(work: Work | None, name: str) -> str:
    return str(work.settings.get("same_as", name)) if work else name
