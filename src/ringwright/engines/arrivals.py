"""Ranks that come to a collective at different times: no message begins before the ranks at both its ends are there.

A rank that has not called a collective neither sends nor has a place for what others send. Nodes of the network that add are
always there. Each late rank is one more message, without a route, that lasts until the rank comes and that its own wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.concurrent_programs import merged
from ringwright.engines.messages import MessageGraph
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

LATEST_S = 1e6  # of a rank: eleven days; beyond, picoseconds overflow
UNFOLDED = "its ranks come at different times"


def arrivals_ps(program: Program, topology: Topology, arrivals: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """Return when each node of the machine comes, in ps: ranks of the group as told, all others at 0.

    ``arrivals`` are seconds by rank in the group, shape (p,). int64 of shape (nodes,). Raises UsageError for another number of
    them than there are ranks, or a time that is none.
    """
    come = np.zeros(topology.n_nodes, np.int64)
    if arrivals is None:
        return come
    seconds = np.asarray(arrivals, np.float64)
    if seconds.shape != (program.p,):
        count = len(seconds) if seconds.ndim == 1 else seconds.shape
        raise UsageError(f"{count} arrivals are given for {program.p} ranks", remedy="one time for each rank")
    wrong = seconds[~((seconds >= 0) & (seconds <= LATEST_S))]
    if len(wrong):
        raise UsageError(f"no rank comes at {wrong[0]:g} s", remedy=f"0 to {LATEST_S:g} s")
    come[np.asarray(program.collective.group, np.int64)] = np.rint(seconds * 1e12).astype(np.int64)
    return come


def gated(flat: MessageGraph, come_ps: np.ndarray) -> MessageGraph:
    """Return the graph in which messages wait for the ranks at their ends; behind its messages, one for each late rank."""
    used = np.unique(np.concatenate((flat.src, flat.dst)))
    late = used[come_ps[used] > 0]
    none, zeros = np.zeros(0, flat.hops.dtype), np.zeros(len(late), np.int64)
    starts = np.zeros(len(late) + 1, np.int64)
    gates = MessageGraph(
        late, late, zeros, zeros > 0, zeros, starts, none, starts, none, zeros.astype(np.int32), come_ps[late]
    )
    number = np.full(len(come_ps), -1, np.int64)
    number[late] = flat.n_messages + np.arange(len(late))
    stems = flat.stems()
    before = [number[ends] for ends in (flat.src, flat.dst)]
    return _linked(
        merged([flat, gates]),
        np.concatenate([gate[gate >= 0] for gate in before]),
        np.concatenate([stems[gate >= 0] for gate in before]),
    )


def _linked(graph: MessageGraph, before: np.ndarray, after: np.ndarray) -> MessageGraph:
    """Return the graph in which each ``after`` also waits for the ``before`` beside it."""
    n = len(graph.waits)
    owner = np.concatenate((np.repeat(np.arange(n), np.diff(graph.next_starts)), before))
    nexts = np.concatenate((graph.nexts, after))
    order = np.argsort(owner, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=n))))
    return replace(
        graph,
        next_starts=starts.astype(graph.next_starts.dtype),
        nexts=nexts[order].astype(graph.nexts.dtype),
        waits=(graph.waits + np.bincount(after, minlength=n)).astype(graph.waits.dtype),
    )
