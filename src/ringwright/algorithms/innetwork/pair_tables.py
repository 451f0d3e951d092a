"""Tables of keys and values in a switch: small ones on the chip by length of key, a large one behind them, exact to the pair.

A pair whose key is in its table is added there. Any other one takes its bucket; the pair that was in it is *evicted*, from the
chip to the table behind, from there to the output, as an ordinary pair: whoever adds next combines it. When all children have
ended, both tables are emptied into the output. So sums are the same whatever is evicted; only how many pairs go on differs.
Mechanism: Yang et al., SwitchAgg, arXiv 1904.04024; its internals are from memory, hash and eviction are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from ringwright.ground.errors import UsageError
from ringwright.ground.hashing import mixed_int

Pair = tuple[bytes, int]


@dataclass(frozen=True)
class Memory:
    """Room of a switch.

    Parameters
    ----------
    front_bytes, back_bytes
        Of the tables on the chip, all together, and of the one behind them; 0: there is none.
    widths
        Longest keys of each class, in bytes and rising: every class has a table, of an equal share. Longer keys pass by.
    value_bytes
        Room for a value beside its key.
    seed
        Of the hash; None: the bucket is the key's number (of its last eight bytes) modulo the buckets.
    """

    front_bytes: int
    back_bytes: int = 0
    widths: Sequence[int] = (4, 16, 64)
    value_bytes: int = 8
    seed: int | None = 0

    def __post_init__(self) -> None:
        """Raise UsageError for a room that is none."""
        if min(self.front_bytes, self.back_bytes) < 0 or self.value_bytes < 1:
            raise UsageError("tables of less than nothing", remedy="sizes of 0 or more, values of 1 byte or more")
        if not self.widths or list(self.widths) != sorted(set(self.widths)) or self.widths[0] < 1:
            raise UsageError(f"classes of keys of {list(self.widths)} bytes", remedy="rising lengths from 1 on")


@dataclass
class _Table:
    """Buckets of one pair each."""

    buckets: int
    seed: int | None
    held: dict[int, Pair] = field(default_factory=dict)

    def take(self, pair: Pair) -> Pair | None:
        """Add or insert a pair; return the one that must go on, None for none."""
        if not self.buckets:
            return pair
        at = self._bucket(pair[0])
        before = self.held.get(at)
        if before is not None and before[0] == pair[0]:
            self.held[at] = (pair[0], before[1] + pair[1])
            return None
        self.held[at] = pair
        return before

    def _bucket(self, key: bytes) -> int:
        if self.seed is None:
            return int.from_bytes(key[-8:], "big") % self.buckets
        return mixed_int((crc32(key) << 32 | len(key)) ^ self.seed * 0x9E3779B97F4A7C15) % self.buckets


class PairSwitch:
    """One switch: what its children send goes in by ``take``, what goes on to its parent comes out.

    ``output`` holds the pairs that went on, ``most_held`` the most pairs that both tables held at a time.
    """

    def __init__(self, memory: Memory, children: int = 1) -> None:
        self.memory, self.children = memory, children
        share, seed = memory.front_bytes // len(memory.widths), memory.seed
        self._front = [_Table(share // (width + memory.value_bytes), seed) for width in memory.widths]
        again = None if seed is None else seed + 1  # pairs that met on the chip must not meet again behind it
        self._back = _Table(memory.back_bytes // (memory.widths[-1] + memory.value_bytes), again)
        self.output: list[Pair] = []
        self.most_held = 0

    @property
    def room(self) -> int:
        """Pairs that the tables can hold."""
        return sum(table.buckets for table in self._front) + self._back.buckets

    def take(self, pair: Pair) -> None:
        """Take a pair of a child."""
        width = next((at for at, most in enumerate(self.memory.widths) if len(pair[0]) <= most), None)
        evicted: Pair | None = pair
        if width is not None:
            evicted = self._front[width].take(pair)
            evicted = evicted and self._back.take(evicted)
        if evicted is not None:
            self.output.append(evicted)
        self.most_held = max(self.most_held, sum(len(table.held) for table in (*self._front, self._back)))

    def end(self) -> None:
        """Take the end mark of a child; with the last one both tables go out."""
        self.children -= 1
        if self.children:
            return
        for table in (*self._front, self._back):
            self.output += table.held.values()
            table.held = {}


def through(memory: Memory, children: Sequence[Iterable[Pair]]) -> list[Pair]:
    """Return the pairs that a switch sends on for its children, which take turns, pair by pair."""
    switch = PairSwitch(memory, len(children))
    waiting = [iter(each) for each in children]
    while waiting:
        for each in list(waiting):
            pair = next(each, None)
            if pair is None:
                switch.end()
                waiting.remove(each)
            else:
                switch.take(pair)
    return switch.output


def totals(pairs: Iterable[Pair]) -> dict[bytes, int]:
    """Return the sum of each key: what a reducer ends with."""
    sums: Counter[bytes] = Counter()
    for key, value in pairs:
        sums[key] += value
    return dict(sums)


def sent_bytes(pairs: Iterable[Pair], value_bytes: int) -> int:
    """Return the bytes of keys and values on the wire, two bytes of lengths beside each pair."""
    return sum(len(key) + value_bytes + 2 for key, _ in pairs)


def expected_pairs(pairs: float, keys: float, room: float) -> float:
    """Return how many pairs leave a table of ``room`` buckets of as many of ``keys`` equally frequent keys.

    K where they fit (with a bucket for each); else P (1 - M/K) + M, as a pair meets its key in a bucket with probability M/K.
    """
    return min(pairs, keys) if keys <= room else min(pairs, pairs * (1 - room / keys) + room)
