"""Data parallel training with PyTorch's DistributedDataParallel.

How it behaves (torch 2.13, read in ``nn/parallel/distributed.py`` and observed): at its start ranks compare the number
of parameters (an all-gather of one int64) and their sizes and strides (a broadcast), then rank 0 gives its weights and buffers
away in pieces of 250 MiB. The first iteration adds all gradients in one all-reduce a data type, because the order in which
they become ready is not yet known. Before the second forward pass rank 0 sends the buckets that it made from the observed
order: one of 1 MiB, then 25 MiB; a bucket closes when it has reached its limit, so it may be larger. Buffers travel from
rank 0 before every forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ringwright.workloads.expected.row import DTYPE_BYTES, ExpectedRow, elements, gathered, merged, whole
from ringwright.workloads.parts import Anatomy

BROADCAST_BYTES = 250 << 20
FIRST_BYTES, LATER_BYTES = 1 << 20, 25 << 20


def buckets(sizes: Sequence[tuple[int, int]], limits: Sequence[int]) -> list[int]:
    """Return the bytes of each bucket for tensors given as (bytes of an element, elements).

    Element types never share a bucket; ``limits`` are those of the first, second ... bucket, the last one for all others.
    """
    closed: list[int] = []
    open_: dict[int, int] = {}
    at: dict[int, int] = {}
    for width, count in sizes:
        open_[width] = open_.get(width, 0) + width * count
        if open_[width] >= limits[min(at.get(width, 0), len(limits) - 1)]:
            closed.append(open_.pop(width))
            at[width] = at.get(width, 0) + 1
    return closed + list(open_.values())


def rows(anatomy: Anatomy, ranks: int, dtype: str, bucket_cap_mb: float | None) -> list[ExpectedRow]:
    """Return what one rank of ``ranks`` issues in training."""
    width, trained = DTYPE_BYTES[dtype], anatomy.ready()
    buffers = [(width if size == 4 else size, count) for size, count in anatomy.buffers]
    states = [*((width, math.prod(shape)) for shape in anatomy.shapes()), *buffers]
    expected = [gathered("setup", "setup", "dp", 8 * ranks, ranks)]
    expected.append(whole("setup", "setup", "dp", "broadcast", 8 * sum(2 * len(shape) for shape in trained)))
    expected += [whole("setup", "setup", "dp", "broadcast", size) for size in buckets(states, [BROADCAST_BYTES])]
    expected += [whole("each", "forward", "dp", "broadcast", size) for size in buckets(buffers, [BROADCAST_BYTES])]
    expected.append(whole("first", "backward", "dp", "all-reduce", width * elements(trained)))
    limits = [FIRST_BYTES, LATER_BYTES] if bucket_cap_mb is None else [int(bucket_cap_mb * (1 << 20))]
    made = buckets([(width, math.prod(shape)) for shape in trained], limits)
    expected.append(whole("second", "forward", "dp", "broadcast", 4 * (len(trained) + 1)))
    expected.append(whole("second", "forward", "dp", "broadcast", 4 * len(made)))
    expected += [whole("later", "backward", "dp", "all-reduce", size) for size in made]
    return merged(expected)
