"""Events of the packet loop: what happens when, and to whom."""

from __future__ import annotations

from typing import NamedTuple

PAUSING, PORT, DATA, ACK, START, BEHIND, TIMER = range(7)
PLAIN, NOTICE, REFUSAL = range(3)  # what an answer says besides: a marked packet came; a gap


class PacketEvent(NamedTuple):
    """Something that happens at ``time`` (ps). What the fields mean depends on the kind.

    ``owner``: connection (DATA, ACK, TIMER), message (START, BEHIND) or port (PAUSING, PORT). ``number``: packet, or up to
    where an answer says that all came. ``hop``: place on the path, or lane (PAUSING). ``sent``: when the packet, or the one
    that is answered, left. ``more``: packets that follow back to back (DATA), the packet that is answered (ACK), whether to
    wait (PAUSING). ``tail``: when its last byte is there; ``size``: bytes on the wire.
    """

    time: int
    kind: int
    owner: int
    number: int = 0
    hop: int = 0
    sent: int = 0
    more: int = 0
    tail: int = 0
    size: int = 0
    path: int = 0
    marked: int = 0
    says: int = 0
