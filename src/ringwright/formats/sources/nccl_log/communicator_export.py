"""The joiner's export, cut by communicator: which logical operations each one made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.nccl_log import dialect
from ringwright.formats.sources.nccl_log.fold import RecordSink
from ringwright.formats.sources.nccl_log.identity import JobIdentity
from ringwright.formats.sources.nccl_log.settling import settled_of
from ringwright.formats.sources.nccl_log.state import LogState

if TYPE_CHECKING:
    import polars as pl

    from ringwright.ground.trace_tables import Row


class Joined:
    """The joiner's export, cut by communicator."""

    def __init__(self, fold: RecordSink, state: LogState, ops: list[str], identity: JobIdentity) -> None:
        import numpy as np

        self.fold = fold
        self.ops = ops
        self.identity = identity
        export = fold.joiner.export()
        self.signature = export["signatures"]
        self.entry_signature = export["entries"]["signature"]
        self.words, self.offsets = export["member_bits"]["words"], export["member_bits"]["offsets"]
        self.totals = tuple(export["totals"][name] for name in ("signature", "member", "records"))
        self.last_op_count = export["totals"]["last_op_count"]
        self.settled = settled_of(export)
        self.point = np.array([dialect.operation(op) in dialect.POINT_TO_POINT for op in ops], bool)
        self._by_size: dict[int, tuple[Any, Any]] = {}
        self.counter_drifts = not dialect.sequence_is_printed(state.version)

    def _members(self, number: int) -> Any:
        import numpy as np

        group = self.identity.groups[number]
        alias: dict[int, list[int]] = {}
        for shadow, true in self.identity.alias.items():
            alias.setdefault(true, []).append(shadow)
        handles = [index for true in group.all_handles() for index in (true, *alias.get(true, ()))]
        return np.array(
            [self.fold.member_of[index] for index in handles if self.fold.group_of[index : index + 1] == [group.size]],
            int,
        )

    def _mask(self, number: int, words: int) -> Any:
        """Return the bits of a communicator's members."""
        import numpy as np

        mask = np.zeros(words, np.uint64)
        for member in self._members(number).tolist():
            mask[member // 64] |= np.uint64(1) << np.uint64(member % 64)
        return mask

    def _entries(self, size: int) -> Any:
        """Return (entry numbers, bit matrix) of the entries of one group size."""
        import numpy as np

        mine = np.flatnonzero(self.signature["group"][self.entry_signature] == size)
        width = (len(self.fold.members.get(size, ())) + 63) // 64
        matrix = np.zeros((len(mine), max(width, 1)), np.uint64)
        starts, ends = self.offsets[mine], self.offsets[mine + 1]
        for word in range(width):
            has = starts + word < ends
            matrix[has, word] = self.words[starts[has] + word]
        return mine, matrix

    def folded(self) -> pl.DataFrame:
        """One row per communicator and signature; point-to-point one per rank as well."""
        import numpy as np
        import polars as pl

        signature, member, _count = self.totals
        blocks: list[Row] = []
        for size in sorted({group.size for group in self.identity.groups}):
            entries, bits = self._entries(size)
            in_size = self.signature["group"][signature] == size
            for number, group in enumerate(self.identity.groups):
                if group.size != size:
                    continue
                members = self._members(number)
                ours = in_size & np.isin(member, members)
                if not ours.any():
                    continue
                blocks.extend(self._collectives(number, members, entries, bits, ours))
                blocks.extend(self._points(number, size, members, ours))
        kinds = {"communicator": pl.Int32, "op_id": pl.Int32, "count": pl.UInt64, "datatype_id": pl.Int16}
        kinds |= {
            "redop": pl.Int16,
            "root": pl.Int32,
            "nranks": pl.Int32,
            "multiplicity": pl.Int64,
            "records": pl.Int64,
        }
        return pl.DataFrame(blocks, schema=kinds | {"comm_rank": pl.Int32, "rank": pl.Int32})

    def _collectives(self, number: int, members: Any, entries: Any, bits: Any, ours: Any) -> list[Row]:
        import numpy as np

        touched = entries[(bits & self._mask(number, bits.shape[1])).any(axis=1)]
        signature, _, count = (part[ours] for part in self.totals)
        ids, where = np.unique(signature, return_inverse=True)
        records = np.bincount(where, weights=count).astype(np.int64)
        most = np.zeros(len(ids), np.int64)
        np.maximum.at(most, where, count.astype(np.int64))
        joined = np.bincount(np.searchsorted(ids, self.entry_signature[touched]), minlength=len(ids))
        if self.settled is not None:
            joined = joined + self.settled.of(ids, members)
        drifts = self.counter_drifts and bool(self.point[self.signature["op"][ids]].any())
        logical = most if drifts else joined
        return [
            self._row(number, int(sig), int(n), int(r))
            for sig, n, r in zip(ids, logical, records, strict=True)
            if not self.point[self.signature["op"][sig]]
        ]

    def _points(self, number: int, size: int, members: Any, ours: Any) -> list[Row]:
        handles = self.fold.members[size]
        rank = {
            index: group_rank
            for group_rank, indices in self.identity.groups[number].handles.items()
            for index in indices
        }
        rows = []
        for sig, member, count in zip(*(part[ours].tolist() for part in self.totals), strict=True):
            if not self.point[self.signature["op"][sig]]:
                continue
            true = self.identity.alias.get(handles[member], handles[member])
            row = self._row(number, sig, count, count)
            rows.append(row | {"comm_rank": rank.get(true), "rank": self.identity.rank_of.get(true)})
        return rows

    def _row(self, number: int, sig: int, logical: int, records: int) -> Row:
        values = {
            name: int(self.signature[name][sig]) for name in ("op", "count", "datatype", "redop", "root", "group")
        }
        return {
            "communicator": number,
            "op_id": values["op"],
            "count": values["count"],
            "datatype_id": values["datatype"],
            "redop": values["redop"],
            "root": values["root"],
            "nranks": values["group"],
            "multiplicity": logical,
            "records": records,
        }

    def entries_of(self, number: int) -> Any:
        """Return the entries in which a communicator's handles took part, in order of first appearance."""
        size = self.identity.groups[number].size
        if size not in self._by_size:
            self._by_size[size] = self._entries(size)
        entries, bits = self._by_size[size]
        return entries[(bits & self._mask(number, bits.shape[1])).any(axis=1)]

    def drifting(self) -> set[int]:
        """Communicators whose launch counter may differ between ranks: point-to-point launches only some of them."""
        import numpy as np

        if not self.counter_drifts:
            return set()
        signature, member, _ = self.totals
        point = self.point[self.signature["op"][signature]]
        group = self.signature["group"][signature]
        drifting = set()
        for number, mine in enumerate(self.identity.groups):
            if bool((point & (group == mine.size) & np.isin(member, self._members(number))).any()):
                drifting.add(number)
        return drifting

    def communicator_of(self) -> list[int]:
        """Return the group number of every handle, -1 where it has none."""
        numbers = [-1] * max(len(self.fold.group_of), 1)
        for number, group in enumerate(self.identity.groups):
            for index in group.all_handles():
                if index < len(numbers):
                    numbers[index] = number
        for shadow, true in self.identity.alias.items():
            if shadow < len(numbers) and true < len(numbers):
                numbers[shadow] = numbers[true]
        return numbers
