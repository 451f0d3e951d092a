"""Rules of NCCL's example tuner plug-in: which algorithm a call takes, first match wins.

A rule names a collective, a range of bytes (both ends inside), a choice, and what it holds for (-1 = any). NCCL gives
the rule's choice cost 0; a choice that is not available there is passed over. Source: ``plugins/tuner/example`` of
NVIDIA/nccl 2.30.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ringwright.costs.nccl.constants import ALGORITHMS, OPS, PROTOCOLS
from ringwright.costs.nccl.selection import NcclChoice
from ringwright.ground.errors import UsageError

ANY = -1
BYTES_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TunerRule:
    """One line: ``op`` all-reduce, all-gather, ...; sizes in bytes of the nccl-tests size column."""

    op: str
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int = ANY
    ranks: int = ANY
    pipelined: int = ANY
    registered: int = ANY

    def __post_init__(self) -> None:
        if self.op not in OPS or self.algorithm not in ALGORITHMS or self.protocol not in PROTOCOLS:
            raise UsageError(
                f"no tuner rule for {self.op} with {self.algorithm}/{self.protocol}",
                remedy=f"use {', '.join(OPS)}; {', '.join(ALGORITHMS)}; {', '.join(PROTOCOLS)}",
            )
        if not 0 <= self.min_bytes <= self.max_bytes <= BYTES_MAX:
            raise UsageError(f"sizes {self.min_bytes} to {self.max_bytes}", remedy="give 0 <= min_bytes <= max_bytes")

    def matches(self, op: str, size_bytes: int, nodes: int, ranks: int, pipelined: int, registered: int) -> bool:
        """Return whether the rule holds for a call."""
        if self.op != op or not self.min_bytes <= size_bytes <= self.max_bytes:
            return False
        wanted = ((self.nodes, nodes), (self.ranks, ranks), (self.pipelined, pipelined), (self.registered, registered))
        return all(rule in (ANY, call) for rule, call in wanted)


def rules_from_choices(choices: Iterable[NcclChoice]) -> list[TunerRule]:
    """Return one rule per run of sizes with the same choice: no gap and no overlap, from 0 bytes to the largest.

    A choice holds from its own size up to the next one given; the first also holds below, the last above. Sizes that
    are far apart therefore decide what lies between them.
    """
    rules: list[TunerRule] = []
    for (op, nodes, ranks), group in groupby(sorted(choices, key=_sort_key), key=lambda c: (c.op, c.nodes, c.ranks)):
        runs: list[tuple[int, NcclChoice]] = []
        for choice in group:
            if not runs or _decision(runs[-1][1]) != _decision(choice):
                runs.append((choice.size_bytes if runs else 0, choice))
        ends = [start - 1 for start, _ in runs[1:]] + [BYTES_MAX]
        rules += [
            TunerRule(op, start, end, choice.algorithm, choice.protocol, choice.channels, nodes, ranks)
            for (start, choice), end in zip(runs, ends, strict=True)
        ]
    return rules


def first_match(
    rules: Sequence[TunerRule],
    op: str,
    size_bytes: int,
    *,
    nodes: int,
    ranks: int,
    pipelined: int = 1,
    registered: int = 0,
    available: Callable[[str, str], bool] | None = None,
) -> TunerRule | None:
    """Return the rule that NCCL would follow for a call, or None where it keeps its own choice.

    ``available`` says whether a pair (algorithm, protocol) can be used there; without it every one can.
    """
    for rule in rules:
        if rule.matches(op, size_bytes, nodes, ranks, pipelined, registered) and (
            available is None or available(rule.algorithm, rule.protocol)
        ):
            return rule
    return None


def _sort_key(choice: NcclChoice) -> tuple[str, int, int, int]:
    return choice.op, choice.nodes, choice.ranks, choice.size_bytes


def _decision(choice: NcclChoice) -> tuple[str, str, int]:
    return choice.algorithm, choice.protocol, choice.channels
