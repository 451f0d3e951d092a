"""Which of those that touch a slot must be ordered, from the order in which they touch it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def slots_of(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return every slot of ranges, and which range it belongs to. Both int64 of shape (slots of all ranges,)."""
    import numpy as np

    ends = np.cumsum(count)
    inner = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - count, count)
    return np.repeat(first, count) + inner, np.repeat(np.arange(len(first)), count)


def hazards_between(slot: np.ndarray, owner: np.ndarray, writes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of owners that must stay in order: last write before each access, reads before each write.

    One row an access, sorted by slot and, within it, by when it happens (a read before a write of the same owner).
    Both int64 of shape (pairs,), each pair once.
    """
    import numpy as np

    here = np.arange(len(slot))
    fresh = np.append(True, slot[1:] != slot[:-1])[: len(slot)]
    first = np.maximum.accumulate(np.where(fresh, here, 0))
    last = np.concatenate(([-1], np.maximum.accumulate(np.where(writes, here, -1))[:-1])).astype(np.int64)[: len(here)]
    has = last >= first
    begin = np.where(has, last + 1, first)
    between = np.where(writes, here - begin, 0)
    reads, which = slots_of(begin, between)
    before = np.concatenate((owner[last[has]], owner[reads]))
    after = np.concatenate((owner[here[has]], owner[which]))
    differ = before != after
    width = int(owner.max(initial=0)) + 1
    keys = np.unique(before[differ] * width + after[differ])
    return keys // width, keys % width
