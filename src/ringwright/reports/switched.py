"""What a switch that adds says: where it listens, and at the end what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from ringwright.execute.switched.serving import READY

if TYPE_CHECKING:
    from ringwright.execute.switched.serving import SwitchServer


def ready(server: SwitchServer, file: TextIO) -> None:
    """Say that a switch takes frames, where, and what this machine does not have for it."""
    host, port = server.wire.address
    settings = server.switch.settings
    above = f", branch {settings.branch} of {server.parent[0]}:{server.parent[1]}" if server.parent else ""
    key = "with a key" if settings.key else "without a key"
    line = (
        f"{READY}{host}:{port}: {settings.workers} workers, {settings.slots} slots, {settings.jobs} jobs, {key}{above}"
    )
    print("\n".join([line, *server.wire.notices]), file=file, flush=True)


def counted(told: Mapping[str, int], file: TextIO) -> None:
    """Say what was counted."""
    print(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in told.items()), file=file)
