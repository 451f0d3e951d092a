"""Questions that schedulers ask of a workload: how urgent a payload is, when it is ready, how much forward work follows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ringwright.model.workload import Payload, Workload

GRADIENTS = ("dp", "edp")  # roles of what is summed once a step


def first_consumers(workload: Workload) -> dict[str, int]:
    """Return, per payload of a step, the position of the first forward task that waits for it, in the order of its class.

    The next step's tasks count, reached directly or through what is done once a step: copies, the update of the parameters, and
    what these send.
    """
    position = _places(workload)
    following: dict[str, list[str]] = {}
    for edge in workload.edges:
        following.setdefault(edge.src, []).append(edge.dst)
    for payload in workload.payloads:
        for producer in payload.producers:
            if producer not in position:
                following.setdefault(producer, []).extend(name for name, _ in payload.consumers)
    return {
        payload.name: min((position[name] for name in _users(payload, following, position)), default=len(position))
        for payload in workload.payloads
        if payload.per == "step"
    }


def _places(workload: Workload) -> dict[str, int]:
    """Return the place of each task in the order of its class, counted from the first micro-batch it runs for."""
    position: dict[str, int] = {}
    for each in workload.classes:
        for at, (name, _) in enumerate(workload.line(each.name)):
            position.setdefault(name, at)
    return position


def _users(payload: Payload, following: Mapping[str, list[str]], position: Mapping[str, int]) -> Iterator[str]:
    """Yield the tasks with a place that wait for a payload, or for what is done once a step with it."""
    reached = dict.fromkeys(name for name, _ in payload.consumers)
    todo = list(reached)
    while todo:
        name = todo.pop()
        if name in position:
            yield name
            continue
        new = [each for each in following.get(name, ()) if each not in reached]
        reached |= dict.fromkeys(new)
        todo += new


def by_layer(workload: Workload, roles: Iterable[str] = GRADIENTS) -> dict[str, int]:
    """Return the urgency of each payload of ``roles``: the rank of its first consumer, 0 for what forward needs first."""
    wanted = set(roles)
    places = {
        name: position for name, position in first_consumers(workload).items() if workload.payload[name].role in wanted
    }
    ranked = {position: at for at, position in enumerate(sorted(set(places.values())))}
    return {name: ranked[position] for name, position in places.items()}


def released(workload: Workload) -> dict[str, float]:
    """Return when each payload of a step is ready, in seconds of compute after the first task of the last micro-batch.

    Tasks of a class run one after another in their order, as if nothing else kept them.
    """
    moments: dict[str, float] = {}
    for each in workload.classes:
        now, ends = 0.0, {}
        for name, batch in workload.line(each.name):
            if batch == workload.micro_batches - 1:
                now += workload.task[name].seconds
                ends[name] = now
        for payload in workload.payloads:
            if payload.of == each.name and payload.per == "step":
                moments[payload.name] = max((ends.get(name, now) for name in payload.producers), default=0.0)
    return moments


def tails(workload: Workload) -> dict[str, float]:
    """Return, per payload of a step, the forward work in seconds from its first consumer to the end of forward."""
    first = first_consumers(workload)
    position = _places(workload)
    work: dict[str, list[tuple[int, float]]] = {each.name: [] for each in workload.classes}
    for task in workload.tasks:
        if task.kind == "F" and task.name in position:
            work[task.of].append((position[task.name], task.seconds))
    tails_s = {}
    for name, at in first.items():
        tails_s[name] = sum(seconds for where, seconds in work[workload.payload[name].of] if where >= at)
    return tails_s
