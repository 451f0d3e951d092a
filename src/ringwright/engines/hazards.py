"""What waits for what, from the slots that messages read and write.

Reading a slot waits for the last step before that wrote it; writing it (adding included) waits for that too, and for all
who have read it since. Within one step nothing waits: all read before any writes. Where many wait for many, a *join*
stands between them, so that the number of edges stays near the number of accesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.messages import Pieces


@dataclass(frozen=True)
class Edges:
    """``after[i]`` waits for ``before[i]``; numbers from the count of messages on are joins."""

    before: np.ndarray
    after: np.ndarray
    joins: int = 0

    def order(self, n_messages: int) -> MessageOrder:
        """Return the same edges, cut by the message that is waited for."""
        import numpy as np

        n = n_messages + self.joins
        after = np.argsort(self.before, kind="stable")
        starts = np.searchsorted(self.before[after], np.arange(n + 1)).astype(np.int64)
        waits = np.bincount(self.after, minlength=n).astype(np.int32)
        return MessageOrder(starts, self.after[after].astype(np.int32), waits)


@dataclass(frozen=True)
class MessageOrder:
    """``next_starts`` cuts ``nexts``, who waits for each message and join; ``waits`` counts what each waits for."""

    next_starts: np.ndarray
    nexts: np.ndarray
    waits: np.ndarray

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (before, after) of every edge. Both int64 of shape (edges,)."""
        import numpy as np

        return np.repeat(np.arange(len(self.waits)), np.diff(self.next_starts)), self.nexts

    def with_edges(self, before: np.ndarray, after: np.ndarray, joins: int) -> MessageOrder:
        """Return the order with more edges, ``joins`` further joins numbered behind those that are there."""
        import numpy as np

        old = self.edges()
        edges = Edges(np.concatenate((old[0], before)), np.concatenate((old[1], after)), joins)
        return edges.order(len(self.waits))


def loop_edges(pieces: Pieces, first: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return (before, after, joins): what a rank sends on a channel in a loop waits for all it received in the one before.

    Joins, one a rank, channel and loop, are numbered from ``first`` on. Both arrays are int64 of shape (edges,).
    """
    import numpy as np

    loop = np.zeros(0, np.int64) if pieces.loop is None else pieces.loop.astype(np.int64)
    channel = np.zeros_like(loop) if pieces.channel is None else pieces.channel
    channel = channel - channel.min(initial=0)
    width = int(channel.max(initial=0)) + 1
    nodes = int(max(pieces.src.max(initial=0), pieces.dst.max(initial=0))) + 1
    # A rank on a channel is one thread; those that received something in the loop before have a join.
    into = ((loop + 1) * nodes + pieces.dst) * width + channel
    out_of = (loop * nodes + pieces.src) * width + channel
    threads = np.intersect1d(into, out_of)
    comes, goes = np.flatnonzero(np.isin(into, threads)), np.flatnonzero(np.isin(out_of, threads))
    before = np.concatenate((comes, first + np.searchsorted(threads, out_of[goes])))
    after = np.concatenate((first + np.searchsorted(threads, into[comes]), goes))
    return before, after, len(threads)


def hazards(message: np.ndarray, step: np.ndarray, reads: np.ndarray, writes: np.ndarray, n_messages: int) -> Edges:
    """Return the edges for pieces that each belong to a message, happen in a step, read one place and write one place."""
    import numpy as np

    n = len(message)
    if not n:
        return Edges(np.zeros(0, np.int64), np.zeros(0, np.int64))
    slot = np.concatenate((reads, writes))
    times = np.concatenate((step, step)).astype(np.int64) * 2
    times[n:] += 1  # in one step reads come before writes
    owner = np.concatenate((message, message))
    order = np.lexsort((times, slot))
    slot, times, owner = slot[order], times[order], owner[order]
    fresh = np.ones(2 * n, bool)
    fresh[1:] = (slot[1:] != slot[:-1]) | (times[1:] != times[:-1])
    starts = np.flatnonzero(fresh)
    pairs = _group_pairs(slot[starts], times[starts])
    sizes = np.diff(np.append(starts, 2 * n))
    return _expand(pairs, starts, sizes, owner, n_messages)


def _group_pairs(slot: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which group of accesses (same slot, step and kind) waits for which."""
    import numpy as np

    n = len(slot)
    here = np.arange(n)
    writes, step = times % 2 == 1, times // 2
    first = np.searchsorted(slot, slot)  # sorted by slot
    last_write = np.maximum.accumulate(np.where(writes, here, -1))
    earlier = np.concatenate(([-1], last_write[:-1]))  # last writing group before this one
    has = earlier >= first
    previous = np.where(has, earlier, -1)
    # Readers since that write, those of its own step included, those of this step not.
    begin = np.where(has, previous + 1, first)
    same_step = has & (previous > first) & ~writes[previous - 1] & (step[previous - 1] == step[previous])
    own = writes & (here > 0) & (here - 1 >= begin) & (step[here - 1] == step) & ~writes[here - 1]
    end = np.where(own, here - 1, here)
    between = np.where(writes, np.maximum(end - begin, 0), 0)
    index = np.repeat(here, between)
    inner = np.arange(between.sum()) - np.repeat(np.cumsum(between) - between, between)
    readers = np.repeat(begin, between) + inner
    implied = writes & (between > 0)  # readers already wait for the last write
    direct = has & ~implied
    also = writes & same_step
    before = np.concatenate((previous[direct], readers, previous[also] - 1))
    after = np.concatenate((here[direct], index, here[also]))
    return before, after


def _expand(
    pairs: tuple[np.ndarray, np.ndarray], starts: np.ndarray, sizes: np.ndarray, owner: np.ndarray, n_messages: int
) -> Edges:
    """Return edges between messages, through joins where both groups have several."""
    import numpy as np

    left, right = pairs
    many = (sizes[left] > 1) & (sizes[right] > 1)
    before, after = _product(left[~many], right[~many], starts, sizes, owner)
    joined, which = np.unique(left[many], return_inverse=True)
    joins = np.arange(len(joined)) + n_messages
    into = _members(joined, starts, sizes, owner)
    out_of = _members(right[many], starts, sizes, owner)
    before = np.concatenate((before, into, np.repeat(joins[which], sizes[right[many]])))
    after = np.concatenate((after, np.repeat(joins, sizes[joined]), out_of))
    keep = before != after
    total = n_messages + len(joined)
    keys = np.unique(before[keep].astype(np.int64) * total + after[keep])
    return Edges(keys // total, keys % total, len(joined))


def _members(groups: np.ndarray, starts: np.ndarray, sizes: np.ndarray, owner: np.ndarray) -> np.ndarray:
    import numpy as np

    lengths = sizes[groups]
    inner = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    members: np.ndarray = owner[np.repeat(starts[groups], lengths) + inner]
    return members


def _product(
    left: np.ndarray, right: np.ndarray, starts: np.ndarray, sizes: np.ndarray, owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of members, where one side has one member."""
    import numpy as np

    before = np.repeat(_members(left, starts, sizes, owner), np.repeat(sizes[right], sizes[left]))
    # One of the two has a single member, so repeating each member in order gives all pairs.
    after_sizes = sizes[right]
    single = sizes[left] == 1
    one = _members(right[single], starts, sizes, owner)
    rest = np.repeat(_members(right[~single], starts, sizes, owner), sizes[left[~single]])
    after = np.empty(len(before), owner.dtype)
    mask = np.repeat(single, sizes[left] * after_sizes)
    after[mask], after[~mask] = one, rest
    return before, after
