"""An algorithm, a scheduler and a reader as somebody from outside writes them, each broken in several ways: is each one told?"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringwright.collective import Collective
from ringwright.costs.stages import Costs
from ringwright.errors import InputError
from ringwright.program import Block, Cost, Op, Program, Step, Term, cut, nothing, turn
from ringwright.sources.gathered import Gathered
from ringwright.sources.source import Source
from ringwright.testing.conformance import Outcome, check_algorithm, check_scheduler, check_source
from ringwright.trace import Trace
from ringwright.workload import Queue, Workload

LINES = b"all-reduce 0 1024 1.0 0.5\nall-reduce 1 1024 1.0 0.5\n"
Broken = tuple[str, str, Callable[[], list[Outcome]]]  # what is wrong, the check that says so, the contract run on it


def my_ring(
    collective: Collective, topology: object = None, *, hops: int = 1, late: int = 0, boast: float = 1.0
) -> Program:
    """Return an all-gather round a ring; the knobs break it."""
    del topology
    p, size = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing("my-ring", collective)

    def steps() -> Iterator[Step]:
        for step in range(p - 1 - late):
            yield Step((Block(Op.SEND, (p,), turn(p), turn(p, 1), turn(p, -step * hops)),))

    largest = float(cut(collective).chunk_bytes.max(initial=0))
    cost = Cost((Term(p - 1, largest * (p - 1) * boast),), size * (p - 1))
    return Program("my-ring", collective, cut(collective), steps, p - 1 - late, cost)


def my_order(workload: Workload, costs: Costs) -> Workload:
    """Small tensors first."""
    del costs
    keys = {each.name: each.size_bytes for each in workload.payloads}
    return workload.with_policy("my-order", queue=Queue(keys=keys), boundary="layer", agreement="static")


def by_luck(workload: Workload, costs: Costs) -> Workload:
    """Draw an order, another one each time."""
    keys = {each.name: random.randrange(99) for each in workload.payloads}  # noqa: S311 - that is what is wrong
    return my_order(workload, costs).with_policy("by-luck", queue=Queue(keys=keys))


def by_hash(workload: Workload, costs: Costs) -> Workload:
    """Take the order in which a set goes round: another one in each process."""
    keys = {name: at for at, name in enumerate({each.name for each in workload.payloads})}
    return my_order(workload, costs).with_policy("by-hash", queue=Queue(keys=keys))


def by_magic(workload: Workload, costs: Costs) -> Workload:
    """Take the time out of the tasks."""
    return replace(my_order(workload, costs), tasks=tuple(replace(each, seconds=0.0) for each in workload.tasks))


def my_lines(**changed: Any) -> Callable[[list[Source]], Trace]:
    """Return a reader of lines ``op rank bytes start duration``; ``changed`` columns break it."""

    def read(sources: list[Source]) -> Trace:
        found = Gathered("my-lines")
        for source in sources:
            for number, line in enumerate(source.head(1 << 20).decode().splitlines()):
                op, rank, size, start, duration = line.split()
                row: dict[str, Any] = {
                    "kind": "collective",
                    "op": op,
                    "rank": int(rank),
                    "size_bytes": int(size),
                    "start_s": float(start),
                    "duration_s": float(duration),
                    "clock": "wall",
                    "file": source.name,
                    "line": number,
                    "communicator": found.communicator("world", size=2),
                }
                found.events.add(**row | changed)
                found.device(int(rank), "n1")
            found.note(source.name, "understood", "lines", found.events.total)
        if not found.events.total:
            raise InputError("no line", where=sources[0].name)
        return found.trace()

    return read


def ring(name: str = "my_ring", ops: tuple[str, ...] = ("all-gather",), **knobs: Any) -> list[Outcome]:
    """Run the contract on the ring with some knobs."""

    def mine(collective: Collective, topology: object = None) -> Program:
        return my_ring(collective, topology, **knobs)

    mine.__name__, mine.OPS = name, ops  # type: ignore[attr-defined]
    return check_algorithm(mine, group_sizes=(1, 2, 4, 5), knobs=False)


def lines(**changed: Any) -> list[Outcome]:
    """Run the contract on the reader with some columns changed."""
    with tempfile.TemporaryDirectory(prefix="ringwright-") as folder:
        (Path(folder) / "a.txt").write_bytes(LINES)
        return check_source(my_lines(**changed), Path(folder) / "a.txt")


WHOLE: tuple[tuple[str, Callable[[], list[Outcome]]], ...] = (
    ("algorithm", ring),
    ("scheduler", lambda: check_scheduler(my_order, seeds=range(1))),
    ("reader", lines),
)
BROKEN: tuple[Broken, ...] = (
    ("algorithm: a wrong chunk goes round", "legal", lambda: ring(hops=2)),
    ("algorithm: the last step is missing", "right", lambda: ring(late=1)),
    ("algorithm: it declares no OPS", "declared", lambda: ring(ops=())),
    ("algorithm: OPS of another library", "declared", lambda: ring(ops=("allgather",))),
    ("algorithm: it boasts of half the cost", "closed-form", lambda: ring(boast=0.5)),
    ("scheduler: an order drawn by luck", "same-again", lambda: check_scheduler(by_luck, seeds=range(1))),
    (
        "scheduler: an order that differs by rank",
        "same-on-every-rank",
        lambda: check_scheduler(by_hash, seeds=range(2)),
    ),
    ("scheduler: tasks lose their time", "alone", lambda: check_scheduler(by_magic, seeds=range(1))),
    ("reader: an operation in other words", "operations", lambda: lines(op="all_reduce")),
    ("reader: rows without records", "counts", lambda: lines(records=0)),
    ("reader: times without a clock", "clocks", lambda: lines(clock=None)),
    ("reader: a column that does not exist", "read", lambda: lines(seq=1)),
)


def main() -> int:
    """Print what each contract says; 1 where something whole is blamed or something broken is not."""
    missed = 0
    for what, run in WHOLE:
        outcomes = run()
        failed = [each for each in outcomes if each.failed]
        missed += bool(failed)
        print(f"{what}: {sum(len(each.passed) for each in outcomes)} checks passed, {len(failed)} cases failed")
    for what, check, run in BROKEN:
        told = next((each.failed[check] for each in run() if check in each.failed), "")
        missed += not told
        print(f"{what}\n    {check}: {told or 'NOBODY SAID SO'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
