"""The calls files of a job of any number of ranks, written as fast as a disk takes them; one rank is late in every step.

Ranks of a node are a tensor-parallel group, all ranks a data-parallel one. Nodes without the late rank do the same at the same
moments (their clocks differ), so eight bodies and the eight of its node are made once, and a file is a head and one of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

NODE = 8
SIZES = (4096, 524_288, 2048, 131_072)  # bytes of the calls within a node
WORLD_BYTES = 1 << 20
WALL_NS = 1_790_000_000_000_000_000
WORK_NS, JITTER_NS, TRANSFER_NS, WORLD_NS = 200_000, 40_000, 150_000, 400_000


@dataclass(frozen=True)
class ManyRanks:
    """A job: ``calls`` of a rank in each step, the last over all ranks; the late rank computes ``late_ns`` longer once a step.

    ``damaged`` files are cut in the middle of a line, ``missing`` ones were never written; both are spread over the job.
    """

    world: int
    steps: int
    calls: int = 25
    late_rank: int | None = None
    late_ns: int = 3_000_000
    damaged: int = 0
    missing: int = 0

    def write(self, folder: Path) -> list[Path]:
        """Write the files below a folder; return them."""
        folder.mkdir(parents=True, exist_ok=True)
        bodies = {is_late: self._bodies(is_late) for is_late in {False, self.late_rank is not None}}
        others = [rank for rank in range(self.world) if rank != self.late_rank]
        spread = np.random.default_rng(0).choice(others, self.damaged + self.missing, replace=False).tolist()
        cut, absent = set(spread[: self.damaged]), set(spread[self.damaged :])
        written = []
        for rank in (rank for rank in range(self.world) if rank not in absent):
            body = bodies[self.late_rank is not None and rank // NODE == self.late_rank // NODE][rank % NODE]
            path = folder / f"calls.n{rank // NODE:05}.{1000 + rank}.jsonl"
            data = self._head(rank) + body
            path.write_bytes(data[: len(data) * 2 // 3] if rank in cut else data)
            written.append(path)
        return written

    def _head(self, rank: int) -> bytes:
        node, local = divmod(rank, NODE)
        here = min(NODE, self.world - node * NODE)
        clock_ns = int(np.random.default_rng(node).integers(10**7))
        said: dict[str, object] = {
            "ringwright": "calls/1",
            "source": "torch-hook",
            "host": f"n{node:05}",
            "pid": 1000 + rank,
            "rank": rank,
            "world": self.world,
            "local_rank": local,
            "library": "torch 2.13.0",
            "program": "train.py",
            "life": "none/n0/1/0",
            "wall_ns": WALL_NS + clock_ns,
            "clock_ns": 0,
        }
        ranks = {"first": 0, "step": 1, "count": self.world}
        inside = {"first": node * NODE, "step": 1, "count": here}
        lines = [
            said,
            ["g", 0, "0", "default_pg", "gloo", self.world, rank, ranks],
            ["g", 1, f"tp{node}", "TENSOR_MODEL_PARALLEL_GROUP", "gloo", here, local, inside],
            ["c", 0, None, "backward", "", None],
        ]
        return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)

    def _bodies(self, is_late: bool) -> list[bytes]:
        """Return what the ranks of a node write, of a node with the late rank or of any other."""
        lines: list[list[str]] = [[] for _ in range(NODE)]
        begin_ns = 10**9
        for step in range(self.steps):
            ends = [
                self._within(step, begin_ns, is_late=late, lines=lines if late == is_late else None)
                for late in (False, True)
            ]
            end_ns = max(ends[0], ends[1] if self.late_rank is not None else 0) + WORLD_NS
            number = (step + 1) * self.calls - 1
            for rank in range(NODE):
                call = f'["b",{number},{ends[is_late]},0,"all-reduce","float32",{WORLD_BYTES // 4},{WORLD_BYTES},{WORLD_BYTES}'
                lines[rank].append(
                    f'{call},null,null,"",0,0,1,{step}]\n["e",{number},{end_ns}]\n["s",{step},{begin_ns},{end_ns}]\n'
                )
            begin_ns = end_ns
        return ["".join([*each, f'["x","exit",{begin_ns},0]\n']).encode() for each in lines]

    def _within(self, step: int, begin_ns: int, *, is_late: bool, lines: list[list[str]] | None) -> int:
        """Write the calls of a node in a step; return when the last of them ends."""
        rng, now_ns = np.random.default_rng(step), begin_ns
        for index in range(self.calls - 1):
            work = (WORK_NS + rng.integers(JITTER_NS, size=NODE)).tolist()
            if is_late and index == 0 and self.late_rank is not None:
                work[self.late_rank % NODE] += self.late_ns
            end_ns = now_ns + max(work) + TRANSFER_NS
            size, number = SIZES[index % len(SIZES)], step * self.calls + index
            turn = step * (self.calls - 1) + index
            for rank, told in enumerate(lines or ()):
                call = f'["b",{number},{now_ns + work[rank]},1,"all-reduce","float32",{size // 4},{size},{size}'
                told.append(f'{call},null,null,"",0,0,1,{turn}]\n["e",{number},{end_ns}]\n')
            now_ns = end_ns
        return now_ns
