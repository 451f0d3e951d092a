"""Expert work in as many chunks as its all-to-alls: chunk i of the work starts when chunk i of the tokens is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ringwright.ground.errors import InfeasibleError
from ringwright.model.values import Value
from ringwright.model.workload import Edge, Payload, Task, Workload

EXPERTS = "experts"  # tag of tasks
TOKENS = "ep"  # role of all-to-alls
MOST_CHUNKS = 1 << 16  # of tasks, all-to-alls and what joins them: some 20 s


def pipelined(workload: Workload, size_bytes: int) -> Workload:
    """Return the workload with every expert task, and the all-to-alls before and after it, cut into equal chunks of at most
    ``size_bytes``. Bytes and seconds stay the same in sum."""
    tasks, payloads = chunks(workload, size_bytes)
    if not tasks:
        return workload
    _require_few(workload, tasks, payloads)
    values = _values(workload, tasks, payloads)
    if values is None:
        workload, values = workload.without_values(), {}
    return replace(
        workload,
        tasks=tuple(part for task in workload.tasks for part in _task(task, tasks.get(task.name, 1), values)),
        edges=tuple(part for edge in workload.edges for part in _edge(edge, tasks)),
        payloads=tuple(
            part for each in workload.payloads for part in _payload(each, payloads.get(each.name, 1), tasks, values)
        ),
        values=tuple(part for each in workload.values for part in _value(each, values.get(each.name, 1))),
    )


def _values(workload: Workload, tasks: Mapping[str, int], payloads: Mapping[str, int]) -> dict[str, int] | None:
    """Return in how many chunks each value is cut: what cut all-to-alls carry, and what cut tasks write in a micro-batch.

    None where an operation that goes whole carries such a value: then nothing is said of any.
    """
    cut: dict[str, int] = {}
    for payload in workload.payloads:
        if payload.name in payloads:
            cut |= dict.fromkeys(filter(None, (payload.source, payload.result)), payloads[payload.name])
    for task in workload.tasks:
        for name in task.writes if task.name in tasks else ():
            if workload.value[name].per != "step":
                cut[name] = tasks[task.name]
    whole = (name for each in workload.payloads if each.name not in payloads for name in (each.source, each.result))
    return None if any(name in cut for name in whole) else cut


def _value(value: Value, parts: int) -> list[Value]:
    """Cut a value; a chunk lies on the mesh as the whole does."""
    if parts == 1:
        return [value]
    return [
        replace(value, name=f"{value.name}#{at}", size_bytes=_share(value.size_bytes, at, parts)) for at in range(parts)
    ]


def chunks(workload: Workload, size_bytes: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return in how many chunks each task of experts and each of their all-to-alls is cut, where that is more than one.

    Tasks and all-to-alls that depend on each other are cut into the same number of chunks, that of the largest all-to-all.
    """
    experts = {task.name for task in workload.tasks if task.tag == EXPERTS}
    touches = {each.name: _touched(each) & experts for each in workload.payloads if carries_tokens(each)}
    touches = {name: tasks for name, tasks in touches.items() if tasks}
    payloads = {name: max(1, -(-workload.payload[name].size_bytes // size_bytes)) for name in touches}
    tasks = dict.fromkeys(sorted(experts), 1)
    changed = True
    while changed:
        changed = False
        for name, joined in touches.items():
            most = max(payloads[name], *(tasks[each] for each in joined))
            changed |= most != payloads[name] or any(tasks[each] != most for each in joined)
            payloads[name] = most
            tasks.update(dict.fromkeys(joined, most))
    return ({name: m for name, m in tasks.items() if m > 1}, {name: m for name, m in payloads.items() if m > 1})


def _require_few(workload: Workload, tasks: Mapping[str, int], payloads: Mapping[str, int]) -> None:
    """Raise InfeasibleError before anything is cut into more chunks than can be laid out."""
    joined = sum(tasks.get(edge.src, 1) * tasks.get(edge.dst, 1) for edge in workload.edges)
    total = sum(tasks.values()) + sum(payloads.values()) + joined
    if total > MOST_CHUNKS:
        raise InfeasibleError(
            f"lina cuts {workload.name} into {total:,} chunks and edges between them: it is more than {MOST_CHUNKS:,}",
            where=f"{len(payloads):,} all-to-alls in up to {max(payloads.values(), default=1):,} chunks each",
            remedy="larger partitions, as lina:partition_mb=30; or lina:pipelining=false",
        )


def carries_tokens(payload: Payload) -> bool:
    """Say whether a payload is an all-to-all of tokens, and not one of token counts."""
    return payload.role == TOKENS and payload.op == "all-to-all"


def _touched(payload: Payload) -> set[str]:
    return {*payload.producers, *(name for name, _ in payload.consumers)}


def _names(name: str, cut: Mapping[str, int]) -> list[str]:
    return [f"{name}#{at}" for at in range(cut[name])] if name in cut else [name]


def _task(task: Task, parts: int, values: Mapping[str, int]) -> list[Task]:
    """Cut a task: what it takes it takes at the start of the first chunk, what it gives back at the end of the last.

    A chunk reads and writes its own chunk of each value that is cut; of others, the last one writes them.
    """
    if parts == 1:
        reads = tuple((each, far) for name, far in task.reads for each in _names(name, values))
        return [replace(task, reads=reads, writes=tuple(each for name in task.writes for each in _names(name, values)))]
    tasks = []
    for at in range(parts):
        demands = tuple(
            (name, -(-amount // parts) if name == "tiles" else amount)
            for name, amount in task.demands
            if name == "tiles" or (amount > 0 and at == 0) or (amount < 0 and at == parts - 1)
        )
        chunk = replace(task, name=f"{task.name}#{at}", seconds=task.seconds / parts, demands=demands, work=None)
        reads = tuple((_part(name, at, values), far) for name, far in task.reads)
        writes = tuple(_part(name, at, values) for name in task.writes if name in values or at == parts - 1)
        tasks.append(replace(chunk, reads=reads, writes=writes))
    return tasks


def _part(name: str, at: int, values: Mapping[str, int]) -> str:
    return f"{name}#{at}" if name in values else name


def _edge(edge: Edge, cut: Mapping[str, int]) -> list[Edge]:
    return [replace(edge, src=src, dst=dst) for src in _names(edge.src, cut) for dst in _names(edge.dst, cut)]


def _payload(payload: Payload, parts: int, cut: Mapping[str, int], values: Mapping[str, int]) -> list[Payload]:
    if parts == 1:
        consumers = tuple((each, distance) for name, distance in payload.consumers for each in _names(name, cut))
        producers = tuple(each for name in payload.producers for each in _names(name, cut))
        return [replace(payload, producers=producers, consumers=consumers)]
    return [
        replace(
            payload,
            name=f"{payload.name}#{at}",
            source=_part(payload.source, at, values),
            result=_part(payload.result, at, values),
            size_bytes=_share(payload.size_bytes, at, parts),
            elements=_share(payload.elements, at, parts),
            producers=tuple(f"{name}#{at}" if name in cut else name for name in payload.producers),
            consumers=tuple((f"{name}#{at}" if name in cut else name, far) for name, far in payload.consumers),
        )
        for at in range(parts)
    ]


def _share(total: int, at: int, parts: int) -> int:
    return total * (at + 1) // parts - total * at // parts
