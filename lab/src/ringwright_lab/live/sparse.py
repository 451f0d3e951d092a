"""Coarse-grained sparse communication: only the chunks of the pool with the largest gradients are reduced, the rest stays.

Idea: the L1 norms of all chunks are summed over the ranks first, so that every rank picks the same chunks and a dense
all-reduce of them works. Momentum correction: what is kept back is momentum, not gradient, so that what a chunk receives when
its turn comes is what plain momentum would have given it by then. Cost: AR(4 n / c) + AR(share n b).
Knobs: c = 32 Ki values; ``shares`` by step, dense at first (the warm-up). Holds: share 1 is the dense sum, bit by bit; sent and
kept add up to what was made. Source: GradientFlow (arXiv 1902.06855); chunk size from memory, unconfirmed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringwright.ground.errors import UsageError

Sum = Callable[[Any], Any]  # adds a tensor up over the ranks, in place, and returns when that is done


class Coarse:
    """One pool of ``elements`` numbers; ``shares`` are those of the first steps, the last one that of all others."""

    def __init__(
        self,
        elements: int,
        ranks: int,
        add_up: Sum,
        *,
        shares: Sequence[float],
        chunk_elements: int = 32 * 1024,
        momentum: float = 0.0,
    ) -> None:
        if not shares or any(not 0 < share <= 1 for share in shares) or chunk_elements < 1:
            raise UsageError("shares lie above 0 and up to 1, chunks hold a number or more", where=f"shares {shares}")
        self._ranks, self._add_up, self._shares, self._momentum = ranks, add_up, list(shares), momentum
        self._chunk, self._chunks = chunk_elements, math.ceil(elements / chunk_elements)
        self._step = 0
        self._elements = elements
        padded = self._chunks * chunk_elements
        self._velocity = torch.zeros(padded)
        self.residue = torch.zeros(padded)
        self._owes = False
        self.chosen: list[int] = []
        self.sent_bytes = 0

    @property
    def share(self) -> float:
        """The share of the step to come."""
        return self._shares[min(self._step, len(self._shares) - 1)]

    def update(self, gradient: Any) -> Any:
        """Return what a step of plain SGD is to subtract, times the learning rate: the same on all ranks, zero where kept."""
        whole = torch.zeros_like(self.residue)
        whole[: self._elements] = gradient
        result = self._dense(whole) if self.share >= 1 else self._sparse(whole)
        self._step += 1
        return result[: self._elements]

    def _dense(self, gradient: Any) -> Any:
        self._mean(gradient)
        self.chosen = list(range(self._chunks))
        self._velocity.mul_(self._momentum).add_(gradient)
        if not self._owes:
            return self._velocity.clone()
        rest = self.residue.clone()
        self.residue.zero_()
        self._owes = False
        return self._velocity + self._mean(rest)

    def _sparse(self, gradient: Any) -> Any:
        self._velocity.mul_(self._momentum).add_(gradient)
        self.residue.add_(self._velocity)
        self._owes = True
        rows = self.residue.view(self._chunks, self._chunk)
        norms = rows.abs().sum(1)
        self._add_up(norms)
        self.sent_bytes += 4 * self._chunks
        kept = max(1, math.ceil(self.share * self._chunks))
        order = torch.sort(norms, descending=True, stable=True).indices  # equal norms: the lower number first
        self.chosen = sorted(order[:kept].tolist())
        packed = rows[self.chosen].reshape(-1)
        rows[self.chosen] = 0.0
        dense = torch.zeros_like(self.residue)
        dense.view(self._chunks, self._chunk)[self.chosen] = self._mean(packed).view(kept, self._chunk)
        return dense

    def _mean(self, values: Any) -> Any:
        self._add_up(values)
        self.sent_bytes += values.numel() * values.element_size()
        return values.div_(self._ranks)
