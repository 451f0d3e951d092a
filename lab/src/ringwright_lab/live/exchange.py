"""One rank's gradients on their way: copied into buffers, announced, sent, and handed back when every piece has come."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from threading import Condition
from typing import Any

from ringwright.ground.errors import RanksFailedError, RingwrightError
from ringwright_lab.live.control import Control
from ringwright_lab.live.control_channel import ControlConnection
from ringwright_lab.live.gathers import GatherGate
from ringwright_lab.live.plan import LivePlan
from ringwright_lab.live.through_switch import SwitchSums
from ringwright_lab.live.traffic import EmulatedLink, PieceTraffic, SentPiece

ANSWER_S = 3.0  # for rank 0 to say who keeps us waiting
KEPT_STEPS = 64


class GradientExchange:
    """What lies between the hooks of a model and the process group. Steps are numbered alike on all ranks."""

    def __init__(
        self,
        torch: Any,
        group: Any,
        rank: int,
        wires: Mapping[int, ControlConnection],
        *,
        link: EmulatedLink | None,
        sums: SwitchSums | None = None,
        average: bool,
        timeout_s: float,
        check_every: int,
    ) -> None:
        self._torch, self.rank, self._timeout_s = torch, rank, timeout_s
        self.world = len(wires) + 1 if rank == 0 else torch.distributed.get_world_size(group)
        self._changed = Condition()
        self._failure: tuple[str, str, str] | None = None
        self._left: dict[int, dict[str, int]] = {}  # step -> parameter -> pieces not yet there
        self._settled: dict[int, bytes] = {}
        self._missing: dict[int, list[set[str]]] = {}  # step -> unit -> parameters not yet put
        self._announced_s: dict[tuple[int, int], float] = {}
        self.plan: LivePlan
        self.buffers: list[Any] = []
        self.control = Control(rank, wires, self, timeout_s=timeout_s, check_every=check_every)
        self.traffic = PieceTraffic(
            torch,
            group,
            self.world,
            link,
            sums,
            average=average,
            issued=self.control.issued,
            done=self._came,
            failed=self._broke,
        )

    def adopt(self, plan: LivePlan, step: int, dtypes: Mapping[str, Any]) -> None:
        """Follow a plan from ``step`` on; every rank calls it while nothing is under way."""
        self.plan = plan
        self.buffers = [
            self._torch.zeros(plan.elements(at), dtype=self._dtype(plan, at, dtypes))
            for at in range(len(plan.operations))
        ]
        self._units: dict[str, list[int]] = defaultdict(list)
        for at, unit in enumerate(plan.units):
            for name in unit.payloads:
                self._units[name].append(at)
        for at, gather in plan.gathers.items():
            self.buffers[at] = self.buffers[gather.scatter]
        self._carried: dict[tuple[int, int], list[str]] = defaultdict(list)
        for name in plan.places:
            for piece in plan.carriers(name):
                self._carried[piece].append(name)
        self._counts = {name: len(plan.carriers(name)) for name in plan.places}
        self.index = {name: at for at, name in enumerate(plan.places)}
        self._gate = GatherGate(plan, self._announce)
        self.traffic.adopt(plan, self.buffers)
        self.control.adopt(plan, step)

    def _dtype(self, plan: LivePlan, operation: int, dtypes: Mapping[str, Any]) -> Any:
        """Return the type in which numbers travel: their own, or half precision where the policy says two bytes."""
        own = dtypes[plan.operations[operation].payloads[0].name]
        return self._torch.float16 if plan.width(operation) == 2 and own.itemsize != 2 else own

    # ------------------------------------------------------------------------------------------------------ going there
    def put(self, step: int, name: str, gradient: Any) -> None:
        """Take a gradient (None: zeros), and announce what has become ready with it."""
        self.check()
        span = self.plan.places[name]
        part = self.buffers[span.operation][span.first : span.first + span.elements]
        with self._torch.no_grad():
            if gradient is None:
                part.zero_()
            else:
                part.copy_(gradient.detach().reshape(-1))
        with self._changed:
            self._left.setdefault(step, dict(self._counts))
        missing = self._missing.setdefault(step, [set(unit.payloads) for unit in self.plan.units])
        for unit in self._units[name]:
            missing[unit].discard(name)
            if not missing[unit]:
                self._announce(step, unit)

    def _announce(self, step: int, unit: int) -> None:
        with self._changed:  # gathers are announced by the thread that hears of their scatter's end
            self._announced_s[step, unit] = time.perf_counter()
        self.control.announce(step, unit)

    def end(self, step: int, used: Iterable[str]) -> None:
        """Say that the backward of a step is over here, with gradients for ``used``."""
        marks = bytearray(len(self.index))
        for name in used:
            marks[self.index[name]] = 1
        self._missing.pop(step, None)
        self.control.ended(step, bytes(marks))
        self._forget(step - KEPT_STEPS)

    def _forget(self, before: int) -> None:
        self._gate.forget(before)
        with self._changed:
            for key in [key for key in self._announced_s if key[0] < before]:
                del self._announced_s[key]
            for step in [step for step in self._left if step < before]:
                del self._left[step]
            for step in [step for step in self._settled if step < before]:
                del self._settled[step]

    # ------------------------------------------------------------------------------------------------------ coming back
    def wait(self, step: int, names: Iterable[str]) -> None:
        """Return when every piece of these parameters has come; RanksFailedError, naming who lacks what, otherwise."""
        names = list(names)
        self._gate.wanted(step, names)
        for name in names:
            self._until(lambda name=name: not self._left[step][name], step, self._first_lacking(step, name))

    def _first_lacking(self, step: int, name: str) -> int:
        """Return the unit to ask for where a parameter keeps us waiting: its gather, once its scatter is done."""
        gather = self.plan.gather_of(name)
        with self._changed:
            is_scattered = gather is not None and self._left[step][name] == 1
        return self._gate.unit[gather] if gather is not None and is_scattered else self._units[name][0]

    def used(self, step: int) -> set[str]:
        """Return the parameters that any rank had a gradient for, once every rank has ended its backward."""
        self._until(lambda: step in self._settled, step, len(self.plan.units))
        marks = self._settled[step]
        return {name for name, at in self.index.items() if marks[at]}

    def _until(self, met: Any, step: int, unit: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure or met(), self._timeout_s)
            if met():
                return
            failed = self._failure is not None
        if not failed:
            self.control.ask(step, unit)
            with self._changed:
                self._changed.wait_for(lambda: self._failure, ANSWER_S)
        self.check()
        raise RanksFailedError(
            f"rank {self.rank} has waited {self._timeout_s:g} s in step {step}, and rank 0, which leads, does not answer",
            remedy="look whether rank 0 is stopped, or cut off",
        )

    def value(self, name: str) -> Any:
        """Return the sum (or mean) of a parameter's gradients, flat; it is overwritten by the next step."""
        span = self.plan.places[name]
        return self.buffers[span.operation][span.first : span.first + span.elements]

    def check(self) -> None:
        """Raise what has gone wrong, on this rank or on another one."""
        if self._failure is not None:
            what, where, remedy = self._failure
            raise RanksFailedError(what, where=where, remedy=remedy)

    def close(self) -> None:
        """Leave; nothing may be under way."""
        self.control.close()
        self.traffic.close()

    @property
    def announced_s(self) -> dict[tuple[int, int], float]:
        """When what was ready was announced, by step and unit."""
        with self._changed:
            return dict(self._announced_s)

    @property
    def sent(self) -> list[SentPiece]:
        """The last pieces."""
        return list(self.traffic.sent)

    # ----------------------------------------------------------------------------------------------- what threads tell us
    def go(self, step: int, operation: int, piece: int, *, queued: bool) -> None:
        """Start a piece."""
        self.traffic.go((step, operation, piece), queued=queued)

    def opened(self, step: int, unit: int) -> None:
        """Take in that a rank needs a gather."""
        self._gate.told(step, unit)

    def settled(self, step: int, used: bytes) -> None:
        """Take in what anybody used."""
        with self._changed:
            self._settled[step] = used
            self._changed.notify_all()

    def failed(self, what: str, where: str, remedy: str) -> None:
        """Take in that nothing goes on."""
        with self._changed:
            self._failure = self._failure or (what, where, remedy)
            self._changed.notify_all()

    def _came(self, step: int, operation: int, piece: int) -> None:
        self.control.finished(operation, piece)
        with self._changed:
            left = self._left[step]
            for name in self._carried[operation, piece]:
                left[name] -= 1
            self._changed.notify_all()
        self._gate.scattered(step, operation)

    def _broke(self, error: BaseException) -> None:
        """A piece failed here: the other ranks' word about the reason comes first, if there is one, and the error has none."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure, 0.0 if isinstance(error, RingwrightError) else 1.0)
            known = self._failure is not None
        if not known:
            what, where, remedy = f"a collective failed: {error}", "", "look for the rank that left"
            if isinstance(error, RingwrightError):
                what, where, remedy = error.what, error.where, error.remedy
            self.control.fail(what, where, remedy)
            self.failed(f"rank {self.rank}: {what}", where, remedy)
