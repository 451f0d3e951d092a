"""Who starts the ranks and knows their numbers, what carries messages between them, and what its own collectives are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ringwright.errors import UsageError
from ringwright.execute.sockets import Sockets

if TYPE_CHECKING:
    from ringwright.collective import Collective
    from ringwright.execute.job import Job
    from ringwright.execute.push import Wire


class Backend(Protocol):
    """One node's view of its surroundings."""

    node: int

    def wire(self, name: str) -> Wire:
        """Return what carries messages; the same one for the same name."""

    def native(self, collective: Collective) -> Any:
        """Return the library's own collective as a Runner, or the reason why it has none."""

    def bystander(self, collective: Collective) -> Any:
        """Return the same for a node that takes no part in it."""

    def close(self) -> None:
        """Leave."""


class Processes:
    """Plain processes, started by us."""

    def __init__(self, job: Job, folder: Path, node: int | None) -> None:
        if node is None:
            raise UsageError("a rank of our own is told its number")
        self.node = node
        self._job, self._folder = job, folder
        self._sockets: Sockets | None = None

    def wire(self, name: str) -> Wire:
        """Return the sockets; they are made on first use."""
        if name != "sockets":
            raise UsageError(f"'{name}' needs ranks that were started by its library")
        if self._sockets is None:
            self._sockets = Sockets(self._folder, self.node, self._job.nodes, self._job.addresses[self.node])
        return self._sockets

    def native(self, collective: Collective) -> Any:
        """Plain processes have no library."""
        return f"no library does {collective.op} here"

    bystander = native

    def close(self) -> None:
        """Close the connections."""
        if self._sockets is not None:
            self._sockets.close()


def backend(job: Job, folder: Path, node: int | None) -> Backend:
    """Return the backend of a job."""
    if job.backend == "mpi":
        from ringwright.execute.mpi_ranks import MpiRanks

        return MpiRanks(job, folder)
    if job.backend == "torch":
        from ringwright.execute.torch_ranks import TorchRanks

        return TorchRanks(job, folder, node)
    return Processes(job, folder, node)
