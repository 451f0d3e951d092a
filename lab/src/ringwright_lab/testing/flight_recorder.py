"""A small training job whose Flight Recorder dumps are written as they would be after a fault: seeded, with the truth.

The job has tensor, data and pipeline groups; every rank issues its operations in program order and runs ahead of its
device by a window; a device works on them in order, and a collective ends when all members are at it. A fault stops
that machine as it would the real one, and the dump shows what was left. Faults are separable by name and seed::

    job = FlightJob(mechanism="stopped", seed=7)
    for name, data in job.files().items(): ...
    job.truth()  # {"ranks": [5], "kind": "stopped"}
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ringwright_lab.testing.flight_dumps import as_json, pickled

ORIGIN_NS = 1_758_580_155_793_659_389
HEALTHY = ("healthy", "healthy-running", "healthy-lost-file")
FAULTS = (
    "killed",  # the process is gone: no dump, nothing more from it
    "stopped",  # its host thread stops issuing (a lock, a debugger, SIGSTOP): what was issued completes
    "late",  # its host thread is far behind the others when the dumps are taken
    "gpu-error",  # its device fails: the others complete a little more with it, it reports nothing; its host goes on
    "gpu-stall",  # its device does not start an operation that the others started; its host goes on
    "size",  # another number of elements at one sequence
    "split",  # an all-to-all whose parts do not add up: who is wrong cannot be told from sizes
    "dtype",  # another datatype of the same number of elements
    "op",  # another collective
    "order",  # two collectives of one group exchanged
    "skipped",  # one collective left out
    "order-across-groups",  # two collectives of different groups exchanged
    "p2p-deadlock",  # two pipeline neighbours both wait for data from the other
)
MECHANISMS = HEALTHY + FAULTS
NAMEABLE = tuple(fault for fault in FAULTS if fault != "split")
_WINDOW = 24
_BYTES = {"BFloat16": 2, "Float": 4, "Long": 8}


class RecordedOp(NamedTuple):
    """One operation of a rank's program: ``group`` by name, ``peer`` and ``own`` as ranks of the group for p2p."""

    group: str
    name: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    datatype: str = "BFloat16"
    own: int = -1
    peer: int = -1

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send or receive."""
        return self.peer >= 0

    @property
    def profiling_name(self) -> str:
        """As PyTorch writes it."""
        arrow = "->" if self.name == "send" else "<-"
        return f"nccl:{self.name} {self.own}{arrow}{self.peer}" if self.is_p2p else f"nccl:{self.name}"


class _Rank:
    """What one rank issued and completed."""

    def __init__(self, program: list[RecordedOp]) -> None:
        self.program = program
        self.issued = 0
        self.done = 0
        self.blind_from = len(program)
        self.created: list[int] = []
        self.started: dict[int, int] = {}
        self.completed: list[int] = []
        self.sequence: list[int] = []
        self.counters: dict[tuple[str, bool], int] = {}

    @property
    def reported(self) -> int:
        """Operations whose completion the host can see."""
        return min(self.done, self.blind_from)

    def issue(self, now: int) -> None:
        op = self.program[self.issued]
        key = (op.group, op.is_p2p)
        self.counters[key] = self.counters.get(key, 0) + 1
        self.sequence.append(self.counters[key])
        self.created.append(now)
        self.issued += 1

    @property
    def front(self) -> RecordedOp | None:
        return self.program[self.done] if self.done < self.issued else None


@dataclass(frozen=True)
class FlightJob:
    """Sizes of the job, the fault, and how the dumps are written. ``culprits``: given, or drawn by ``seed``."""

    mechanism: str = "healthy"
    seed: int = 0
    world: int = 16
    tp: int = 4
    pp: int = 2
    steps: int = 3
    layers: int = 2
    version: str = "2.9"
    form: str = "pickle"  # or json
    timing: bool = True
    stacks: bool = False
    buffer: int = 2000
    active_only: bool = False
    culprits: tuple[int, ...] | None = None

    @cached_property
    def groups(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name to description and members, in order of creation."""
        per_stage = self.world // self.pp
        made = [("default_pg", tuple(range(self.world)))]
        made += [("TENSOR_MODEL_PARALLEL_GROUP", tuple(range(s, s + self.tp))) for s in range(0, self.world, self.tp)]
        for stage in range(0, self.world, per_stage):
            for first in range(self.tp):
                members = tuple(range(stage + first, stage + per_stage, self.tp))
                made.append(("DATA_PARALLEL_GROUP", members))
        if self.pp > 1:
            pipes = [tuple(range(r, self.world, per_stage)) for r in range(per_stage)]
            made += [("PIPELINE_MODEL_PARALLEL_GROUP", members) for members in pipes]
        return {str(number): group for number, group in enumerate(made)}

    def group_of(self, rank: int, description: str) -> str:
        """Return the name of the rank's group of that description."""
        return next(n for n, (d, members) in self.groups.items() if d.startswith(description) and rank in members)

    def truth(self) -> dict[str, Any]:
        """Return the ranks to blame (none for a healthy job, none where dumps cannot tell) and the mechanism."""
        return {"ranks": sorted(self._blamed) if self.mechanism in NAMEABLE else [], "kind": self.mechanism}

    @cached_property
    def _blamed(self) -> tuple[int, ...]:
        if self.culprits is not None:
            return self.culprits
        rng = random.Random(f"{self.mechanism} {self.seed} who")  # noqa: S311
        first = rng.randrange(self.world)
        if self.mechanism == "p2p-deadlock":
            first = rng.randrange(self.world // self.pp)
            return first, first + self.world // self.pp
        return (first,)

    @cached_property
    def _at(self) -> int:
        """The operation at which the fault strikes, in the last step."""
        rng = random.Random(f"{self.mechanism} {self.seed} when")  # noqa: S311
        program = self.program(self._blamed[0])
        step = len(program) // self.steps
        candidates = [i for i in range(step * (self.steps - 1), len(program) - 2) if self._may_strike(program, i)]
        return rng.choice(candidates)

    def _may_strike(self, program: list[RecordedOp], index: int) -> bool:
        """A fault needs the right operations: a wide enough group, neighbours to exchange, a send to turn around."""
        here, after = program[index], program[index + 1]
        wide = not here.is_p2p and len(self.groups[here.group][1]) > 2
        if self.mechanism == "split":
            return here.name == "all_to_all"
        if self.mechanism in ("size", "dtype", "op"):
            return wide and not (self.mechanism == "size" and here.name in ("all_to_all", "barrier"))
        if self.mechanism in ("order", "skipped"):
            return wide and here.group == after.group and here.name != after.name
        if self.mechanism == "order-across-groups":  # two members must meet in both groups, else nobody waits for long
            shared = set(self.groups[here.group][1]) & set(self.groups[after.group][1])
            return wide and not after.is_p2p and here.group != after.group and len(shared) > 2
        if self.mechanism == "p2p-deadlock":
            return here.is_p2p and here.name == "send"
        return True

    def program(self, rank: int) -> list[RecordedOp]:
        """Return the operations of a rank as they were meant."""
        tensor, data = self.group_of(rank, "TENSOR"), self.group_of(rank, "DATA")
        width, dp = 4096, len(self.groups[data][1])
        layer = [
            RecordedOp(tensor, "_all_gather_base", (2048, width // self.tp), (2048 * self.tp, width // self.tp)),
            RecordedOp(tensor, "_reduce_scatter_base", (2048 * self.tp, width), (2048, width)),
            RecordedOp(tensor, "all_to_all", (2048, 64), (2048, 64)),
            RecordedOp(tensor, "all_reduce", (16,), (16,), "Long"),
        ]
        pipe = self._pipe(rank)
        before, after = pipe
        grads = [
            RecordedOp(data, "all_reduce", (1 << 20,), (1 << 20,), "Float"),
            RecordedOp(data, "_all_gather_base", (4,), (4 * dp,)),
        ]
        last = [
            RecordedOp(tensor, "all_reduce", (1,), (1,), "Float"),
            RecordedOp("0", "all_reduce", (1,), (1,), "Float"),
            RecordedOp("0", "barrier", (1,), (1,), "Float"),
        ]
        return (before + layer * self.layers + after + layer * self.layers + grads + last) * self.steps

    def _pipe(self, rank: int) -> tuple[list[RecordedOp], list[RecordedOp]]:
        if self.pp < 2:
            return [], []
        group = self.group_of(rank, "PIPELINE")
        own = self.groups[group][1].index(rank)
        shape = (2048, 1, 4096)
        before = [RecordedOp(group, "recv", shape, shape, own=own, peer=own - 1)] if own else []
        after = [RecordedOp(group, "send", shape, shape, own=own, peer=own + 1)] if own < self.pp - 1 else []
        return before, after

    def _faulty(self, rank: int) -> list[RecordedOp]:
        program = self.program(rank)
        if rank not in self._blamed:
            return program
        at = self._at
        here = program[at]
        if self.mechanism == "size":
            program[at] = here._replace(input=(here.input[0] // 2 or 3, *here.input[1:]), output=(7, *here.output))
        elif self.mechanism == "split":
            program[at] = here._replace(output=(here.output[0] + 64, *here.output[1:]))
        elif self.mechanism == "dtype":
            program[at] = here._replace(datatype="Float" if here.datatype != "Float" else "BFloat16")
        elif self.mechanism == "op":
            program[at] = here._replace(name="broadcast" if here.name != "broadcast" else "all_reduce")
        elif self.mechanism in ("order", "order-across-groups"):
            program[at], program[at + 1] = program[at + 1], program[at]
        elif self.mechanism == "skipped":
            del program[at]
        elif self.mechanism == "p2p-deadlock" and rank == self._blamed[1]:
            index = _matching(program, self.program(self._blamed[0]), at)
            program[index] = program[index]._replace(name="send")
        return program

    def run(self) -> list[_Rank]:
        """Let the job run until nothing moves, or until the moment of a dump of a running job."""
        rng = random.Random(f"{self.mechanism} {self.seed} run")  # noqa: S311
        ranks = [_Rank(self._faulty(rank)) for rank in range(self.world)]
        if self.mechanism == "gpu-error":
            for blamed in self._blamed:
                ranks[blamed].blind_from = self._at
        total = sum(len(rank.program) for rank in ranks)
        limit = rng.randrange(total // 2, total) if self.mechanism == "healthy-running" else total + 1
        now, moved, completed = ORIGIN_NS, True, 0
        while moved and completed < limit:
            moved = False
            for number in rng.sample(range(self.world), self.world):
                now += rng.randrange(1_000, 50_000)
                if self._may_issue(number, ranks[number]):
                    ranks[number].issue(now)
                    moved = True
                count = self._advance(number, ranks, now)
                moved, completed = moved or count > 0, completed + count
        return ranks

    def _may_issue(self, number: int, rank: _Rank) -> bool:
        if rank.issued >= len(rank.program) or rank.issued - rank.reported >= _WINDOW:
            return False
        step = len(self.program(number)) // self.steps
        if rank.issued and rank.issued % step == 0 and rank.reported < rank.issued:
            return False  # the host waits for its device at the end of a step
        stops = self.mechanism in ("killed", "stopped", "late") and number in self._blamed
        return not (stops and rank.issued >= self._at)

    def _advance(self, number: int, ranks: list[_Rank], now: int) -> int:
        """Complete the operation at the front of this rank's device where all members are at it."""
        front = ranks[number].front
        if front is None:
            return 0
        if self._is_broken(number, ranks[number]):
            return 0
        ranks[number].started.setdefault(ranks[number].done, now)
        members = self.groups[front.group][1]
        met = [members[front.own], members[front.peer]] if front.is_p2p else list(members)
        if not all(self._meets(front, number, other, ranks) for other in met):
            return 0
        for other in met:
            ranks[other].started.setdefault(ranks[other].done, now)
            ranks[other].completed.append(now + 20_000)
            ranks[other].done += 1
        return len(met)

    def _meets(self, front: RecordedOp, number: int, other: int, ranks: list[_Rank]) -> bool:
        rank = ranks[other]
        if rank.front is None or rank.front.group != front.group:
            return False
        if self._is_broken(other, rank):
            return False
        if front.is_p2p:
            return other == number or (rank.front.name != front.name and rank.front.peer == front.own)
        mine, theirs = ranks[number], rank
        return rank.front == front and mine.sequence[mine.done] == theirs.sequence[theirs.done]

    def _is_broken(self, number: int, rank: _Rank) -> bool:
        """Whether the device of a rank has come to the operation where it stops."""
        last = {"killed": max(self._at - 2, 0), "gpu-stall": self._at, "gpu-error": self._at + 1 + self.seed % 3}
        return self.mechanism in last and number in self._blamed and rank.done >= last[self.mechanism]

    def dumps(self) -> dict[int, dict[str, Any]]:
        """Return the dump of each rank that wrote one."""
        dumps = {number: self._dump(number, rank) for number, rank in enumerate(self.run())}
        if self.mechanism in ("killed", "healthy-lost-file"):
            for rank in self._blamed:
                del dumps[rank]
        return dumps

    def files(self, prefix: str = "nccl_trace_rank_") -> dict[str, bytes]:
        """Return file names and bytes."""
        write: Callable[[Any], bytes] = as_json if self.form == "json" else pickled
        return {f"{prefix}{rank}": write(dump) for rank, dump in self.dumps().items()}

    def with_(self, **changes: Any) -> FlightJob:
        """Return a job that differs in ``changes``."""
        return replace(self, **changes)

    def _dump(self, number: int, rank: _Rank) -> dict[str, Any]:
        mine = [name for name, (_, members) in self.groups.items() if number in members]
        numbers = {name: index for index, name in enumerate(mine)}
        start = max(0, rank.issued - self.buffer)
        kept = [i for i in range(start, rank.issued) if not (self.active_only and i < rank.reported)]
        return {
            "version": self.version,
            "pg_config": {
                name: {"name": name, "desc": self.groups[name][0], "ranks": str(list(self.groups[name][1]))}
                for name in mine
            },
            "nccl_version": "2.27.3",
            "pg_status": {str(numbers[name]): self._counters(name, rank) for name in mine},
            "entries": [self._entry(index, rank, numbers) for index in kept],
        }

    def _counters(self, name: str, rank: _Rank) -> dict[str, int]:
        def last(end: int) -> int:
            return max((rank.sequence[i] for i in range(end) if rank.program[i].group == name), default=-1)

        started = last(rank.reported + (rank.reported in rank.started)) if self.timing else -1
        return {
            "last_enqueued_collective": last(rank.issued),
            "last_started_collective": started,
            "last_completed_collective": last(rank.reported),
        }

    def _entry(self, index: int, rank: _Rank, numbers: dict[str, int]) -> dict[str, Any]:
        op, sequence = rank.program[index], rank.sequence[index]
        done, begun = index < rank.reported, self.timing and index in rank.started
        entry = {
            "record_id": index,
            "pg_id": numbers[op.group],
            "process_group": (op.group, self.groups[op.group][0]),
            "thread_name": "python3",
            "thread_id": "23456244340032",
            "collective_seq_id": 0 if op.is_p2p else sequence,
            "p2p_seq_id": sequence if op.is_p2p else 0,
            "op_id": sequence,
            "profiling_name": op.profiling_name,
            "time_created_ns": rank.created[index],
            "input_sizes": [list(op.input)],
            "input_dtypes": [op.datatype],
            "output_sizes": [list(op.output)],
            "output_dtypes": [op.datatype],
            "state": "completed" if done else "started" if begun else "scheduled",
            "time_discovered_started_ns": rank.started[index] if begun else None,
            "time_discovered_completed_ns": rank.completed[index] if done else None,
            "retired": done,
            "timeout_ms": 600_000,
            "is_p2p": op.is_p2p,
        }
        if self.timing and done:
            entry["duration_ms"] = (rank.completed[index] - rank.started[index]) / 1e6
        if self.stacks:
            frames = (
                ("all_reduce", "torch/distributed/distributed_c10d.py", 2696),
                ("train", "job/train.py", 40 + index % 9),
            )
            entry["frames"] = [{"name": name, "filename": f"/{file}", "line": line} for name, file, line in frames]
        return entry


def _matching(program: list[RecordedOp], other: list[RecordedOp], at: int) -> int:
    """Return the index of the receive that meets the send ``other[at]``: the same number of its kind."""
    nth = sum(op.is_p2p and op.name == "send" for op in other[: at + 1])
    receives = [index for index, op in enumerate(program) if op.is_p2p and op.name == "recv"]
    return receives[nth - 1]
