"""Who waits for whom: a thread in each rank that notices when nothing moves any more, says where, and ends the process."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ringwright.execute.job import Status, write
from ringwright.execute.plan import Do

if TYPE_CHECKING:
    from ringwright.execute.plan import Message, NodePlan

LOOK_S = 0.1
LAST_S = 3.0  # that the others get to say where they stand before a rank ends: its launcher then ends them all
LATE_S = 5.0  # more for who waits for no message: ranks that share cores come late to a barrier, and know less of why
EXIT_WAITING = 75  # the process gave up waiting; its status says for whom
_DOING = {
    Do.TAKE: "receives from",
    Do.GRAB: "receives from",
    Do.SENT: "sends to",
    Do.SEND: "sends to",
    Do.RECV: "receives from",
}


class Watch:
    """``at``, ``turn`` and the like are set by the rank as it goes; the thread only looks."""

    def __init__(self, folder: Path, node: int, nodes: int, timeout_s: float) -> None:
        self._folder, self._node, self._nodes, self._timeout_s = folder, node, nodes, timeout_s
        self.at, self.turn, self.case = -1, 0, -1
        self.label = ""
        self.at_gate = False
        self.plan: NodePlan | None = None
        self._ending = threading.Lock()  # taken by who ends the process, never given back
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        seen, since_s = None, time.monotonic()
        while True:
            time.sleep(LOOK_S)
            now = (self.at, self.turn, self.case, self.at_gate, self.label)
            if now != seen:
                seen, since_s = now, time.monotonic()
            patience_s = self._timeout_s + (LATE_S if self._message() is None else 0)
            if time.monotonic() - since_s > patience_s or (self._folder / "stop").exists():
                self._ending.acquire()
                write(self._folder / f"status-{self._node}", self.status())
                let_others_say(self._folder, self._nodes, LAST_S)
                os._exit(EXIT_WAITING)

    def status(self) -> Status:
        """Return where this node stands."""
        if self.at_gate:
            return Status(self._node, "waiting", self.case, self.label, "waits at a barrier")
        plan, at = self.plan, self.at
        if plan is None or not 0 <= at < len(plan.order):
            doing = "is in the library's own call" if plan is None and self.case >= 0 else "makes ready"
            return Status(self._node, "waiting", self.case, self.label, doing)
        if (message := self._message()) is None:
            return Status(self._node, "waiting", self.case, self.label, "adds")
        doing = _DOING[Do(plan.order[at][0])]
        return Status(self._node, "waiting", self.case, self.label, doing, [message.peer], message.step, message.chunk)

    def _message(self) -> Message | None:
        """Return the message that the plan stands at; None at a barrier, or where it adds or makes ready."""
        plan, at = self.plan, self.at
        if self.at_gate or plan is None or not 0 <= at < len(plan.order):
            return None
        what, which = plan.order[at]
        if what in (Do.KEEP, Do.LOCAL, Do.APPLY):
            return None
        return (plan.sends if what in (Do.SEND, Do.SENT) else plan.receives)[which]

    def failed(self, error: Exception) -> None:
        """Say that the rank ended with an error, and tell the others. A connection that closed is the peer's failure."""
        self._ending.acquire()
        at = self.status()
        said = f"{type(error).__name__}: {error}"
        if not isinstance(error, ConnectionError):
            at = msgspec.structs.replace(at, state="failed", error=said)
        write(self._folder / f"status-{self._node}", at)
        let_others_say(self._folder, self._nodes, 10 * LOOK_S)  # a rank that died says nothing any more


def let_others_say(folder: Path, nodes: int, most_s: float) -> None:
    """Ask all ranks to end, and wait until each has said where it stands or has answered, or for ``most_s`` seconds."""
    (folder / "stop").touch()
    until_s = time.monotonic() + most_s
    while time.monotonic() < until_s:
        if all((folder / f"status-{node}").exists() or (folder / f"answer-{node}").exists() for node in range(nodes)):
            return
        time.sleep(LOOK_S / 10)
