"""Rings, trees, connections and channels of each communicator, from the lines that name none.

A ring list is printed by rank 0 alone and cut at 20 ranks (up to 2.22) or at 128 characters (from 2.23); the rest of a long
ring is taken from the connection lines, less the edges of the trees, and accepted only as one closed cycle.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ringwright.formats.sources.nccl_log.identity import JobIdentity, LogCommunicator
from ringwright.formats.sources.nccl_log.state import Fact, LogState

SEARCH_STEPS = 200_000


@dataclass
class Wiring:
    """What is known about the paths of one communicator; all ranks are ranks in it."""

    rings: dict[int, list[int]] = field(default_factory=dict)  # channel -> order
    ring_ground: dict[int, str] = field(default_factory=dict)
    tree_edges: dict[int, set[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(set)
    )  # channel -> (child, parent)
    part_edges: dict[int, set[tuple[int, int]]] = field(default_factory=dict)  # of trees that are not whole
    part_rings: dict[int, list[int]] = field(default_factory=dict)  # printed beginnings that nothing completes
    # (channel, src, dst, side) -> transport and NIC; both ends of a network connection tell theirs: side send, receive or ""
    connections: dict[tuple[int, int, int, str], tuple[str | None, int | None]] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)


def wire(state: LogState, identity: JobIdentity) -> list[Wiring]:
    """Return one Wiring per group of ``identity``, in order."""
    group_of = {handle: index for index, group in enumerate(identity.groups) for handle in group.all_handles()}
    _adopt_loose_facts(state, identity)
    wirings = [Wiring() for _ in identity.groups]
    lists: list[dict[int, tuple[list[int], bool]]] = [{} for _ in identity.groups]
    for fact in state.facts:
        handle = identity.alias.get(fact.handle, fact.handle) if fact.handle is not None else None
        if handle is None or handle not in group_of:
            continue
        index = group_of[handle]
        _take(fact, state, handle, wirings[index], lists[index], identity.groups[index].size)
    for group, wiring, facts in zip(identity.groups, wirings, lists, strict=True):
        _close_rings(group, wiring, facts)
        _keep_whole_trees(group, wiring)
    return wirings


def _adopt_loose_facts(state: LogState, identity: JobIdentity) -> None:
    """Facts that no init line claimed (connections made at first use) go to the handle whose rank they name."""
    by_process: dict[tuple[str, int], list[int]] = defaultdict(list)
    for group in identity.groups:
        for handle in group.all_handles():
            by_process[state.handles[handle].host, state.handles[handle].pid].append(handle)
    for fact in state.facts:
        if fact.handle is not None:
            continue
        candidates = list(fact.among) or by_process.get(fact.thread[:2], [])
        fitting = [index for index in candidates if _may_be(fact, state, index)]
        if len(fitting) == 1 or (fitting and not fact.among):
            fact.handle = fitting[-1]  # of several under construction that fit, none is taken: a wrong tree is worse


def _may_be(fact: Fact, state: LogState, index: int) -> bool:
    handle = state.handles[index]
    if fact.kind == "connection":
        _, src, dst, direction, *_ = fact.data
        own = dst if direction == "receive" else src
        return max(src, dst) < handle.nranks and handle.rank in (own, None)
    if fact.kind == "ring":
        return handle.rank in (0, None) and len(fact.data[1]) <= handle.nranks and max(fact.data[1]) < handle.nranks
    if fact.kind == "trees":
        return handle.rank in (None, *(own for _, _, own, _ in fact.data))
    return True


def _take(
    fact: Fact, state: LogState, handle: int, wiring: Wiring, lists: dict[int, tuple[list[int], bool]], size: int
) -> None:
    if fact.kind == "connection":
        channel, src, dst, side, transport, nic, _ = fact.data
        end = (channel, src, dst, side or "")
        if src < size and dst < size and (transport is not None or end not in wiring.connections):
            wiring.connections[end] = (transport, nic)
    elif fact.kind == "ring":
        channel, ranks, more = fact.data
        if max(ranks) < size:
            lists[channel] = (ranks, more)
    elif fact.kind == "trees":
        for channel, down, own, up in fact.data:
            if not 0 <= own < size:
                continue
            wiring.tree_edges[channel].update((child, own) for child in down if child < size)
            wiring.tree_edges[channel].update((own, parent) for parent in up if parent < size)
    else:
        wiring.channels.update(fact.data)


def _keep_whole_trees(group: LogCommunicator, wiring: Wiring) -> None:
    """Set channels apart whose edges do not make one tree over all ranks: a rank's line is missing or misplaced."""
    for channel, edges in list(wiring.tree_edges.items()):
        children = {child for child, _ in edges}
        spans = len({rank for edge in edges for rank in edge}) == group.size
        if len(edges) != group.size - 1 or len(children) != len(edges) or not spans:
            wiring.part_edges[channel] = wiring.tree_edges.pop(channel)


def _close_rings(group: LogCommunicator, wiring: Wiring, lists: dict[int, tuple[list[int], bool]]) -> None:
    for channel, (ranks, _) in sorted(lists.items()):
        if len(ranks) == group.size and len(set(ranks)) == group.size:
            wiring.rings[channel], wiring.ring_ground[channel] = ranks, "read"
    listed = set(lists) | {channel for channel, *_ in wiring.connections}
    for channel in sorted(listed - set(wiring.rings)):
        known = lists.get(channel, ([], False))[0]
        ring = _from_connections(group.size, channel, known, wiring)
        if ring is not None:
            wiring.rings[channel], wiring.ring_ground[channel] = ring, "inferred"
        elif len(known) > 1:
            wiring.part_rings[channel] = known


def _from_connections(size: int, channel: int, known: list[int], wiring: Wiring) -> list[int] | None:
    """Return the one closed cycle through all ranks that the connections of a channel make, or None."""
    successors: dict[int, list[int]] = defaultdict(list)
    tree = {edge for child, parent in wiring.tree_edges.get(channel, ()) for edge in ((child, parent), (parent, child))}
    edges = {(src, dst) for number, src, dst, _ in wiring.connections if number == channel}
    for src, dst in sorted(edges, key=lambda edge: (edge in tree, edge)):
        successors[src].append(dst)  # edges that only a ring can explain come first
    for position in range(len(known) - 1):
        successors[known[position]] = [known[position + 1]]
    return _cycle(size, _forced(successors, edges - tree)) or _cycle(size, successors)


def _forced(successors: dict[int, list[int]], only: set[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the successors that are left when what must be is taken first: an edge that no tree explains, a last choice."""
    left = {src: list(choices) for src, choices in successors.items()}
    certain = [
        (src, dst) for src, dst in only if sum(one == src for one, _ in only) == sum(one == dst for _, one in only) == 1
    ]
    taken: set[int] = set()
    while certain:
        for src, dst in certain:
            left[src] = [dst]
            taken.add(src)
            for other, choices in left.items():
                if other != src and dst in choices:
                    choices.remove(dst)
        into: dict[int, list[int]] = defaultdict(list)
        for src, choices in left.items():
            for dst in choices:
                into[dst].append(src)
        certain = [(src, choices[0]) for src, choices in left.items() if len(choices) == 1 and src not in taken]
        certain += [(choices[0], dst) for dst, choices in into.items() if len(choices) == 1 and choices[0] not in taken]
    return left


def _cycle(size: int, successors: dict[int, list[int]]) -> list[int] | None:
    """Depth-first search for a cycle through all ranks, bounded: real wirings leave few choices."""
    if len(successors) < size:
        return None
    ring, seen, steps = [0], {0}, 0
    choices = [iter(successors[0])]
    while choices and steps < SEARCH_STEPS:
        steps += 1
        if len(ring) == size:
            if 0 in successors[ring[-1]]:
                return ring
        else:
            dst = next((rank for rank in choices[-1] if rank not in seen), None)
            if dst is not None:
                ring.append(dst)
                seen.add(dst)
                choices.append(iter(successors[dst]))
                continue
        choices.pop()
        seen.discard(ring.pop())
    return None
