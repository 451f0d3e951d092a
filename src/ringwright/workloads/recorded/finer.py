"""Buckets of gradients in pieces: what a recording shows of a bucket is when its last gradient was ready, not the ones before.

A bucket of another size is asked about as if the stretch of backward before it made its gradients evenly, byte for byte. A bucket
is closed by the tensor that fills it, and tensors are not cut: of one that is larger than the smallest (the first and the last
aside, which others close) all beyond that is one tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from ringwright.workload import Edge, Payload, Rewrite, Task, Workload

GRADIENTS = ("dp", "edp")
PIECE_BYTES, MOST_PIECES = 256 << 10, 64
BACKWARD = "B"
NEARLY = 1e-9  # of a stretch
WHOLE = (1.0,)
NOTE = "buckets of another size: gradients are made evenly, byte by byte, in the backward pass before a recorded bucket"


def in_pieces(workload: Workload) -> tuple[Workload, Workload] | None:
    """Return the workload with its buckets in pieces, alone and with a policy that joins them as recorded; None: it has none.

    Pieces are of 256 KiB or more, 64 of all buckets at the most, of whole elements.
    """
    buckets = [each for each in workload.gradients(GRADIENTS) if each.merges and each.op == "all-reduce"]
    buckets = [each for each in buckets if {workload.task[name].kind for name in each.producers} == {BACKWARD}]
    total = sum(each.size_bytes for each in buckets)
    if not total:
        return None
    least = max(PIECE_BYTES, total // MOST_PIECES)
    fills = _filled_by(buckets)
    cuts = {each.name: _cuts(each.size_bytes, fills, least) for each in buckets}
    stretches = _Stretches.of(workload, buckets, cuts)
    finer = replace(
        workload,
        tasks=tuple(part for task in workload.tasks for part in stretches.parts(task)),
        edges=stretches.edges(workload),
        payloads=tuple(
            part
            for each in workload.payloads
            for part in _payloads(workload, each, cuts.get(each.name, WHOLE), stretches)
        ),
    )
    caps = [float(each.size_bytes) for each in buckets]
    joined = finer.with_policy("as recorded", rewrites=(Rewrite("fuse", GRADIENTS, {"caps_bytes": caps}),))
    return finer, joined


def _filled_by(buckets: Sequence[Payload]) -> int:
    """Return bytes that fill a bucket, as far as its like show it; 0 where there are too few of them."""
    return min((each.size_bytes for each in buckets[1:-1]), default=0)


def _cuts(size_bytes: int, fills: int, least: int) -> tuple[float, ...]:
    """Return where a bucket is cut, as shares of its bytes, the last one 1."""
    beyond = size_bytes - fills if fills else 0
    if beyond < least:
        return tuple((at + 1) / max(1, size_bytes // least) for at in range(max(1, size_bytes // least)))
    small = fills // least
    return (*(fills * (at + 1) / small / size_bytes for at in range(small)), 1.0)


@dataclass
class _Stretches:
    """Where each task is cut, and which part ends a piece: (bucket, class, piece) -> task, part (-1: its last one)."""

    ends: dict[str, tuple[float, ...]] = field(default_factory=dict)
    made: dict[tuple[str, str, int], tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, buckets: list[Payload], cuts: Mapping[str, tuple[float, ...]]) -> _Stretches:
        """Return the stretches of backward before each bucket, cut where its pieces are ready."""
        stretches = cls()
        for of in workload.classes:
            passes = [task for task in workload.tasks if task.of == of.name and task.kind == BACKWARD]
            turn = {task.name: at for at, task in enumerate(passes)}
            begin = 0
            for bucket in buckets:
                ends = [turn[name] for name in bucket.producers if name in turn]
                if ends:
                    end = max(ends) + 1
                    first = min(begin, end - 1)  # buckets that one task ends share it
                    stretches.cut(bucket.name, of.name, passes[first:end], cuts[bucket.name])
                    begin = max(begin, end)
        return stretches

    def cut(self, bucket: str, of: str, stretch: list[Task], pieces: tuple[float, ...]) -> None:
        """Cut a stretch of tasks so that each piece is ready when its share of the time has passed."""
        whole = sum(task.seconds for task in stretch)
        ends = list(accumulate(task.seconds for task in stretch))
        inside: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for piece, end in enumerate(pieces):
            share = whole * end * (1 - NEARLY)
            inside[next((at for at, end in enumerate(ends) if end >= share), len(stretch) - 1)].append((piece, share))
        for at, listed in inside.items():
            task = stretch[at]
            begun = ends[at] - task.seconds
            shares = [(share - begun) / task.seconds if task.seconds else 1.0 for _, share in listed]
            if len(listed) >= len(
                self.ends.get(task.name, WHOLE)
            ):  # of buckets that share a task, the one with most pieces
                self.ends[task.name] = (*shares[:-1], 1.0)
            for turn, (piece, _) in enumerate(listed):
                self.made[bucket, of, piece] = task.name, turn - len(listed)

    def parts(self, task: Task) -> list[Task]:
        """Return the parts of a task; the last one has its name."""
        cuts = pairwise((0.0, *self.ends.get(task.name, WHOLE)))
        return [
            replace(task, name=self.name(task.name, at), seconds=task.seconds * (end - begin))
            for at, (begin, end) in enumerate(cuts)
        ]

    def name(self, task: str, at: int) -> str:
        """Return what a part is called."""
        return task if at == len(self.ends.get(task, WHOLE)) - 1 else f"{task}.{at}"

    def edges(self, workload: Workload) -> tuple[Edge, ...]:
        """Return the edges: to the first part of a task, from part to part, from the last."""
        moved = [replace(each, dst=self.name(each.dst, 0)) for each in workload.edges]
        inner = [
            Edge(self.name(task, before), self.name(task, after))
            for task, ends in self.ends.items()
            for before, after in pairwise(range(len(ends)))
        ]
        return (*moved, *inner)

    def producers(self, bucket: Payload, of: Mapping[str, str], piece: int) -> tuple[str, ...]:
        """Return the parts that end a piece of a bucket, one a class."""
        names = []
        for producer in bucket.producers:
            task, part = self.made[bucket.name, of[producer], piece]
            names.append(self.name(task, len(self.ends.get(task, WHOLE)) + part))
        return tuple(dict.fromkeys(names))


def _payloads(workload: Workload, payload: Payload, cuts: tuple[float, ...], stretches: _Stretches) -> list[Payload]:
    consumers = tuple((stretches.name(name, 0), distance) for name, distance in payload.consumers)
    payload = replace(payload, consumers=consumers)
    if len(cuts) == 1:
        return [payload]
    elements = payload.elements or payload.size_bytes
    width = payload.size_bytes // elements if payload.elements else 1
    ends = [*(int(elements * end) for end in cuts[:-1]), elements]
    of = {name: workload.task[name].of for name in payload.producers}
    parts = []
    for at, (begin, end) in enumerate(pairwise([0, *ends])):
        size = (end - begin) * width if at < len(cuts) - 1 else payload.size_bytes - begin * width
        parts.append(
            replace(
                payload,
                name=f"{payload.name}.{at}",
                size_bytes=size,
                elements=(end - begin) if payload.elements else 0,
                producers=stretches.producers(payload, of, at),
            )
        )
    return parts
