"""Messages between ranks over MPI's point-to-point calls, for an executor that brings its own algorithm.

Both ends number the messages of a pair by ``turn``, each direction apart; the turn is the tag, so a message finds its receive
even where posts were made in another order. Messages that are sent again and again are prepared once: a persistent request
costs about a third less than a new one.

A rank that waits should leave its core to those who can use it. Open MPI does so inside its own wait, as ``mpi_runtime`` starts
it, and that is the fastest way; MPICH holds the core, which costs nothing where each rank has one. ``yield`` gives the core away
between two looks, whatever the library. A message goes whole: over shared memory pieces gain nothing and cost a call each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    import numpy as np

WAITS = ("block", "yield", "sleep")
_SLEEP_S = 20e-6


class MpiWire:
    """The messages of one rank. Buffers are contiguous arrays of uint8 that live until their message is done."""

    def __init__(self, comm: Any = None, *, waits: str = "block") -> None:
        """Take MPI's world, or ``comm``; a copy of it, so that nothing else of the program can catch these messages.

        ``waits``: ``block`` inside MPI, ``yield`` the core between two looks, or ``sleep`` 20 us between looks.
        """
        if waits not in WAITS:
            raise UsageError(f"no way to wait '{waits}'", remedy=f"one of: {', '.join(WAITS)}")
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            what = "messages over MPI need mpi4py and a libmpi, and to be started by the command of mpi_runtime"
            raise MissingExtraError(what, extra="mpi") from error
        self._comm = (comm or MPI.COMM_WORLD).Dup()
        self.rank, self.p = int(self._comm.rank), int(self._comm.size)
        self._byte, self._idle = MPI.BYTE, {"yield": os.sched_yield, "block": None, "sleep": _nap}[waits]
        self._tags = int(self._comm.Get_attr(MPI.TAG_UB)) + 1
        self._prepared: list[PreparedMessage] = []

    # ------------------------------------------------------------------------------------------------------ once
    def send(self, peer: int, turn: int, buffer: np.ndarray) -> Any:
        """Start to send; the buffer may be overwritten when the handle is done."""
        return self._comm.Isend((buffer, self._byte), peer, turn % self._tags)

    def recv(self, peer: int, turn: int, buffer: np.ndarray) -> Any:
        """Start to receive; the bytes are there when the handle is done."""
        return self._comm.Irecv((buffer, self._byte), peer, turn % self._tags)

    def wait(self, handle: Any) -> None:
        """Return when the message is done."""
        idle = self._idle
        if idle is None:
            handle.Wait()
            return
        while not handle.Test():
            idle()

    def test(self, handle: Any) -> bool:
        """Return whether the message is done."""
        return bool(handle.Test())

    def wait_all(self, handles: Sequence[Any]) -> None:
        """Return when all of these messages are done."""
        for handle in handles:
            self.wait(handle)

    # ------------------------------------------------------------------------------------------------ many times
    def prepare_send(self, peer: int, turn: int, buffer: np.ndarray) -> PreparedMessage:
        """Return a message that can be sent any number of times, always from this buffer."""
        return self._keep(self._comm.Send_init((buffer, self._byte), peer, turn % self._tags))

    def prepare_recv(self, peer: int, turn: int, buffer: np.ndarray) -> PreparedMessage:
        """Return a message that can be received any number of times, always into this buffer."""
        return self._keep(self._comm.Recv_init((buffer, self._byte), peer, turn % self._tags))

    def _keep(self, request: Any) -> PreparedMessage:
        message = PreparedMessage(request, self._idle)
        self._prepared.append(message)
        return message

    # -------------------------------------------------------------------------------------------------- together
    def barrier(self) -> None:
        """Return when every rank has called it; a rank that waits gives its core away."""
        self.wait(self._comm.Ibarrier())

    def close(self) -> None:
        """Free what was prepared, and the communicator; every rank must call it."""
        for message in self._prepared:
            message.free()
        self._prepared.clear()
        if self._comm is not None:
            self._comm.Free()
            self._comm = None


class PreparedMessage:
    """A persistent request: start it, wait for it, start it again."""

    __slots__ = ("_idle", "_request", "start", "test")

    def __init__(self, request: Any, idle: Any) -> None:
        self._request, self._idle = request, idle
        self.start = request.Start  # bound methods: no Python frame of ours between the caller and MPI
        self.test = request.Test

    def wait(self) -> None:
        """Return when the message is done."""
        idle, test = self._idle, self.test
        if idle is None:
            self._request.Wait()
            return
        while not test():
            idle()

    def free(self) -> None:
        """Give the request back; MPICH complains at the end about each one that was not."""
        if self._request:
            self._request.Free()


def _nap() -> None:
    time.sleep(_SLEEP_S)
