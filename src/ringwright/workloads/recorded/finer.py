"""Buckets of gradients in pieces: what a recording shows of a bucket is when its last gradient was ready, not the ones before.

A bucket of another size is asked about as if the stretch of backward before it made its gradients evenly, byte for byte, and the
stretch of forward that its update is for used them evenly, the last one made first. A bucket is closed by the tensor that fills
it, and tensors are not cut: of one that is larger than the smallest (the first and the last aside, which others close) all beyond
that is one tensor.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from ringwright.model.workload import Edge, Payload, Policy, Rewrite, Task, Workload

GRADIENT_ROLES = ("dp", "edp")
PIECE_BYTES, MOST_PIECES = 4 << 10, 64
BACKWARD, FORWARD, UPDATE = "B", "F", "U"
NEARLY = 1e-9  # of a stretch
WHOLE = (1.0,)
NOTE = (
    "buckets of another size: gradients are made evenly, byte by byte, in the backward pass before a recorded bucket, and used "
    "as evenly in the forward pass of its layers"
)


def in_pieces(workload: Workload) -> tuple[Workload, Workload] | None:
    """Return the workload with its buckets in pieces, alone and with a policy that joins them as recorded; None: it has none.

    Pieces are of 4 KiB or more, 64 of all buckets at the most, of whole elements.
    """
    buckets = [each for each in workload.gradients(GRADIENT_ROLES) if each.merges and each.op == "all-reduce"]
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
    finer = replace(finer, policy=_of_parts(workload, cuts))
    return finer, finer.with_policy("as recorded", rewrites=(_joining(buckets, cuts),))


def _joining(buckets: Sequence[Payload], cuts: Mapping[str, tuple[float, ...]]) -> Rewrite:
    """Return what joins pieces as recorded: by the caps of buckets, or piece by piece where each class has its own."""
    if len({(each.of, each.role) for each in buckets}) == 1:
        return Rewrite("fuse", GRADIENT_ROLES, {"caps_bytes": [float(each.size_bytes) for each in buckets]})
    return Rewrite("groups", GRADIENT_ROLES, {"names": [_parts(each.name, cuts[each.name]) for each in buckets]})


def cuttable(workload: Workload) -> Workload:
    """Return the workload as it was recorded, its buckets joined of pieces that a policy may join otherwise, and saying so.

    Without buckets that can be cut it is returned as it is.
    """
    finer = in_pieces(workload)
    return workload if finer is None else replace(finer[1], assumptions=(*workload.assumptions, NOTE))


def _of_parts(workload: Workload, cuts: Mapping[str, tuple[float, ...]]) -> Policy:
    """Return the policy of a workload with the urgency of a bucket given to its pieces."""
    queue = workload.policy.queue
    if queue is None:
        return workload.policy
    keys = {part: key for name, key in queue.keys.items() for part in _parts(name, cuts.get(name, WHOLE))}
    return replace(workload.policy, queue=replace(queue, keys=keys))


def _parts(name: str, cuts: tuple[float, ...]) -> list[str]:
    """Return what the pieces of a payload are called."""
    return [f"{name}.{at}" for at in range(len(cuts))] if len(cuts) > 1 else [name]


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
    """Where each task is cut, as shares of its time, and which of its parts make and use a piece.

    ``made``: (bucket, class, piece) -> task, part (-1: its last one); ``used``: (update, piece) -> task, part (0: its first one).
    ``pieces`` says of an update how many pieces it is for.
    """

    ends: dict[str, tuple[float, ...]] = field(default_factory=dict)
    made: dict[tuple[str, str, int], tuple[str, int]] = field(default_factory=dict)
    used: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    pieces: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, buckets: list[Payload], cuts: Mapping[str, tuple[float, ...]]) -> _Stretches:
        """Return the stretches of backward before each bucket, and of forward after each update, cut into their pieces."""
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
                    parts = stretches.cut(passes[first:end], cuts[bucket.name])
                    stretches.made |= {(bucket.name, of.name, piece): part for piece, part in parts.items()}
                    begin = max(begin, end)
            stretches.forward(workload, of.name, buckets, cuts)
        return stretches

    def forward(
        self, workload: Workload, of: str, buckets: list[Payload], cuts: Mapping[str, tuple[float, ...]]
    ) -> None:
        """Cut the stretch of forward from where the update of a bucket is needed to where that of another one is."""
        passes = [task for task in workload.tasks if task.of == of and task.kind == FORWARD]
        turn = {task.name: at for at, task in enumerate(passes)}
        ends = Counter(name for edge in workload.edges for name in (edge.src, edge.dst))
        needed = {
            edge.src: turn[edge.dst]
            for edge in workload.edges
            if edge.distance == 1
            and edge.dst in turn
            and workload.task[edge.src].kind == UPDATE
            and ends[edge.src] == 1
        }
        begins = sorted(set(needed.values()))
        buckets_of = Counter(name for bucket in buckets for name in {name for name, _ in bucket.consumers})
        for bucket in buckets:
            for update, _ in bucket.consumers:
                if update in needed and buckets_of[update] == 1:  # one for several is not cut as any of them
                    end = next((at for at in begins if at > needed[update]), len(passes))
                    self.pieces[update] = len(cuts[bucket.name])
                    # From its end, forward meets pieces in the order in which backward made them.
                    parts = self.cut(passes[needed[update] : end][::-1], cuts[bucket.name], backwards=True)
                    self.used |= {(update, piece): (name, -1 - part) for piece, (name, part) in parts.items()}

    def cut(
        self, stretch: list[Task], pieces: tuple[float, ...], *, backwards: bool = False
    ) -> dict[int, tuple[str, int]]:
        """Cut a stretch of tasks so that each piece is ready when its share of the time has passed.

        ``backwards``: the stretch is listed from its end, and so is each of its tasks cut. Returns piece -> task, part that ends
        it (-1: its last one).
        """
        whole = sum(task.seconds for task in stretch)
        ends = list(accumulate(task.seconds for task in stretch))
        inside: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for piece, end in enumerate(pieces):
            share = whole * end * (1 - NEARLY)
            inside[next((at for at, end in enumerate(ends) if end >= share), len(stretch) - 1)].append((piece, share))
        parts: dict[int, tuple[str, int]] = {}
        for at, listed in inside.items():
            task = stretch[at]
            begun = ends[at] - task.seconds
            shares = [(share - begun) / task.seconds if task.seconds else 1.0 for _, share in listed]
            cuts = [*shares[:-1], 1.0]
            if backwards:
                cuts = [*(1.0 - each for each in reversed(cuts[:-1])), 1.0]
            # Of buckets that share a task, the one with most pieces says where it is cut.
            if len(listed) >= len(self.ends.get(task.name, WHOLE)):
                self.ends[task.name] = tuple(cuts)
            parts |= {piece: (task.name, turn - len(listed)) for turn, (piece, _) in enumerate(listed)}
        return parts

    def parts(self, task: Task) -> list[Task]:
        """Return the parts of a task; the last one has its name. An update is for so many pieces alike."""
        count = self.pieces.get(task.name)
        ends = tuple((at + 1) / count for at in range(count)) if count else self.ends.get(task.name, WHOLE)
        return [
            replace(task, name=self.name(task.name, at), seconds=task.seconds * (end - begin))
            for at, (begin, end) in enumerate(pairwise((0.0, *ends)))
        ]

    def count(self, task: str) -> int:
        """Return in how many parts a task is."""
        return self.pieces.get(task) or len(self.ends.get(task, WHOLE))

    def name(self, task: str, at: int) -> str:
        """Return what a part is called."""
        return task if at == self.count(task) - 1 else f"{task}.{at}"

    def edges(self, workload: Workload) -> tuple[Edge, ...]:
        """Return the edges: to the first part of a task, from part to part, from the last; from an update to what uses it."""
        moved = [replace(each, dst=self.name(each.dst, 0)) for each in workload.edges if each.src not in self.pieces]
        updates = [
            replace(each, src=self.name(each.src, at), dst=self.name(*self.used[each.src, at]))
            for each in workload.edges
            for at in range(self.pieces.get(each.src, 0))
        ]
        inner = [
            Edge(self.name(task, before), self.name(task, after))
            for task, ends in self.ends.items()
            for before, after in pairwise(range(len(ends)))
        ]
        return (*moved, *updates, *inner)

    def producers(self, bucket: Payload, of: Mapping[str, str], piece: int) -> tuple[str, ...]:
        """Return the parts that end a piece of a bucket, one a class."""
        names = []
        for producer in bucket.producers:
            task, part = self.made[bucket.name, of[producer], piece]
            names.append(self.name(task, self.count(task) + part))
        return tuple(dict.fromkeys(names))

    def consumers(self, payload: Payload, piece: int) -> tuple[tuple[str, int], ...]:
        """Return what waits for a piece: of an update its own part of it, of other tasks the first."""
        return tuple(
            (self.name(name, piece if name in self.pieces else 0), distance) for name, distance in payload.consumers
        )


def _payloads(workload: Workload, payload: Payload, cuts: tuple[float, ...], stretches: _Stretches) -> list[Payload]:
    if len(cuts) == 1:
        return [replace(payload, consumers=stretches.consumers(payload, 0))]
    elements = payload.elements or payload.size_bytes
    width = payload.size_bytes // elements if payload.elements else 1
    ends = [*(int(elements * end) for end in cuts[:-1]), elements]
    of = {name: workload.task[name].of for name in payload.producers}
    parts = []
    for at, ((begin, end), name) in enumerate(zip(pairwise([0, *ends]), _parts(payload.name, cuts), strict=True)):
        size = (end - begin) * width if at < len(cuts) - 1 else payload.size_bytes - begin * width
        parts.append(
            replace(
                payload,
                name=name,
                size_bytes=size,
                elements=(end - begin) if payload.elements else 0,
                producers=stretches.producers(payload, of, at),
                consumers=stretches.consumers(payload, at),
            )
        )
    return parts
