"""From payloads to operations: what the policy's rewrites make of them. The simulator and the real executor both ask here.

Every byte of a payload lies in exactly one operation. An operation may be cut into equal ``pieces``, which the queue
schedules one by one; a fused operation is the concatenation of its payloads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ringwright.errors import UsageError
from ringwright.workload import Payload, Rewrite, Workload


@dataclass(frozen=True)
class Operation:
    """One communication operation: the payloads it carries, in order, and the size of the pieces it is sent in.

    ``piece_bytes`` 0 means in one piece. ``key`` is its urgency, small first, None for first come first served.
    ``size_bytes`` is what travels, which select and substitute make smaller than what the payloads hold.
    """

    name: str
    of: str
    op: str
    axes: tuple[str, ...]
    role: str
    per: str
    payloads: tuple[Payload, ...]
    size_bytes: int
    piece_bytes: int = 0
    key: int | None = None

    @property
    def pieces(self) -> int:
        """How many pieces it is sent in."""
        return max(1, -(-self.size_bytes // self.piece_bytes)) if self.piece_bytes else 1

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of a full piece and of the last one."""
        whole = self.piece_bytes if self.pieces > 1 else self.size_bytes
        return whole, self.size_bytes - whole * (self.pieces - 1)

    def carried(self, piece: int) -> list[Payload]:
        """Return the payloads with a byte in a piece, all of them where what travels is not the payloads' own bytes."""
        if self.pieces == 1 or len(self.payloads) == 1 or self.size_bytes != sum(p.size_bytes for p in self.payloads):
            return list(self.payloads)
        begin, end = piece * self.piece_bytes, (piece + 1) * self.piece_bytes
        found, offset = [], 0
        for payload in self.payloads:
            if offset < end and offset + payload.size_bytes > begin:
                found.append(payload)
            offset += payload.size_bytes
        return found


def operations(workload: Workload) -> list[Operation]:
    """Return the operations of one step; UsageError for rewrites that cannot be applied one after another."""
    keys = workload.policy.queue.keys if workload.policy.queue else {}
    order = {each.name: at for at, each in enumerate(workload.gradients(tuple({p.role for p in workload.payloads})))}
    listed = sorted(workload.payloads, key=lambda each: order.get(each.name, -1))
    found = [_alone(payload) for payload in listed]
    for rewrite in workload.policy.rewrites or ():
        if rewrite.kind not in KINDS:
            raise UsageError(f"'{rewrite.kind}' is no rewrite", remedy=f"one of: {', '.join(KINDS)}")
        touched = [each for each in found if each.role in rewrite.roles]
        if touched:
            made = KINDS[rewrite.kind](touched, rewrite)
            kept = [each for each in found if each.role not in rewrite.roles]
            found = kept + list(made)
    return [_keyed(each, keys) for each in found]


def _alone(payload: Payload) -> Operation:
    return Operation(
        payload.name, payload.of, payload.op, payload.axes, payload.role, payload.per, (payload,), payload.size_bytes
    )


def _keyed(operation: Operation, keys: Mapping[str, int]) -> Operation:
    known = [keys[payload.name] for payload in operation.payloads if payload.name in keys]
    return replace(operation, key=min(known)) if known else operation


def _partition(found: Iterable[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Cut into pieces of at most ``size_bytes``, or ``elements`` numbers; only what is an ``op``, where one is given.

    The last piece is what is left, unless all are to be ``equal`` (to 4 bytes).
    """
    for each in found:
        if rewrite.settings.get("op", each.op) != each.op:
            yield each
            continue
        if "elements" in rewrite.settings:
            elements = sum(payload.elements for payload in each.payloads)
            width = each.size_bytes / elements if elements else 4
            piece = int(rewrite.settings["elements"] * width)
        else:
            piece = int(rewrite.settings["size_bytes"])
        if piece < 1:
            raise UsageError(
                f"{each.name} cannot be cut into pieces of {piece} B", remedy="a partition of at least 4 B"
            )
        if rewrite.settings.get("equal"):
            piece = min(piece, 4 * -(-each.size_bytes // (4 * -(-each.size_bytes // piece))))
        yield replace(each, piece_bytes=piece) if each.size_bytes > piece else each


def _parts(found: Iterable[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Cut what holds more than ``above_elements`` numbers into ``servers`` equal parts, as MXNet does with large keys."""
    for each in found:
        servers = int(rewrite.settings["servers"])
        elements = sum(payload.elements for payload in each.payloads)
        large = elements > rewrite.settings["above_elements"]
        yield replace(each, piece_bytes=-(-each.size_bytes // servers)) if large else each


def _fuse(found: Sequence[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Append to the open bucket until it has reached its cap, in ready order; buckets never mix what may not be merged."""
    caps = [int(cap) for cap in rewrite.settings["caps_bytes"]]
    yield from _bucketed(found, lambda at: caps[min(at, len(caps) - 1)])


def _threshold(found: Sequence[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Cut one pool of finished gradients whenever ``size_bytes`` are in it."""
    yield from _bucketed(found, lambda _: int(rewrite.settings["size_bytes"]))


def _bucketed(found: Sequence[Operation], cap: Callable[[int], int]) -> Iterator[Operation]:
    pools: dict[tuple[str, ...], list[Operation]] = defaultdict(list)
    held: dict[tuple[str, ...], int] = defaultdict(int)  # bytes
    made: dict[tuple[str, ...], int] = defaultdict(int)
    for each in found:
        merges = each.payloads[0].merges
        if not merges:
            yield each
            continue
        pool = (each.of, each.role, each.op, each.per, merges)
        pools[pool].append(each)
        held[pool] += each.size_bytes
        if held[pool] >= cap(made[pool]):
            yield _merged(pools.pop(pool))
            held[pool], made[pool] = 0, made[pool] + 1
    for rest in pools.values():
        yield _merged(rest)


def _merged(group: Sequence[Operation]) -> Operation:
    if len(group) == 1:
        return group[0]
    first = group[0]
    payloads = tuple(payload for each in group for payload in each.payloads)
    name = f"{first.name}..{group[-1].name}"
    return replace(
        first, name=name, payloads=payloads, size_bytes=sum(each.size_bytes for each in group), piece_bytes=0
    )


def _groups(found: Sequence[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Merge exactly what ``names`` says, a tuple of payload names for each operation; the rest stays alone."""
    by_name = {payload.name: each for each in found for payload in each.payloads}
    taken: set[str] = set()
    for names in rewrite.settings["names"]:
        strange = [name for name in names if name not in by_name or name in taken]
        if strange:
            raise UsageError(f"'{strange[0]}' is no payload, or in two groups", remedy="each payload in one group")
        taken |= set(names)
        yield _merged([by_name[name] for name in names])
    yield from (each for each in found if each.name not in taken)


def _select(found: Iterable[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Send a ``share`` of the chunks, chosen alike on all ranks by norms that are exchanged first (4 B a chunk)."""
    share, chunk = float(rewrite.settings["share"]), int(rewrite.settings["chunk_elements"])
    for each in found:
        elements = sum(payload.elements for payload in each.payloads)
        norms = 4 * -(-elements // chunk) if share < 1 else 0
        yield replace(each, size_bytes=round(each.size_bytes * share) + norms)


def _widen(found: Iterable[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Send each number in ``element_bytes`` bytes (2: half precision)."""
    for each in found:
        elements = sum(payload.elements for payload in each.payloads)
        yield replace(each, size_bytes=elements * int(rewrite.settings["element_bytes"])) if elements else each


def _collective(found: Iterable[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Do the sums by another collective (``op``); what is no sum stays as it is."""
    for each in found:
        yield replace(each, op=str(rewrite.settings["op"])) if each.op in ("all-reduce", "push-pull") else each


def _substitute(found: Iterable[Operation], rewrite: Rewrite) -> Iterator[Operation]:
    """Send the ``batch`` pairs of sufficient factors of the payloads in ``names`` to every other rank instead of the sum."""
    names, batch = set(rewrite.settings["names"]), int(rewrite.settings["batch"])
    for each in found:
        payload = each.payloads[0]
        if payload.name not in names:
            yield each
            continue
        if payload.factors is None or len(each.payloads) > 1:
            raise UsageError(
                f"{each.name} is no single outer product", remedy="substitute before fuse, linear layers only"
            )
        width = payload.size_bytes // max(payload.elements, 1) or 4
        pairs = batch * sum(payload.factors) * width
        yield replace(each, op="factors", size_bytes=pairs)


KINDS: dict[str, Callable[[Sequence[Operation], Rewrite], Iterable[Operation]]] = {
    "partition": _partition,
    "parts": _parts,
    "fuse": _fuse,
    "threshold": _threshold,
    "groups": _groups,
    "select": _select,
    "width": _widen,
    "collective": _collective,
    "substitute": _substitute,
}
