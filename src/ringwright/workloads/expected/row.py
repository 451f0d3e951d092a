"""One line of what a rank must issue."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ringwright.workloads.parts import Shape

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, order=True)
class ExpectedRow:
    """``count`` equal calls of one rank.

    ``when`` is "setup", "each" (iteration), "first", "second" or "later" (from the second iteration on), "prefill" or
    "decode" (per token); ``phase`` is what the training thread does then (setup, forward, backward, prefill, decode).
    ``role`` names the group (dp, tp, pp, ep). ``size_bytes`` is the size column of nccl-tests: the larger of what one
    rank puts in and gets out; ``sent_bytes`` is what it puts in. ``layer`` is the block that asks for it, where it is one.
    """

    when: str
    phase: str
    role: str
    op: str
    size_bytes: int
    sent_bytes: int
    count: int = 1
    layer: str = ""


def merged(rows: Iterable[ExpectedRow]) -> list[ExpectedRow]:
    """Return the rows with equal calls counted together, in the order in which they first occur."""
    counts: Counter[ExpectedRow] = Counter()
    for row in rows:
        counts[replace(row, count=0)] += row.count
    return [replace(row, count=count) for row, count in counts.items() if count]


def whole(when: str, phase: str, role: str, op: str, size_bytes: int, count: int = 1) -> ExpectedRow:
    """Return an operation whose input and output are one buffer: all-reduce, broadcast, send."""
    return ExpectedRow(when, phase, role, op, size_bytes, size_bytes, count)


def gathered(when: str, phase: str, role: str, size_bytes: int, ranks: int, count: int = 1) -> ExpectedRow:
    """Return an all-gather of ``size_bytes`` in all."""
    return ExpectedRow(when, phase, role, "all-gather", size_bytes, size_bytes // ranks, count)


def scattered(when: str, phase: str, role: str, size_bytes: int, count: int = 1) -> ExpectedRow:
    """Return a reduce-scatter of ``size_bytes`` in all."""
    return ExpectedRow(when, phase, role, "reduce-scatter", size_bytes, size_bytes, count)


def elements(shapes: Iterable[Shape]) -> int:
    """Return the elements of tensors of these shapes."""
    return sum(math.prod(shape) for shape in shapes)


def in_iteration(rows: Iterable[ExpectedRow], iteration: int) -> list[ExpectedRow]:
    """Return what training iteration ``iteration`` (from 0) issues; -1 asks for the set-up."""
    wanted = {"setup"} if iteration < 0 else {"each", "first" if not iteration else "later"}
    if iteration == 1:
        wanted.add("second")
    return merged(replace(row, when="") for row in rows if row.when in wanted)
