"""Tuner rules by bytes of a rank, as the tuner inside NCCLX (torchcomms) has them, and their way from and to rules by all bytes.

Such a rule asks for the bytes of a call divided by the ranks, rounded down, for the nodes, and for the ranks of a node, each as a
range of whole numbers. A range of all bytes is one of them only where its ends are multiples of the ranks: ``aligned`` moves the
ends there, by less than one byte a rank, and no call of an all-gather or reduce-scatter takes another rule for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ringwright.costs.nccl.constants import ALGORITHMS, OPS, PROTOCOLS
from ringwright.costs.nccl.tuner import ANY, BYTES_MAX, TunerRule
from ringwright.ground.errors import UsageError

_REMEDY = "name nodes and ranks in every rule, and the same number of ranks on each node"


@dataclass(frozen=True, slots=True)
class WholeRange:
    """Whole numbers from ``low`` to ``high``, both inside; None: no end."""

    low: int | None = None
    high: int | None = None

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise UsageError(f"a range from {self.low} to {self.high}", remedy="give low <= high")

    def matches(self, number: int) -> bool:
        """Return whether a number lies inside."""
        return (self.low is None or self.low <= number) and (self.high is None or number <= self.high)


EVERY = WholeRange()


@dataclass(frozen=True, slots=True)
class PerRankRule:
    """One rule: the calls that it holds for, and what they take; -1 channels and 0 bytes of a chunk leave NCCL's own."""

    op: str
    algorithm: str
    protocol: str
    bytes_per_rank: WholeRange = EVERY
    nodes: WholeRange = EVERY
    local_ranks: WholeRange = EVERY
    channels: int = ANY
    chunk_bytes: int = 0

    def __post_init__(self) -> None:
        if self.op not in OPS or self.algorithm not in ALGORITHMS or self.protocol not in PROTOCOLS:
            raise UsageError(
                f"no tuner rule for {self.op} with {self.algorithm}/{self.protocol}",
                remedy=f"use {', '.join(OPS)}; {', '.join(ALGORITHMS)}; {', '.join(PROTOCOLS)}",
            )
        if (self.channels < 1 and self.channels != ANY) or self.chunk_bytes < 0:
            raise UsageError(
                f"a rule for {self.op} has {self.channels} channels and chunks of {self.chunk_bytes} B",
                remedy="1 channel or more, or -1; 0 bytes or more",
            )

    def matches(self, op: str, size_bytes: int, nodes: int, ranks: int) -> bool:
        """Return whether the rule holds for a call of ``size_bytes`` in all."""
        local = ranks // nodes
        divided = size_bytes // (nodes * local)
        return (
            self.op == op
            and self.bytes_per_rank.matches(divided)
            and self.nodes.matches(nodes)
            and self.local_ranks.matches(local)
        )


def aligned(rules: Iterable[TunerRule]) -> list[TunerRule]:
    """Return the rules with the ends of their sizes at multiples of their ranks; what lies between two of these is left out."""
    made = []
    for rule in rules:
        low = _up(rule.min_bytes, rule.ranks)
        high = rule.max_bytes if rule.max_bytes == BYTES_MAX else _up(rule.max_bytes + 1, rule.ranks) - 1
        if low <= high:
            made.append(replace(rule, min_bytes=low, max_bytes=high))
    return made


def per_rank_rules(rules: Iterable[TunerRule]) -> list[PerRankRule]:
    """Return the same rules by bytes of a rank; UsageError for one that cannot be said so."""
    return [_per_rank(rule) for rule in rules]


def _up(number: int, ranks: int) -> int:
    return number if ranks < 1 else -(-number // ranks) * ranks


def _per_rank(rule: TunerRule) -> PerRankRule:
    said = f"a rule for {rule.op} of {rule.min_bytes} to {rule.max_bytes} B"
    if (rule.pipelined, rule.registered) != (ANY, ANY):
        raise UsageError(f"{said} asks for a group of calls or for registered buffers", remedy="-1 for both: any")
    is_every_size = (rule.min_bytes, rule.max_bytes) == (0, BYTES_MAX)
    if (rule.ranks == ANY and not is_every_size) or (rule.nodes == ANY) != (rule.ranks == ANY):
        raise UsageError(f"{said} holds for {rule.nodes} nodes and {rule.ranks} ranks", remedy=_REMEDY)
    choice = rule.op, rule.algorithm, rule.protocol
    if rule.ranks == ANY:
        return PerRankRule(*choice, channels=rule.channels)
    if rule.nodes < 1 or rule.ranks < 1 or rule.ranks % rule.nodes:
        raise UsageError(f"{said} holds for {rule.ranks} ranks on {rule.nodes} nodes", remedy=_REMEDY)
    if [rule] != aligned([rule]):
        raise UsageError(f"{said} ends within the bytes of a rank", remedy="ringwright.costs.nccl.per_rank.aligned")
    low = rule.min_bytes // rule.ranks
    high = None if rule.max_bytes == BYTES_MAX else rule.max_bytes // rule.ranks
    sizes = EVERY if is_every_size else WholeRange(low, high)
    nodes, local = (WholeRange(number, number) for number in (rule.nodes, rule.ranks // rule.nodes))
    return PerRankRule(*choice, sizes, nodes, local, rule.channels)
