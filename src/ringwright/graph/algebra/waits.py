"""Who waits for whom though no value says so: a recorded step has no values, and rules hold one node behind another.

Such edges, and ends of payloads, stay for whatever stands in a task's place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.model.workload import Edge, Payload, Queue, Task, Workload, sends_earlier

if TYPE_CHECKING:
    from ringwright.graph.algebra.editing import StepGraph

Node = Task | Payload


class OtherWaits:
    """The waits of a graph that its values do not explain; ``instead``: what stands in the place of what was taken out."""

    def __init__(self, graph: StepGraph) -> None:
        self.graph = graph
        workload = graph.before
        followed = set(edges_of(workload))
        self._edges = [edge for edge in workload.edges if edge not in followed]
        made_by, used_by = ends_of(graph.tasks.values(), graph.payloads.values())
        self._producers = {
            name: [each for each in payload.producers if each not in made_by.get(name, ()) and each in graph.tasks]
            for name, payload in graph.payloads.items()
        }
        self._consumers = {
            name: [each for each in payload.consumers if each not in used_by.get(name, ()) and each[0] in graph.tasks]
            for name, payload in graph.payloads.items()
        }
        self.instead: dict[str, list[str]] = {}
        self._heirs: dict[str, list[str]] = {}  # payload -> those that are waited for, or wait, in its place

    # ---------------------------------------------------------------------------------------------------- questions
    def stand(self, names: Iterable[str]) -> list[str]:
        """Return the tasks that stand for those of these names."""
        standing: list[str] = []
        for name in names:
            if name in self.graph.tasks:
                standing.append(name)
            else:
                standing += self.stand(self.instead.get(name, ()))
        return standing

    def behind(self, payload: Payload) -> list[str]:
        """Return the tasks that an operation waits for though no value says so."""
        return self.stand(self._producers.get(payload.name, ()))

    def ahead(self, payload: Payload) -> list[tuple[str, int]]:
        """Return the tasks that wait for an operation though no value says so, and how many steps later they do."""
        return [(each, later) for task, later in self._consumers.get(payload.name, ()) for each in self.stand([task])]

    def is_update_behind(self, name: str) -> bool:
        """Whether an update, or what is sent once a step, waits for a task without reading what it writes."""
        sent = any(
            name in makers and self.graph.payloads[each].per == "step" for each, makers in self._producers.items()
        )
        return sent or any(edge.src == name and self.graph.tasks[edge.dst].kind == "U" for edge in self._edges)

    def edges(self) -> list[Edge]:
        """Return the edges between tasks, of what stands for them."""
        return [
            Edge(src, dst, edge.distance)
            for edge in self._edges
            for src in self.stand([edge.src])
            for dst in self.stand([edge.dst])
        ]

    def queue(self, queue: Queue | None) -> Queue | None:
        """Return the queue, in which what came of a payload is as urgent as the most urgent of those that it came of."""
        if queue is None or all(name in self.graph.payloads for name in queue.keys):
            return queue
        keys: dict[str, int] = {}
        for old, key in queue.keys.items():
            reached, todo = dict.fromkeys([old]), [old]
            while todo:
                new = [each for each in self._heirs.get(todo.pop(), ()) if each not in reached]
                reached |= dict.fromkeys(new)
                todo += new
            for name in reached:
                if name in self.graph.payloads:
                    keys[name] = min(key, keys.get(name, key))
        return replace(queue, keys=keys)

    # ------------------------------------------------------------------------------------------------------ changes
    def add(self, node: Node, task: str, later: int) -> None:
        """Let a task wait for another one, or for an operation of so many steps before."""
        if isinstance(node, Task):
            self._edges.append(Edge(node.name, task))
        else:
            self._consumers[node.name] = [*self._consumers.get(node.name, ()), (task, later)]

    def halve(self, old: Task, first: Task, last: Task) -> None:
        """Put two tasks in the place of one, the last behind the first: updates and sums wait for it, others for the first."""
        behind, before = [], []
        for edge in self._edges:
            if edge.src == old.name:
                late = self.graph.tasks[edge.dst].kind == "U"
                behind.append(replace(edge, src=(last if late else first).name))
            elif edge.dst == old.name:
                before += [replace(edge, dst=half.name) for half in (first, last)]
            else:
                behind.append(edge)
        self._edges = [*behind, *before, Edge(first.name, last.name)]
        for name, makers in self._producers.items():
            once = self.graph.payloads[name].per == "step"
            self._producers[name] = [(last if once else first).name if each == old.name else each for each in makers]
        self.graph.drop(old, [first, last])

    def wait(self, payload: Payload, tasks: Iterable[str]) -> None:
        """Let an operation wait for these tasks in place of those that no value explains."""
        self._producers[payload.name] = list(tasks)

    def retime(self, inside: set[str]) -> str:
        """Move the waits that no value explains with nodes that are done a step later; return whom that would break."""
        moved = []
        for edge in self._edges:
            later = (edge.dst in inside) - (edge.src in inside)
            if edge.distance + later < 0:
                return f"{edge.dst} waits for {edge.src} of the same step"
            moved.append(replace(edge, distance=edge.distance + later))
        for name, consumers in self._consumers.items():
            sooner = int(name in inside)
            listed = [(task, distance - sooner + (task in inside)) for task, distance in consumers]
            if any(distance < 0 for _, distance in listed):
                return f"{consumers[0][0]} waits for {name} of the same step"
            self._consumers[name] = listed
            if name in inside and any(each not in inside for each in self._producers.get(name, ())):
                return f"{name} waits for a task that writes none of its values"
        self._edges = moved
        return ""

    def inherit(self, payload: Payload, old: Payload, *, producers: bool = False, consumers: bool = False) -> None:
        """Let a payload be waited for, or wait, where an old one was and no value says so; it is as urgent."""
        self._heirs.setdefault(old.name, []).append(payload.name)
        if producers:
            self._producers[payload.name] = [*self._producers.get(payload.name, ()), *self._producers.get(old.name, ())]
        if consumers:
            self._consumers[payload.name] = [*self._consumers.get(payload.name, ()), *self._consumers.get(old.name, ())]


def edges_of(workload: Workload) -> list[Edge]:
    """Return who waits for whom because it reads what the other writes."""
    writer = {name: task.name for task in workload.tasks for name in task.writes}
    return [
        Edge(writer[name], task.name, distance)
        for task in workload.tasks
        for name, distance in task.reads
        if name in writer and (writer[name] != task.name or distance)
    ]


def ends_of(
    tasks: Iterable[Task], payloads: Iterable[Payload]
) -> tuple[dict[str, list[str]], dict[str, list[tuple[str, int]]]]:
    """Return the producers and consumers of each payload that follow from values."""
    listed = list(tasks)
    writer = {name: task for task in listed for name in task.writes}
    readers: dict[str, list[tuple[str, int]]] = {}
    for task in listed:
        for name, distance in task.reads:
            readers.setdefault(name, []).append((task.name, distance))
    made_by, used_by = {}, {}
    for each in payloads:
        maker = writer.get(each.source)
        made_by[each.name] = [] if maker is None or sends_earlier(each, maker) else [maker.name]
        used_by[each.name] = readers.get(each.result, [])
    return made_by, used_by
