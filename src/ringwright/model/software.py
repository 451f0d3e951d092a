"""What a library adds to a program besides the wire: its start, its work a message, its own closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class LibraryTime(Protocol):
    """What a call of a library takes by sums and maxima of link numbers."""

    def time_s(self, size_bytes: int, machine: Sequence[float]) -> float:
        """Return seconds for a size: ``machine`` holds seconds of a hop and of a message, and s/byte, inside and outside."""


@dataclass(frozen=True, slots=True)
class Software:
    """What a library adds to a collective beside the wire; maps are by link class, the dearest class of a route counts.

    ``message_s`` holds where nothing was measured on the fabric. What stands beside a measured cost too: ``beyond_s``, by
    which a message of this protocol costs more than one of the quickest; ``byte_s``, a channel's own work per byte of data;
    ``sharing``, how many times as many messages a sender serves as the program gives it; ``piece_bytes``, into which it
    cuts a message (0: not at all); ``most_rate``, the bytes/s over one link of a class that its channels do not exceed together.

    ``post_s`` and ``receive_s`` are work and no delay: seconds that a message takes of its sender's processor, and of its
    receiver's, which work on one after the other. On classes where messages were measured to occupy their sender, they take
    that time of either instead. ``closed_form`` is the library's own: what engines that follow no message answer with.
    """

    base_s: float = 0.0  # once, before the first message
    message_s: Mapping[str, float] = field(default_factory=dict)
    beyond_s: Mapping[str, float] = field(default_factory=dict)
    byte_s: Mapping[str, float] = field(default_factory=dict)
    wire_factor: float = 1.0  # bytes on the wire per byte of data, where the protocol carries flags
    sharing: float = 1.0
    piece_bytes: float = 0.0
    most_rate: Mapping[str, float] = field(default_factory=dict)
    post_s: Mapping[str, float] = field(default_factory=dict)
    receive_s: Mapping[str, float] = field(default_factory=dict)
    closed_form: LibraryTime | None = None

    @property
    def is_library(self) -> bool:
        """Whether it prices a whole call, its start too: the usual cost of a message must not come on top."""
        return self.base_s > 0


NO_SOFTWARE = Software()
