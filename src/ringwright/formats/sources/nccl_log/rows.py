"""Records as rows of the events table; equal sequence in a communicator means the same logical operation."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.nccl_log.communicator_export import Joined

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.nccl_log.fold import Column

Signature = tuple[int, ...]
_SIGNATURE = ("op", "count", "datatype", "redop", "root")


class RowMaker:
    """Turns blocks of records, in order, into rows; remembers what the next block needs to number on."""

    def __init__(self, joined: Joined) -> None:
        import numpy as np

        self._joined = joined
        self._number_of = np.array(joined.communicator_of(), np.int32)
        self._drifting = joined.drifting()
        self._entries: dict[int, Any] = {}
        self._shown: Counter[tuple[int, Signature]] = Counter()  # (handle, signature) -> times so far
        self._numbers: dict[int, dict[tuple[Signature, int], int]] = {}  # communicator -> logical operation -> sequence

    def rows(self, part: dict[str, Column]) -> pl.DataFrame:
        """Return one row per record of a block that belongs to a communicator."""
        import numpy as np
        import polars as pl

        number = self._number_of[part["handle"]]
        known = number >= 0
        part = {name: column[known] for name, column in part.items()}
        sequence = self._sequence(part, number[known])
        count = len(sequence)
        streams = {stream: hex(stream) for stream in np.unique(part["stream"]).tolist()}
        return pl.DataFrame(
            {
                "handle": part["handle"],
                "sequence": pl.Series(sequence, dtype=pl.Int64),
                "op_count": pl.Series(part["op_count"]).cast(pl.Int64, strict=False),
                "count": part["count"],
                "redop": part["redop"],
                "root": part["root"],
                "line": part["line"],
                "file": part["file"],
                "op_id": part["op"],
                "datatype_id": part["datatype"],
                "enqueue_s": part["time_s"],
                "stream": pl.Series([streams[stream] for stream in part["stream"].tolist()], dtype=pl.String),
                "multiplicity": pl.Series(np.ones(count, np.int64)),
                "records": pl.Series(np.ones(count, np.int64)),
            }
        )

    def _sequence(self, part: dict[str, Column], number: Any) -> Any:
        """Return the sequence of each record; point-to-point records are operations of their own and have none."""
        import numpy as np

        sequence = np.zeros(len(number), np.int64)
        point = self._joined.point[part["op"]]
        for communicator in np.unique(number).tolist():
            mine = (number == communicator) & ~point
            if communicator in self._drifting:
                sequence[mine] = self._by_occurrence(communicator, part, np.flatnonzero(mine))
                continue
            if communicator not in self._entries:
                self._entries[communicator] = self._joined.entries_of(communicator)
            sequence[mine] = np.searchsorted(self._entries[communicator], part["entry"][mine])
        return [None if alone else value for value, alone in zip(sequence.tolist(), point.tolist(), strict=True)]

    def _by_occurrence(self, communicator: int, part: dict[str, Column], places: Any) -> list[int]:
        """Where the launch counter drifts, a rank's n-th operation of a signature meets the others' n-th."""
        numbers = self._numbers.setdefault(communicator, {})
        columns = [part[name][places].tolist() for name in _SIGNATURE]
        occurrences = []
        for handle, *signature in zip(part["handle"][places].tolist(), *columns, strict=True):
            kind = tuple(signature)
            key = (kind, self._shown[handle, kind])
            self._shown[handle, kind] += 1
            occurrences.append(numbers.setdefault(key, len(numbers)))
        return occurrences
