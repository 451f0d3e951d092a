"""Buckets: sharded parameters gathered layer by layer, gradients reduced many at a time; and what went one by one.

A layer's parameters are one bucket where one all-gather brings them; several in a row are none. A reduction of gradients is
a bucket where at least two gradients came to be since the one before, or where it is large. Several in a row of one gradient
each are what a bucket would have held.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import groupby

from ringwright.analysis.exposed.fusion_rows import BUCKETED_GATHER, GRADIENT_BUCKET, Fusion, FusionRows, begin_end
from ringwright.ground.trace_tables import Row

BUCKET_BYTES = 25 << 20  # what PyTorch's data parallel wrapper fills before it reduces
LEAST_BYTES = 1 << 20  # and its first bucket
REDUCING = ("dp", "dp-cp", "world", None)


@dataclass
class BucketFusions:
    """Fusions of one rank, and sentences on what cannot be told."""

    fusions: list[Fusion] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)


def bucket_fusions(rows: FusionRows) -> BucketFusions:
    """Return the buckets of one rank."""
    made = BucketFusions()
    _gathers(rows, made)
    _gradients(rows, made)
    return made


def _gathers(rows: FusionRows, made: BucketFusions) -> None:
    sharded = [row for row in rows.asked if row["op"] == "all-gather" and row["role"] == "fsdp"]
    bare = [row for row in sharded if not row["layer"]]
    if bare:
        made.unsure.append(
            f"rank {rows.rank}: {len(bare)} all-gathers of sharded parameters name no layer: "
            "whether they are buckets is not known"
        )
    by_group = defaultdict(list)
    for row in sharded:
        if row["layer"]:
            by_group[row["communicator"], row["datatype"]].append(row)
    for mine in by_group.values():
        for (step, layer, _), run in groupby(mine, key=lambda row: (row["iteration"], row["layer"], rows.phase(row))):
            parts = list(run)
            fault = "" if len(parts) == 1 else f"{len(parts)} all-gathers in a row for one layer"
            made.fusions.append(_fusion(rows, BUCKETED_GATHER, parts, step, layer, fault))


def _fusion(rows: FusionRows, pattern: str, parts: list[Row], step: int | None, layer: str, fault: str) -> Fusion:
    took = sum(end - begin for begin, end in map(begin_end, (p for p in parts if p["duration_s"] is not None)))
    first = parts[0]
    where = (first["communicator"], not fault, first["file"], first["line"], fault, took)
    sizes = [row["size_bytes"] for row in parts]
    return Fusion(pattern, rows.rank, step, layer, *where, size_bytes=None if None in sizes else sum(sizes))


def _is_reduction(rows: FusionRows, row: Row) -> bool:
    is_backward = row["op"] == "all-reduce" and rows.is_ddp and rows.is_backward(row) and row["iteration"] is not None
    return is_backward and rows.roles.get(row["communicator"]) in REDUCING


def _gradients(rows: FusionRows, made: BucketFusions) -> None:
    """Judge the reductions that a data parallel wrapper asks for during the backward pass."""
    mine = [row for row in rows.asked if _is_reduction(rows, row)]
    unknown, steps = 0, defaultdict[int, list[tuple[Row, bool]]](list)
    before = float("-inf")
    for row in mine:
        count = rows.counted_gradients(before, row["enqueue_s"]) if rows.gradients else None
        before = row["enqueue_s"]
        size = row["size_bytes"]
        if count == 0:
            continue  # no gradient came to be: a norm, a loss
        if count is None and size is None:
            unknown += 1
            continue
        is_small = size is None or size < (LEAST_BYTES if count is None else BUCKET_BYTES)
        steps[row["iteration"]].append((row, is_small and (count or 0) <= 1))
    if unknown:
        made.unsure.append(
            f"rank {rows.rank}: {unknown} reductions of the backward pass show neither size nor gradients: "
            "whether they are buckets is not known"
        )
    runs = {
        step: [(alone, [row for row, _ in run]) for alone, run in groupby(each, key=lambda one: one[1])]
        for step, each in steps.items()
    }
    usual = _usual(runs)
    for step, parts in runs.items():
        _step(rows, made, step, parts, usual, may_lack=_may_lack(step, runs))


Runs = list[tuple[bool, list[Row]]]  # of a step: whether gradients went alone, and those reductions


def _usual(runs: dict[int, Runs]) -> int | None:
    """Return how many buckets steps have in which everything went in buckets, None where no number is usual."""
    counts = Counter(_buckets(parts) for parts in runs.values() if not any(_is_split(part) for part in parts))
    if not counts:
        return None
    number, often = counts.most_common(1)[0]
    return number if 2 * often > counts.total() else None


def _is_split(part: tuple[bool, list[Row]]) -> bool:
    return part[0] and len(part[1]) > 1  # one alone is a bucket of one: the first, the last, or of a type of its own


def _buckets(parts: Runs) -> int:
    return sum(len(run) for alone, run in parts if not (alone and len(run) > 1))


def _may_lack(step: int, runs: dict[int, Runs]) -> bool:
    """Say whether a step may be compared with the others: the first and the last of a profile may be cut."""
    return len(runs) >= 3 and min(runs) < step < max(runs)


def _step(rows: FusionRows, made: BucketFusions, step: int, parts: Runs, usual: int | None, *, may_lack: bool) -> None:
    whole = [row for part in parts if not _is_split(part) for row in part[1]]
    made.fusions += [_fusion(rows, GRADIENT_BUCKET, [row], step, "", "") for row in whole]
    split = [part[1] for part in parts if _is_split(part)]
    groups = [group for run in split for group in _filled(run)]
    if split and usual is not None and usual > len(whole):
        groups = _dealt(split, usual - len(whole))
    for group in groups:
        fault = f"{len(group)} reductions in a row of one gradient each"
        made.fusions.append(_fusion(rows, GRADIENT_BUCKET, group, step, "", fault))
    if not split and usual is not None and may_lack:
        for _ in range(usual - len(whole)):
            fault = f"the other steps reduce {usual} buckets, this one {len(whole)}"
            made.fusions.append(_fusion(rows, GRADIENT_BUCKET, whole[:1], step, "", fault))


def _filled(run: list[Row]) -> list[list[Row]]:
    """Return what would have been buckets: each filled before the next; one where sizes are unknown."""
    if any(row["size_bytes"] is None for row in run):
        return [run]
    groups: list[list[Row]] = [[]]
    held = 0
    for row in run:
        if held >= BUCKET_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(row)
        held += row["size_bytes"]
    return groups


def _dealt(runs: list[list[Row]], count: int) -> list[list[Row]]:
    """Return the reductions of runs as so many groups, in order; never more than there are."""
    every = [row for run in runs for row in run]
    count = min(count, len(every))
    return [every[n * len(every) // count : (n + 1) * len(every) // count] for n in range(count)]
