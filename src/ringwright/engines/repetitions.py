"""The same messages again and again: each repetition begins when the one before has ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.concurrent_programs import merged

if TYPE_CHECKING:
    from ringwright.engines.messages import MessageGraph


def repeated(graph: MessageGraph, count: int) -> MessageGraph:
    """Return ``count`` repetitions of a graph, each of which begins when the last message of the one before has arrived."""
    if count == 1:
        return graph
    whole = merged([graph] * count)
    n, nodes = graph.n_messages, len(graph.waits) * count
    lasts = np.flatnonzero(np.diff(graph.next_starts)[:n] == 0)
    firsts = np.flatnonzero(graph.waits[:n] == 0)
    # A join behind each repetition but the last: all its last messages open it, and it lets the next one's first ones go.
    gates, shift = nodes + np.arange(count - 1), n * np.arange(count - 1)[:, None]
    before = np.repeat(np.arange(nodes), np.diff(whole.next_starts))
    tails = np.concatenate([np.repeat(gates, len(lasts)), (firsts + n + shift).ravel()])
    heads = np.concatenate([(lasts + shift).ravel(), np.repeat(gates, len(firsts))])
    src, dst = np.concatenate([before, heads]), np.concatenate([whole.nexts, tails])
    waits = np.concatenate([whole.waits, np.zeros(count - 1, whole.waits.dtype)])
    np.add.at(waits, tails, 1)
    counted = np.bincount(src, minlength=nodes + count - 1)
    return replace(
        whole,
        next_starts=np.concatenate(([0], np.cumsum(counted))).astype(whole.next_starts.dtype),
        nexts=dst[np.argsort(src, kind="stable")].astype(whole.nexts.dtype),
        waits=waits,
    )
