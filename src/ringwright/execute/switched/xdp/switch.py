"""A switch whose sums are made in the kernel: this side lets workers in, says who is missing, and never sees a sum.

The kernel sends a result once through every port behind which a worker of the job is: two workers of a job behind one port would
share it, and are refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

import numpy as np

from ringwright.execute.switched.frames import (
    JOINED,
    REFUSED,
    SLOT_MASK,
    VERSION_BIT,
    ControlFrame,
    control_bytes,
    headers,
)
from ringwright.execute.switched.pool import PoolOutcome, SwitchSlots
from ringwright.execute.switched.switch import (
    NO_PORT,
    PORT_DOES_NOT_SEND,
    PORT_IS_SHARED,
    AddingSwitch,
    Sent,
    SwitchJob,
    SwitchSettings,
)
from ringwright.execute.switched.terms import ALL_PORTS
from ringwright.execute.switched.xdp import ports
from ringwright.execute.switched.xdp.compiling import no_xdp
from ringwright.execute.switched.xdp.tables import JOB, SLOT, Address, PortSeat, SwitchTables
from ringwright.ground.errors import UsageError


class KernelSlots(SwitchSlots):
    """The slots of one job, which are in the kernel. What reaches this side are copies whose sum is not complete."""

    def __init__(self, tables: SwitchTables, first: int, said: ControlFrame, settings: SwitchSettings) -> None:
        super().__init__(0, settings.workers, said.shape, said.job, is_root=settings.branch < 0)
        self.slots, self.first, self._tables = said.slots, first, tables
        tables.empty(range(first, first + said.slots))

    @property
    def size_bytes(self) -> int:
        """Memory of the slots, which are as large for every frame."""
        return self.slots * SLOT.itemsize

    def arrive(self, worker: int, frames: np.ndarray, outcome: PoolOutcome) -> None:
        """Note of copies (uint8, one a row) that a peer is missing."""
        pool = headers(frames)["pool"]
        pool = pool[(pool & SLOT_MASK) < self.slots]
        pairs = zip((pool >> 15).tolist(), (pool & SLOT_MASK).tolist(), strict=True)
        outcome.waiting.setdefault(worker, []).extend(pairs)

    def from_above(self, frames: np.ndarray, outcome: PoolOutcome) -> None:
        """Take nothing: results of the switch above are the kernel's."""

    def missing(self, version: int, slot: int) -> tuple[int, int, int]:
        """Return (chunk, pool index, bitmap of the workers that have been heard) of a slot."""
        held = self._tables.slot(self.first + slot)["versions"][version]
        return int(held["tsi"]), slot | version * VERSION_BIT, int(held["seen"])


class KernelSwitch(AddingSwitch):
    """``own``: where it listens; ``above``: where the switch above does; ``tables``: a program that is loaded already.

    Raises InfeasibleError where there is no XDP.
    """

    def __init__(
        self, settings: SwitchSettings, own: Address, above: Address | None = None, tables: SwitchTables | None = None
    ) -> None:
        super().__init__(settings)
        self.own, self.above = own, above
        self.tables = tables or SwitchTables(settings.slots)
        self._seats: dict[int, dict[int, tuple[Address, PortSeat]]] = {}  # by job and worker
        self._heard: dict[int, int] = {}  # by job, as it was when last looked at
        self._last: Mapping[str, int] = {}
        self.lose(0.0)

    def lose(self, share: float) -> None:
        """Have the kernel lose a share of what comes, by lot: a fault, for trials."""
        if not 0 <= share < 1:
            raise UsageError(f"a share of {share:g} cannot be lost", remedy="from 0 to below 1, such as 0.01")
        self.tables.settle(self.own, self.above, control_bytes(self.settings.key), share)

    def attach(self, asked: str) -> list[str]:
        """Add on these ports, ``eth0,eth1``, or on ``all`` that can; return their names."""
        able = ports.able()
        names = list(able) if asked == ALL_PORTS else [each.strip() for each in asked.split(",") if each.strip()]
        if not names:
            raise no_xdp("no port here has a driver with XDP", remedy="veth has one; ip link")
        for name in names:
            self.tables.loaded.attach(self.tables.adds, ports.number(name), name)
        return names

    def counts(self) -> dict[str, int]:
        """Return what was counted so far, by the kernel and on this side."""
        counts = super().counts()
        for name, count in (self._last or self.tables.counts()).items():
            counts[name] = counts.get(name, 0) + count
        return counts

    def close(self) -> None:
        """Take the program off its ports; what it counted stays."""
        self._last = self._last or self.tables.counts()
        self.tables.loaded.close()

    def _pool(self, said: ControlFrame) -> SwitchSlots:
        return KernelSlots(self.tables, said.job * self.job_slots, said, self.settings)

    def _begin(self, said: ControlFrame) -> SwitchJob:
        for source, seat in self._seats.pop(said.job, {}).values():
            self.tables.dismiss(source, said.job, seat)
        job = super()._begin(said)
        self._heard.pop(said.job, None)
        self._tell(job, None)
        return job

    def _tell(self, job: SwitchJob, above: PortSeat | None) -> None:
        """Tell the kernel of a job, and of the way to the switch above once that is known."""
        pool, key = job.pool, bool(self.settings.key)
        entry = np.zeros((), JOB)
        entry["first"], entry["slots"], entry["full"] = pool.job * self.job_slots, pool.slots, pool.full
        entry["width"], entry["begins"], entry["is_on"] = pool.shape.width, pool.shape.first_byte, 1
        entry["is_int8"], entry["is_root"], entry["sealed"] = pool.shape.element == "int8", pool.is_root, key
        if key:
            entry["said"], entry["upward"] = (job.tokens[each].view(np.uint64)[0] for each in (-1, -2))
        if above is not None:
            entry["above"] = np.frombuffer(above.raw, JOB["above"])[0]
        self.tables.job(pool.job, entry)

    def _refuses(self, source: Hashable, said: ControlFrame, now_s: float) -> int:
        job = self.jobs.get(said.job)
        if job is not None and job.asked.session != said.session:
            heard = self.tables.heard(said.job)
            if heard != self._heard.get(said.job, 0):
                self._heard[said.job], job.heard_s = heard, now_s
        reason = super()._refuses(source, said, now_s)
        if reason:
            return reason
        seat = self._seat(source)
        if seat is None:
            return NO_PORT
        if job is not None and job.asked.session == said.session:
            others = self._seats.get(said.job, {}).items()
            if any(worker != said.worker and seat.ifindex == other.ifindex for worker, (_, other) in others):
                return PORT_IS_SHARED
        return 0 if self._sends(seat) else PORT_DOES_NOT_SEND

    def _admitted(self, source: Hashable, said: ControlFrame, job: SwitchJob) -> None:
        seat = self._seat(source)
        if seat is None or not isinstance(source, tuple):
            return
        sealed = job.tokens.get(said.worker)
        self._seats.setdefault(said.job, {})[said.worker] = source, seat
        self.tables.sends(seat.ifindex)
        self.tables.admit(source, said.job, said.worker, bytes(8) if sealed is None else sealed.tobytes(), seat)

    def _from_above(self, said: ControlFrame, sent: Sent) -> None:
        job = self.jobs.get(said.job)
        if said.kind == JOINED and job is not None and job.asked.session == said.session:
            seat = self._seat(self.above)
            reason = NO_PORT if seat is None else 0 if self._sends(seat) else PORT_DOES_NOT_SEND
            if seat is not None and not reason:
                self.tables.sends(seat.ifindex)
                self._tell(job, seat)
            else:
                said = dataclasses.replace(said, kind=REFUSED, what=reason)
        super()._from_above(said, sent)

    def _seat(self, source: Hashable) -> PortSeat | None:
        return self.tables.spoken(source) if isinstance(source, tuple) else None

    @staticmethod
    def _sends(seat: PortSeat) -> bool:
        able = ports.features(seat.ifindex)
        return able is None or bool(able & ports.SENDS)
