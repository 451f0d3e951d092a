"""NCCL and RCCL logs while they grow: new lines are taken as they come, and what they say together is asked at any time.

The scanner, the careful reader and the joiner are the reader's own. What a look changes of the state (names of damaged processes,
facts that get their communicator) it changes of a copy, so that the next look is not misled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.formats.sources.gate.inputs import Chunk
from ringwright.formats.sources.gate.rank_progress import Reached, renamed
from ringwright.formats.sources.nccl_log import dialect
from ringwright.formats.sources.nccl_log.build import build
from ringwright.formats.sources.nccl_log.communicator_export import Joined
from ringwright.formats.sources.nccl_log.fold import RecordSink
from ringwright.formats.sources.nccl_log.identity import JobIdentity, LogCommunicator, identify
from ringwright.formats.sources.nccl_log.reader import LogReader, require_log
from ringwright.formats.sources.nccl_log.settling import SettlingJoiner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringwright.formats.sources.nccl_log.fold import Column
    from ringwright.formats.sources.nccl_log.state import LogState
    from ringwright.model.trace import Trace

SETTLE_RECORDS = 500_000  # between two times of forgetting what is complete
MOST_BINS = 20_000  # of bytes per second, operation and size: the newest stay
_LITTLE_BYTES = 4 << 20


class GrowingLog:
    """The logs of one job so far."""

    head_bytes = 0

    def __init__(self) -> None:
        self._joiner = SettlingJoiner()
        self._reader = LogReader(0, sink=RecordSink(0, joiner=self._joiner))
        self._settled_at = 0
        self._losses: list[str] = []
        self.reached: list[Reached] = []

    def head(self, name: str, head: bytes) -> None:
        """Lines have no header that changes."""

    def take(self, name: str, pieces: Iterable[bytes]) -> None:
        """Take the next whole lines of a file."""
        for piece in pieces:
            if len(piece) <= _LITTLE_BYTES:
                self._reader.feed_little(name, piece)
            else:
                self._reader.feed(name, (Chunk(name, part) for part in _parts(piece)))

    def lose(self, name: str, reason: str, at: int) -> None:
        """Note what could not be read of a file."""
        self._losses.append(f"{name}: byte {at}: {reason}")

    def rename(self, names: Mapping[str, str]) -> None:
        """Go on with files under the names that they have now."""
        self._reader.files = renamed(self._reader.files, names)

    def trace(self, names: list[str]) -> Trace:
        """Return what has been read of the files so far, events folded; InputError where no line is NCCL's."""
        reader, fold = self._reader, self._reader.fold
        require_log(reader, names)
        state = reader.state.copy()
        state.losses += self._losses
        order = {name: number for number, name in enumerate(names)}
        state.errors.sort(key=lambda error: (order.get(error.file, len(order)), error.line))
        identity = identify(state, fold.global_rank, names)
        made = build(state, fold, reader.ops, names, identity=identity)
        self.reached = _reached(state, fold, reader.ops, identity)
        self._bound(identity)
        return made

    def _bound(self, identity: JobIdentity) -> None:
        """Keep memory from growing with the job: forget complete operations, and the oldest of the bytes per second."""
        fold = self._reader.fold
        if fold.records - self._settled_at >= SETTLE_RECORDS:
            self._settled_at = fold.records
            self._joiner.settle(_complete(identity, fold), _alone(self._reader.ops))
        if len(fold.time_bins) > MOST_BINS:
            newest = sorted(fold.time_bins, key=lambda key: key[0])[-MOST_BINS // 2 :]
            fold.time_bins = {key: fold.time_bins[key] for key in newest}


def _parts(piece: bytes, most: int = _LITTLE_BYTES) -> Iterable[bytes]:
    """Cut whole lines into parts of whole lines, for the workers to share."""
    start = 0
    while len(piece) - start > most:
        end = piece.rfind(b"\n", start, start + most) + 1 or piece.find(b"\n", start + most) + 1 or len(piece)
        yield piece[start:end]
        start = end
    if start < len(piece):
        yield piece[start:]


def _alone(ops: list[str]) -> set[int]:
    return {number for number, op in enumerate(ops) if dialect.operation(op) in dialect.POINT_TO_POINT}


def _complete(identity: JobIdentity, fold: RecordSink) -> dict[int, list[Column]]:
    """Return the members of the communicators all of whose ranks are known, each by one handle."""
    import numpy as np

    shadowed = set(identity.alias.values())
    complete: dict[int, list[Column]] = {}
    for group in identity.groups:
        handles = group.all_handles()
        if (
            not _is_complete(group, len(fold.members.get(group.size, ())))
            or shadowed.intersection(handles)
            or max(handles) >= len(fold.member_of)
        ):
            continue
        members = np.array([fold.member_of[handle] for handle in handles], np.int64)
        if (members >= 0).all():
            complete.setdefault(group.size, []).append(members)
    return complete


def _is_complete(group: LogCommunicator, of_size: int) -> bool:
    """Say whether a communicator's ranks are all known; where no line says them, whether it is the only one of its size."""
    if group.spare:
        return not group.handles and len(group.spare) == group.size == of_size
    return len(group.handles) == group.size and all(len(handles) == 1 for handles in group.handles.values())


def _reached(state: LogState, fold: RecordSink, ops: list[str], identity: JobIdentity) -> list[Reached]:
    """Return how far each rank has come in each communicator.

    That is its last launch counter; where sends and receives move it on some ranks only, how many calls it has made.
    """
    joined = Joined(fold, state, ops, identity)
    records, last = _by_handle(joined, fold)
    drifting = joined.drifting()
    reached: list[Reached] = []
    for number, group in enumerate(identity.groups):
        if group.size < 2:
            continue
        for rank, handles in (*group.handles.items(), *((None, [handle]) for handle in group.spare)):
            known = [handle for handle in handles if handle < len(records)]
            count = sum(records[handle] for handle in known)
            far = count if number in drifting or not count else 1 + max(last[handle] for handle in known)
            own, whose = identity.rank_of.get(handles[0]), state.handles[handles[0]]
            process = f"{whose.host}:{whose.pid}" if own is None and rank is None else ""
            reached.append(Reached(number, rank, own, far, process))
    return reached


def _by_handle(joined: Joined, fold: RecordSink) -> tuple[list[int], list[int]]:
    """Return how many collectives each handle has shown, and its last launch counter."""
    import numpy as np

    signature, member, records = joined.totals
    is_joined = ~joined.point[joined.signature["op"][signature]]
    size = joined.signature["group"][signature]
    counts, lasts = np.zeros(len(fold.group_of), np.int64), np.zeros(len(fold.group_of), np.uint64)
    for nranks, handles in fold.members.items():
        mine = is_joined & (size == nranks)
        handle = np.asarray(handles)[member[mine]]
        np.add.at(counts, handle, records[mine])
        np.maximum.at(lasts, handle, joined.last_op_count[mine])
    return counts.tolist(), lasts.tolist()
