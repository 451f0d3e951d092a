"""Where a rank runs: which address others reach it at, and what has to stand before its command to run there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """One rank's place. ``command`` stands before the rank's own (``nsenter ... --``); empty: this machine as it is.

    ``ports``: its interfaces on the network under test, where there are several.
    """

    rank: int
    address: str = "127.0.0.1"
    interface: str = "lo"
    command: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()

    @property
    def counted(self) -> list[str]:
        """The interfaces whose bytes are the rank's traffic."""
        return list(self.ports or (self.interface,))


def here(n: int) -> tuple[Place, ...]:
    """Return n places on this machine, over loopback."""
    return tuple(Place(rank) for rank in range(n))
