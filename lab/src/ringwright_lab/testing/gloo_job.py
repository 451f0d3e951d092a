"""A small real job of gloo ranks on this machine, with a fault put in on purpose, and its recordings: needs PyTorch.

Ranks are forked from one process that has loaded PyTorch, so that a run takes about a second. Each writes a Flight Recorder
dump (``fr_rank_N``) at its end or, when the job stands still, on demand; with ``profile`` also a PyTorch profiler trace
(``kineto_rank_N.json``) and an execution trace (``et_rank_N.json``). Nothing outside the folder is written.
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import re
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ringwright.ground.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    import torch

STALL_S = 3.0  # without a step of any rank the job stands still
DUMP_S = 3.0
MOST_S = 90.0
HANGING = (
    "killed",
    "stopped",
    "gil",
    "exit",
    "error",
    "lock",
    "skipped",
    "wrong-size",
    "wrong-order",
    "wrong-dtype",
    "wrong-op",
)
SLOW = ("sleep", "hog", "straggler-late", "loader", "pauses-of-one", "moving")
COMPUTE_S = 0.02  # of a step of the job, where its ranks are profiled: what they are slower than
MECHANISMS = ("none", *HANGING, *SLOW)


@dataclass(frozen=True)
class InjectedFault:
    """What goes wrong: ``mechanism`` on ``rank`` from step ``step`` on; ``amount`` is seconds of the slow ones."""

    mechanism: str = "none"
    rank: int = 0
    step: int = 5
    amount: float = 0.05

    def slow_ranks(self, step: int, steps: int, world: int) -> tuple[int, ...]:
        """Return who is concerned in a step: a moving fault goes to the rank two places on in the middle of what is left."""
        moved = self.mechanism == "moving" and step >= (self.step + steps) // 2
        return ((self.rank + 2) % world,) if moved else (self.rank,)

    def holds_up(self, step: int) -> bool:
        """Whether a slow fault acts in this step: a loader's data lack in every second, pauses come at irregular times."""
        if self.mechanism == "loader":
            return (step - self.step) % 2 == 0
        return self.mechanism != "pauses-of-one" or (step * 7 + self.rank) % 5 < 2


@dataclass(frozen=True)
class GlooOutcome:
    """How a run ended: whether all ranks came to their end, and the ranks that wrote a dump."""

    folder: Path
    finished: bool
    dumped: tuple[int, ...]


def run(
    folder: Path,
    world: int,
    fault: InjectedFault | None = None,
    *,
    steps: int = 12,
    seed: int = 0,
    profile: bool = False,
) -> GlooOutcome:
    """Run a job of ``world`` ranks and return how it ended; UsageError for an unknown fault, MissingExtraError without torch."""
    fault = fault or InjectedFault()
    if fault.mechanism not in MECHANISMS or not 0 <= fault.rank < world:
        raise UsageError(
            f"no fault '{fault.mechanism}' on rank {fault.rank} of {world}", remedy=f"one of: {', '.join(MECHANISMS)}"
        )
    try:
        import_module("torch.distributed")  # loaded once, before the fork
    except ImportError as error:
        raise MissingExtraError("real ranks need PyTorch", extra="torch") from error
    folder.mkdir(parents=True)
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    progress = mmap.mmap(-1, 8 * world)
    children = []
    for rank in range(world):
        child = os.fork()
        if not child:
            _Rank(rank, world, folder, fault, progress, profile=profile).main(steps, seed)
        children.append(child)
    try:
        stall_s = (
            STALL_S if fault.mechanism in HANGING else MOST_S / 3
        )  # what does not hang may be slow on a busy machine
        return _watch(folder, progress, world, stall_s)
    finally:
        for child in children:
            _end(child)


def _watch(folder: Path, progress: mmap.mmap, world: int, stall_s: float) -> GlooOutcome:
    """Wait for the end, or ask for dumps when nothing moves any more."""
    began = moved = time.monotonic()
    seen = b""
    while time.monotonic() - began < MOST_S:
        if _dumps(folder) == set(range(world)):
            return GlooOutcome(folder, not (folder / "dump").exists(), tuple(sorted(_dumps(folder))))
        now = progress[:]
        if now != seen:
            seen, moved = now, time.monotonic()
        if time.monotonic() - moved > stall_s + (8 if not any(seen) else 0):
            (folder / "dump").touch()
            _wait(lambda: _dumps(folder) == set(range(world)), DUMP_S)
            break
        time.sleep(0.02)
    return GlooOutcome(folder, finished=False, dumped=tuple(sorted(_dumps(folder))))


def _dumps(folder: Path) -> set[int]:
    return {int(path.name.removeprefix("fr_rank_")) for path in folder.glob("fr_rank_*") if path.stat().st_size}


def _wait(done: Callable[[], bool], most_s: float) -> None:
    until = time.monotonic() + most_s
    while not done() and time.monotonic() < until:
        time.sleep(0.02)


def _end(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


class _Rank:
    """One rank, in a process of its own; never returns."""

    def __init__(
        self, rank: int, world: int, folder: Path, fault: InjectedFault, progress: mmap.mmap, *, profile: bool
    ) -> None:
        self.rank, self.world, self.folder, self.fault, self.progress = rank, world, folder, fault, progress
        self.profile = profile
        self.order = threading.Lock()

    def main(self, steps: int, seed: int) -> NoReturn:
        """Do the job and leave without cleaning up: a clean end would wait for ranks that are gone."""
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            self._job(steps, seed)
        finally:
            os._exit(0)

    def _job(self, steps: int, seed: int) -> None:
        import torch
        from torch import distributed

        torch.set_num_threads(1)
        store = distributed.FileStore(str(self.folder / "store"), self.world)
        distributed.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world)
        threading.Thread(target=self._dump_on_demand, daemon=True).start()
        recorded = self._recorded() if self.profile else None
        try:
            self._steps(steps, seed)
        except Exception:  # noqa: BLE001 - gloo's own error at a mismatch: the job then stands still, as it does with NCCL
            self._stand()
        if recorded is not None:
            recorded()
        self._dump()

    def _steps(self, steps: int, seed: int) -> None:
        plan = random.Random(seed)  # noqa: S311 - a plan of calls, no secret
        for step in range(steps):
            calls = [
                (plan.choice(("all-reduce", "all-gather", "broadcast")), plan.choice((256, 4096, 65536)))
                for _ in range(3)
            ]
            with self._marked(step):
                if step >= self.fault.step and self.rank in self.fault.slow_ranks(step, steps, self.world):
                    calls = self._broken(calls, step)
                for op, elements in calls:
                    self._call(op, elements)
            self.progress[8 * self.rank : 8 * self.rank + 8] = struct.pack("<q", step + 1)

    @contextmanager
    def _marked(self, step: int) -> Iterator[None]:
        """Tell a profile where a step begins and ends; a profiled step also computes."""
        if not self.profile:
            yield
            return
        from torch import profiler

        with profiler.record_function(f"ProfilerStep#{step}"):
            time.sleep(COMPUTE_S)
            yield

    def _broken(self, calls: list[tuple[str, int]], step: int) -> list[tuple[str, int]]:
        """Do what the fault does, and return the calls that are left."""
        kind, first = self.fault.mechanism, step == self.fault.step
        if kind in SLOW and self.fault.holds_up(step):
            acts_slowly: dict[str, Callable[[], object]] = {"hog": self._burn, "pauses-of-one": self._collect}
            acts_slowly.get(kind, self._idle)()
        if kind in SLOW or not first:
            return calls
        acts: dict[str, Callable[[], object]] = {
            "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
            "gil": lambda: re.match(r"(a+)+$", "a" * 64 + "b"),
            "exit": lambda: os._exit(0),
            "error": self._stand,
            "lock": lambda: (self.order.acquire(), self.order.acquire()),
        }
        if kind in acts:
            acts[kind]()
        changed: dict[str, Callable[[], list[Any]]] = {
            "skipped": lambda: calls[1:],
            "wrong-size": lambda: [(calls[0][0], calls[0][1] * 2), *calls[1:]],
            "wrong-order": lambda: [("all-reduce", 512), ("all-gather", 128), *calls[2:]] if calls else calls,
            "wrong-dtype": lambda: [(f"{calls[0][0]}:double", calls[0][1]), *calls[1:]],
            "wrong-op": lambda: [
                ("all-gather" if calls[0][0] != "all-gather" else "all-reduce", calls[0][1]),
                *calls[1:],
            ],
        }
        return changed.get(kind, lambda: calls)()

    def _idle(self) -> None:
        time.sleep(self.fault.amount)

    def _burn(self) -> None:
        until = time.monotonic() + self.fault.amount
        while time.monotonic() < until:
            sum(range(1000))

    def _collect(self) -> None:
        """Collect garbage over and over: the pauses that a large heap of Python objects brings."""
        until = time.monotonic() + self.fault.amount
        while time.monotonic() < until:
            gc.collect()

    def _stand(self) -> None:
        while True:
            time.sleep(1)

    def _call(self, op: str, elements: int) -> None:
        import torch
        from torch import distributed

        name, _, precision = op.partition(":")
        mine: torch.Tensor = torch.ones(elements, dtype=torch.float64 if precision else torch.float32)
        if name == "all-reduce":
            distributed.all_reduce(mine)
        elif name == "broadcast":
            distributed.broadcast(mine, 0)
        else:
            distributed.all_gather([torch.empty_like(mine) for _ in range(self.world)], mine)

    def _recorded(self) -> Callable[[], None]:
        """Begin a profile and an execution trace; return what ends and writes them."""
        from torch import profiler

        observer = profiler.ExecutionTraceObserver()
        observer.register_callback(str(self.folder / f"et_rank_{self.rank}.json"))
        made = profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True)
        observer.start()
        made.start()

        def end() -> None:
            made.stop()
            observer.stop()
            observer.unregister_callback()
            made.export_chrome_trace(str(self.folder / f"kineto_rank_{self.rank}.json"))

        return end

    def _dump_on_demand(self) -> None:
        while not (self.folder / "dump").exists():
            time.sleep(0.02)
        self._dump()
        os._exit(0)

    def _dump(self) -> None:
        """Write the Flight Recorder's dump; stacks are left out: they need locks that a stuck rank may hold."""
        from torch._C import _distributed_c10d as native

        target = self.folder / f"fr_rank_{self.rank}"
        beside = self.folder / f".fr_rank_{self.rank}"
        beside.write_bytes(native._dump_fr_trace(includeStackTraces=False))
        beside.replace(target)


def main() -> int:
    """Run one job: ``python -m ringwright_lab.testing.gloo_job FOLDER --mechanism killed --rank 2``."""
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--mechanism", choices=MECHANISMS, default="none")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--step", type=int, default=5)
    parser.add_argument("--amount", type=float, default=0.05, help="seconds, of the slow faults")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    fault = InjectedFault(given.mechanism, given.rank, given.step, given.amount)
    done = run(given.folder, given.world, fault, steps=given.steps, seed=given.seed, profile=given.profile)
    print(f"{'finished' if done.finished else 'stood still'}; dumps of ranks {done.dumped}")  # noqa: T201 - its answer
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
