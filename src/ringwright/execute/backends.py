"""Who starts the ranks and knows their numbers, what carries messages between them, and what its own collectives are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ringwright.execute.arena import Arena, ordinary
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.execute.job import RankJob
    from ringwright.execute.push import Wire
    from ringwright.model.collective import Collective


class Backend(Protocol):
    """One node's view of its surroundings."""

    node: int

    def wire(self, name: str) -> Wire:
        """Return what carries messages; the same one for the same name."""

    def arena(self, name: str, size: int, collective: Collective) -> Arena:
        """Return memory that the wire can send from."""

    def piece_bytes(self, name: str) -> int:
        """Return into what pieces this wire must be fed; 0: any."""

    def native(self, collective: Collective) -> Any:
        """Return the library's own collective as a Runner, or the reason why it has none."""

    def bystander(self, collective: Collective) -> Any:
        """Return the same for a node that takes no part in it."""

    def close(self) -> None:
        """Leave."""


class Embedded:
    """Plain processes, started by us; memory and sockets are all they have, and all other ranks have these too."""

    def __init__(self, node: int | None) -> None:
        if node is None:
            raise UsageError("a rank of our own is told its number")
        self.node = node

    def wire(self, name: str) -> Wire:
        """Refuse: there is no library."""
        raise UsageError(f"'{name}' needs ranks that were started by its library")

    def arena(self, name: str, size: int, collective: Collective) -> Arena:
        """Return ordinary memory."""
        del name
        return ordinary(size, collective)

    def piece_bytes(self, name: str) -> int:
        """Return 0: any piece."""
        del name
        return 0

    def native(self, collective: Collective) -> Any:
        """Return why there is none."""
        return f"no library does {collective.op} here"

    bystander = native

    def close(self) -> None:
        """Nothing to leave."""


def backend(job: RankJob, folder: Path, node: int | None) -> Backend:
    """Return the backend of a job."""
    if job.backend == "mpi":
        from ringwright.execute.mpi_ranks import MpiRanks

        return MpiRanks(job, folder)
    if job.backend.startswith("torch"):
        from ringwright.execute.torch_ranks import TorchRanks

        return TorchRanks(job, folder, node)
    return Embedded(node)
