"""The device mesh of a recorded job: the axes along which its communicators lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from ringwright.ground.errors import WorkloadError
from ringwright.model.workload import Mesh

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

NAMED = ("dp", "tp", "pp", "ep", "cp", "sp", "fsdp")


@dataclass
class RecordedMesh:
    """The mesh, the axes of each communicator, its members (None: not known) and its role ("": not known).

    ``parts``: communicators of some ranks of another one, such as the first and the last stage of a pipeline; their axes are
    those along which these differ.
    """

    mesh: Mesh
    axes: dict[int, tuple[str, ...]]
    members: dict[int, list[int] | None]
    roles: dict[int, str]
    sizes: dict[int, int]
    parts: frozenset[int] = frozenset()
    assumptions: list[str] = field(default_factory=list)

    def group(self, communicator: int, rank: int) -> tuple[int, ...]:
        """Return the ranks of a communicator that ``rank`` is in, as recorded, else as the mesh has them."""
        known = self.members[communicator]
        return tuple(known) if known is not None else self.mesh.group(self.axes[communicator], rank)

    def rank_of(self, communicator: int, index: int, rank: int) -> int:
        """Return the global rank of a place in a communicator that ``rank`` is in, -1 where that is not known."""
        group = self.group(communicator, rank)
        return group[index] if 0 <= index < len(group) else -1

    def index_of(self, communicator: int, rank: int) -> int:
        """Return the index in a communicator of a rank that is in it, -1 where that is not known."""
        group = self.group(communicator, rank)
        return group.index(rank) if rank in group else -1


def _recorded(trace: Trace, wanted: set[int]) -> tuple[dict[int, list[int] | None], dict[int, int], dict[int, str]]:
    rows = [row for row in trace.table("communicators").iter_rows(named=True) if row["communicator"] in wanted]
    members: dict[int, list[int] | None] = {}
    sizes, roles = {}, {}
    for row in rows:
        number, listed = row["communicator"], list(row["members"] or [])
        known = bool(listed) and min(listed) >= 0 and len(listed) == (row["size"] or len(listed))
        members[number] = listed if known else None
        sizes[number] = int(row["size"] or len(listed) or 1)
        roles[number] = str(row["role"] or _role_in(row["name"]))
    return members, sizes, roles


def grid(trace: Trace, used: Iterable[int], ranks: Sequence[int]) -> RecordedMesh:
    """Return the mesh on which the used communicators are rows, columns or blocks; WorkloadError where there is none."""
    members, sizes, roles = _recorded(trace, set(used))
    notes = []
    parts = _parts(members)
    world = _world(trace, sizes.values(), [each for number, each in members.items() if number not in parts], ranks)
    for number, listed_ in members.items():
        if listed_ is None and sizes[number] not in (1, world):
            notes.append(f"the members of communicator {number} are not recorded: {sizes[number]} neighbours")
    notes += [f"communicator {n} has one rank, as far as was recorded" for n in members if sizes[n] == 1]
    shapes = {number: _shape(members[number], sizes[number], world) for number in members if number not in parts}
    mesh, strides = _mesh(shapes, world, roles)
    axes = {number: _axes(shapes[number], mesh, strides) for number in shapes}
    axes |= {number: _differing(members[number] or [], mesh) for number in parts}
    for number, listed_ in members.items():
        if (
            sizes[number] > 1
            and listed_ is not None
            and number not in parts
            and sorted(listed_) != sorted(mesh.group(axes[number], listed_[0]))
        ):
            raise no_grid(number, listed_)
    return RecordedMesh(mesh, axes, members, roles, sizes, parts, notes)


def _parts(members: Mapping[int, list[int] | None]) -> frozenset[int]:
    """Return the communicators of some ranks of another one that no mesh has as a row, a column or a block beside the others."""
    known = {number: frozenset(listed) for number, listed in members.items() if listed}
    inside = {number for number, mine in known.items() if any(mine < other for other in known.values())}
    cuts = [cut for number in known if number not in inside for cut in _cuts(members[number] or [])]
    parts = set()
    for number in sorted(inside, key=lambda each: (-len(known[each]), each)):
        try:
            mine = _cuts(members[number] or [])
        except WorkloadError:
            mine = []
        if mine and _nested([*cuts, *mine]):
            cuts += mine
        else:
            parts.add(number)
    return frozenset(parts)


def _cuts(members: list[int]) -> list[int]:
    """Return where a group begins and ends: the strides and extents of its shape."""
    return [cut for stride, count in _shape(members, len(members), 1) for cut in (stride, stride * count)]


def _nested(cuts: Iterable[int]) -> bool:
    return all(other % one == 0 for one, other in pairwise(sorted(set(cuts))))


def _differing(members: Sequence[int], mesh: Mesh) -> tuple[str, ...]:
    """Return the axes along which ranks differ."""
    coordinates = [mesh.place(rank) for rank in members]
    return tuple(name for name, _ in mesh.axes if len({each[name] for each in coordinates}) > 1) or (mesh.axes[-1][0],)


def _world(trace: Trace, sizes: Iterable[int], members: Iterable[list[int] | None], ranks: Sequence[int]) -> int:
    """Return the number of ranks: as the source says, and as many as the largest group needs to repeat."""
    said = trace.meta.get("world")
    known = [each for each in members if each]
    least = max([*sizes, *(max(each) + 1 for each in known), *(rank + 1 for rank in ranks)], default=1)
    least = max(said, least) if isinstance(said, int) else least
    block = max((stride * n for each in known for stride, n in _shape(each, len(each), least)), default=1)
    return -(-least // block) * block


def _role_in(name: str | None) -> str:
    """Return the role that our own exports write before the members of a group."""
    word = (name or "").removeprefix("process group ").partition("/")
    return word[0] if word[1] else ""


def _shape(members: list[int] | None, size: int, world: int) -> list[tuple[int, int]]:
    """Return a group as (stride, count), innermost first; neighbours where the members are not known."""
    if members is None:
        return [(1, size)] if world % size == 0 else [(1, world)]
    shape, starts = [], sorted(members)
    while len(starts) > 1:
        stride = starts[1] - starts[0]
        count = next((at for at in range(1, len(starts)) if starts[at] - starts[at - 1] != stride), len(starts))
        if stride < 1 or len(starts) % count:
            raise no_grid(-1, members)
        shape.append((stride, count))
        starts = starts[::count]
    return shape


def _mesh(shapes: dict[int, list[tuple[int, int]]], world: int, roles: dict[int, str]) -> tuple[Mesh, dict[str, int]]:
    """Return the mesh, and stride -> axis: cut wherever a group begins or ends."""
    cuts = sorted(
        {1, world, *(cut for shape in shapes.values() for stride, n in shape for cut in (stride, stride * n))}
    )
    for one, other in pairwise(cuts):
        if other % one:
            raise WorkloadError(
                f"the groups do not form a grid: blocks of {one} and of {other} ranks of {world}",
                where="communicators",
                remedy="only jobs whose groups are rows and columns of a mesh can be replayed",
            )
    strides = [(one, other // one) for one, other in pairwise(cuts)] or [(1, 1)]
    names: dict[int, str] = {}
    for number, shape in shapes.items():
        if len(shape) == 1 and shape[0] in strides and roles[number] in NAMED and roles[number] not in names.values():
            names.setdefault(shape[0][0], roles[number])
    named = []
    for at, (stride, count) in enumerate(strides):
        usual = "dp" if len(strides) == 1 and "dp" not in names.values() else f"axis{at}"
        named.append((names.get(stride, usual), stride, count))
    mesh = Mesh(tuple((name, count) for name, _, count in reversed(named)))
    return mesh, {name: stride for name, stride, _ in named}


def _axes(shape: list[tuple[int, int]], mesh: Mesh, strides: dict[str, int]) -> tuple[str, ...]:
    inside = [name for name, at in strides.items() if any(stride <= at < stride * n for stride, n in shape)]
    return tuple(name for name, _ in mesh.axes if name in inside) or (mesh.axes[-1][0],)


def no_grid(number: int, members: Sequence[int]) -> WorkloadError:
    """Return the error of a group that is no part of any mesh with the others."""
    listed = ", ".join(map(str, members[:8])) + (", ..." if len(members) > 8 else "")
    return WorkloadError(
        f"the group of ranks {listed} is no row, column or block of a mesh",
        where=f"communicator {number}" if number >= 0 else "communicators",
        remedy="only jobs whose groups are rows and columns of a mesh can be replayed",
    )
