"""One rank's part in the agreement: it announces what it has, is told what goes, or follows an order that was fixed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from threading import RLock, Thread
from typing import Protocol

from ringwright_lab.live.choose import Chooser, Fixed
from ringwright_lab.live.control_channel import (
    ASK,
    BEGIN,
    BYE,
    ENDED,
    FAIL,
    GO,
    HASH,
    HAVE,
    OPENED,
    ORDER,
    SETTLED,
    ControlConnection,
    ControlMessage,
)
from ringwright_lab.live.coordinator import Coordinator
from ringwright_lab.live.plan import LEADER, LivePlan, agreement

CLOSING_S = 2.0
ISSUED = struct.Struct("!IIIII")


class Listener(Protocol):
    """What a rank does when it is told something."""

    def go(self, step: int, operation: int, piece: int, *, queued: bool) -> None:
        """Start a piece."""

    def opened(self, step: int, unit: int) -> None:
        """A rank needs a gather: it may go on all."""

    def settled(self, step: int, used: bytes) -> None:
        """Every rank has ended its backward; a byte per parameter says whether anybody has used it."""

    def failed(self, what: str, where: str, remedy: str) -> None:
        """Nothing goes on."""


class Control:
    """One rank's end; on rank 0 the coordinator as well."""

    def __init__(
        self,
        rank: int,
        wires: Mapping[int, ControlConnection],
        listener: Listener,
        *,
        timeout_s: float,
        check_every: int,
    ) -> None:
        self.rank, self._wires, self._listener = rank, wires, listener
        self._timeout_s, self._check_every = timeout_s, check_every
        self._lock = RLock()
        self._plan: LivePlan
        self._fixed: Fixed | None = None
        self._begun = self._told = -1
        self._issued, self._digest = 0, hashlib.blake2b(digest_size=8)
        self._closed = self._alone = False
        self.coordinator = Coordinator(len(wires) + 1, self._tell_all) if rank == 0 else None
        self._readers = [Thread(target=self._read, args=(peer,), daemon=True) for peer in wires]
        for reader in self._readers:
            reader.start()

    def adopt(self, plan: LivePlan, step: int) -> None:
        """Follow a plan from a step on; nothing may be under way, on any rank."""
        with self._lock:
            self._plan = plan
            led = agreement(plan.workload) == LEADER
            self._fixed = None if led else Fixed(plan)
            if self._fixed is not None:
                self._fixed.begin(step)
            if self.coordinator is not None:
                self.coordinator.adopt(plan, Chooser(plan) if led else None)

    # ------------------------------------------------------------------------------------------------- what a rank says
    def announce(self, step: int, unit: int) -> None:
        """Say that the pieces of a unit are ready here."""
        with self._lock:
            if self._fixed is not None:
                if self._told < step:
                    self._told = step
                    order = hashlib.blake2b(repr(self._fixed.order).encode(), digest_size=8).digest()
                    self._say(ControlMessage(ORDER, step, body=order))
                self._fixed.ready(step, self._plan.units[unit])
            self._say(ControlMessage(HAVE, step, unit))
            self._pump(queued=False)

    def ended(self, step: int, used: bytes) -> None:
        """Say that this rank's backward is over, and which parameters have a gradient."""
        self._say(ControlMessage(ENDED, step, body=used))

    def issued(self, step: int, operation: int, piece: int) -> None:
        """Take down that a piece was handed to the process group; compare with the other ranks now and then."""
        begin, end = self._plan.span(operation, piece)
        self._digest.update(ISSUED.pack(step, operation, piece, begin, end - begin))
        self._issued += 1
        if self._issued % self._check_every == 0:
            self._say(ControlMessage(HASH, self._issued, body=self._digest.digest()))

    def finished(self, operation: int, piece: int) -> None:
        """Say that a piece is done here, which makes room in the window."""
        with self._lock:
            if self._fixed is not None:
                self._fixed.done(operation, piece)
                self._pump(queued=True)
            elif self.coordinator is not None and self.coordinator.chooser is not None:
                self.coordinator.chooser.done(operation, piece)
                self.coordinator.go(queued=True)

    def ask(self, step: int, unit: int) -> None:
        """Ask who keeps this rank waiting; the answer fails all ranks."""
        self._say(ControlMessage(ASK, step, unit))

    def fail(self, what: str, where: str = "", remedy: str = "") -> None:
        """Tell all ranks that this one cannot go on."""
        self._say(ControlMessage(FAIL, body=f"{what}\x00{where}\x00{remedy}".encode()))

    def close(self) -> None:
        """Say goodbye and end the connections."""
        if self._closed:
            return
        self._closed = True
        for wire in self._wires.values():
            try:
                wire.send(ControlMessage(BYE))
            except OSError:
                continue
        if self.coordinator is not None:  # rank 0 stays to hear the others' goodbye
            for reader in self._readers:
                reader.join(CLOSING_S)
        for wire in self._wires.values():
            wire.close()

    # -------------------------------------------------------------------------------------------------------- transport
    def _say(self, message: ControlMessage) -> None:
        """Tell rank 0."""
        if self.coordinator is not None:
            self._hear(0, message)
            return
        if self._alone:
            # Both are said of what was announced before: rank 0 may have finished all of it and closed meanwhile.
            if message.kind in (HASH, ENDED):
                return
            self._listener.failed(
                "rank 0, which leads, has closed its schedule",
                "",
                "close the schedules of all ranks after the same step",
            )
            return
        try:
            self._wires[0].send(message)
        except OSError:
            self._lost(0)

    def _tell_all(self, message: ControlMessage) -> None:
        for wire in self._wires.values():
            try:
                wire.send(message)
            except OSError:
                continue
        self._told_by_coordinator(message)

    def _read(self, peer: int) -> None:
        wire = self._wires[peer]
        while (message := wire.receive()) is not None:
            if message.kind == BYE:
                self._bye(peer)
                break
            if self.coordinator is not None:
                self._hear(peer, message)
            else:
                self._told_by_coordinator(message)
        else:
            if not self._closed:
                self._lost(peer)

    def _bye(self, peer: int) -> None:
        if self.coordinator is not None:
            with self._lock:
                self.coordinator.gone(peer)
        else:
            self._alone = True  # what rank 0 has let go before still comes

    def _lost(self, peer: int) -> None:
        if self.coordinator is not None:
            with self._lock:
                self.coordinator.gone(peer, "its connection broke off")
        else:
            self._listener.failed(
                "rank 0, which leads, has left: its connection broke off", "", "look for the error of rank 0"
            )

    def _hear(self, rank: int, message: ControlMessage) -> None:
        """Rank 0: take in what a rank said."""
        coordinator = self.coordinator
        if coordinator is None:
            return
        with self._lock:
            if message.kind == HAVE:
                coordinator.have(rank, message.a, message.b)
            elif message.kind == ENDED:
                coordinator.ended(rank, message.a, message.body)
            elif message.kind == HASH:
                coordinator.hashed(rank, message.a, message.body)
            elif message.kind == ORDER:
                coordinator.ordered(rank, message.a, message.body)
            elif message.kind == ASK:
                coordinator.asked(rank, message.a, message.b, self._timeout_s, self._head())
            elif message.kind == FAIL:
                what, where, remedy = message.body.decode().split("\0")
                coordinator.fail(f"rank {rank}: {what}", where, remedy)

    def _head(self) -> tuple[int, int] | None:
        if self._fixed is None or not self._fixed.order:
            return None
        step, operation, piece = self._fixed.head()
        units = enumerate(self._plan.units)
        return step, next(at for at, unit in units if unit.operation == operation and piece in self._plan.pieces(unit))

    def _told_by_coordinator(self, message: ControlMessage) -> None:
        if message.kind == GO:
            self._listener.go(message.a, message.b, message.c, queued=bool(message.flag))
        elif message.kind == OPENED:
            self._listener.opened(message.a, message.b)
        elif message.kind == SETTLED:
            self._listener.settled(message.a, message.body)
        elif message.kind == BEGIN:
            with self._lock:
                self._begun = message.a
                self._pump(queued=False)
        elif message.kind == FAIL:
            what, where, remedy = message.body.decode().split("\0")
            self._listener.failed(what, where, remedy)

    def _pump(self, *, queued: bool) -> None:
        """Start what a fixed order lets start, in steps whose order was found equal on all ranks."""
        while self._fixed is not None and self._fixed.head()[0] <= self._begun:
            taken = self._fixed.take()
            if taken is None:
                return
            self._listener.go(taken.step, taken.operation, taken.piece, queued=queued)
