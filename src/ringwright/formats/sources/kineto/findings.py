"""What was inferred, assumed, contradicted or lost on the way: claims, ledger and losses."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.kineto.catalogue import UNKNOWN
from ringwright.formats.sources.kineto.columns import RankFile
from ringwright.formats.sources.kineto.groups import KinetoCommunicators
from ringwright.formats.sources.kineto.marks import VARIABLE
from ringwright.formats.sources.kineto.operations import Linked
from ringwright.formats.sources.kineto.sequences import Numbered

if TYPE_CHECKING:
    from ringwright.formats.sources.kineto.part import TraceFile

_MOST = 40  # claims of one field; the rest is counted


class KinetoFindings:
    """Collects while files are read."""

    def __init__(self) -> None:
        self.claims: list[dict[str, Any]] = []
        self.ledger: list[dict[str, Any]] = []
        self.losses: list[str] = []
        self.limits: list[str] = []
        self.classes: Counter[str] = Counter()
        self._per_field: Counter[str] = Counter()

    def claim(self, field: str, value: str, source: str, ground: str, confidence: float, note: str) -> None:
        """Add a claim; beyond forty of a field only their number grows."""
        self._per_field[field] += 1
        if self._per_field[field] <= _MOST:
            names = ("field", "value", "source", "ground", "confidence", "note")
            self.claims.append(dict(zip(names, (field, value, source, ground, confidence, note), strict=True)))

    def unreadable(self, name: str, reason: str) -> None:
        """Note a file that could not be opened."""
        self.losses.append(f"{name}: {reason}")
        self.ledger.append({"file": name, "outcome": "refused", "reason": reason[:200], "lines": 1})

    def file(self, rank_file: RankFile) -> None:
        """Account for the events of a file."""
        reading = rank_file.reading
        for loss in reading.losses:
            self.losses.append(f"{reading.name}: {loss}")
        if not reading.found_array:
            self.losses.append(f"{reading.name}: no traceEvents in it")
        if rank_file.dropped:
            self.losses.append(f"{reading.name}: {rank_file.dropped:,} events beyond eight million of a kind not kept")
        bad = reading.refused + rank_file.bad + rank_file.dropped
        counts = {
            ("understood", "kernels, copies, calls, communication records, labels, steps"): rank_file.used,
            ("refused", "not JSON, or without a usable time or number"): bad,
            ("other", "events of no interest here: other host operations, flows, counters, metadata"): max(
                0, reading.events - rank_file.used - bad
            ),
        }
        for (outcome, reason), lines in counts.items():
            if lines:
                row = {"file": reading.name, "outcome": outcome, "reason": reason, "lines": lines}
                if outcome == "refused" and reading.example:
                    row |= {"example": reading.example, "example_line": reading.example_at}
                self.ledger.append(row)
        if reading.repaired:
            note = "bare nan or inf, a lone backslash, or bytes that are no UTF-8"
            self.claim("repair", str(reading.repaired), reading.name, "inferred", 0.9, f"pieces of text mended: {note}")

    def variables(self, rank_file: RankFile) -> None:
        """Note the variables of the environment that the trace carries."""
        for name, value in rank_file.reading.header.items():
            if VARIABLE.match(name) and isinstance(value, str | int | float):
                note = "a key of the trace; torch.profiler's add_metadata puts it there"
                self.claim(f"env {name}", str(value)[:200], rank_file.reading.name, "read", 1.0, note)

    def links(self, rank_file: RankFile, linked: Linked) -> None:
        """Note what the join of kernels and records left open."""
        name = rank_file.reading.name
        self.classes.update(op.library for op in linked.operations if op.library)
        bare = linked.kernels_without_facts
        if bare:
            lines = ", ".join(str(rank_file.kernels.line[number]) for number in bare[:5])
            note = f"communication kernels without size or group: bytes unknown, not zero; events {lines}"
            self.claim("kernels without metadata", str(len(bare)), name, "read", 1.0, note)
        for (call, kernel), count in linked.contradictions.items():
            note = f"{count} kernels are named {kernel} where the call is {call}; the call is believed"
            self.claim("operation", call, name, "inferred", 0.7, note)
        if linked.nameless.any():
            names = sorted(
                {rank_file.names[rank_file.kernels.name[n]][:80] for n in linked.nameless.nonzero()[0].tolist()}
            )
            note = f"launched by communication calls, in no catalogue (RINGWRIGHT_KERNELS): {', '.join(names[:3])}"
            self.claim("kernels of unknown transports", str(int(linked.nameless.sum())), name, "inferred", 0.6, note)
        self._suspects(rank_file, linked)
        self._copies(rank_file)
        if not len(rank_file.kernels):
            note = "host records only: no kernel, hence no device time, no overlap and no arrivals"
            self.claim("device events", "none", name, "read", 1.0, note)
            self.limits.append(f"{name}: CPU only: operations are counted, their times on the device are not known")
        if linked.nameless_records:
            note = "record_param_comms that name no operation: waits and twins, not counted as operations"
            self.claim("nameless records", str(linked.nameless_records), name, "read", 1.0, note)
        waiting = sum(op.duration is None for op in linked.operations)
        if waiting and len(rank_file.kernels):
            note = "operations called whose kernel is not in the trace (it ran after the end, or was not recorded)"
            self.claim("operations without kernel", str(waiting), name, "read", 1.0, note)

    def _suspects(self, rank_file: RankFile, linked: Linked) -> None:
        table = rank_file.kernels
        sums: dict[int, list[float]] = {}
        unknown = {number for number, kind in enumerate(linked.classes) if kind.library == UNKNOWN}
        if not unknown:
            return
        for number, kernel in enumerate(table.name):
            if kernel in unknown and not linked.communicates[number] and not table.is_copy[number]:
                entry = sums.setdefault(kernel, [0, 0.0])
                entry[0] += 1
                entry[1] += table.dur[number]
        for kernel, (count, total) in sorted(sums.items(), key=lambda item: -item[1][1]):
            note = f"{count:.0f} kernels, {total:,.0f} us: sounds like communication, is in no catalogue (RINGWRIGHT_KERNELS)"
            self.claim(
                "unknown communication kernel",
                rank_file.names[kernel][:200],
                rank_file.reading.name,
                "inferred",
                0.5,
                note,
            )

    def _copies(self, rank_file: RankFile) -> None:
        """Copies between devices may be communication by copy engines, which no name tells."""
        table = rank_file.kernels
        between = {number for number, name in enumerate(rank_file.names) if "PtoP" in name}
        mine = [number for number, name in enumerate(table.name) if name in between and table.is_copy[number]]
        if mine:
            total = sum(table.dur[number] for number in mine)
            note = f"{total:,.0f} us of copies between devices: they may be communication, and are counted as copies"
            self.claim("copies between devices", str(len(mine)), rank_file.reading.name, "read", 1.0, note)

    def ranks(self, parts: list[TraceFile]) -> None:
        """Note the ranks that the files do not say themselves."""
        for part in parts:
            where = part.origin
            if where.ground != "read":
                confidence = 0.8 if where.ground == "inferred" else 0.3
                self.claim("rank", str(where.rank), part.name, where.ground, confidence, f"from the {where.evidence}")

    def clocks(self, known: int, files: int) -> None:
        """Note clocks that cannot be compared."""
        if known < files:
            note = "times of these files count from an unknown moment; they are not aligned with those of others"
            self.claim("origin", f"{files - known} of {files} files", "baseTimeNanoseconds", "assumed", 0.2, note)

    def groups(self, groups: KinetoCommunicators, numbered: Numbered) -> None:
        """Note communicators and sequence numbers that are not read."""
        for group in groups.groups.values():
            if group.note:
                self.claim("members", group.comm_id, "record_param_comms", group.ground, 0.9, group.note)
            if group.ground == "assumed" and not group.is_mixed:
                note = "no process group in the trace: the operations of one stream are taken as one group of the world's size"
                self.claim("communicator", group.comm_id, "stream", "assumed", 0.4, note)
        if any(any(counted) for counted in numbered.counted):
            note = "no Seq in the trace: the n-th operation of a kind in a group and iteration is taken as the same on all ranks"
            self.claim("sequence", "counted", "order of events", "inferred", 0.8, note)
        for number in numbered.uneven:
            group = next(group for group in groups.groups.values() if group.number == number)
            note = (
                "ranks hold different numbers of operations of this group: profiles that do not begin or end together"
            )
            self.claim("sequence", group.comm_id, "order of events", "inferred", 0.5, note)

    def library(self, infos: list[dict[str, Any]]) -> str | None:
        """Return the library that made most of the operations, else the backend the trace names."""
        for name, _ in self.classes.most_common():
            if name in ("nccl", "rccl", "gloo", "mpi", "ucc"):
                return name
        backends = {str(info.get("backend")) for info in infos}
        return next((name for name in ("nccl", "gloo", "mpi") if name in backends), None)
