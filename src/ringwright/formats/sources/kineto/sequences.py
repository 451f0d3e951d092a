"""The number of each collective within its communicator, equal on all ranks: as read, else counted.

Counted means: the n-th operation of its kind in the same iteration on each rank is the same operation; numbers follow
the order on the rank that has most. Ranks whose profiles do not begin together are moved against each other when their
sizes then fit better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl


class _Op(NamedTuple):
    row: int
    op: str
    iteration: int | None
    sequence: int | None
    size: int | None


class Numbered(NamedTuple):
    """Per file the sequence of each row, and which rows got theirs by counting; communicators whose ranks differ."""

    sequences: list[list[int | None]]
    counted: list[list[bool]]
    uneven: list[int]


def number(frames: list[pl.DataFrame], mixed: Container[int] = ()) -> Numbered:
    """Number the collectives of all files (one frame of operations per file), but for those of ``mixed`` groups."""
    by_group: dict[int, dict[int, list[_Op]]] = defaultdict(lambda: defaultdict(list))
    sequences: list[list[int | None]] = []
    counted: list[list[bool]] = []
    for file, frame in enumerate(frames):
        sequences.append(frame["sequence"].to_list())
        counted.append([False] * frame.height)
        columns = frame.select("kind", "communicator", "op", "iteration", "sequence", "size_bytes").rows()
        for row, (kind, group, op, iteration, sequence, size) in enumerate(columns):
            if kind == "collective" and group not in mixed:
                by_group[group][file].append(_Op(row, op, iteration, sequence, size))
    uneven = []
    for group, files in by_group.items():
        if _is_numbered(files):
            continue
        if len({len(ops) for ops in files.values()}) > 1:
            uneven.append(group)
        for file, numbers in _count(files).items():
            for op, sequence in zip(files[file], numbers, strict=True):
                sequences[file][op.row] = sequence
                counted[file][op.row] = True
    return Numbered(sequences, counted, uneven)


def _is_numbered(files: dict[int, list[_Op]]) -> bool:
    """Whether the source's own numbers tell operations apart; those without keep none (the first of a profile)."""
    for ops in files.values():
        said = [op.sequence for op in ops if op.sequence is not None]
        if len(said) * 2 < len(ops) or len(set(said)) < len(said):
            return False
    return True


def _count(files: dict[int, list[_Op]]) -> dict[int, list[int]]:
    keys = {file: _keys(ops) for file, ops in files.items()}
    longest = max(keys, key=lambda file: (len(keys[file]), -file))
    shifts = {file: {} if file == longest else _shifts(files[file], files[longest]) for file in files}
    numbers: dict[tuple[int | None, str, int], int] = {}
    answer = {}
    for file in sorted(keys, key=lambda file: (file != longest, file)):
        mine = []
        for iteration, op, position in keys[file]:
            key = (iteration, op, position + shifts[file].get((iteration, op), 0))
            mine.append(numbers.setdefault(key, len(numbers)))
        answer[file] = mine
    return answer


def _keys(ops: list[_Op]) -> list[tuple[int | None, str, int]]:
    seen: dict[tuple[int | None, str], int] = defaultdict(int)
    keys = []
    for op in ops:
        keys.append((op.iteration, op.op, seen[op.iteration, op.op]))
        seen[op.iteration, op.op] += 1
    return keys


def _shifts(mine: list[_Op], longest: list[_Op]) -> dict[tuple[int | None, str], int]:
    """Return how many operations this rank's profile begins later, where sizes fit better at the end than at the start."""
    ours, theirs = _sizes(mine), _sizes(longest)
    shifts = {}
    for key, sizes in ours.items():
        other = theirs.get(key, [])
        late = len(other) - len(sizes)
        if late > 0:
            at_start = sum(a == b for a, b in zip(sizes, other, strict=False))
            at_end = sum(a == b for a, b in zip(sizes, other[late:], strict=False))
            if at_end > at_start:
                shifts[key] = late
    return shifts


def _sizes(ops: list[_Op]) -> dict[tuple[int | None, str], list[int | None]]:
    sizes: dict[tuple[int | None, str], list[int | None]] = defaultdict(list)
    for op in ops:
        sizes[op.iteration, op.op].append(op.size)
    return sizes
