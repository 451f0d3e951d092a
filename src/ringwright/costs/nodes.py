"""Nodes of several devices behind NICs, in closed form: what papers on expert parallelism reason about."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ringwright.model.stages import LINK, Stage, hops_of

INSIDE = (("node", 1.0),)


@dataclass(frozen=True)
class NodeCosts:
    """Nodes of ``per_node`` ranks in a row, each sending and receiving ``rate`` bytes/s; inside ``inside`` bytes/s a rank.

    All ranks of a node are taken to do the same at the same time, so groups side by side divide the node's rate: an
    all-to-all sends from each rank what leaves the node, a ring of several ranks of a node crosses its NICs once.
    ``overhead_s`` is what each operation takes besides.
    """

    rate: float
    per_node: int
    inside: float = float("inf")
    overhead_s: float = 0.0

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase: the slower of network and node; what stays in one node leaves the network alone."""
        p = len(ranks)
        if p < 2:
            return (Stage(0.0, loads=INSIDE),)
        neighbours = Counter(rank // self.per_node for rank in ranks)
        fewest = min(neighbours.values())
        if op == "all-to-all":
            local_s = size_bytes * (fewest - 1) / p / self.inside
            remote_s = size_bytes * (p - fewest) / p * self.per_node / self.rate
        elif hops_of(op)[0] in ("shift", "send-recv"):
            local_s, remote_s = size_bytes / self.inside, size_bytes * self.per_node / self.rate
        else:
            volume = size_bytes * (2 if op in ("all-reduce", "push-pull") else 1) * (p - 1) / p
            local_s = volume / self.inside
            remote_s = volume * (self.per_node / fewest) / self.rate
        if len(neighbours) == 1:
            return (Stage(self.overhead_s + local_s, loads=INSIDE),)
        return (Stage(self.overhead_s + max(local_s, remote_s), loads=LINK),)
