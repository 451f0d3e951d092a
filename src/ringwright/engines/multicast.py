"""Multicast: one stream that the network copies, so that links shared by several of its targets carry it once.

The routes to the targets of a stream form a tree. Its first message keeps its whole route; each further one keeps what no
earlier one takes, and *branches* off: it enters its first own resource when the stream has passed the resource before the
fork. A rank's software sends a stream once, for its first message. The stem waits for whatever any of its branches waits for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.engines.messages import Branches
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.messages import MessageGraph


def branched(flat: MessageGraph, stream: np.ndarray, sends: np.ndarray) -> MessageGraph:
    """Return the program with messages of one stream (equal numbers; -1: none) sharing what their routes share."""
    import numpy as np

    members = np.flatnonzero(stream >= 0)
    if not len(members):
        return flat
    rows, kept = _forks(flat, stream, members, sends)
    if not rows:
        return flat
    table = np.array(sorted(rows), np.int64)
    branches = Branches(*(np.ascontiguousarray(table[:, column], np.int32) for column in (0, 2, 1)))
    return _cut(flat, branches, kept)


def _forks(
    flat: MessageGraph, stream: np.ndarray, members: np.ndarray, sends: np.ndarray
) -> tuple[list[tuple[int, int, int]], dict[int, int]]:
    """Return (parent, child, hop) of each fork, and how many first hops each child leaves to others."""
    rows: list[tuple[int, int, int]] = []
    kept: dict[int, int] = {}
    trees: dict[int, dict[tuple[object, int], tuple[int, int]]] = {}
    sizes: dict[int, int] = {}
    roots: dict[int, tuple[int, int] | None] = {}  # the sender's hop of each stream
    for message in members.tolist():
        number, size = int(stream[message]), int(flat.size_bytes[message])
        if sizes.setdefault(number, size) != size:
            raise DeclinedError("the targets of one multicast get different amounts")
        tree = trees.setdefault(number, {})
        route = flat.hops[flat.hop_starts[message] : flat.hop_starts[message + 1]].tolist()
        shared = own = int(bool(route) and bool(sends[route[0]]))
        # message and hop that the stream has reached
        at = roots.setdefault(number, (message, 0) if own else None) if route else None
        is_stem = at == (message, 0)
        while shared < len(route) and (at, route[shared]) in tree:
            at = tree[at, route[shared]]
            shared += 1
        if at is not None and not is_stem:
            rows.append((at[0], message, at[1]))
            kept[message] = shared
        for hop, resource in enumerate(route[shared:], 0 if message in kept else shared):
            tree[at, resource] = at = (message, hop)
    return rows, kept


def _cut(flat: MessageGraph, branches: Branches, kept: dict[int, int]) -> MessageGraph:
    """Take the shared hops from the children, and what they wait for to the stem."""
    import numpy as np

    starts = flat.hop_starts
    skip = np.zeros(flat.n_messages, np.int64)
    skip[list(kept)] = list(kept.values())
    position = np.arange(len(flat.hops)) - np.repeat(starts[:-1], np.diff(starts))
    own = position >= np.repeat(skip, np.diff(starts))
    stem = np.arange(len(flat.waits))
    stem[branches.child] = branches.parent
    while (stem[stem] != stem).any():
        stem = stem[stem]
    nexts = stem[flat.nexts].astype(np.int32)
    waits = np.bincount(nexts, minlength=len(stem)).astype(np.int32)
    waits[branches.child] = 1  # nothing but its fork releases a branch
    delay = flat.delay.copy()
    delay[branches.child] = 0
    return replace(
        flat,
        hop_starts=starts - np.concatenate(([0], np.cumsum(skip))),
        hops=flat.hops[own],
        nexts=nexts,
        waits=waits,
        delay=delay,
        branches=branches,
    )
