"""Sums in two halves on torch.distributed: each rank gets its block of a sum; later every rank gets all blocks.

A scatter is messages and a local sum, for gloo's own reduce-scatter moves an all-reduce's bytes, and gathers are messages too,
for gloo's all-to-all takes an all-reduce's time on a link that both directions fill. Blocks are as equal as a size lets them be,
so nothing is padded: of n bytes on p ranks, all ranks together send (p - 1) n in either half, as a ring does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class HalfWork:
    """Messages under way, and what is left to do here when they have come."""

    messages: Sequence[Any]
    then: Callable[[], object] | None = None

    def wait(self) -> None:
        """Return when all messages have come and gone; torch.distributed's own error where one is lost."""
        for each in self.messages:
            each.wait()
        if self.then is not None:
            self.then()


class HalfSums:
    """Both halves among the ranks of a group (None: all); ``sent_bytes`` counts what this rank has sent to others."""

    def __init__(self, distributed: Any, group: Any = None) -> None:
        self._distributed, self._group = distributed, group
        self.rank, self.ranks = distributed.get_rank(group), distributed.get_world_size(group)
        of = group or distributed.group.WORLD
        self._peers = [distributed.get_global_rank(of, each) for each in range(self.ranks)]
        self.sent_bytes = 0

    def blocks(self, flat: Any) -> list[Any]:
        """Return the views of a flat tensor that ranks get, in the order of the ranks."""
        ends = [flat.numel() * each // self.ranks for each in range(self.ranks + 1)]
        return [flat[begin:end] for begin, end in pairwise(ends)]

    def own(self, flat: Any) -> Any:
        """Return this rank's view."""
        return self.blocks(flat)[self.rank]

    def scatter(self, flat: Any, tag: int = 0) -> HalfWork:
        """Begin to sum up flat tensors: when it is done, this rank's block holds its sum, and the others what they held.

        Ranks are added in their order.
        """
        blocks = self.blocks(flat)
        own = blocks[self.rank]
        received = [own if each == self.rank else own.new_empty(own.numel()) for each in range(self.ranks)]

        def added() -> None:
            first = received[0].clone()
            for each in received[1:]:
                first.add_(each)
            own.copy_(first)

        return HalfWork(self.exchange(received, blocks, tag), added)

    def gather(self, flat: Any, tag: int = 0) -> HalfWork:
        """Begin to bring the block of every rank, from where it lies in that rank's own tensor, to all."""
        blocks = self.blocks(flat)
        return HalfWork(self.exchange(blocks, [blocks[self.rank]] * self.ranks, tag))

    def exchange(self, received: Sequence[Any], sent: Sequence[Any], tag: int = 0) -> list[Any]:
        """Begin to send each other rank its part of ``sent``, and to receive one from each; a rank's own stays where it is."""
        work = []
        for turn in range(1, self.ranks):
            to, source = (self.rank + turn) % self.ranks, (self.rank - turn) % self.ranks
            if received[source].numel():
                work.append(self._distributed.irecv(received[source], self._peers[source], self._group, tag))
            if sent[to].numel():
                work.append(self._distributed.isend(sent[to], self._peers[to], self._group, tag))
                self.sent_bytes += sent[to].numel() * sent[to].element_size()
        return work
