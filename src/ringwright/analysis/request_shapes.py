"""What kind of model sends such requests, by a stated rule on the sizes of one iteration's collectives.

The rule, on the reductions (all-reduce, reduce-scatter) of one steady training iteration of one rank: they carry the
gradients, and with tensor parallelism the activations, once each; gathers repeat them.

1. *dominated*: one request holds at least :data:`DOMINANT` of the bytes (VGG: its first fully connected layer
outweighs all else);
2. *repeated*: requests whose size comes at least :data:`OFTEN` times hold at least :data:`REPEATED` of the bytes (a
transformer: its blocks are equal, so are their gradients, and with tensor parallelism its activations);
3. *mixed* otherwise: many requests of unequal size, none above the rest (ResNet: every stage has its own widths).

Only sizes are compared, so the number of ranks plays no role. Buckets hide the sizes of single gradients: where a few of
them hold the whole model (fewer than :data:`FEW` requests, or :data:`MANY` for the third answer) the rule cannot tell, and
says so. It was made on VGG-11, ResNet-18 and GPT-2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

DOMINATED, REPEATED_SIZES, MIXED, UNKNOWN = "dominated", "repeated", "mixed", "cannot tell"
DOMINANT = 0.5
REPEATED = 0.5
OFTEN = 3
FEW, MANY = 4, 6
REDUCTIONS = ("all-reduce", "reduce-scatter")
LIKE = {DOMINATED: "VGG-like", REPEATED_SIZES: "transformer-like", MIXED: "ResNet-like", UNKNOWN: UNKNOWN}


@dataclass(frozen=True)
class RequestShape:
    """``kind`` with what it rests on: shares of bytes in the largest request and in often repeated sizes, and how many."""

    kind: str
    top_share: float
    repeated_share: float
    requests: int
    distinct: int
    median_bytes: int

    @property
    def like(self) -> str:
        """The family of models that sends such requests."""
        return LIKE[self.kind]


def shape(requests: Iterable[tuple[str, int]]) -> RequestShape:
    """Return the shape of one iteration's requests, (operation, bytes) each; those without bytes do not count."""
    sizes = sorted(size for op, size in requests if size > 0 and op in REDUCTIONS)
    total = sum(sizes)
    if not sizes:
        return RequestShape(UNKNOWN, 0.0, 0.0, 0, 0, 0)
    counts = Counter(sizes)
    top = sizes[-1] / total
    repeated = sum(size * count for size, count in counts.items() if count >= OFTEN) / total
    kind = UNKNOWN
    if top >= DOMINANT:
        kind = DOMINATED if len(sizes) >= FEW else UNKNOWN
    elif repeated >= REPEATED:
        kind = REPEATED_SIZES
    elif len(sizes) >= MANY:
        kind = MIXED
    return RequestShape(kind, top, repeated, len(sizes), len(counts), sizes[len(sizes) // 2])
