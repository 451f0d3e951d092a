"""Which operation of one source is which of another: by sequence, shifted where sources began to count at different moments."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from ringwright.ground.trace_tables import Row

LEAST_SHARE = 0.8  # of operations in common that must agree before sequences are taken for one
LONGEST = 4000  # operations of one group that are compared
_MOST_SHIFTS = 2000
Signature = list[tuple[int, str, int | None]]  # sequence, op, size


def aligned(parts: Sequence[pl.DataFrame], sources: Sequence[str], claims: list[Row]) -> list[pl.DataFrame]:
    """Return the calls of each part with sequences counted as in the first part that knows the group.

    Where no shift makes ``LEAST_SHARE`` of the common operations agree the sequences of the later part are moved behind
    all others, so that nothing is merged that is not the same, and a claim says so.
    """
    known: dict[int, tuple[Signature, str]] = {}
    frames = []
    for part, source in zip(parts, sources, strict=True):
        shifts: dict[int, int] = {}
        for communicator, mine in _signatures(part).items():
            if communicator not in known:
                known[communicator] = (mine, source)
                continue
            theirs, first = known[communicator]
            shift, share, common = best_shift(theirs, mine)
            if common and share >= LEAST_SHARE:
                shifts[communicator] = shift
                if shift or share < 1:
                    claims.append(_claim(communicator, source, first, shift, share))
            else:
                shifts[communicator] = 1 + max(theirs[-1][0], 0) - min(mine[0][0], 0)
                claims.append(_refused(communicator, source, first, share))
        frames.append(_shifted(part, shifts))
    return frames


def best_shift(first: Signature, second: Signature) -> tuple[int, float, int]:
    """Return (shift, share, operations in common): what added to the second's sequences makes most of them agree.

    Of equal shares the shift with the most operations in common wins, then the smallest.
    """
    here = {sequence: (op, size) for sequence, op, size in first}
    # Both may begin, or end, at the same moment; and where one knows no size the operations alone must do.
    votes: Counter[int] = Counter({0: 1, first[0][0] - second[0][0]: 1, first[-1][0] - second[-1][0]: 1})
    places: dict[tuple[str, int | None], list[int]] = {}
    for sequence, op, size in first:
        places.setdefault((op, size), []).append(sequence)
    rare = sorted(second, key=lambda call: len(places.get(call[1:], ())))[:64]
    for sequence, op, size in rare:
        votes.update(position - sequence for position in places.get((op, size), ())[:_MOST_SHIFTS])
    best = (0, 0.0, 0)
    for shift, _ in votes.most_common(64):
        common = [(here[sequence + shift], (op, size)) for sequence, op, size in second if sequence + shift in here]
        agree = sum(_alike(a, b) for a, b in common)
        share = agree / len(common) if common else 0.0
        score = (share >= LEAST_SHARE, agree, -abs(shift))
        if score > (best[1] >= LEAST_SHARE, round(best[1] * best[2]), -abs(best[0])):
            best = (shift, share, len(common))
    return best


def _alike(a: tuple[str, int | None], b: tuple[str, int | None]) -> bool:
    same_op = a[0] == b[0] or "unknown" in (a[0], b[0])
    return same_op and (a[1] == b[1] or a[1] is None or b[1] is None)


def _signatures(part: pl.DataFrame) -> dict[int, Signature]:
    """Return sequence, op and size of each group's collectives, in order."""
    import polars as pl

    mine = part.filter(
        (pl.col("kind") == "collective") & pl.all_horizontal(pl.col("sequence", "communicator").is_not_null())
    )
    once = (
        mine.group_by("communicator", "sequence")
        .agg(pl.col("op", "size_bytes").first())
        .sort("communicator", "sequence")
    )
    signatures: dict[int, Signature] = {}
    for communicator, sequence, op, size in once.select("communicator", "sequence", "op", "size_bytes").iter_rows():
        calls = signatures.setdefault(communicator, [])
        if len(calls) < LONGEST:
            calls.append((sequence, op, size))
    return signatures


def _shifted(part: pl.DataFrame, shifts: dict[int, int]) -> pl.DataFrame:
    import polars as pl

    moved = {communicator: shift for communicator, shift in shifts.items() if shift}
    if not moved:
        return part
    by = pl.col("communicator").replace_strict(moved, default=0, return_dtype=pl.Int64).fill_null(0)
    return part.with_columns(
        pl.when(pl.col("kind") == "collective")
        .then(pl.col("sequence") + by)
        .otherwise(pl.col("sequence"))
        .alias("sequence")
    )


def _claim(communicator: int, source: str, first: str, shift: int, share: float) -> Row:
    note = f"{share:.0%} of the operations that both saw agree"
    return _row(communicator, f"sequence of {source} + {shift} is that of {first}", source, "inferred", share, note)


def _refused(communicator: int, source: str, first: str, share: float) -> Row:
    note = f"at the best {share:.0%} of operations agree: nothing was merged, and counts of both stand side by side"
    return _row(communicator, f"operations of {source} and {first} could not be matched", source, "assumed", 0.3, note)


def _row(communicator: int, value: str, source: str, ground: str, confidence: float, note: str) -> Row:
    return {
        "field": f"communicator {communicator} sequence",
        "value": value,
        "source": source,
        "ground": ground,
        "confidence": confidence,
        "note": note,
    }
