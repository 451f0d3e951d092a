"""Flows: chains of messages that fused instructions pass on, and the channel of each.

A thread block receives from one peer, sends to one peer, and does so on one channel. So all messages of a flow share a
channel, and on one channel what a rank receives from a peer and passes on goes to one peer only.
"""

from __future__ import annotations

import itertools

import numpy as np

from ringwright.algorithms.language.tape import Tape

Pairs = tuple[np.ndarray, np.ndarray]


def flows_of(tape: Tape, pairs: Pairs) -> np.ndarray:
    """Return the flow of each instruction that sends or receives, by the number of the send that begins it; else -1.

    int64 of shape (instructions,).
    """
    sent_on = np.full(len(tape), -1, np.int64)
    sent_on[pairs[0]] = pairs[1]
    begins = np.flatnonzero(tape.then >= 0)
    begins = begins[~np.isin(begins, pairs[1])]
    flow = np.full(len(tape), -1, np.int64)
    front, name = begins, begins
    while len(front):
        flow[front] = name
        into = tape.then[front]
        flow[into] = name
        further = sent_on[into] >= 0
        front, name = sent_on[into[further]], name[further]
    return flow


def channels_of(tape: Tape, pairs: Pairs, most: int, barred: dict[int, int]) -> tuple[np.ndarray, Pairs]:
    """Return the channel of each instruction, and the pairs that can be fused on these channels.

    A flow without a hint gets the lowest channel, from that in ``barred`` on, on which it agrees with all before it; where
    there is none below ``most`` it is not fused. A pair that contradicts its hinted channel is not fused. int64 of shape
    (instructions,).
    """
    flow = flows_of(tape, pairs)
    hops = _hops(tape, pairs)
    order = np.lexsort((pairs[0], flow[pairs[0]], tape.channel[flow[pairs[0]]] < 0))
    names = flow[pairs[0]][order]
    bounds = np.flatnonzero(np.append(True, names[1:] != names[:-1])[: len(names)]).tolist()
    # Beside thread blocks that a script names, others keep to channels of their own.
    lowest = int(tape.channel.max()) + 1 if (tape.tb >= 0).any() else 0
    channel = np.where(tape.channel >= 0, tape.channel, lowest)
    taken = _Taken(len(tape.sizes))
    kept = np.ones(len(order), bool)
    chosen: dict[int, int] = dict(barred)
    for begin, end in itertools.pairwise([*bounds, len(names)]):
        name, those = int(names[begin]), order[begin:end]
        if tape.channel[name] >= 0:
            kept[those] = [taken.take(hop, int(tape.channel[name])) for hop in hops[those].tolist()]
            continue
        wanted = np.unique(hops[those]).tolist()
        first = barred.get(name, lowest)
        free = next((c for c in range(first, most) if taken.has_room(wanted, c)), -1)
        chosen[name] = max(free, lowest)
        fits = {hop: free >= 0 and taken.take(hop, free) for hop in wanted}
        kept[those] = [fits[hop] for hop in hops[those].tolist()]
    names_of = np.fromiter(chosen, np.int64, len(chosen))
    moved = np.full(len(tape), lowest)
    moved[names_of] = np.fromiter(chosen.values(), np.int64, len(chosen))
    free_of_hint = (flow >= 0) & (tape.channel < 0)
    channel[free_of_hint] = moved[flow[free_of_hint]]
    return channel, (pairs[0][kept], pairs[1][kept])


def _hops(tape: Tape, pairs: Pairs) -> np.ndarray:
    """Return rank, peer that it receives from and peer that it sends to, in one number, of each pair."""
    p = len(tape.sizes)
    hops: np.ndarray = (tape.rank[pairs[0]] * p + tape.recv[pairs[0]]) * p + tape.send[pairs[1]]
    return hops


class _Taken:
    """Which peers are joined by a thread block, at each rank and on each channel."""

    def __init__(self, p: int) -> None:
        self.p = p
        self.onward: dict[int, int] = {}
        self.back: dict[int, int] = {}

    def _ends(self, hop: int, channel: int) -> tuple[int, int]:
        at = channel * self.p**3
        return at + hop // self.p, at + hop // self.p**2 * self.p + hop % self.p

    def has_room(self, hops: list[int], channel: int) -> bool:
        """Return whether all hops agree with what is taken."""
        for hop in hops:
            into, out = self._ends(hop, channel)
            if self.onward.get(into, hop) != hop or self.back.get(out, hop) != hop:
                return False
        return True

    def take(self, hop: int, channel: int) -> bool:
        """Take a hop, where it agrees with what is taken."""
        into, out = self._ends(hop, channel)
        if self.onward.get(into, hop) != hop or self.back.get(out, hop) != hop:
            return False
        self.onward[into] = self.back[out] = hop
        return True
