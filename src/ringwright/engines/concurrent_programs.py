"""Several programs at the same time on one machine: their messages in one graph, on the event engine.

They share links, capacities and senders message by message. A program slows another only through a resource that both use.
Messages of equal times are served in the order of the programs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines import events
from ringwright.engines.flat import flatten
from ringwright.engines.messages import Branches, MessageGraph
from ringwright.engines.result import busy_ps, loads
from ringwright.engines.switch_slots import machines
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.program import Program
    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class RunTogether:
    """Programs that ran at the same time.

    Attributes
    ----------
    ends_ps
        When the last message of each program arrived: int64 of shape (programs,), picoseconds from the common start, the software
        before the first message included.
    busy_ps
        How long each resource was busy for all of them at its healthy rate: float64 of shape (resources,).
    """

    ends_ps: np.ndarray
    busy_ps: np.ndarray


def simulate_together(
    programs: Sequence[Program], topology: Topology, alpha: str = "pipelined", *, native: bool = True
) -> RunTogether:
    """Return the run of programs that begin together; what they move is laid out whole, nothing is folded.

    Raises InfeasibleError where a message never arrives, or where they are too large to hold.
    """
    each = machines(programs, topology, alpha)
    graphs = [
        started(flatten(program, made), program.software.base_s) for program, made in zip(programs, each, strict=True)
    ]
    made = each[-1]
    whole = merged(graphs)
    # The first program's software decides what a message costs its sender: what is asked about together is one algorithm's.
    run = events.run(whole, made.carrying(programs[0]), native=native)
    bounds = np.cumsum([0, *(graph.n_messages for graph in graphs)]).tolist()
    ends = [int(run.end_ps[begin:end].max(initial=0)) for begin, end in pairwise(bounds)]
    return RunTogether(np.array(ends, np.int64), busy_ps(loads(whole, made.n), made))


def started(graph: MessageGraph, base_s: float) -> MessageGraph:
    """Return the graph with the software before the first message, which delays what waits for nothing."""
    base = round(base_s * PS)
    if not base:
        return graph
    first = graph.waits[: graph.n_messages] == 0
    return replace(graph, delay=graph.delay + np.where(first, base, 0))


def merged(graphs: Sequence[MessageGraph]) -> MessageGraph:
    """Return one graph of several on the same machine: the messages of all, graph after graph, then the joins of all."""
    if len(graphs) == 1:
        return graphs[0]
    messages = np.array([graph.n_messages for graph in graphs])
    joins = np.array([len(graph.waits) for graph in graphs]) - messages
    first, first_join = np.cumsum(messages) - messages, messages.sum() + np.cumsum(joins) - joins
    counts, followers, waits = [], [], []
    for part in (0, 1):  # messages, then joins
        for at, graph in enumerate(graphs):
            mine = slice(0, messages[at]) if part == 0 else slice(messages[at], messages[at] + joins[at])
            starts = graph.next_starts[mine.start : mine.stop + 1]
            nexts = graph.nexts[starts[0] : starts[-1]].astype(np.int64)
            counts.append(np.diff(starts))
            followers.append(np.where(nexts < messages[at], nexts + first[at], nexts - messages[at] + first_join[at]))
            waits.append(graph.waits[mine])
    return MessageGraph(
        _joined(graphs, "src"),
        _joined(graphs, "dst"),
        _joined(graphs, "size_bytes"),
        _joined(graphs, "adds"),
        _joined(graphs, "step"),
        _starts(np.concatenate([np.diff(graph.hop_starts) for graph in graphs]), graphs[0].hop_starts),
        _joined(graphs, "hops"),
        _starts(np.concatenate(counts), graphs[0].next_starts),
        np.concatenate(followers).astype(graphs[0].nexts.dtype),
        np.concatenate(waits),
        _joined(graphs, "delay"),
        branches=_branches(graphs, first),
        **_streams(graphs),
    )


def _joined(graphs: Sequence[MessageGraph], name: str) -> np.ndarray:
    return np.concatenate([getattr(graph, name) for graph in graphs])


def _starts(lengths: np.ndarray, like: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths))).astype(like.dtype)


def _streams(graphs: Sequence[MessageGraph]) -> dict[str, np.ndarray]:
    """Return the streams of all graphs, those of each numbered behind those before; nothing where none has any."""
    if all(graph.tree is None or graph.segment is None for graph in graphs):
        return {}
    trees, segments, count = [], [], 0
    for graph in graphs:
        none = np.full(graph.n_messages, -1, np.int64)
        tree, segment = (graph.tree, graph.segment) if graph.tree is not None else (none, np.zeros_like(none))
        trees.append(np.where(tree >= 0, tree + count, -1))
        segments.append(none if segment is None else segment)
        count += int(tree.max(initial=-1)) + 1
    return {"tree": np.concatenate(trees), "segment": np.concatenate(segments)}


def _branches(graphs: Sequence[MessageGraph], first: np.ndarray) -> Branches | None:
    """Return the forks of all graphs, their messages renumbered; they stay sorted by parent."""
    forks = [(graph.branches, begin) for graph, begin in zip(graphs, first.tolist(), strict=True) if graph.branches]
    if not forks:
        return None
    return Branches(
        np.concatenate([fork.parent + begin for fork, begin in forks]),
        np.concatenate([fork.hop for fork, _ in forks]),
        np.concatenate([fork.child + begin for fork, begin in forks]),
    )
