"""What a generated log must be read as: the counts, bytes and members that produced it, never parsed from its text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ringwright_lab.testing.nccl_dialect import Dialect
from ringwright_lab.testing.nccl_fields import ELEMENT_BYTES
from ringwright_lab.testing.nccl_job import NcclCall, NcclJob, TrainingLine, size_of


@dataclass
class Tally:
    """Operations by name: how many, how many lines, which sizes."""

    sizes: dict[str, Counter[int]] = field(default_factory=dict)
    records: Counter[str] = field(default_factory=Counter)

    def add(self, op: str, size_bytes: int, records: int, count: int = 1) -> None:
        """Count ``count`` operations of one size and the lines they left."""
        self.sizes.setdefault(op, Counter())[size_bytes] += count
        self.records[op] += records

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the summary's ``operations``: bytes is the sum of sizes over operations."""
        return [
            {
                "op": op,
                "count": sum(sizes.values()),
                "records": self.records[op],
                "bytes": sum(size * count for size, count in sizes.items()),
                "size_histogram": [{"size_bytes": size, "count": sizes[size]} for size in sorted(sizes)],
            }
            for op, sizes in sorted(self.sizes.items())
        ]


@dataclass
class LogTruth:
    """Collects while a log is written; ``as_dict`` speaks the summary's terms."""

    job: NcclJob
    dialect: Dialect
    logical: Tally = field(default_factory=Tally)
    raw: Tally = field(default_factory=Tally)
    by_communicator: Counter[int] = field(default_factory=Counter)
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    algorithms: Counter[tuple[str, int, str, str, int]] = field(default_factory=Counter)
    iterations: list[dict[str, Any]] = field(default_factory=list)
    lines: Counter[str] = field(default_factory=Counter)
    seen_ranks: set[int] = field(default_factory=set)

    def add_call(self, call: NcclCall, printed: dict[str, int]) -> None:
        """Count one call; ``printed`` holds the lines it left by operation name (sends and recvs of a group too)."""
        comm = self.job.communicators[call.communicator]
        size = size_of(call.op, call.count, call.datatype, comm.size)
        self.by_communicator[call.communicator] += 1
        if call.op == "send":
            for op in ("send", "recv"):
                self.logical.add(op, size, printed.get(op, 0))
                self.raw.add(op, size, printed.get(op, 0))
            self.pairs[comm.members[call.root], comm.members[call.peer]] += size
            return
        self.logical.add(call.op, size, sum(printed.values()))
        if "send" in printed:
            part = call.count * ELEMENT_BYTES[call.datatype]
            for op in ("send", "recv"):
                self.raw.add(op, part, printed[op], comm.size**2)
        else:
            self.raw.add(call.op, size, sum(printed.values()))
        if call.op == "all-to-all":
            for source in comm.members:
                for target in comm.members:
                    if source != target:
                        self.pairs[source, target] += size // comm.size

    def add_training(self, item: TrainingLine) -> None:
        """Remember the end of an iteration."""
        if item.iteration is not None:
            self.iterations.append({"iteration": item.iteration, "time_s": item.time_s})

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        job = self.job
        communicators = [
            {
                "role": comm.role,
                "size": comm.size,
                "members": list(comm.members),
                "nnodes": job.nodes_of(comm),
                "operations": self.by_communicator[index],
                "split": comm.split and self.dialect.version >= (2, 21),
            }
            for index, comm in enumerate(job.communicators)
        ]
        sizes = Counter(comm.size for comm in job.communicators)
        return {
            "nccl_versions": [self.dialect.text],
            "hosts": len({job.host_of(rank) for rank in self.seen_ranks}),
            "ranks_seen": len(self.seen_ranks),
            "ranks_expected": job.ranks,
            "communicators": [{"size": size, "count": sizes[size]} for size in sorted(sizes)],
            "communicator_list": communicators,
            "operations": self.logical.rows(),
            "raw_operations": self.raw.rows(),
            "roles": dict(job.degrees),
            "exact_pair_bytes": [{"src": a, "dst": b, "bytes": self.pairs[a, b]} for a, b in sorted(self.pairs)],
            "algorithms": [
                dict(zip(("op", "size_bytes", "algorithm", "protocol", "channels"), key, strict=True), count=count)
                for key, count in sorted(self.algorithms.items())
            ],
            "iterations": self.iterations,
            "lines": dict(sorted(self.lines.items())),
        }
