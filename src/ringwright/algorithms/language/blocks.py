"""Which thread block does each instruction.

A thread block sends to one peer, receives from one and has one channel. A connection keeps its thread block; what has none
goes to the least busy one that has no other peer in that direction, else to a new one. Local work goes to the least busy one of
its rank. Hints come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ringwright.algorithms.language.script import ChunkScript
from ringwright.algorithms.language.tape import Tape
from ringwright.ground.errors import ProgramError


@dataclass(slots=True)
class Thread:
    """One thread block while it is put together; -1: no peer yet, no channel yet."""

    rank: int
    send: int = -1
    recv: int = -1
    channel: int = -1
    steps: int = 0


class Threads:
    """The thread blocks of all ranks, in the order in which they were needed."""

    def __init__(self, script: ChunkScript, tape: Tape, channel: np.ndarray) -> None:
        self.script, self.tape, self.channel = script, tape, channel
        self.threads: list[Thread] = []
        self.of_rank: list[list[int]] = [[] for _ in range(script.ranks)]
        self.sending: dict[tuple[int, int, int], int] = {}  # rank, peer, channel
        self.receiving: dict[tuple[int, int, int], int] = {}

    def assigned(self, order: np.ndarray) -> np.ndarray:
        """Return the number of each instruction's thread block. int64 of shape (instructions,)."""
        tape = self.tape
        chosen = np.full(len(tape), -1, np.int64)
        hinted = order[tape.tb[order] >= 0]
        if len(hinted):
            chosen[hinted] = list(self._hinted(hinted))
        far = order[(chosen[order] < 0) & ((tape.send[order] >= 0) | (tape.recv[order] >= 0))]
        p = len(tape.sizes)
        key = ((self.channel[far] * p + tape.rank[far]) * (p + 1) + tape.send[far] + 1) * (p + 1) + tape.recv[far] + 1
        _, first, which, steps = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        ends = (tape.send[far] >= 0).astype(np.int64) + (tape.recv[far] >= 0)
        number = np.full(len(first), -1, np.int64)
        for at in np.lexsort((first, -ends[first])).tolist():  # those with two peers first, then as they are needed
            number[at] = self._connected(int(far[first[at]]), int(steps[at]))
        chosen[far] = number[which]
        if (chosen[order] < 0).any():
            self._local(order, chosen)
        return chosen

    def _new(self, thread: Thread) -> int:
        self.threads.append(thread)
        self.of_rank[thread.rank].append(len(self.threads) - 1)
        return len(self.threads) - 1

    def _hinted(self, order: np.ndarray) -> Iterator[int]:
        """Yield the thread block that each hint names."""
        tape = self.tape
        named: dict[tuple[int, int], int] = {}
        for number in order.tolist():
            rank, hint = int(tape.rank[number]), int(tape.tb[number])
            if (rank, hint) not in named:
                named[rank, hint] = self._new(Thread(rank))
            index = named[rank, hint]
            thread = self.threads[index]
            for side, peer in (("send", int(tape.send[number])), ("recv", int(tape.recv[number]))):
                if peer >= 0 and getattr(thread, side) not in (-1, peer):
                    verb = "sends to" if side == "send" else "receives from"
                    raise self._clash(number, f"{verb} rank {getattr(thread, side)} already, not {peer}")
                if peer >= 0:
                    setattr(thread, side, peer)
            if tape.send[number] >= 0 or tape.recv[number] >= 0:
                if thread.channel not in (-1, int(self.channel[number])):
                    raise self._clash(number, f"is on channel {thread.channel} already, not {self.channel[number]}")
                thread.channel = int(self.channel[number])
            self._record(index)
            thread.steps += 1
            yield index

    def _clash(self, number: int, what: str) -> ProgramError:
        rank, hint = int(self.tape.rank[number]), int(self.tape.tb[number])
        named = f"thread block {hint} of rank {rank}" if hint >= 0 else f"a thread block of rank {rank}"
        where = self.script.line(int(self.tape.line[number]))
        return ProgramError(f"{named} {what}", where=where, remedy="another channel, send_tb or recv_tb")

    def _record(self, index: int) -> None:
        thread = self.threads[index]
        if thread.send >= 0:
            self.sending.setdefault((thread.rank, thread.send, thread.channel), index)
        if thread.recv >= 0:
            self.receiving.setdefault((thread.rank, thread.recv, thread.channel), index)

    def _connected(self, number: int, steps: int) -> int:
        """Return the thread block for the peers and channel of an instruction, which then has so many steps more."""
        tape = self.tape
        rank, send, recv = (int(column[number]) for column in (tape.rank, tape.send, tape.recv))
        channel = int(self.channel[number])
        known = {self.sending.get((rank, send, channel), -1), self.receiving.get((rank, recv, channel), -1)} - {-1}
        if known:
            index = min(known)
        else:
            fitting = [
                each
                for each in self.of_rank[rank]
                if self.threads[each].channel == channel
                and (send < 0 or self.threads[each].send < 0)
                and (recv < 0 or self.threads[each].recv < 0)
            ]
            index = min(fitting, key=lambda each: (self.threads[each].steps, each), default=-1)
            index = self._new(Thread(rank, channel=channel)) if index < 0 else index
        thread = self.threads[index]
        if len(known) > 1 or (send >= 0 <= thread.send != send) or (recv >= 0 <= thread.recv != recv):
            raise self._clash(number, f"shares channel {channel} with one that a line names, which has another peer")
        thread.send, thread.recv = (send if send >= 0 else thread.send), (recv if recv >= 0 else thread.recv)
        thread.steps += steps
        self._record(index)
        return index

    def _local(self, order: np.ndarray, chosen: np.ndarray) -> None:
        """Give local work, as its turn comes, to the thread block of its rank that has done the least by then."""
        for thread in self.threads:
            thread.steps = 0
        for number in order.tolist():
            if chosen[number] < 0:
                rank = int(self.tape.rank[number])
                near = self.of_rank[rank] or [self._new(Thread(rank, channel=0))]
                chosen[number] = min(near, key=lambda each: (self.threads[each].steps, each))
            self.threads[chosen[number]].steps += 1
