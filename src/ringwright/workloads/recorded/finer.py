"""Buckets of gradients in pieces: what a recording shows of a bucket is when its last gradient was ready, not the ones before.

A bucket of other size is asked about as if the backward pass before it made its gradients evenly, byte for byte.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from ringwright.workload import Edge, Payload, Rewrite, Task, Workload

GRADIENTS = ("dp", "edp")
PIECE_BYTES, MOST_PIECES = 256 << 10, 64
NOTE = "buckets of another size: gradients are made evenly, byte by byte, in the backward pass before a recorded bucket"


def in_pieces(workload: Workload) -> tuple[Workload, Workload] | None:
    """Return the workload with its buckets in pieces, alone and with a policy that joins them as recorded; None: it has none.

    Pieces are of 256 KiB or more, 64 of all buckets at the most, of whole elements.
    """
    buckets = [each for each in workload.gradients(GRADIENTS) if each.merges and each.op == "all-reduce"]
    kinds = {task.name: task.kind for task in workload.tasks}
    buckets = [each for each in buckets if each.producers and {kinds[name] for name in each.producers} == {"B"}]
    total = sum(each.size_bytes for each in buckets)
    if not buckets or not total:
        return None
    least = max(PIECE_BYTES, total // MOST_PIECES)
    cuts = {each.name: max(1, each.size_bytes // least) for each in buckets}
    made: dict[str, list[tuple[Payload, int]]] = defaultdict(list)  # task -> the pieces of each bucket that it ends
    for each in buckets:
        for name in each.producers:
            made[name].append((each, cuts[each.name]))
    pieces = {name: max(count for _, count in listed) for name, listed in made.items()}
    finer = replace(
        workload,
        tasks=tuple(part for task in workload.tasks for part in _tasks(task, pieces.get(task.name, 1))),
        edges=_edges(workload, pieces),
        payloads=tuple(part for each in workload.payloads for part in _payloads(each, cuts, pieces)),
    )
    caps = [float(each.size_bytes) for each in buckets]
    joined = finer.with_policy("as recorded", rewrites=(Rewrite("fuse", GRADIENTS, {"caps_bytes": caps}),))
    return finer, joined


def _name(task: str, at: int, of: int) -> str:
    return task if at == of - 1 else f"{task}.{at}"


def _tasks(task: Task, pieces: int) -> list[Task]:
    return [replace(task, name=_name(task.name, at, pieces), seconds=task.seconds / pieces) for at in range(pieces)]


def _edges(workload: Workload, pieces: dict[str, int]) -> tuple[Edge, ...]:
    first = {name: _name(name, 0, of) for name, of in pieces.items()}
    moved = [replace(each, dst=first.get(each.dst, each.dst)) for each in workload.edges]
    inner = [
        Edge(before, after)
        for name, of in pieces.items()
        for before, after in pairwise(_name(name, at, of) for at in range(of))
    ]
    return (*moved, *inner)


def _payloads(payload: Payload, cuts: dict[str, int], pieces: dict[str, int]) -> list[Payload]:
    first = {name: _name(name, 0, of) for name, of in pieces.items()}
    payload = replace(
        payload, consumers=tuple((first.get(name, name), distance) for name, distance in payload.consumers)
    )
    count = cuts.get(payload.name, 1)
    if count == 1:
        return [payload]
    elements = payload.elements or payload.size_bytes
    width = payload.size_bytes // elements if payload.elements else 1
    ends = [elements * (at + 1) // count for at in range(count)]
    parts = []
    for at, (begin, end) in enumerate(pairwise([0, *ends])):
        size = (end - begin) * width if at < count - 1 else payload.size_bytes - begin * width
        producers = tuple(
            _name(name, -(-(at + 1) * pieces[name] // count) - 1, pieces[name]) for name in payload.producers
        )
        parts.append(
            replace(
                payload,
                name=f"{payload.name}.{at}",
                size_bytes=size,
                elements=(end - begin) if payload.elements else 0,
                producers=producers,
            )
        )
    return parts
