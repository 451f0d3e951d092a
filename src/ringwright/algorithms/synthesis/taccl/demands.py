"""What has to get where: the chunks of a collective, and the sends that routes make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.algorithms.synthesis.taccl.ordering import Send
from ringwright.algorithms.synthesis.taccl.routing import Route, WantedChunk
from ringwright.model.program import cut

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.taccl.sketch import LogicalTopology
    from ringwright.model.collective import Collective
    from ringwright.model.program import Layout

GATHERING = ("reduce-scatter", "all-reduce", "reduce")  # whose chunks are added up on the way to their owner
SPREADING = ("all-gather", "all-to-all", "broadcast", "all-reduce")


@dataclass(frozen=True)
class Demands:
    """The chunks of a collective cut into ``parts``, as they are slots of ``layout``."""

    collective: Collective
    layout: Layout
    chunks: tuple[WantedChunk, ...]

    @property
    def gathers(self) -> bool:
        """Whether chunks are added up on the way to their owner."""
        return self.collective.op in GATHERING

    @property
    def spreads(self) -> bool:
        """Whether chunks are brought from their owner to those that need them."""
        return self.collective.op in SPREADING


def demands(collective: Collective, parts: int) -> Demands:
    """Return the chunks: ``parts`` of each block, of an all-reduce as many for each rank."""
    import numpy as np

    p, op = collective.p, collective.op
    layout = cut(collective, parts * p if op == "all-reduce" else parts)
    sizes = layout.bytes_of(np.arange(layout.n_chunks)).tolist()
    everyone = [tuple(other for other in range(p) if other != node) for node in range(p)]
    chunks = []
    for number, size in enumerate(sizes):
        block = number // parts
        owner, targets = collective.root, everyone[collective.root]
        if op == "all-to-all":
            owner, targets = block // p, (block % p,)
        elif op not in ("broadcast", "reduce"):
            owner, targets = block, everyone[block]
        if targets != (owner,):
            chunks.append(WantedChunk(number, owner, targets, int(size)))
    return Demands(collective, layout, tuple(chunks))


def sends(demand: Demands, wiring: LogicalTopology, up: Sequence[Route], down: Sequence[Route]) -> list[Send]:
    """Return the sends of all chunks, each behind what it waits for: up to their owners by ``up``, down from them by ``down``.

    A route up is one down over the arcs turned round, so that its arcs lead from its end to the owner.
    """
    made: list[Send] = []
    for at, chunk in enumerate(demand.chunks):
        come: dict[int, list[int]] = {}  # by place: what brings the chunk there
        for arc in reversed(up[at]) if demand.gathers else ():
            src, dst = wiring.arcs[arc].src, wiring.arcs[arc].dst
            come.setdefault(dst, []).append(len(made))
            made.append(Send(chunk.number, arc, chunk.size_bytes, tuple(come.get(src, ())), adds=True))
        come = {chunk.origin: come.get(chunk.origin, [])}
        for arc in down[at] if demand.spreads else ():
            src, dst = wiring.arcs[arc].src, wiring.arcs[arc].dst
            come[dst] = [len(made)]
            made.append(Send(chunk.number, arc, chunk.size_bytes, tuple(come[src]), own=src == chunk.origin))
    return made
