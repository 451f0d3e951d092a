"""Process groups of all files to communicators: by name and members, else by the stream their kernels run on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ringwright.formats.sources.kineto.facts import LARGEST_GROUP, CallFacts, positive, rank_list

# Descriptions that frameworks give their groups, to our roles; the first that fits.
_ROLES = (
    ("ep", r"(?:^|_)(?:ep|expert)"),
    ("cp", r"(?:^|_)(?:cp|context)(?:$|_)(?!.*(?:dp|data))"),
    ("tp", r"(?:^|_)(?:tp|tensor|model_parallel|mp)(?:$|_)(?!.*(?:dp|data|pp|pipe))"),
    ("pp", r"(?:^|_)(?:pp|pipe|pipeline)"),
    ("dp", r"(?:^|_)(?:dp|data|fsdp|ddp|hsdp|shard|replicate)"),
    ("embedding", r"embed"),
    ("world", r"^default_pg$|(?:^|_)world"),
)


@dataclass
class KinetoCommunicator:
    """A communicator: ``members`` are global ranks in order; empty when unknown."""

    number: int
    comm_id: str
    text: str = ""
    size: int | None = None
    members: tuple[int, ...] = ()
    ground: str = "read"
    note: str = ""
    is_mixed: bool = False  # stands for several groups that nothing tells apart
    files: set[int] = field(default_factory=set)


class KinetoCommunicators:
    """All groups of a job, found as the files are read."""

    def __init__(self) -> None:
        self.groups: dict[tuple[Any, ...], KinetoCommunicator] = {}

    def of_file(self, config: Any, said: Iterable[CallFacts]) -> FileGroups:
        """Return the groups of one file, from its ``pg_config`` and everything said in it."""
        known: dict[str, _Known] = {}
        said = list(said)
        for entry in config if isinstance(config, list) else []:
            if isinstance(entry, dict) and isinstance(name := entry.get("pg_name"), str | int):
                ranks, is_cut = rank_list(entry.get("ranks"))
                text = entry.get("pg_desc")
                size = positive(entry.get("pg_size")) or None
                is_cut = is_cut or (size is not None and len(ranks) < size)
                known[str(name)[:200]] = _Known(ranks, is_cut, size, str(text)[:200] if text else "")
        for facts in said:
            if facts.group_name is not None:
                known.setdefault(facts.group_name, _Known()).learn(facts)
        return FileGroups(
            self, known, {facts.group_size for facts in said if facts.group_name is None and facts.group_size}
        )

    def get(self, key: tuple[Any, ...], comm_id: str) -> KinetoCommunicator:
        """Return the group of a key, made on first sight."""
        if key not in self.groups:
            self.groups[key] = KinetoCommunicator(len(self.groups), comm_id)
        return self.groups[key]

    def named(self, name: str, members: tuple[int, ...], size: int | None) -> KinetoCommunicator:
        """Return the group of a name; equal names with other members are other groups, as in jobs of split groups."""
        key = ("name", name, members or None)
        if key in self.groups:
            return self.groups[key]
        for (kind, *rest), group in self.groups.items():
            fits = kind == "name" and rest[0] == name and (not members or not group.members)
            if fits and (size is None or group.size in (None, size)):
                return group
        return self.get(key, name)


@dataclass
class _Known:
    """What one file says of a group."""

    ranks: tuple[int, ...] = ()
    is_cut: bool = False
    size: int | None = None
    text: str = ""
    rule: tuple[int, int] | None = None

    def learn(self, facts: CallFacts) -> None:
        if facts.ranks and (not self.ranks or (self.is_cut and not facts.is_cut)):
            self.ranks, self.is_cut = facts.ranks, facts.is_cut
        self.size = self.size or facts.group_size
        self.text = self.text or facts.group_text or ""
        if self.rule is None and facts.first_rank is not None and facts.stride:
            self.rule = (facts.first_rank, facts.stride)

    def members(self) -> tuple[tuple[int, ...], str, str]:
        """Return members, ground and a note: a list as read, or completed from first rank and stride."""
        size = self.size if self.size and self.size <= LARGEST_GROUP else None
        if self.ranks and not self.is_cut:
            return self.ranks, "read", ""
        if size and self.rule:
            first, stride = self.rule
            whole = tuple(range(first, first + size * stride, stride))
            if whole[: len(self.ranks)] == self.ranks:
                return whole, "inferred", f"rank list cut at {len(self.ranks)}: completed from first rank and stride"
        if self.ranks and size and size > len(self.ranks):
            rest = (-1,) * (size - len(self.ranks))
            return self.ranks + rest, "read", f"rank list cut at {len(self.ranks)}: the other members are unknown"
        return self.ranks, "read", ""


class FileGroups:
    """The groups of one file; those without a name get one from the order of their streams."""

    def __init__(self, groups: KinetoCommunicators, known: dict[str, _Known], sizes: set[int]) -> None:
        self._groups, self._streams = groups, {}  # type: KinetoCommunicators, dict[tuple[str, int], int]
        self._sizes = sizes  # of groups that calls without a name were made in
        self._named: dict[str, KinetoCommunicator] = {}
        for name, about in known.items():
            members, ground, note = about.members()
            group = groups.named(name, members, about.size)
            group.text = group.text or about.text
            group.size = group.size or about.size or len(members) or None
            if members and not group.members:
                group.members, group.ground, group.note = members, ground, note
            self._named[name] = group

    @property
    def named(self) -> list[KinetoCommunicator]:
        """The groups that this file names, used or not."""
        return list(self._named.values())

    def of(self, facts: CallFacts, library: str, stream: int) -> KinetoCommunicator:
        """Return the group of a call: by its name, else the n-th stream on which this library communicates here."""
        if facts.group_name is not None:
            return self._named[facts.group_name]
        family = "nccl" if library in ("nccl", "rccl") else library
        if len(self._named) == 1:
            only = next(iter(self._named.values()))
            if self._sizes <= {only.size}:
                return only  # nothing tells of another group
            if facts.group_size is None or facts.group_size != only.size:
                return self._mixed(family, facts.group_size)
            return only
        key = (family, stream)
        if key not in self._streams:
            self._streams[key] = sum(1 for other, _ in self._streams if other == family)
        order = self._streams[key]
        name = f"{family}-stream-{order}" if stream >= 0 else f"{family}-unnamed"
        group = self._groups.get(("stream", family, order), name)
        group.ground = "assumed"
        group.size = group.size or facts.group_size
        return group

    def _mixed(self, family: str, size: int | None) -> KinetoCommunicator:
        """Return what stands for the groups of a size, or of any, that were made after those which the file lists."""
        group = self._groups.get(("mixed", family, size), f"{family}-unnamed" + (f"-of-{size}" if size else ""))
        group.size, group.ground, group.is_mixed = size, "assumed", True
        group.note = (
            "groups that the trace does not name: their calls are counted on each rank, their members are unknown"
        )
        return group


def role_of(text: str) -> str | None:
    """Return the role that a group's description names, None when it names none."""
    text = text.lower().removeprefix("mesh_")
    return next((role for role, pattern in _ROLES if re.search(pattern, text)), None)
