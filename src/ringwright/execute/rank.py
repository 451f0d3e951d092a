"""What runs in every rank's process: ``python -m ringwright.execute.rank FOLDER [NODE]``.

It takes each case of the job in turn, runs every contender once on seeded data and looks at the result, then times them one
after the other, round by round, so that all meet the same weather.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ringwright.execute import data
from ringwright.execute.arena import ordinary
from ringwright.execute.arithmetic import element, scale
from ringwright.execute.backends import Backend, backend
from ringwright.execute.job import Contender, Contest, NodeResult, RankJob, Span, read_plan, read_struct, write
from ringwright.execute.native import Buffers, Bystander
from ringwright.execute.plan import Do
from ringwright.execute.pull import Pulled, SharedBarrier, make_memory
from ringwright.execute.push import PIECE_BYTES, Pushed
from ringwright.execute.sockets import Sockets
from ringwright.execute.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.execute.plan import NodePlan
    from ringwright.execute.switched.client import SwitchClient
    from ringwright.execute.switched.terms import SwitchTerms
    from ringwright.model.collective import Collective


_PR_SET_PDEATHSIG = 1


class Runner(Protocol):
    """A contender made ready."""

    def fill(self, seed: int, *, reals: bool) -> None:
        """Put this rank's contribution where it belongs."""

    def run(self) -> None:
        """Do the collective once."""

    def results(self) -> list[tuple[int, int, np.ndarray]]:
        """Return (block, first byte in it, bytes) of what this rank holds now.

        The bytes are uint8 of shape (bytes,).
        """


class Ours:
    """A node's plan on a wire."""

    def __init__(self, ready: Pulled | Pushed, collective: Collective, watch: Watch) -> None:
        self.ready, self._collective, self._watch = ready, collective, watch

    def fill(self, seed: int, *, reals: bool) -> None:
        """Put this rank's contribution into the arena."""
        collective, plan = self._collective, self.ready.plan
        given: dict[int, np.ndarray] = {}
        for part in plan.given:
            if part.block not in given:
                size = data.block_bytes(collective, part.block)
                given[part.block] = data.values(collective, plan.node, part.block, size, seed, reals=reals).view(
                    np.uint8
                )
            self.ready.arena.write(part.at, given[part.block][part.begin : part.begin + part.size])

    def run(self) -> None:
        """Run the plan once; the watch sees where it stands."""
        ready, watch = self.ready, self._watch
        ready.begin()
        for watch.at, action in enumerate(ready.code):
            action()
        watch.at = -1
        watch.turn += 1
        ready.finish()

    def spans(self) -> list[Span]:
        """Run the plan once and return when each message began and ended."""
        ready, watch = self.ready, self._watch
        clock = time.perf_counter
        posted: dict[tuple[bool, int], float] = {}
        spans: list[Span] = []
        ready.begin()
        for watch.at, (action, (what, which)) in enumerate(zip(ready.code, ready.plan.order, strict=True)):
            if what in (Do.RECV, Do.SEND):
                posted[what == Do.SEND, which] = clock()
            action()
            if what in (Do.TAKE, Do.GRAB, Do.SENT):
                spans.append(Span(what == Do.SENT, which, posted[what == Do.SENT, which], clock()))
        watch.at = -1
        watch.turn += 1
        ready.finish()
        return spans

    def results(self) -> list[tuple[int, int, np.ndarray]]:
        """Return what the arena holds now. The bytes are uint8 of shape (bytes,)."""
        return [(part.block, part.begin, self.ready.arena.read(part.at, part.size)) for part in self.ready.plan.wanted]


class RankRunner:
    """One node's process."""

    def __init__(self, folder: Path, node: int | None) -> None:
        self.folder = folder
        self.job = read_struct(folder / "job", RankJob)
        self.backend: Backend = backend(self.job, folder, node)
        self.node = self.backend.node
        self.watch = Watch(folder, self.node, self.job.nodes, self.job.timeout_s)
        self.gate = SharedBarrier(folder / "gate", self.node, self.job.nodes)
        self.answers: list[NodeResult] = []
        self.sockets: Sockets | None = None
        self.switched: dict[int, SwitchClient] = {}  # by the switch's job

    def all_(self) -> None:
        """Do every case, then say what was found."""
        self.pass_gate()
        for number, case in enumerate(self.job.cases):
            self.case(number, case)
        self.pass_gate()
        if self.sockets is not None:
            self.sockets.close()
        for client in self.switched.values():
            client.close()
        self.backend.close()

    def pass_gate(self) -> None:
        """Wait for all nodes."""
        self.watch.at_gate = True
        self.gate.pass_()
        self.watch.at_gate = False
        self.watch.turn += 1

    def case(self, number: int, case: Contest) -> None:
        """Check, then time every contender."""
        collective = case.asked.collective()
        self.watch.case = number
        if number == self.job.begins:
            self._make(self._wait_for_go)
        runners: list[tuple[NodeResult, Runner]] = []
        for contender in case.contenders:
            result = NodeResult(number, contender.label)
            self.answers.append(result)
            self.watch.label = contender.label
            runner = self._ready(number, contender, collective, result)
            if runner is None:
                continue
            runner.fill(case.seed, reals=case.reals)
            self.pass_gate()
            runner.run()
            self._look(runner, case, collective, result)
            self.pass_gate()
            if case.record and isinstance(runner, Ours):
                runner.fill(case.seed, reals=case.reals)  # what is recorded is checked too
                self.pass_gate()
                result.started_s = time.perf_counter()
                result.spans = runner.spans()
                self._look(runner, case, collective, result)
                self.pass_gate()
            runners.append((result, runner))
        self._time(case, runners)

    def _ready(self, number: int, contender: Contender, collective: Collective, result: NodeResult) -> Runner | None:
        if contender.terms is not None:
            self.watch.plan = None
            return self._through(contender.terms, collective)
        if not contender.wire:
            self.watch.plan = None
            mine = self.node < collective.p
            made: Runner | str = self.backend.native(collective) if mine else self.backend.bystander(collective)
            if isinstance(made, str):
                result.declined = made
                return None
            return made
        plan = read_plan(self.folder, contender.plan, self.node)
        self.watch.plan = plan
        return Ours(self._wired(number, contender, plan, collective), collective, self.watch)

    def _through(self, terms: SwitchTerms, collective: Collective) -> Runner:
        """Return what goes through a switch; a worker keeps its connection for all sizes."""
        from ringwright.execute.switched import runner

        if self.node >= collective.p:
            return Bystander()
        if terms.job not in self.switched:
            port, workers = self.job.switched[self.node], len(self.job.switched)
            self.switched[terms.job] = runner.connected(terms, port, workers, collective.dtype, self.job.timeout_s)
        return runner.ThroughSwitch(collective, self.node, self.switched[terms.job])

    def _wired(self, number: int, contender: Contender, plan: NodePlan, collective: Collective) -> Pulled | Pushed:
        if contender.wire == "memory":
            folder = self.folder / f"memory-{number}-{contender.plan}"
            self._make(lambda: make_memory(folder, plan))
            return Pulled(plan, collective, folder)
        pieces = self.job.piece_bytes or PIECE_BYTES
        if contender.wire == "sockets":
            return Pushed(plan, ordinary(plan.arena_bytes, collective), self._over_sockets(), pieces)
        arena = self.backend.arena(contender.wire, plan.arena_bytes, collective)
        return Pushed(
            plan, arena, self.backend.wire(contender.wire), self.backend.piece_bytes(contender.wire) or pieces
        )

    def _over_sockets(self) -> Sockets:
        """Connect on first use."""
        if self.sockets is None:
            self.sockets = Sockets(self.folder, self.node, self.job.nodes, self.job.addresses[self.node])
        return self.sockets

    def _make(self, make: Callable[[], None]) -> None:
        """Let the first node do what all others wait for."""
        if self.node == 0:
            make()
        self.pass_gate()

    def _wait_for_go(self) -> None:
        """Tell the parent that all is ready, and wait for its word."""
        (self.folder / "begun").touch()
        while not (self.folder / "go").exists():
            time.sleep(0.002)

    def _look(self, runner: Runner, case: Contest, collective: Collective, result: NodeResult) -> None:
        results = runner.results() if self.node < collective.p else []
        if case.keep:
            result.results = [(block, begin, part.tobytes()) for block, begin, part in results]
        if case.reals or not case.look:
            return  # only who sees all contributions can say how far off is too far
        kind = element(collective)
        for block, begin, part in results:
            wanted = data.expected(collective, block, case.seed, rank=self.node)
            size = wanted.dtype.itemsize
            wanted = wanted[begin // size : (begin + len(part)) // size]
            values = part.view(wanted.dtype)
            if collective.reduces and collective.reduce_op == "avg":
                values = scale(values, kind, collective.p)
            wrong = runner.wrong(values, wanted) if isinstance(runner, Buffers) else data.wrong(values, wanted)
            if wrong and result.first_wrong is None:
                differs = np.flatnonzero(values != wanted) if values.shape == wanted.shape else [0]
                result.first_wrong = (block, begin // size + int(differs[0]))
            result.wrong += wrong

    def _time(self, case: Contest, runners: list[tuple[NodeResult, Runner]]) -> None:
        for result, runner in runners:
            self.watch.label = result.label
            if isinstance(runner, Ours):
                self.watch.plan = runner.ready.plan
            for _ in range(case.warmup if case.rounds else 0):
                runner.run()
        clock = time.perf_counter
        for _ in range(case.rounds):
            for result, runner in runners:
                self.watch.label = result.label
                self.watch.plan = runner.ready.plan if isinstance(runner, Ours) else None
                sent_bytes = self._sent_bytes()
                self.pass_gate()
                start_s = clock()
                for _ in range(case.inner):
                    runner.run()
                result.times_s.append((start_s, clock()))
                if sent_bytes:
                    self.pass_gate()
                    before = result.sent_bytes or [0] * len(sent_bytes)
                    now = zip(before, self._sent_bytes(), sent_bytes, strict=True)
                    result.sent_bytes = [all_before + sent - at_start for all_before, sent, at_start in now]
                    # Where faults are made on purpose, this process may not live to answer.
                    write(self.folder / f"partial-{self.node}", self.answers)
        self.pass_gate()

    def _sent_bytes(self) -> list[int]:
        """Return what each of this node's interfaces has sent so far; nothing where nobody asks."""
        names = self.job.interfaces[self.node] if self.job.interfaces else []
        return [int(Path(f"/sys/class/net/{name}/statistics/tx_bytes").read_text()) for name in names]


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends, however it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> int:
    """Run as one rank; 0 also where results are wrong, for that is an answer."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(sys.argv[1])
    node = int(sys.argv[2]) if len(sys.argv) > 2 else None
    if node is not None:
        _die_with_parent()
    rank = RankRunner(folder, node)
    try:
        rank.all_()
    except Exception as error:  # noqa: BLE001 - said in the status, for the parent to name
        rank.watch.failed(error)
        os._exit(1)  # a library's own leaving would wait for the others
    write(folder / f"answer-{rank.node}", rank.answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
