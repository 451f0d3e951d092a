"""What engines pass to each other: the pieces of a program, and its messages on a machine, as columns of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Pieces:
    """All pieces of a program: the message each belongs to, and the slots it reads and writes (spans unfolded)."""

    message: np.ndarray
    step: np.ndarray  # of each message
    src: np.ndarray  # program nodes, of each message
    dst: np.ndarray
    size_bytes: np.ndarray
    adds: np.ndarray
    reads: np.ndarray  # node * slots + slot, of each piece
    writes: np.ndarray
    channel: np.ndarray | None = None  # of each message
    loop: np.ndarray | None = None  # of each message, where the program has several
    stream: np.ndarray | None = None  # of each message: equal numbers are one multicast, -1 none


@dataclass(frozen=True)
class Branches:
    """Message ``child[i]`` leaves ``parent[i]`` behind that one's hop number ``hop[i]``; sorted by parent, then child."""

    parent: np.ndarray
    hop: np.ndarray
    child: np.ndarray


@dataclass(frozen=True)
class MessageGraph:
    """Messages 0..m-1 in program order, then joins (no route, no bytes) that only gather dependencies.

    ``hop_starts`` (m+1) cuts ``hops``, the resources of each message in order; ``next_starts`` (n+1) cuts ``nexts``, who waits
    for it; ``waits`` counts what each waits for. ``delay`` is the software cost in ps before the first hop.
    """

    src: np.ndarray  # topology nodes
    dst: np.ndarray
    size_bytes: np.ndarray
    adds: np.ndarray
    step: np.ndarray
    hop_starts: np.ndarray
    hops: np.ndarray
    next_starts: np.ndarray
    nexts: np.ndarray
    waits: np.ndarray
    delay: np.ndarray
    weight: np.ndarray | None = None  # how many equal messages each stands for, where folded
    branches: Branches | None = None  # where multicasts fork
    tree: np.ndarray | None = (
        None  # of each message: equal numbers are one stream through nodes of the network; -1 none
    )
    segment: np.ndarray | None = None  # of each message: which segment of its stream it carries

    @property
    def n_messages(self) -> int:
        """Messages, joins not counted."""
        return len(self.src)

    @property
    def n_hops(self) -> int:
        """Events that an event engine handles."""
        return len(self.hops)

    def stems(self) -> np.ndarray:
        """Return the message that each of a multicast's branches leaves on the way, and each other message itself.

        int64 of shape (messages,).
        """
        import numpy as np

        stem: np.ndarray = np.arange(self.n_messages)
        if self.branches is not None:
            stem[self.branches.child] = self.branches.parent
            while (stem[stem] != stem).any():
                stem = stem[stem]
        return stem

    def earliest_ps(self, come_ps: np.ndarray) -> np.ndarray:
        """Return before when no message can begin: both ends must be there; a multicast waits for all its targets.

        int64 of shape (messages,), ps; ``come_ps`` by node of the machine.
        """
        import numpy as np

        earliest: np.ndarray = np.maximum(come_ps[self.src], come_ps[self.dst])
        np.maximum.at(earliest, self.stems(), earliest.copy())
        return earliest
