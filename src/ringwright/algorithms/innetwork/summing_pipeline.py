"""A switch's adder cycle by cycle: words of all ports enter one pipeline that reads a slot, adds to it and writes it back.

A word is as wide as the adder. Each port fills one in so many cycles and queues it; one word a cycle leaves the queues. The slot
of a word that entered is written ``depth`` cycles later: another word for it that enters before would read the sum without the
first one. So that word *waits* and a word of another slot goes first. Ports whose words meet at one slot so drift apart until
each is ``depth`` cycles behind the one before, which is what the queues are for. A port whose queue is full stops its line.
Mechanism: Liu et al., IEEE TCAS-I 68(10), 2021; the structure is inferred from the abstract and is this project's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ringwright.ground.errors import UsageError

WORD_BITS = 32  # of a float


@dataclass(frozen=True)
class SummingPipeline:
    """The device.

    Parameters
    ----------
    ports, port_bits_s
        Lines, and bits/s of each.
    width_bits, clock_hz
        Of the adder: bits that enter in a cycle, and cycles/s.
    depth
        Cycles from reading a slot to having it written.
    queue_words
        Words that wait at a port at the most.
    waits
        Whether a word waits while its slot is in the pipeline; without that, sums are lost.
    """

    ports: int = 8
    port_bits_s: int = 10_000_000_000
    width_bits: int = 512
    clock_hz: int = 156_250_000
    depth: int = 8
    queue_words: int = 16
    waits: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError for a device that is none."""
        whole = (self.ports, self.port_bits_s, self.width_bits, self.clock_hz, self.depth, self.queue_words)
        if min(whole) < 1 or self.width_bits % WORD_BITS:
            raise UsageError(
                f"an adder of {self.width_bits} bits for {self.ports} ports, {self.depth} cycles deep, {self.queue_words} words",
                remedy=f"all of them 1 or more, the width in floats of {WORD_BITS} bits",
            )

    @property
    def is_wide(self) -> bool:
        """Whether it takes in all that the ports bring."""
        return self.width_bits * self.clock_hz >= self.ports * self.port_bits_s

    def arrivals(self, words: int, skew: np.ndarray | int = 0) -> np.ndarray:
        """Return the cycle in which each word of each port is whole, int64 of shape (ports, words).

        ``skew`` are the cycles by which each port is late, int64 of shape (ports,) or one for all.
        """
        each = [(word + 1) * self.width_bits * self.clock_hz // self.port_bits_s for word in range(words)]
        late = np.broadcast_to(np.asarray(skew, np.int64), (self.ports,))
        return np.array(each, np.int64)[None, :] + late[:, None]


@dataclass(frozen=True)
class SummingRun:
    """What became of the words, word k of every port for slot k.

    Parameters
    ----------
    entered
        Cycle in which each entered the pipeline, int64 of shape (ports, words).
    done
        Cycle in which each slot has its last word, int64 of shape (words,).
    stalled
        Cycles that each port's line stood still, int64 of shape (ports,).
    longest_queue
        The most words that waited at one port.
    held_back
        Words whose slot was in the pipeline when their turn came, counted in each such cycle.
    """

    entered: np.ndarray
    done: np.ndarray
    stalled: np.ndarray
    longest_queue: int
    held_back: int


def aggregated(device: SummingPipeline, arrivals: np.ndarray) -> SummingRun:
    """Return what becomes of words that are whole in some cycles, int64 of shape (ports, words), rising along a port."""
    ports, words = arrivals.shape
    entered = np.full((ports, words), -1, np.int64)
    queues: list[deque[int]] = [deque() for _ in range(ports)]
    coming, stalled = [0] * ports, [0] * ports
    written: dict[int, int] = {}
    cycle, left, longest, held_back = 0, ports * words, 0, 0
    while left:
        for port, queue in enumerate(queues):
            if coming[port] == words or arrivals[port, coming[port]] + stalled[port] > cycle:
                continue
            if len(queue) == device.queue_words:
                stalled[port] += 1
                continue
            queue.append(coming[port])
            coming[port] += 1
            longest = max(longest, len(queue))
        for word, port in sorted((queue[0], port) for port, queue in enumerate(queues) if queue):
            if device.waits and written.get(word, 0) > cycle:
                held_back += 1
                continue
            queues[port].popleft()
            entered[port, word], written[word] = cycle, cycle + device.depth
            left -= 1
            break
        cycle += 1
    return SummingRun(entered, entered.max(axis=0) + device.depth, np.array(stalled, np.int64), longest, held_back)


def cascaded(device: SummingPipeline, arrivals: np.ndarray, hop_cycles: int) -> list[SummingRun]:
    """Return the runs of devices below one more device, which is the last: their sums come to it ``hop_cycles`` later.

    ``arrivals`` are int64 of shape (devices, ports, words).
    """
    below = [aggregated(device, each) for each in arrivals]
    return [*below, aggregated(device, np.array([run.done + hop_cycles for run in below]))]


def summed(
    device: SummingPipeline, run: SummingRun, values: np.ndarray, order: Literal["arrival", "fixed"] = "arrival"
) -> np.ndarray:
    """Return the sums, float32 of shape (words, floats), of values that are float32 of shape (ports, words, floats).

    By ``arrival`` a word is added to what its slot held in the cycle in which it entered: the order of the lines, and other bits
    where that differs. In a ``fixed`` order slots keep what each port gave until the last has come, and a tree of adders takes
    ports 0 and 1, 2 and 3, ..., then those sums: the same bits whatever came first, for as many times the memory as there are
    ports.
    """
    if order == "fixed":
        return _by_tree(values)
    sums = np.zeros(values.shape[1:], np.float32)
    for word in range(values.shape[1]):
        writes: list[tuple[int, np.ndarray]] = []
        for port in np.argsort(run.entered[:, word], kind="stable").tolist():
            cycle = int(run.entered[port, word])
            before = next((sum_ for at, sum_ in reversed(writes) if at <= cycle), np.zeros_like(sums[word]))
            writes.append((cycle + device.depth, before + values[port, word]))
        sums[word] = writes[-1][1]
    return sums


def _by_tree(values: np.ndarray) -> np.ndarray:
    """Return the sums over the first axis by pairs of neighbours, float32 without that axis."""
    level = values.astype(np.float32)
    while len(level) > 1:
        odd = level[len(level) // 2 * 2 :]
        level = np.concatenate((level[0 : len(level) - len(odd) : 2] + level[1::2], odd))
    return np.asarray(level[0])
