"""A network of switches that add and their workers in one process, in time that is made up: what is lost, doubled or late is scripted."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np

from ringwright.execute.switched.frames import JOIN, JOINED, WAITING, ControlFrame, control_bytes
from ringwright.execute.switched.switch import ABOVE, AddingSwitch, SwitchSettings
from ringwright.execute.switched.worker import Membership, Worker
from ringwright.ground.errors import RanksFailedError

HOP_S = 0.001
Script = Callable[[Any, Any, np.ndarray], list[float]]  # (from, to, frame) -> delay of each copy that arrives


def at_once(source: Any, target: Any, frame: np.ndarray) -> list[float]:
    """Deliver everything once, in order."""
    del source, target, frame
    return [HOP_S]


class Network:
    """``tree``: how many workers each leaf switch has; one number: a single switch. ``made``: what makes a switch."""

    def __init__(
        self,
        tree: list[int],
        script: Script = at_once,
        *,
        patience_s: float = 30.0,
        made: Callable[[SwitchSettings], AddingSwitch] = AddingSwitch,
        **knobs: Any,
    ) -> None:
        self.script, self.patience_s, self.now_s = script, patience_s, 0.0
        total = sum(tree)
        key = knobs.get("key", b"")
        self.key = key
        slots = knobs.get("slots", 64)
        self.switches: dict[Any, AddingSwitch] = {}
        self.above: dict[Any, Any] = {}
        self.workers: dict[Any, Worker] = {}
        for leaf, count in enumerate(tree):
            branch = leaf if len(tree) > 1 else -1
            self.switches["leaf", leaf] = made(SwitchSettings(count, slots, key=key, branch=branch))
            self.above["leaf", leaf] = ("root", 0)
        if len(tree) > 1:
            self.switches["root", 0] = made(SwitchSettings(len(tree), slots, key=key))
        at = 0
        for leaf, count in enumerate(tree):
            for number in range(count):
                self.workers["worker", at] = Worker(Membership(number, total, **knobs))
                self.above["worker", at] = ("leaf", leaf)
                at += 1
        self.joined: set[Any] = set()
        self.events: list[tuple[float, int, Any, Any, np.ndarray]] = []
        self.sequence = 0
        self.dead: set[Any] = set()
        self.errors: dict[Any, RanksFailedError] = {}
        for worker in self.workers:
            self.join(worker)

    def join(self, name: Any) -> None:
        """Let a worker join, without loss."""
        member = self.workers[name].member
        said = ControlFrame(
            JOIN, member.job, 0, member.worker, member.workers, member.shape, member.slots, session=member.session
        )
        script, self.script = self.script, at_once
        self.send(name, self.above[name], said.frame(member.key))
        while self.events:
            self.deliver()
        self.script = script

    def send(self, source: Any, target: Any, frames: np.ndarray | bytes) -> None:
        """Put frames on the wire, as the script says."""
        if source in self.dead:
            return
        rows = np.frombuffer(frames, np.uint8)[None] if isinstance(frames, bytes) else frames
        for row in rows:
            for delay_s in self.script(source, target, row):
                self.sequence += 1
                heapq.heappush(self.events, (self.now_s + delay_s, self.sequence, target, source, row.copy()))

    def deliver(self) -> None:
        """Let everything arrive that does so next, at one receiver."""
        self.now_s, _, target, _, _ = self.events[0]
        rows: list[tuple[Any, np.ndarray]] = []
        while self.events and self.events[0][0] == self.now_s and self.events[0][2] == target:
            _, _, _, source, row = heapq.heappop(self.events)
            rows.append((source, row))
        if target in self.dead:
            return
        if target in self.switches:
            self._switched(target, rows)
        else:
            self._worked(target, rows)

    def _switched(self, target: Any, rows: list[tuple[Any, np.ndarray]]) -> None:
        batch = []
        for source, row in rows:
            name = ABOVE if source == self.above.get(target) else source
            batch.append((name, row[None]))
        for address, frames in self.switches[target].arrived(batch, self.now_s):
            self.send(target, self.above[target] if address == ABOVE else address, frames)

    def _worked(self, target: Any, rows: list[tuple[Any, np.ndarray]]) -> None:
        worker = self.workers[target]
        for _, row in rows:
            if len(row) != control_bytes(self.key):
                worker.arrived(row[None], self.now_s)
            elif (said := ControlFrame.read(row.tobytes(), self.key)) is not None:
                if said.kind == WAITING:
                    worker.told(said, self.now_s)
                elif said.kind == JOINED:
                    self.joined.add(target)

    def all_reduce(
        self, vectors: list[np.ndarray], each: Callable[[Network], None] | None = None
    ) -> list[np.ndarray | None]:
        """Sum vectors; None for workers that died or gave up, whose errors are kept."""
        for worker, vector in zip(self.workers.values(), vectors, strict=True):
            worker.begin(vector, self.now_s)
        open_ = [name for name in self.workers if name not in self.dead]
        while open_:
            for name in open_:
                worker = self.workers[name]
                due = worker.frames(self.now_s)
                if len(due):
                    self.send(name, self.above[name], due)
                if self.now_s - worker.moved_s > self.patience_s and not worker.done:
                    self.errors[name] = worker.stuck(self.now_s)
            open_ = [
                name
                for name in open_
                if name not in self.dead and name not in self.errors and not self.workers[name].done
            ]
            timers = [self.now_s + self.workers[name].wait_s(self.now_s) + 1e-9 for name in open_]
            if self.events and (not timers or self.events[0][0] <= min(timers)):
                self.deliver()
            elif timers:
                self.now_s = min(timers)
            if each is not None:
                each(self)
        while self.events:  # what is still under way is late for everybody
            self.deliver()
        return [
            None if name in self.dead or name in self.errors else worker.result()
            for name, worker in self.workers.items()
        ]
