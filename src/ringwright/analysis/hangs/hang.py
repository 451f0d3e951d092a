"""Who hung the job: disagreement, deadlock, a host or device that stopped, or a rank that left no dump.

Made for Flight Recorder dumps; it reads any Trace whose events carry states or status rows. The rule is causal: the end of
the graph of waits is the culprit, and the two-signal vote over groups must not contradict it. Where the evidence points at
no minority the ranks stay empty and the evidence says "cannot tell"; a healthy job yields no culprit at all.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ringwright.analysis import remedies
from ringwright.analysis.document import Culprit
from ringwright.analysis.hangs.hang_mismatch import mismatches, say_ranks
from ringwright.analysis.hangs.hang_progress import EventRow, Progress, progress
from ringwright.analysis.hangs.hang_waits import (
    DEADLOCK,
    DEVICE,
    NO_DUMP,
    NOT_ENTERED,
    NOT_STARTED,
    TOGETHER,
    Vote,
    Waits,
    vote,
    waits,
)
from ringwright.analysis.library_of_calls import GLOO, MPI, made_by

if TYPE_CHECKING:
    from ringwright.model.trace import Trace


MOST_MISSING_SHARE = 0.25  # beyond it, dumps were not collected rather than ranks dead
MOST_ACCUSED_SHARE = 0.2  # more at once is a moment of a running job, or has a cause that dumps do not show
_LEAST_REACH = 0.5  # of the ranks that wait
_SURE = {NOT_ENTERED: 0.9, DEVICE: 0.9, NO_DUMP: 0.7, NOT_STARTED: 0.5}
_MEANS = {
    NOT_ENTERED: "never entered the operation that others wait in: the host thread stopped issuing",
    DEVICE: "entered, but did not complete what others completed: the device or its link stopped",
    NO_DUMP: "left no dump, and others wait for it: the process is gone, or the dump was not collected",
    NOT_STARTED: "entered, but the device did not start the operation that others started",
}
_STACK = "pgrep -f python | xargs -n 1 py-spy dump --pid"
_GONE = "dmesg -T | grep -i 'killed process'"
# On the host of the ranks named: what to type there, and what it shows. Where nothing is to be typed there, the report.
_NEXT = {
    NOT_ENTERED: (_STACK, "where the host thread of {who} stands: type it on its host"),
    DEVICE: ("nvidia-smi -q; dmesg | grep -i xid", "what the device of {who} says: type it on its host"),
    NO_DUMP: (
        _GONE,
        "whether {who} ran out of memory: type it on its host; else read its output for a signal or an error",
    ),
    NOT_STARTED: ("nvidia-smi", "what else runs on the device of {who}: type it on its host"),
    DEADLOCK: ("", "look at the order of sends, receives and collectives of {who}"),
    "mismatch": ("", "look at the arguments of the call named, on {who}"),
}


def hang(trace: Trace) -> list[Culprit]:
    """Return culprits, the most certain first: ``ranks``, ``hosts``, ``kind``, ``confidence``, ``evidence``, ``command``.

    Empty for a trace without states, and for a job in which nobody waits for anybody.
    """
    state = progress(trace)
    culprits = mismatches(trace)
    if state.idle_s is not None and 0 <= state.idle_s < state.most_idle_s and not state.failed:
        pass  # calls are open, but the job was going on when it was ended, or looked at
    elif state.open:
        graph, ballot = waits(state), vote(state)
        explained = any(culprit["ranks"] and culprit["confidence"] >= 0.9 for culprit in culprits)
        culprits += _deadlocks(state, graph)
        if not explained:
            culprits += _roots(state, graph, ballot)
    elif not any(culprit["ranks"] for culprit in culprits):
        culprits += _gone(state)
    culprits.sort(key=lambda culprit: -culprit["confidence"])
    usual = remedies.report(trace.meta)
    return [_with_next(culprit, usual, has_gpu=made_by(trace.meta) not in (GLOO, MPI)) for culprit in culprits]


def _gone(state: Progress) -> list[Culprit]:
    """Return the ranks without a dump where nobody waits, but the others stopped at different operations.

    That is how a job ends whose library reports a lost peer as an error: what was open then counts as completed.
    """
    world = state.present | {rank for members in state.members.values() for rank in members}
    missing = world - state.present
    if not missing or len(missing) > max(1, MOST_MISSING_SHARE * len(world)):
        return []
    last: dict[int, dict[int, int]] = {}
    for (communicator, rank), sequence in state.enqueued.items():
        last.setdefault(communicator, {})[rank] = sequence
    for communicator, of in sorted(last.items()):
        if len(set(of.values())) > 1 and missing & set(state.members[communicator]):
            stopped = ", ".join(f"rank {rank} at {sequence}" for rank, sequence in sorted(of.items())[:6])
            evidence = [
                f"{say_ranks(sorted(missing))} left no dump, and nothing is open: the others were told of a lost peer",
                f"group {state.name(communicator)} ended unevenly: {stopped}",
            ]
            return [_culprit(missing, NO_DUMP, 0.7, evidence)]
    return []


def _with_next(culprit: Culprit, usual: str, *, has_gpu: bool) -> Culprit:
    """Add the command to type next, else the ``usual`` one, and to the evidence what it shows; a GPU is asked where one is."""
    kind = "mismatch" if culprit["kind"].startswith("hang-mismatch") else culprit["kind"]
    who = say_ranks(culprit["ranks"]) if culprit["ranks"] else "the ranks in the evidence"
    command, shows = _NEXT[
        NOT_ENTERED if kind not in _NEXT or (kind in (DEVICE, NOT_STARTED) and not has_gpu) else kind
    ]
    evidence = [*culprit["evidence"], f"next: {shows.format(who=who)}"]
    return {**culprit, "command": command or usual, "evidence": evidence}


def _suspects(graph: Waits) -> tuple[set[int], set[int]]:
    """Return the ranks that others wait for, and those of them of which more is known than that they stand together."""
    ranks = {rank for rank in graph.roots if graph.reach[rank]} or set(graph.roots)
    surer = {rank for rank in ranks if graph.roots[rank] != TOGETHER}
    return surer or ranks, surer


def _roots(state: Progress, graph: Waits, ballot: Vote) -> list[Culprit]:
    """Return the culprit that the ends of the graph and the vote name together."""
    waiting = [rank for rank, targets in graph.edges.items() if targets]
    absent = {rank for rank, kind in graph.roots.items() if kind == NO_DUMP}
    ranks, surer = _suspects(graph)
    world = state.present | {rank for members in state.members.values() for rank in members}
    if not ranks:
        return []
    unseen = len(world - state.present)
    if absent and unseen > max(1, MOST_MISSING_SHARE * len(world)):
        text = f"cannot tell: {unseen} of {len(world)} ranks have no dump"
        return [_culprit(set(), NO_DUMP, 0.0, [text, *_examples(state, graph, absent)])]
    if absent & ranks and ranks - absent and all(state.front(rank) is None for rank in ranks - absent):
        # A process that is gone explains why others, told of it, stopped issuing; the other way round it does not.
        ranks = absent & ranks
    if len(ranks) * 2 >= len(world) or len(ranks - absent) > max(2, MOST_ACCUSED_SHARE * len(world)):
        text = f"cannot tell: {say_ranks(sorted(ranks))} all hold others up"
        return [_culprit(set(), "hang", 0.0, [text, *_examples(state, graph, ranks)])]
    if len(_reaching(graph, ranks)) < _LEAST_REACH * len(waiting):
        return []  # a running job: some wait, for a moment, for different ranks
    if not surer:
        text = f"cannot tell which of {say_ranks(sorted(ranks))}: all entered, none completed; a device or the network"
        return [_culprit(set(), TOGETHER, 0.0, [text, *_examples(state, graph, ranks)])]
    return [_accused(state, graph, ballot, ranks)]


def _accused(state: Progress, graph: Waits, ballot: Vote, ranks: set[int]) -> Culprit:
    kinds = Counter(graph.roots[rank] for rank in ranks)
    kind = kinds.most_common(1)[0][0]
    sure = min(_SURE[graph.roots[rank]] for rank in ranks)
    agrees = ballot.top == ranks
    evidence = [f"{say_ranks(sorted(r for r in ranks if graph.roots[r] == k))} {_MEANS[k]}" for k in kinds]
    evidence += [f"rank {rank}: {state.fates[rank]}" for rank in sorted(ranks)[:3] if rank in state.fates]
    if ballot.votes and agrees:
        sure = min(sure + 0.05, 0.97)
        evidence.append(f"the vote over groups names the same: {_tally(ballot)}")
    elif ballot.votes and not ballot.top & ranks and NO_DUMP not in kinds:
        sure -= 0.2
        evidence.append(f"the vote over groups names others: {_tally(ballot)}")
    evidence += [reason for rank in sorted(ranks) for reason in ballot.reasons.get(rank, [])[:2]][:4]
    return _culprit(ranks, kind, round(sure, 2), evidence + _examples(state, graph, ranks))


def _tally(ballot: Vote) -> str:
    return ", ".join(f"rank {rank}: {count}" for rank, count in ballot.votes.most_common(4))


def _reaching(graph: Waits, ranks: set[int]) -> set[int]:
    """Return who waits for one of ``ranks``, directly or through others."""
    back: dict[int, list[int]] = {}
    for rank, targets in graph.edges.items():
        for target in targets:
            back.setdefault(target, []).append(rank)
    reached: set[int] = set()
    todo = list(ranks)
    while todo:
        for rank in back.get(todo.pop(), ()):
            if rank not in reached:
                reached.add(rank)
                todo.append(rank)
    return reached - ranks


def _examples(state: Progress, graph: Waits, ranks: set[int], most: int = 6) -> list[str]:
    """Return where the culprits stand, and some who wait for them, with file and record."""
    examples = []
    for rank in sorted(ranks)[:most]:
        front = state.front(rank)
        if front is not None:
            examples.append(f"{front.place}: rank {rank} stands at {_says(state, front)}")
        elif rank in state.files:
            examples.append(f"{state.files[rank]}: rank {rank} completed all that it issued")
    direct = [rank for rank, targets in sorted(graph.edges.items()) if targets & ranks]
    for rank in direct[: max(2, most - len(examples))]:
        call = state.front(rank)
        if call is not None:
            waited = say_ranks(sorted(graph.edges[rank] & ranks))
            examples.append(f"{call.place}: rank {rank} waits for {waited} in {_says(state, call)}")
    if len(direct) > 2:
        examples.append(f"{len(direct)} ranks wait for them directly, {len(_reaching(graph, ranks))} in all")
    return examples


def _says(state: Progress, call: EventRow) -> str:
    where = f", called in {call.text}" if call.text else ""
    return f"{call.op} {call.sequence} of group {state.name(call.communicator)} ({call.state}){where}"


def _deadlocks(state: Progress, graph: Waits) -> list[Culprit]:
    """Return a culprit per closed circle of waits: two ends of a pipeline, or collectives issued in different orders."""
    culprits = []
    for ranks in graph.circles:
        by_front: dict[tuple[int, int], list[int]] = {}
        for rank in ranks:
            call = state.front(rank)
            if call is not None:
                by_front.setdefault((call.communicator, call.sequence), []).append(rank)
        pairs = all(call.kind == "p2p" for rank in ranks if (call := state.front(rank)) is not None)
        evidence = [f"{say_ranks(ranks)} wait for each other in a circle"]
        evidence += _examples(state, graph, set(ranks))
        odd = _odd(state, by_front)
        if pairs:
            culprits.append(_culprit(set(ranks), DEADLOCK, 0.85, evidence))
        elif odd:
            evidence.insert(1, f"{say_ranks(odd)} issued collectives of two groups in another order than the rest")
            culprits.append(_culprit(set(odd), DEADLOCK, 0.7, evidence))
        else:
            evidence.insert(1, "cannot tell which of them is wrong")
            culprits.append(_culprit(set(), DEADLOCK, 0.0, evidence))
    return culprits


def _odd(state: Progress, by_front: dict[tuple[int, int], list[int]]) -> list[int]:
    """Return the members of the smallest front, where the others outnumber them in each of the groups concerned."""
    smallest = min(by_front.values(), key=len, default=[])
    total = sum(map(len, by_front.values()))
    is_only = sum(len(ranks) == len(smallest) for ranks in by_front.values()) == 1
    return smallest if smallest and is_only and len(smallest) * 2 < total else []


def _culprit(ranks: set[int], kind: str, confidence: float, evidence: list[str]) -> Culprit:
    return {"ranks": sorted(ranks), "hosts": [], "kind": kind, "confidence": confidence, "evidence": evidence[:12]}
