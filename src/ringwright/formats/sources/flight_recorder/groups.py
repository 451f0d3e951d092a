"""Process groups of the dumps of one job: which of them are one communicator, and which group a rank's number stands for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ringwright.formats.sources.flight_recorder.columns import DumpColumns
from ringwright.formats.sources.flight_recorder.dump import Dump
from ringwright.formats.sources.flight_recorder.names import role

if TYPE_CHECKING:
    from ringwright.ground.trace_tables import Row


class DumpCommunicators:
    """Communicators by name and members; a name with other members on another rank is another communicator."""

    def __init__(self) -> None:
        self.number: dict[tuple[str, tuple[int, ...]], int] = {}
        self.names: list[str] = []
        self.descriptions: list[str] = []
        self.members: list[tuple[int, ...]] = []
        self.seen: list[set[int]] = []
        self.place: list[dict[int, int]] = []  # global rank to rank in the group

    def add(self, name: str, description: str, members: tuple[int, ...]) -> int:
        """Return the communicator of a group, a new one where it was not seen before."""
        key = (name, members)
        if key not in self.number:
            self.number[key] = len(self.names)
            self.names.append(name)
            self.descriptions.append(description)
            self.members.append(members)
            self.seen.append(set())
            self.place.append({rank: index for index, rank in enumerate(members)})
        return self.number[key]

    def rows(self) -> list[Row]:
        """Return the rows of the communicators table."""
        taken = Counter(self.names)
        rows: list[Row] = []
        for number, name in enumerate(self.names):
            members, description = self.members[number], self.descriptions[number]
            stated = role(description) if description else None
            rows.append(
                {
                    "communicator": number,
                    "comm_id": name if taken[name] == 1 else f"{name}@{members[0] if members else '?'}",
                    "name": f"{name} {description}".strip(),
                    "size": len(members) or max(1, len(self.seen[number])),
                    "members": list(members),
                    "ranks_seen": len(self.seen[number]),
                    "role": stated,
                    "role_evidence": f"its description is {description}" if stated else None,
                    "ground": "read" if members else "assumed",
                    "confidence": 1.0 if members else 0.5,
                }
            )
        return rows


def groups_of(dump: Dump, part: DumpColumns, groups: DumpCommunicators) -> dict[str, int]:
    """Return the communicator of each of the rank's own group numbers, also of those that only its counters name."""
    rank = dump.rank if dump.rank is not None else -1
    # Gloo's dumps describe one group, without a name: it is the whole job, which the entries call default_pg.
    named = {name: group for name, group in dump.groups.items() if name or group[1]}
    whole = next((members for name, (_, _, members) in dump.groups.items() if name not in named), ())
    numbers = {name: groups.add(name, description, members) for name, (_, description, members) in named.items()}
    of_number: dict[str, int] = {}
    for number, (name, description) in dict(zip(part.number, part.group, strict=True)).items():
        if name not in numbers:
            numbers[name] = groups.add(name, description, whole if role(description) == "world" else ())
        of_number[number] = numbers[name]
    for number, name in _aligned(dump, {n: groups.names[c] for n, c in of_number.items()}).items():
        of_number.setdefault(number, numbers[name])
    for name in named:
        groups.seen[numbers[name]].add(rank)
    for communicator in of_number.values():
        groups.seen[communicator].add(rank)
    return of_number


def _aligned(dump: Dump, known: dict[str, str]) -> dict[str, str]:
    """Counters carry the rank's own number of a group only. Numbers and names of groups both grow as groups are made, so
    where there are as many of either, and the known pairs agree, the order of one is the order of the other."""
    numbers, names = list(dump.status), list(dump.groups)
    if len(numbers) != len(names) or not all(text.isdecimal() for text in (*numbers, *names)):
        return {}
    pairs = dict(zip(sorted(numbers, key=int), sorted(names, key=int), strict=True))
    return pairs if all(pairs.get(number, name) == name for number, name in known.items()) else {}
