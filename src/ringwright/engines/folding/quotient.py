"""The quotient: what folding makes, and what both ways to it share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.engines.memory import shortage
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph

MOST_PIECES = 24_000_000


@dataclass(frozen=True)
class Folded:
    """A program's quotient: every message stands for ``flat.weight`` equal ones, every resource for its class.

    ``parts`` is how many messages of the whole there are to one of the quotient: the same for all where the ranks turn, the
    mean where classes differ in size. ``classes`` gives for each resource of the whole machine its resource in ``machine``, or
    -1 where nobody uses it; ``first`` one resource of the whole machine for each in ``machine``.
    """

    flat: MessageGraph
    machine: Machine
    parts: int
    classes: np.ndarray
    first: np.ndarray


def require_room(pieces: int) -> None:
    """Raise DeclinedError where a quotient is too large to hold."""
    if pieces > MOST_PIECES:
        raise DeclinedError(f"folded it is still {pieces:,} moves, more than {MOST_PIECES:,}")
    if shortage(pieces):
        raise DeclinedError(f"folded, {shortage(pieces)}")


def quotient_machine(whole: Machine, first: np.ndarray) -> Machine:
    """Return the machine that has ``first``, one resource of each class, in that order."""
    number = {resource: at for at, resource in enumerate(first.tolist())}
    changes = [
        (number[resource], time, ps_per_byte) for resource, time, ps_per_byte in whole.changes if resource in number
    ]
    delays = [(number[resource], time, latency) for resource, time, latency in whole.delays if resource in number]
    return replace(
        whole,
        ps_per_byte=whole.ps_per_byte[first],
        latency=whole.latency[first],
        whole=whole.whole[first],
        holds=whole.holds[first],
        sends=whole.sends[first],
        changes=tuple(sorted(changes)),
        delays=tuple(sorted(delays)),
    )


def with_spans(span: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """Unfold moves of several slots into pieces of one: message, slot read and slot written of each.

    int64, all of shape (pieces,).
    """
    import numpy as np

    if not len(span) or span.max() == 1:
        return columns
    owner, reads, writes = (np.repeat(column, span) for column in columns)
    inner = np.arange(len(owner)) - np.repeat(np.cumsum(span) - span, span)
    return owner, reads + inner, writes + inner
