"""One rank of two: Lina's micro-ops of a small step over gloo, sent by one thread from one priority queue.

Arguments: rank, port, folder. Backward sleeps; each micro-op is queued when the tensor it carries is ready. What goes next is
decided by rank 0 and told to the other, since two ranks that decide alone may each wait for the other's next operation.
Writes ``rank_N.json``: the order of the micro-ops, and whether sums and tokens are what plain collectives give.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from patience import HANG_S
from ringwright.model.rewrites import Operation, operations
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.priority.lina import lina
from ringwright.workloads.moe_chain import MoeLayer, moe_chain

KIB = 1024
LAYERS = 3


@dataclass(frozen=True, order=True)
class MicroOp:
    """Class, place in the order of the program, name, and which bytes of which tensor."""

    traffic: int
    place: int
    name: str
    tensor: str
    first: int
    count: int


def workload() -> Workload:
    """Return backward of three layers: all-to-alls of 64 KiB, gradients of 256 KiB, micro-ops of 32 KiB."""
    layer = MoeLayer(0.004, 0.004, 0.002, 64 * KIB, (256 * KIB,))
    return lina(moe_chain("real", [layer] * LAYERS, 2), LinkCosts(1e9), partition_mb=1 / 32)


def cut(operation: Operation, traffic: dict[str, int], places: Iterator[int]) -> list[MicroOp]:
    """Return the micro-ops of an operation: consecutive elements of its one tensor."""
    (payload,) = operation.payloads
    found, first = [], 0
    for piece in range(operation.pieces):
        whole, last = operation.sizes()
        count = (last if piece == operation.pieces - 1 else whole) // 4
        name = f"{operation.name}/{piece}"
        found.append(MicroOp(traffic[operation.role], next(places), name, payload.name, first, count))
        first += count
    return found


class Thread(threading.Thread):
    """Takes the most urgent micro-op, one at a time, in rank 0's order."""

    def __init__(
        self, rank: int, tensors: dict[str, torch.Tensor], results: dict[str, torch.Tensor], total: int
    ) -> None:
        super().__init__(daemon=True)
        self.rank, self.tensors, self.results, self.total = rank, tensors, results, total
        self.changed = threading.Condition()
        self.waiting: list[MicroOp] = []
        self.known: dict[int, MicroOp] = {}
        self.done: set[str] = set()
        self.combining = False
        self.order: list[tuple[str, int, int, int]] = []  # name, class, place in the program, tokens waiting at rank 0
        self.error: BaseException | None = None
        self.leading = dist.new_group(backend="gloo")

    def run(self) -> None:
        try:
            for _ in range(self.total):
                self._one()
        except Exception as error:  # noqa: BLE001 - what a thread raises is otherwise lost
            self.error = error
            with self.changed:
                self.changed.notify_all()

    def _one(self) -> None:
        chosen = torch.zeros(2, dtype=torch.int64)
        if self.rank == 0:
            with self.changed:
                if not self.changed.wait_for(self._may_go, HANG_S):
                    raise TimeoutError("nothing became ready")
                op = min(self.waiting)
                tokens = sum(each.traffic == 1 for each in self.waiting)
                chosen[0], chosen[1] = op.place, tokens
        dist.broadcast(chosen, 0, group=self.leading)
        place, tokens = int(chosen[0]), int(chosen[1])
        with self.changed:
            if not self.changed.wait_for(lambda: place in self.known, HANG_S):
                raise TimeoutError(f"rank {self.rank} never had micro-op {place}")
            op = self.known[place]
            self.waiting.remove(op)
        self._send(op)
        with self.changed:
            self.order.append((op.name, op.traffic, op.place, tokens))
            self.done.add(op.name)
            self.changed.notify_all()

    def _may_go(self) -> bool:
        """Gradients wait while backward combines, since an all-to-all follows."""
        return bool(self.waiting) and (min(self.waiting).traffic == 1 or not self.combining)

    def _send(self, op: MicroOp) -> None:
        span = slice(op.first, op.first + op.count)
        part = self.tensors[op.tensor][span]
        if op.traffic == 1:
            dist.all_to_all_single(self.results[op.tensor][span], part.contiguous())
        else:
            dist.all_reduce(part)

    def add(self, ops: list[MicroOp]) -> None:
        with self.changed:
            self.waiting += ops
            self.known.update({op.place: op for op in ops})
            self.changed.notify_all()

    def combine(self, seconds: float) -> None:
        """Compute for so long; no gradient is started meanwhile."""
        with self.changed:
            self.combining = True
        time.sleep(seconds)

    def combined(self) -> None:
        with self.changed:
            self.combining = False
            self.changed.notify_all()

    def wait(self, ops: list[MicroOp]) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.error or all(op.name in self.done for op in ops), HANG_S):
                raise TimeoutError(f"{ops[0].name} was never sent")
        if self.error:
            raise self.error


def main(rank: int, port: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=rank, timeout=timedelta(seconds=HANG_S)
    )
    job = workload()
    queue = job.policy.queue
    assert queue is not None
    places = iter(range(1 << 20))
    backward = [each for each in operations(job) if not each.name.startswith("F.")]
    order = {task.name: at for at, task in enumerate(job.tasks)}
    backward.sort(key=lambda each: max(order[name] for name in each.payloads[0].producers))
    cuts = {each.payloads[0].name: cut(each, dict(queue.traffic), places) for each in backward}
    draw = torch.Generator().manual_seed(rank)
    tensors = {each.payloads[0].name: torch.randn(each.size_bytes // 4, generator=draw) for each in backward}
    original = {name: tensor.clone() for name, tensor in tensors.items()}
    results = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    thread = Thread(rank, tensors, results, sum(len(ops) for ops in cuts.values()))
    thread.start()
    for task in job.tasks:
        if task.kind != "B":
            continue
        for payload in job.payloads:  # tokens that the task needs
            if payload.role == "ep" and task.name in (name for name, _ in payload.consumers):
                thread.wait(cuts[payload.name])
        thread.combine(task.seconds) if task.tag == "combine" else time.sleep(task.seconds)
        for payload in job.payloads:
            if task.name in payload.producers and payload.name in cuts:
                thread.add(cuts[payload.name])
        if task.tag == "combine":
            thread.combined()
    thread.wait([op for ops in cuts.values() for op in ops])  # before the update
    thread.join(HANG_S)
    report(rank, folder, thread, cuts, original)
    dist.destroy_process_group()


def report(
    rank: int, folder: Path, thread: Thread, cuts: dict[str, list[MicroOp]], original: dict[str, torch.Tensor]
) -> None:
    """Hold the results against whole all-reduces, and chunk by chunk all-to-alls, of the same tensors."""
    sums = tokens = True
    for name, ops in cuts.items():
        if ops[0].traffic == 1:
            for op in ops:
                span = slice(op.first, op.first + op.count)
                wanted = torch.empty(op.count)
                dist.all_to_all_single(wanted, original[name][span])
                tokens &= torch.equal(wanted, thread.results[name][span])
        else:
            whole = original[name].clone()
            dist.all_reduce(whole)
            sums &= torch.equal(whole, thread.tensors[name])
    written = {"order": thread.order, "micro_ops": thread.total, "gradients_equal": sums, "tokens_equal": tokens}
    (folder / f"rank{rank}.json").write_text(json.dumps(written))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
