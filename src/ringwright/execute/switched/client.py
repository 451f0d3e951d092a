"""A worker on a socket: join a switch, sum vectors through it, leave."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ringwright.execute.switched.datagrams import Datagrams
from ringwright.execute.switched.frames import JOIN, JOINED, LEAVE, REFUSED, WAITING, ControlFrame, control_bytes
from ringwright.execute.switched.switch import REASONS, REMEDIES, SAME_TERMS
from ringwright.execute.switched.worker import Membership, Worker
from ringwright.ground.errors import InfeasibleError, RanksFailedError

if TYPE_CHECKING:
    import numpy as np

JOIN_S = 0.05  # between two tries
BUSY = 5  # the one reason that may pass
COALESCE_S = 0.0008
MANY = 16  # frames under way from which on results are taken in batches
LEAVES = 3  # copies of the last word, which nobody acknowledges


class SwitchClient:
    """One worker's side. ``patience_s``: without any result for so long an error names who is missing.

    Raises RanksFailedError where the switch or a worker does not answer, InfeasibleError where the switch refuses.
    """

    def __init__(
        self, member: Membership, switch: tuple[str, int], *, patience_s: float = 10.0, plain: bool = False
    ) -> None:
        self.member, self.switch, self.patience_s = member, switch, patience_s
        self.worker = Worker(member)
        self.wire = Datagrams(_own_host(switch), 0, plain=plain)
        self._joined = False
        self._short = control_bytes(member.key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def join(self) -> None:
        """Say who we are until the switch answers; comes by itself before the first vector."""
        began_s = time.monotonic()
        while not self._joined:
            self.wire.send(self.switch, self._said(JOIN))
            self.wire.wait(JOIN_S)
            refused = self._take()
            waited_s = time.monotonic() - began_s
            if refused is not None and (refused.what != BUSY or waited_s > self.patience_s):
                raise InfeasibleError(
                    f"the switch does not let worker {self.member.worker} join: {REASONS[refused.what % len(REASONS)]}",
                    where=self._at(),
                    remedy=REMEDIES.get(refused.what, SAME_TERMS),
                )
            if waited_s > self.patience_s:
                raise RanksFailedError(
                    f"no switch answers worker {self.member.worker}",
                    where=self._at(),
                    remedy=f"ringwright switch --listen {self._at()} --workers {self.member.workers}; the same key?",
                )

    def all_reduce(self, vector: np.ndarray) -> np.ndarray:
        """Return the sum of every worker's vector, of equal length: float32 (codec none: int32), of shape (elements,)."""
        self.join()
        worker = self.worker
        worker.begin(vector, time.monotonic())
        while not worker.done:
            now_s = time.monotonic()
            due = worker.frames(now_s)
            if len(due):
                self.wire.send(self.switch, due)
            self.wire.wait(min(worker.wait_s(now_s), self.patience_s))
            if worker.outstanding > MANY:
                time.sleep(COALESCE_S)
            self._take()
            if time.monotonic() - worker.moved_s > self.patience_s:
                raise worker.stuck(time.monotonic(), at=self._at())
        return worker.result()

    def _take(self) -> ControlFrame | None:
        """Take what has come; return a refusal."""
        refused = None
        now_s = time.monotonic()
        for sender, frames in self.wire.receive():
            if sender != self.switch:
                self.worker.counts["strangers"] += len(frames)
            elif frames.shape[1] != self._short:
                self.worker.arrived(frames, now_s)
            else:
                for frame in frames:
                    said = ControlFrame.read(frame.tobytes(), self.member.key)
                    if said is None or (said.job, said.session) != (self.member.job, self.member.session):
                        self.worker.counts["strangers"] += 1
                    elif said.kind == JOINED:
                        self._joined = True
                    elif said.kind == WAITING:
                        self.worker.told(said, now_s)
                    elif said.kind == REFUSED:
                        refused = said
        return refused

    def _said(self, kind: int) -> bytes:
        member = self.member
        control = ControlFrame(
            kind, member.job, 0, member.worker, member.workers, member.shape, member.slots, session=member.session
        )
        return control.frame(member.key)

    def _at(self) -> str:
        return f"{self.switch[0]}:{self.switch[1]}"

    def close(self) -> None:
        """Leave: say so, a few times, and close the socket; once more changes nothing."""
        if self._joined:
            self._joined = False
            for _ in range(LEAVES):
                self.wire.send(self.switch, self._said(LEAVE))
        self.wire.close()


def _own_host(switch: tuple[str, int]) -> str:
    """Return the address from which this machine reaches the switch."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(switch)
        except OSError as error:
            raise InfeasibleError(
                f"the switch cannot be reached: {error.strerror}", where=f"{switch[0]}:{switch[1]}", remedy="ip route"
            ) from None
        host: str = probe.getsockname()[0]
        return host
