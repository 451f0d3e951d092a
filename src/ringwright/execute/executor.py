"""An executor: over what messages go, and who starts the ranks. Which there are is in the folder ``offered``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringwright.execute.launch import Start, plain, rank_command, rank_environment
from ringwright.execute.rank_host import Place, here
from ringwright.ground.errors import DeclinedError, MissingExtraError


@dataclass(frozen=True)
class Executor:
    """``backend`` starts the ranks, ``wire`` carries their messages; ``library`` is the MPI library meant."""

    name: str
    wire: str
    backend: str = "processes"
    library: str = ""
    says: str = ""

    def starts(
        self,
        folder: Path,
        n: int,
        places: Sequence[Place] | None = None,
        settings: Mapping[str, str] | None = None,
        transport: str = "default",
    ) -> list[Start]:
        """Return what starts ``n`` ranks, on this machine or at ``places``; ``settings`` go into their environment."""
        environment = {**rank_environment(), **(settings or {})}
        if self.library:
            from ringwright.execute.mpi_runtime import command, runtime

            argv, whole = command(
                runtime(self.library),
                n,
                rank_command(folder),
                environment,
                places,
                transport=transport,
                oversubscribed=True,
            )
            return [Start(tuple(argv), whole, ())]
        starts = plain(folder, places or here(n))
        return [
            Start(start.argv, {**environment, **_interface(place)}, start.ranks)
            for start, place in zip(starts, places or here(n), strict=True)
        ]

    def missing(self) -> str:
        """Return why it cannot run here; empty where it can."""
        try:
            if self.library:
                from ringwright.execute.mpi_runtime import runtime

                runtime(self.library)
            elif self.backend.startswith("torch"):
                from ringwright.execute.torch_ranks import require_torch

                torch = require_torch()
                if self.backend == "torch-nccl" and not torch.cuda.is_available():
                    return "NCCL needs a GPU, and there is none"
        except (MissingExtraError, DeclinedError) as error:
            return str(error)
        return ""


def _interface(place: Place) -> dict[str, str]:
    return {"GLOO_SOCKET_IFNAME": place.interface, "NCCL_SOCKET_IFNAME": place.interface}
