"""A joiner that forgets what is complete: its memory follows the calls that are open, not the length of the job.

An entry that every member of its communicators has shown can gain nothing more: a further record with the same numbers begins a
new one, as it would begin a further occurrence. So it is counted for its communicators and dropped; what is left is joined anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.native import Joiner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Column = npt.NDArray[Any]

SIGNATURE = ("group", "op", "count", "datatype", "redop", "root")
_KINDS = {"group": "int32", "op": "int32", "count": "uint64", "datatype": "int16", "redop": "int16", "root": "int32"}


@dataclass(frozen=True)
class Settled:
    """Complete operations by signature and by the first member of their communicator."""

    signature: Column
    member: Column
    operations: Column

    def of(self, signatures: Column, members: Column) -> Column:
        """Return how many of each of some sorted signatures the members' communicators have settled."""
        import numpy as np

        mine = np.isin(self.member, members) & np.isin(self.signature, signatures)
        at = np.searchsorted(signatures, self.signature[mine])
        return np.bincount(at, weights=self.operations[mine], minlength=len(signatures)).astype(np.int64)


def settled_of(export: Mapping[str, Any]) -> Settled | None:
    """Return what a joiner's export says to be settled: nothing where it never forgets."""
    columns = export.get("settled")
    return Settled(**columns) if columns else None


class SettlingJoiner:
    """A :class:`Joiner` with ``settle``; its export has the signatures and totals of all that ever came."""

    def __init__(self) -> None:
        self._live = Joiner()
        self._signatures: dict[tuple[int, ...], int] = {}
        self._past: dict[
            tuple[int, int], list[int]
        ] = {}  # signature, member -> records beyond the live ones, last number
        self._settled: dict[tuple[int, int], int] = {}
        self._told: Mapping[str, Any] | None = None  # the tables, until more comes

    def add(self, *columns: Column) -> Column:
        """Add records, as the joiner does; numbers of entries hold until the next ``settle``."""
        self._told = None
        return self._live.add(*columns)

    def export(self) -> Mapping[str, Any]:
        """Return the joiner's tables, and ``settled``."""
        if self._told is None:
            self._told = self._tables()
        return self._told

    def _tables(self) -> Mapping[str, Any]:
        import numpy as np

        live = self._live.export()
        number = self._numbered(live)
        keys = np.array(list(self._signatures), np.object_).reshape(-1, len(SIGNATURE))
        signatures = {name: keys[:, at].astype(_KINDS[name]) for at, name in enumerate(SIGNATURE)}
        entries = {**live["entries"], "signature": number[live["entries"]["signature"]]}
        settled = [[*key, count] for key, count in self._settled.items()]
        columns = np.array(settled, np.int64).reshape(-1, 3)
        return {
            "signatures": signatures,
            "entries": entries,
            "member_bits": live["member_bits"],
            "totals": self._totals(live["totals"], number),
            "settled": dict(zip(("signature", "member", "operations"), columns.T, strict=True)),
        }

    def settle(self, complete: Mapping[int, Sequence[Column]], alone: set[int]) -> None:
        """Count and forget what is complete.

        Parameters
        ----------
        complete
            By size of communicators, the members of each one whose members are all known.
        alone
            Operations that are not joined (sends and receives): each record counts for itself.
        """
        import numpy as np

        self._told = None
        live = self._live.export()
        number = self._numbered(live)
        totals = self._totals(live["totals"], number)
        rows: list[list[Column]] = [[], []]  # entries that stay, and their members, as records
        for size in np.unique(live["signatures"]["group"]).tolist():
            kept, members = self._kept(live, number, size, complete.get(size, ()), alone)
            rows[0].append(kept)
            rows[1].append(members)
        self._live = Joiner()
        if rows[0]:
            self._again(live, np.concatenate(rows[0]), np.concatenate(rows[1]))
        again = self._live.export()
        left: dict[tuple[int, int], int] = {}
        for signature, member, records in _rows(again["totals"], self._numbered(again)):
            left[signature, member] = records
        self._past = {
            (signature, member): [records - left.get((signature, member), 0), last]
            for signature, member, records, last in zip(
                *(totals[name].tolist() for name in ("signature", "member", "records", "last_op_count")), strict=True
            )
        }

    def _kept(
        self, live: Mapping[str, Any], number: Column, size: int, communicators: Sequence[Column], alone: set[int]
    ) -> tuple[Column, Column]:
        """Count what is complete among the entries of a size; return (entry, member) of what is not."""
        import numpy as np

        signature = live["entries"]["signature"]
        mine = np.flatnonzero(live["signatures"]["group"][signature] == size)
        widest = max((int(members.max()) // 64 + 1 for members in communicators), default=1)
        bits = _matrix(live["member_bits"], mine, widest)
        is_open = ~np.isin(live["signatures"]["op"][signature[mine]], list(alone))
        covered = np.zeros_like(bits)
        whole: list[tuple[int, Column]] = []
        for members in communicators:
            mask = _mask(members, bits.shape[1])
            has = ((bits & mask) == mask).all(axis=1)
            covered[has] |= mask
            whole.append((int(members.min()), has))
        gone = is_open & (covered == bits).all(axis=1)
        for member, has in whole:
            counts = np.bincount(number[signature[mine[gone & has]]], minlength=len(self._signatures))
            for at in np.flatnonzero(counts).tolist():
                self._settled[at, member] = self._settled.get((at, member), 0) + int(counts[at])
        return _members(mine[is_open & ~gone], bits[is_open & ~gone])

    def _again(self, live: Mapping[str, Any], entry: Column, member: Column) -> None:
        """Join the records of what is open anew: earlier occurrences first, so that they stay in their order."""
        import numpy as np

        entries, signatures = live["entries"], live["signatures"]
        order = np.lexsort((entry, entries["occurrence"][entry]))
        entry, member = entry[order], member[order]
        signature = entries["signature"][entry]
        self._live.add(
            signatures["group"][signature],
            member.astype(np.int32),
            signatures["op"][signature],
            entries["op_count"][entry],
            *(signatures[name][signature] for name in ("count", "datatype", "redop", "root")),
        )

    def _numbered(self, live: Mapping[str, Any]) -> Column:
        """Return the lasting number of each live signature."""
        import numpy as np

        keys = zip(*(live["signatures"][name].tolist() for name in SIGNATURE), strict=True)
        return np.array([self._signatures.setdefault(key, len(self._signatures)) for key in keys], np.int32)

    def _totals(self, live: Mapping[str, Any], number: Column) -> dict[str, Column]:
        """Return the totals of all records: those of the live joiner and those before."""
        import numpy as np

        if not self._past:
            signature = number[live["signature"]] if len(number) else live["signature"]
            return {**live, "signature": signature}
        sums = {key: [*value] for key, value in self._past.items()}
        lasts = live["last_op_count"].tolist()
        for (signature, member, records), last in zip(_rows(live, number), lasts, strict=True):
            total = sums.setdefault((signature, member), [0, 0])
            sums[signature, member] = [total[0] + records, max(total[1], last)]
        keys = np.array(list(sums), np.int32).reshape(-1, 2)
        values = list(sums.values())
        return {
            "signature": keys[:, 0],
            "member": keys[:, 1],
            "records": np.array([records for records, _ in values], np.int64),
            "last_op_count": np.array([last for _, last in values], np.uint64),
        }


def _rows(totals: Mapping[str, Any], number: Column) -> zip[tuple[int, int, int]]:
    signature = number[totals["signature"]] if len(totals["signature"]) else totals["signature"]
    return zip(signature.tolist(), totals["member"].tolist(), totals["records"].tolist(), strict=True)


def _matrix(member_bits: Mapping[str, Column], entries: Column, least: int) -> Column:
    """Return the bit sets of some entries, a row each, of at least ``least`` words."""
    import numpy as np

    starts, ends = member_bits["offsets"][entries], member_bits["offsets"][entries + 1]
    width = int((ends - starts).max(initial=least))
    matrix = np.zeros((len(entries), width), np.uint64)
    for word in range(width):
        has = starts + word < ends
        matrix[has, word] = member_bits["words"][starts[has] + word]
    return matrix


def _mask(members: Column, words: int) -> Column:
    """Return the bits of some members as ``words`` words."""
    import numpy as np

    mask = np.zeros(words, np.uint64)
    np.bitwise_or.at(mask, members // 64, np.uint64(1) << (members % 64).astype(np.uint64))
    return mask


def _members(entries: Column, bits: Column) -> tuple[Column, Column]:
    """Return (entry, member) of every bit."""
    import numpy as np

    row, word = np.nonzero(bits)
    entry, member = [entries[:0]], [entries[:0]]
    for bit in range(64):
        has = (bits[row, word] >> np.uint64(bit) & np.uint64(1)).astype(bool)
        entry.append(entries[row[has]])
        member.append(word[has] * 64 + bit)
    return np.concatenate(entry), np.concatenate(member)
