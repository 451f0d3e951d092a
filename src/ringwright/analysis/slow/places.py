"""The parts of a machine that a recording tells of: ranks, NICs, hosts and parts of the network, and what lies within each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

KINDS = ("rank", "nic", "host", "group", "network")  # the narrower first


@dataclass(frozen=True)
class MachinePart:
    """A part: its kind, one of ``KINDS``, its name, and its ranks."""

    kind: str
    name: str
    ranks: frozenset[int]

    def is_left(self, group: Collection[int]) -> bool:
        """Whether the calls of a group go through it: of one rank, its members; else members within and others without."""
        inside = sum(rank in self.ranks for rank in group)
        return inside > 0 if self.kind == "rank" else 0 < inside < len(group)


class Places:
    """The parts of a recording's machine. ``parts``: by rank, the nested parts of the network, the widest first, if told."""

    def __init__(self, trace: Trace) -> None:
        devices = [
            row for row in trace.table("topology").to_dicts() if row["kind"] == "device" and row["rank"] is not None
        ]
        self.host = {row["rank"]: row["host"] for row in devices if row["host"]}
        self.nic = {row["rank"]: f"{row['host'] or ''} {row['nic']}".strip() for row in devices if row["nic"]}
        self.parts = {row["rank"]: tuple(row["value"].split("/")) for row in devices if row["value"]}

    @property
    def is_told(self) -> bool:
        """Whether the recording tells how the ranks lie in the network: else groups of one size need not be alike."""
        return bool(self.parts)

    def shape(self, group: Collection[int]) -> tuple[object, ...]:
        """Return how a group lies: its size, and how many of it share each host, and each part of the network."""
        hosts = Counter(self.host[rank] for rank in group if rank in self.host)
        deepest = max((len(self.parts[rank]) for rank in group if rank in self.parts), default=0)
        levels = (
            Counter(self.parts[rank][:depth] for rank in group if rank in self.parts) for depth in range(1, deepest + 1)
        )
        nics = Counter(self.nic[rank].rpartition(" ")[2] for rank in group if rank in self.nic)
        return (len(group), *(tuple(sorted(each.values())) for each in (hosts, nics, *levels)))

    def crosses(self, group: Collection[int]) -> bool:
        """Whether a group reaches beyond one host; True where no hosts are told."""
        return len({self.host.get(rank) for rank in group}) > 1 or not self.host

    def are_apart(self, groups: Iterable[Collection[int]]) -> bool:
        """Whether two of the groups have no NIC in common: else one part may be slow for all, for some more than others."""
        used = [{self.nic.get(rank) for rank in group} - {None} for group in groups]
        return any(one.isdisjoint(other) for one, other in combinations(used, 2))

    def all(self, ranks: Collection[int]) -> dict[str, list[MachinePart]]:
        """Return the places that hold some of these ranks, by kind."""
        gathered: dict[str, list[MachinePart]] = {kind: [] for kind in KINDS}
        gathered |= {"rank": [MachinePart("rank", f"rank {rank}", frozenset((rank,))) for rank in sorted(ranks)]}
        for kind, of in (("nic", self.nic), ("host", self.host)):
            gathered[kind] = [MachinePart(kind, name, held) for name, held in _held(of, ranks).items()]
        for depth in range(1, 1 + max(map(len, self.parts.values()), default=0)):
            cut = {rank: "/".join(parts[:depth]) for rank, parts in self.parts.items() if len(parts) >= depth}
            gathered["network"] += [MachinePart("network", name, held) for name, held in _held(cut, ranks).items()]
        return gathered


def _held(of: dict[int, str], ranks: Collection[int]) -> dict[str, frozenset[int]]:
    held: dict[str, set[int]] = defaultdict(set)
    for rank in sorted(ranks):
        if rank in of:
            held[of[rank]].add(rank)
    return {name: frozenset(members) for name, members in sorted(held.items())}
