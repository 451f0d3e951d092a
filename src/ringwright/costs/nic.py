"""One NIC of a machine that is both worker and parameter server, in one queue: what leaves it is what takes time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringwright.model.stages import VOLUME, Stage

SENT: dict[str, Callable[[int], float]] = {  # bytes that leave a machine, as a share of the operation's size
    **VOLUME,
    "factors": lambda p: p - 1.0,  # its own pairs of factors, to every other one
}


@dataclass(frozen=True)
class NicCosts:
    """Operations one after another at ``rate`` bytes/s, ``overhead_s`` each.

    By server (push-pull), a machine sends (p-1)/p of its gradient to the others and, as server of 1/p, (p-1)/p of the
    parameters back: 2 (p-1)/p in all (Zhang et al., USENIX ATC 2017, table 1).
    """

    rate: float
    overhead_s: float = 0.0

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase; an operation of one rank takes no time."""
        p = len(ranks)
        if p < 2:
            return (Stage(0.0),)
        share = SENT[op](p) if op in SENT else 1.0
        return (Stage(self.overhead_s + share * size_bytes / self.rate),)
