"""Ranks that an MPI library started: Programs over its point-to-point messages, and its own collectives beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.execute.arena import ordinary
from ringwright.execute.arithmetic import element
from ringwright.execute.mpi_native import native
from ringwright.execute.mpi_wire import MpiWire
from ringwright.execute.native import Buffers, Bystander
from ringwright.ground.errors import RingwrightError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.execute.arena import Arena
    from ringwright.execute.job import RankJob
    from ringwright.execute.push import Request, Wire
    from ringwright.model.collective import Collective

WHOLE = 1 << 40  # over shared memory pieces gain nothing


class MpiRanks:
    """One rank of MPI's world."""

    def __init__(self, job: RankJob, folder: Path) -> None:
        del folder
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.node = int(self._world.rank)
        if self._world.size != job.nodes:
            raise UsageError(f"MPI has started {self._world.size} ranks for a job of {job.nodes}")
        self._call = job.call
        self._wire: MpiWire | None = None
        self._comms: dict[int, Any] = {}

    def wire(self, name: str) -> Wire:
        """Return MPI's messages."""
        if name != "mpi":
            raise UsageError(f"ranks of MPI have no wire '{name}'", remedy="mpi, memory or sockets")
        if self._wire is None:
            self._wire = MpiWire()
        return _Opened(self._wire)

    def arena(self, name: str, size: int, collective: Collective) -> Arena:
        """Return ordinary memory."""
        del name
        return ordinary(size, collective)

    def piece_bytes(self, name: str) -> int:
        """Return that messages go whole."""
        del name
        return WHOLE

    def _comm(self, p: int) -> Any:
        """Return a communicator of the first p nodes; all nodes must ask."""
        if p not in self._comms:
            self._comms[p] = self._world.Split(0 if self.node < p else 1, self.node)
        return self._comms[p]

    def native(self, collective: Collective) -> Any:
        """Return the library's own collective, or the reason why it has none."""
        comm = self._comm(collective.p)
        try:
            return Buffers(collective, self.node, lambda buffers: _prepared(comm, buffers, self._call))
        except RingwrightError as error:
            return str(error.what)

    def bystander(self, collective: Collective) -> Any:
        """Return a rank that only looks on."""
        self._comm(collective.p)
        return Bystander()

    def close(self) -> None:
        """Free what was prepared; MPI ends with the process."""
        if self._wire is not None:
            self._wire.close()
        for comm in self._comms.values():
            comm.Free()


class _Opened:
    """A session of the wire; turns are tags, so nothing has to be added up."""

    at_once = False

    def __init__(self, wire: MpiWire) -> None:
        self._wire = wire

    def session(self) -> _Opened:
        return self

    def send(self, peer: int, turn: int, piece: int, buffer: Any) -> Request:
        del piece  # pieces of a message keep their order
        return self._wire.prepare_send(peer, turn, buffer)

    def receive(self, peer: int, turn: int, piece: int, buffer: Any) -> Request:
        del piece
        return self._wire.prepare_recv(peer, turn, buffer)

    def finish(self) -> None:
        """Nothing to add up."""


def _prepared(comm: Any, buffers: Buffers, asked: str) -> Callable[[], object]:
    """Return one run; where the library works in place, the buffer takes the contribution the first time only."""
    collective, kind = buffers.collective, element(buffers.collective)
    reduce_op = "sum" if collective.reduce_op == "avg" else collective.reduce_op  # who looks at the result divides
    knobs: dict[str, Any] = {"dtype": kind, "reduce_op": reduce_op, "root": collective.root}
    op = collective.op
    if op == "send-recv":
        return _shifted(comm, buffers)
    if op == "all-reduce" or (op in ("broadcast", "reduce") and comm.rank == collective.root):
        call = native(comm, op, None, buffers.receive, **knobs)
        return _fresh(buffers, call)
    if op == "broadcast":
        return native(comm, op, None, buffers.receive, **knobs)
    counts = _counts(collective, buffers)
    if op == "reduce-scatter" and counts is None:
        op = asked or "reduce-scatter-block"
    return native(comm, op, buffers.send, buffers.receive, counts=counts, **knobs)


def _counts(collective: Collective, buffers: Buffers) -> Any:
    """Return elements per block where they differ; None where the even form does."""
    sizes = [int(size) // buffers.kind.itemsize for size in collective.block_bytes]
    if collective.op == "all-to-all":
        p = collective.p
        rows = [[sizes[(row * p + column) % len(sizes)] for column in range(p)] for row in range(p)]
        return None if len({each for row in rows for each in row}) == 1 else rows
    return None if len(set(sizes)) == 1 else sizes


def _fresh(buffers: Buffers, call: Callable[[], None]) -> Callable[[], None]:
    first = [True]

    def run() -> None:
        if first:
            buffers.receive[:] = buffers.send
            first.clear()
        call()

    return run


def _shifted(comm: Any, buffers: Buffers) -> Callable[[], object]:
    """Each rank sends to the next."""
    p, rank = buffers.collective.p, buffers.rank
    send, receive = buffers.send, buffers.receive
    return lambda: comm.Sendrecv(send, (rank + 1) % p, recvbuf=receive, source=(rank - 1) % p)
