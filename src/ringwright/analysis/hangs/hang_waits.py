"""The graph of waits in a hung job, from the operation at which each rank stands.

A rank stands at its oldest open operation. It waits for the members that have not entered it, or that stand at an older
operation of their own. Who is waited for and waits for nobody is where the hang began: a host that stopped issuing, a
device that does not finish what all others finished, or a rank that left no dump. A closed circle of waits is a deadlock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ringwright.analysis.hangs.hang_mismatch import say_ranks
from ringwright.analysis.hangs.hang_progress import EventRow, Progress

NOT_ENTERED = "hang-not-entered"
DEVICE = "hang-device-stuck"
NO_DUMP = "hang-no-dump"
NOT_STARTED = "hang-not-started"
TOGETHER = "hang-group-stuck"
DEADLOCK = "hang-deadlock"


@dataclass
class Waits:
    """``edges``: waiting rank to the ranks it waits for. ``roots``: rank to the kind of its fault. ``circles``: deadlocks."""

    edges: dict[int, set[int]] = field(default_factory=dict)
    roots: dict[int, str] = field(default_factory=dict)
    circles: list[list[int]] = field(default_factory=list)
    stuck: set[int] = field(default_factory=set)  # stand at an operation that others completed
    reach: dict[int, int] = field(
        default_factory=dict
    )  # root to the number of ranks that wait for it, through others too


def waits(state: Progress) -> Waits:
    """Return the graph of waits and where it ends."""
    wait_graph = Waits()
    waited: set[int] = set()
    for rank in sorted(state.open):
        front = state.front(rank)
        if front is None:
            continue
        targets = _of_pair(state, rank, front) if front.kind == "p2p" else _of_group(state, rank, front)
        if targets is None:
            wait_graph.stuck.add(rank)
            targets = set()
        wait_graph.edges[rank] = targets
        waited |= targets
    _ends(state, wait_graph, waited)
    _not_started(state, wait_graph)
    return wait_graph


def _of_group(state: Progress, rank: int, front: EventRow) -> set[int] | None:
    """Return whom a rank at a collective waits for; None where the others completed it, so that the rank alone is stuck."""
    number, sequence = front.communicator, front.sequence
    targets, completed = set(), 0
    for member in state.members.get(number, ()):
        if member == rank:
            continue
        if member not in state.present:
            targets.add(member)
            continue
        done, entered = state.completed.get((number, member)), state.enqueued.get((number, member), -1)
        if done is not None and done >= sequence:
            completed += 1
        elif entered < sequence:
            targets.add(member)
        else:
            other = state.front(member)
            if other is not None and (other.communicator, other.sequence) != (number, sequence):
                targets.add(member)
    return None if completed and not targets else targets


def _of_pair(state: Progress, rank: int, front: EventRow) -> set[int] | None:
    """Return whom a rank at a send or receive waits for: its peer, unless that stands at the other half."""
    members = state.members.get(front.communicator, ())
    if front.peer is None or not 0 <= front.peer < len(members):
        return set()
    peer = members[front.peer]
    if peer not in state.present:
        return {peer}
    other = state.front(peer)
    if other is not None and _meet(front, other):
        return set()
    return None if _has_completed(state, front, peer, len(members)) else {peer}


def _has_completed(state: Progress, front: EventRow, peer: int, size: int) -> bool:
    """Whether the peer completed its half: by counting both sides where no record is lost, else in a group of two, where
    the halves share a number, by the peer's counter."""
    half = "recv" if front.op == "send" else "send"
    number, own = front.communicator, front.comm_rank
    if own is None or front.peer is None:
        return False
    if any(call.communicator == number and call.op == half and call.peer == own for call in state.open.get(peer, ())):
        return False
    if {front.rank, peer} <= state.whole:
        mine = state.halves.get((number, front.rank, front.peer, front.op), 0)
        return state.halves.get((number, peer, own, half), 0) > mine
    return size == 2 and number not in state.mixed and state.completed.get((number, peer), -1) >= front.sequence


def _meet(one: EventRow, other: EventRow) -> bool:
    same = one.communicator == other.communicator and other.kind == "p2p" and one.op != other.op
    return same and other.peer == one.comm_rank


def _ends(state: Progress, wait_graph: Waits, waited: set[int]) -> None:
    """Find the ends of the graph: single ranks that wait for nobody, and circles without a way out."""
    import rustworkx

    nodes = sorted(set(wait_graph.edges) | waited)
    index = {rank: position for position, rank in enumerate(nodes)}
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from_no_data(
        [(index[a], index[b]) for a, targets in wait_graph.edges.items() for b in sorted(targets)]
    )
    for part in rustworkx.strongly_connected_components(graph):
        ranks = sorted(nodes[position] for position in part)
        leaves = any(target not in ranks for rank in ranks for target in wait_graph.edges.get(rank, ()))
        if leaves:
            continue
        if len(ranks) > 1:
            wait_graph.circles.append(ranks)
        elif ranks[0] in waited or ranks[0] in wait_graph.stuck:
            wait_graph.roots[ranks[0]] = _kind(state, wait_graph, ranks[0])
            wait_graph.reach[ranks[0]] = len(rustworkx.ancestors(graph, index[ranks[0]]))
    wait_graph.circles.sort()


def _kind(state: Progress, wait_graph: Waits, rank: int) -> str:
    if rank not in state.present:
        return NO_DUMP
    if rank in wait_graph.stuck:
        return DEVICE
    return NOT_ENTERED if state.front(rank) is None else TOGETHER


def _not_started(state: Progress, wait_graph: Waits) -> None:
    """All entered one operation: a minority whose device did not start it, where the others' did, holds it up."""
    if any(kind != TOGETHER for kind in wait_graph.roots.values()) or wait_graph.circles:
        return
    standing: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for rank in wait_graph.edges:
        front = state.front(rank)
        if front is not None and front.kind == "collective":
            standing[front.communicator, front.sequence][rank] = front.state
    for states in standing.values():
        idle = [rank for rank, said in states.items() if said == "scheduled"]
        if idle and len(idle) * 2 < len(states):
            for rank in states:
                wait_graph.roots.pop(rank, None)
            for rank in idle:
                wait_graph.roots[rank] = NOT_STARTED
                wait_graph.reach[rank] = len(states) - len(idle)
                for other in states.keys() - set(idle):
                    wait_graph.edges[other] = wait_graph.edges[other] | {rank}


@dataclass
class Vote:
    """The two-signal rule: ``votes`` per rank, and in which groups it lags by which signal."""

    votes: Counter[int] = field(default_factory=Counter)
    reasons: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def top(self) -> set[int]:
        """The ranks with the most votes."""
        most = max(self.votes.values(), default=0)
        return {rank for rank, count in self.votes.items() if count == most}


def vote(state: Progress) -> Vote:
    """Return the vote over groups: who enqueued least and who completed least where members disagree.

    Groups that carry sends and receives, and pipeline groups, are left out: their members differ in a healthy job. Only a
    minority of a group is accused. Both signals are needed: a host that is stopped shows in the first, a device in the second.
    """
    ballot = Vote()
    for number, members in state.members.items():
        if number in state.pointwise or "pp" in (state.roles.get(number) or "").split("-") or len(members) < 2:
            continue
        accused: set[int] = set()
        for counters, signal in ((state.enqueued, "enqueued"), (state.completed, "completed")):
            last = {rank: counters[number, rank] for rank in members if (number, rank) in counters}
            if len(set(last.values())) < 2:
                continue
            least = min(last.values())
            behind = {rank for rank, value in last.items() if value == least}
            if len(behind) * 2 < len(last):
                accused |= behind
                most = Counter(last.values()).most_common(1)[0][0]
                for rank in behind:
                    ballot.reasons[rank].append(
                        f"group {state.name(number)}: last {signal} {least} on {say_ranks(sorted(behind))}, {most} on most"
                    )
        ballot.votes.update(accused)
    return ballot
