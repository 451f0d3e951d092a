"""The sink of collective records: logical operations joined across ranks, memory bounded, order of lines irrelevant.

Records of equal group size meet in one ``Joiner`` group, whatever their communicator: who belongs to which is known only
at the end of the input. Each joined entry remembers which handles took part; at the end the handles of a communicator pick
their entries. Rows are kept beside that as long as there are few.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.nccl_log.handlers import USER_REDUCE_OP
from ringwright.native import Joiner

if TYPE_CHECKING:
    import numpy.typing as npt

    from ringwright.formats.sources.nccl_log.settling import SettlingJoiner

    Column = npt.NDArray[Any]

ROW_COLUMNS = {
    "handle": "int32",
    "op": "int32",
    "op_count": "uint64",
    "count": "uint64",
    "datatype": "int16",
    "redop": "int16",
    "root": "int32",
    "global_rank": "int32",
    "time_s": "float64",
    "line": "int64",
    "stream": "uint64",
    "inplace": "uint8",
    "file": "int32",
    "entry": "int64",
}
ROWS_IN_MEMORY = 1_000_000


class RecordSink:
    """Takes columns of records; ends as entries per group of equal size, totals per handle, and perhaps rows."""

    def __init__(
        self, keep_rows: int = ROWS_IN_MEMORY, spill: Path | None = None, joiner: SettlingJoiner | None = None
    ) -> None:
        self.joiner: Joiner | SettlingJoiner = joiner if joiner is not None else Joiner()
        self.records = 0
        self.group_of: list[int] = []  # handle -> its number of ranks
        self.member_of: list[int] = []  # handle -> its place among handles of that number
        self.members: dict[int, list[int]] = {}  # number of ranks -> handles
        self.global_rank: dict[int, int] = {}
        self.time_bins: dict[tuple[int, int, int, int, int], int] = {}
        self.first_time_s = float("inf")
        self.last_time_s = float("-inf")
        self.rows: list[dict[str, Column]] | None = []
        self.parts: list[Path] = []
        self._keep_rows = keep_rows
        self._spill = spill

    def know(self, handle: int, nranks: int) -> None:
        """Register a handle; indices come in order."""
        while len(self.group_of) <= handle:
            self.group_of.append(-1)
            self.member_of.append(-1)
        if self.group_of[handle] < 0:
            peers = self.members.setdefault(nranks, [])
            self.group_of[handle] = nranks
            self.member_of[handle] = len(peers)
            peers.append(handle)

    def add(self, columns: dict[str, Column]) -> None:
        """Take records: arrays of equal length under the names of ``ROW_COLUMNS`` but ``entry``."""
        import numpy as np

        handle = columns["handle"]
        if not len(handle):
            return
        self.records += len(handle)
        group = np.asarray(self.group_of, np.int32)[handle]
        member = np.asarray(self.member_of, np.int32)[handle]
        columns["redop"] = np.minimum(columns["redop"], USER_REDUCE_OP).astype(np.int16, copy=False)
        columns["entry"] = self.joiner.add(
            group,
            member,
            columns["op"],
            columns["op_count"],
            columns["count"],
            columns["datatype"],
            columns["redop"],
            columns["root"],
        )
        self._ranks(columns)
        self._times(columns, group)
        self._keep(columns)

    def _ranks(self, columns: dict[str, Any]) -> None:
        import numpy as np

        said = columns["global_rank"] >= 0
        if said.any():
            pairs = np.unique(np.stack([columns["handle"][said], columns["global_rank"][said]]), axis=1)
            self.global_rank.update({int(handle): int(rank) for handle, rank in pairs.T})

    def _times(self, columns: dict[str, Any], group: Any) -> None:
        import numpy as np

        timed = np.isfinite(columns["time_s"])
        if not timed.any():
            return
        times = columns["time_s"][timed]
        self.first_time_s = min(self.first_time_s, float(times.min()))
        self.last_time_s = max(self.last_time_s, float(times.max()))
        parts = [times, columns["op"][timed], columns["count"][timed], columns["datatype"][timed], group[timed]]
        keys, counts = np.unique(np.stack([part.astype(np.int64) for part in parts]), axis=1, return_counts=True)
        for key, count in zip(keys.T.tolist(), counts.tolist(), strict=True):
            bin_key = (key[0], key[1], key[2], key[3], key[4])
            self.time_bins[bin_key] = self.time_bins.get(bin_key, 0) + count

    def _keep(self, columns: dict[str, Column]) -> None:
        if self.rows is not None:
            self.rows.append(columns)
            if self.records <= self._keep_rows:
                return
            # Too many to hold: they go to disk if every row is wanted, else the fold answers instead.
            held, self.rows = self.rows, None
            for block in held if self._spill is not None else ():
                self._write(block)
        elif self._spill is not None:
            self._write(columns)

    def _write(self, columns: dict[str, Column]) -> None:
        import polars as pl

        if self._spill is None:
            return
        part = self._spill / f"part-{len(self.parts):06d}.parquet"
        pl.DataFrame(columns).write_parquet(part, compression="lz4")
        self.parts.append(part)
