"""A box that dies: its children send to the next one what it has not delivered, and nothing counts twice.

Each child of the box has numbered items; the box adds up the items of a number and sends the sum on, in order. When it dies, its
parent has some sums. It tells the children the first number that it lacks, as far as it knows then: sums that were under way
still come, and a child that heard an older number sends more than is wanted. The parent takes the first of what it gets for
each pair of child and number and drops the rest (NetAgg, CoNEXT 2014: duplicates are told by request and number).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Collected:
    """What the parent ends with: ``sums`` of each number (int64 of shape (items,)) and the messages that it dropped."""

    sums: np.ndarray
    dropped: int


def collected(items: np.ndarray, *, delivered: int, known: np.ndarray, seed: int = 0) -> Collected:
    """Return what a parent collects of children whose box died.

    ``items`` are the children's, int64 of shape (children, items). The box had sent the sums of the first ``delivered`` numbers
    on; child c sends again from number ``known[c]`` on (int64 of shape (children,), at most ``delivered``). ``seed`` draws the
    order in which all these messages come.
    """
    children, count = items.shape
    messages = [(number, child) for child in range(children) for number in range(int(known[child]), count)]
    messages += [(number, -1) for number in range(delivered)]
    order = np.random.default_rng(seed).permutation(len(messages))
    counted = np.zeros((children, count), bool)
    sums, dropped = np.zeros(count, np.int64), 0
    for at in order.tolist():
        number, child = messages[at]
        who = slice(None) if child < 0 else slice(child, child + 1)
        if child < 0 and counted[:, number].any() and not counted[:, number].all():
            # A sum cannot be taken apart: what came of its parts goes, and the sum stands for all of them.
            sums[number], dropped = 0, dropped + int(counted[:, number].sum())
            counted[:, number] = False
        if counted[who, number].all():
            dropped += 1
            continue
        sums[number] += items[who, number].sum()
        counted[who, number] = True
    return Collected(sums, dropped)
