"""TicTac: an order of the transfers computed from the worker's graph, with times (TAC) or without (TIC).

Idea: Frameworks receive parameters in an arbitrary order. From the graph of one worker an order follows in which computation
    starts early and never starves; senders keep to it. TIC counts what must be complete before something can run, TAC compares
    times pairwise, as Johnson's rule does for two machines.
Cost: Makespan between L = the busier of network and processor and U = the sum of both; efficiency (U - makespan)/(U - L).
Knobs: ``mode``: tac or tic; ``random``: a seed instead draws an order per step, which is the baseline.
Holds: An order of all transfers; deterministic; on a chain TIC is the order of use and TAC is optimal.
Figure: Up to 37.7 % in inference and 19.2 % in training; stragglers' effect down by up to 2.3x.
Source: Hashemi et al., MLSys 2019, arXiv 1803.03288; xldrx/tictac (common.py, tic.py, tac.py).
Declines: nothing.
"""

from __future__ import annotations

from typing import Annotated

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Seed
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Queue, Workload
from ringwright.schedulers.order import GRADIENTS
from ringwright.schedulers.priority._tictac import TransferGraph, tac, tic

NEEDS = ("workload.gradients",)


def tictac(
    workload: Workload,
    costs: Costs,
    *,
    mode: Annotated[str, Choices(("tac", "tic"))] = "tac",
    random: Seed | None = None,
) -> Workload:
    """Return the workload with whole tensors in TIC or TAC order, read by the next step after all have been written."""
    if mode not in ("tac", "tic"):
        raise UsageError(f"tictac has no mode '{mode}'", remedy="tac or tic")
    queue = Queue(random=random)
    if random is None:
        ranked = [_ranked(workload, costs, each.name, mode) for each in workload.classes]
        queue = Queue(keys={name: key for keys in ranked for name, key in keys.items()})
    return workload.with_policy("tictac", queue=queue, boundary="reads", agreement="static")


def _ranked(workload: Workload, costs: Costs, of: str, mode: str) -> dict[str, int]:
    return (tac if mode == "tac" else tic)(graph(workload, costs, of))


def graph(workload: Workload, costs: Costs, of: str) -> TransferGraph:
    """Return the forward pass of a class: its transfers with their times, its tasks with theirs, what each task waits for."""
    tasks = [task for task in workload.tasks if task.of == of and task.kind == "F"]
    names = {task.name for task in tasks}
    sent = [payload for payload in workload.gradients() if payload.of == of and payload.role in GRADIENTS]
    groups = {axes: workload.group(of, axes) for axes in {payload.axes for payload in sent}}
    transfers = {
        payload.name: seconds(costs, payload.asked, payload.size_bytes, groups[payload.axes], payload.role)
        for payload in sent
    }
    needs: dict[str, set[str]] = {name: set() for name in names}
    updated = {task: payload.name for payload in sent for task, _ in payload.consumers}
    for payload in sent:
        for task, _ in payload.consumers:
            if task in names:
                needs[task].add(payload.name)
    before: dict[str, set[str]] = {name: set() for name in names}
    for edge in workload.edges:
        if edge.dst in names and edge.src in names and edge.distance == 0:
            before[edge.dst].add(edge.src)
        if edge.dst in names and edge.src in updated:
            needs[edge.dst].add(updated[edge.src])
    return TransferGraph(transfers, {task.name: task.seconds for task in tasks}, needs, before)
