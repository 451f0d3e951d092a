"""The Collective: which operation a group of ranks does, on how many bytes, cut how.

Sizes follow the size column of nccl-tests: the larger of the two buffers of one rank. All-gather and gather count the
gathered result, reduce-scatter and scatter what is scattered, all-to-all what one rank sends to all ranks (itself
included); all others the one buffer. Data are named by *blocks*: the parts that belong to a rank, or to a pair of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError
from ringwright.ground.notebook import card
from ringwright.ground.units import format_size

if TYPE_CHECKING:
    import numpy as np

OPS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all-to-all",
    "barrier",
    "send-recv",
    "scan",
    "exscan",
)
ROOTED = ("broadcast", "reduce", "gather", "scatter")
PREFIXES = ("scan", "exscan")  # each rank gets what it and those before it, or those before it alone, contributed
REDUCING = ("all-reduce", "reduce-scatter", "reduce", "barrier", *PREFIXES)
CARRYING_NOTHING = ("barrier",)
PER_RANK = ("reduce-scatter", "all-gather", "gather", "scatter")  # one block a rank
DTYPE_BYTES = {
    "int8": 1,
    "uint8": 1,
    "float8": 1,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
# What each does, for people.
MEANINGS = {
    "all-reduce": "every rank gets the sum of all vectors",
    "reduce-scatter": "every rank gets its own block of the sum of all vectors",
    "all-gather": "every rank gets the blocks of all ranks",
    "broadcast": "every rank gets the root's vector",
    "reduce": "the root gets the sum of all vectors",
    "gather": "the root gets the blocks of all ranks",
    "scatter": "every rank gets its own block of the root's vector",
    "all-to-all": "every rank sends each other one its own block",
    "barrier": "no rank goes on before all have come",
    "send-recv": "one rank gets another one's vector",
    "scan": "every rank gets the sum of its vector and those of the ranks before it",
    "exscan": "every rank gets the sum of the vectors of the ranks before it",
}
REDUCE_OPS = ("sum", "prod", "max", "min", "avg")

# What algbw is multiplied with, times (p-1)/p for p ranks, to give busbw; 1 for all others (nccl-tests, doc/PERFORMANCE.md).
BUS_FACTORS = {
    "all-reduce": 2.0,
    "reduce-scatter": 1.0,
    "all-gather": 1.0,
    "all-to-all": 1.0,
    "gather": 1.0,
    "scatter": 1.0,
}


def carried(op: str, sizes: Sequence[int]) -> list[int]:
    """Return the sizes at which an operation can be asked about: 0 alone where it carries no data."""
    return [0] if op in CARRYING_NOTHING else list(sizes)


def split(total: int, parts: int, unit: int = 1) -> np.ndarray:
    """Cut ``total`` bytes into ``parts`` pieces of whole units, the longer ones first; a rest below one unit goes last.

    Returns int64 of shape (parts,), whose sum is ``total``.
    """
    import numpy as np

    units, rest = divmod(total, unit)
    sizes = np.full(parts, units // parts, np.int64)
    sizes[: units % parts] += 1
    sizes *= unit
    if parts:
        sizes[-1] += rest
    return sizes


@dataclass(frozen=True)
class Collective:
    """One collective operation.

    ``group`` holds the global ranks in group order (all other numbers here are places in it); ``counts`` are bytes per
    rank (all-gather, reduce-scatter, gather, scatter) or rows of bytes per pair (all-to-all) and replace the even cut.
    ``commutative=False`` asks that contributions meet in the order of the ranks.

    Parameters
    ----------
    op
        all-reduce, reduce-scatter, all-gather, broadcast, reduce, gather, scatter, all-to-all, barrier, send-recv, scan or
        exscan.
    group
        Global ranks in group order; ``range(8)`` for the first eight.
    size_bytes
        The size column of nccl-tests, in bytes: the larger of the two buffers of one rank. 0 is legal.
    dtype, reduce_op
        Element type (float32, bfloat16, int64 ...), and sum, prod, max, min or avg.
    root
        Place of the root in the group, where the operation has one.
    in_place
        Whether result and contribution share a buffer.
    counts
        Bytes per rank, or rows of bytes per pair, in place of an even cut.
    commutative
        Whether contributions may meet in any order.

    Raises
    ------
    UsageError
        The arguments contradict each other.

    Examples
    --------
    >>> import ringwright
    >>> gather = ringwright.Collective("all-gather", range(4), 1 << 20)
    >>> gather
    Collective(all-gather of 1 MiB over 4 ranks, float32)
    >>> gather.block_bytes
    array([262144, 262144, 262144, 262144])
    >>> gather.bus_factor
    0.75
    """

    op: str
    group: Sequence[int]
    size_bytes: int
    dtype: str = "float32"
    reduce_op: str = "sum"
    root: int = 0
    in_place: bool = False
    counts: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None
    commutative: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError where the arguments contradict each other."""
        if self.op not in OPS:
            raise UsageError(
                f"'{self.op}' is not a collective", remedy=f"ringwright list collectives; one of: {', '.join(OPS)}"
            )
        if not len(self.group):
            raise UsageError(f"{self.op} over an empty group")
        if self.size_bytes < 0:
            raise UsageError(f"negative size: {self.size_bytes} B", remedy="a size is 0 or more")
        if self.dtype not in DTYPE_BYTES:
            raise UsageError(f"'{self.dtype}' is not a data type", remedy=f"one of: {', '.join(DTYPE_BYTES)}")
        if self.reduce_op not in REDUCE_OPS:
            raise UsageError(f"'{self.reduce_op}' is not a reduction", remedy=f"one of: {', '.join(REDUCE_OPS)}")
        if self.op in PREFIXES and self.reduce_op == "avg":
            raise UsageError(f"{self.op} has no average", remedy="sum, prod, max or min")
        if not 0 <= self.root < self.p:
            raise UsageError(f"root {self.root} is not in a group of {self.p}", remedy=f"0 to {self.p - 1}")
        self._check_group()
        self._check_counts()

    def _check_group(self) -> None:
        if isinstance(self.group, range):
            return
        if len(set(self.group)) != len(self.group) or min(self.group) < 0:
            raise UsageError("a group names each rank once, from 0 on", where=f"group {list(self.group)[:8]}")

    def _check_counts(self) -> None:
        if self.counts is None:
            return
        rows = self.counts
        if self.op in PER_RANK:
            flat = [count for count in rows if isinstance(count, int)]
            if len(flat) != self.p or min(flat) < 0 or sum(flat) != self.size_bytes:
                raise UsageError(
                    f"{self.op} of {self.size_bytes} B over {self.p} ranks: counts must add up to its size"
                )
        elif self.op == "all-to-all":
            square = [row for row in rows if isinstance(row, tuple) and len(row) == self.p and min(row) >= 0]
            if len(square) != self.p:
                raise UsageError(f"all-to-all counts are {self.p} rows of {self.p} sizes of 0 or more")
        else:
            raise UsageError(f"{self.op} takes no counts")

    @property
    def label(self) -> str:
        """What it does in a few words: ``all-reduce of 64 MiB over 16 ranks``, with the root where it has one."""
        rooted = f" from {self.root}" if self.op in ("broadcast", "scatter") else f" to {self.root}"
        size = f" of {format_size(self.size_bytes)}" if self.op != "barrier" else ""
        return f"{self.op}{size} over {self.p:,} ranks" + (rooted if self.op in ROOTED else "")

    def __repr__(self) -> str:
        adds = f", {self.reduce_op}" if self.reduces and self.op != "barrier" else ""
        uneven = ", by counts" if self.counts is not None else ""
        return f"Collective({self.label}, {self.dtype}{adds}{uneven}{', in place' if self.in_place else ''})"

    def _repr_html_(self) -> str:
        facts = {"size": format_size(self.size_bytes), "ranks": self.p, "group": _named(self.group), "type": self.dtype}
        facts |= {"reduction": self.reduce_op} if self.reduces else {}
        return card(f"Collective: {self.op}", facts | ({"root": self.root} if self.op in ROOTED else {}))

    @property
    def p(self) -> int:
        """Ranks in the group."""
        return len(self.group)

    @property
    def unit_bytes(self) -> int:
        """Bytes that a cut never splits: one element, or one byte where the size is not whole elements."""
        unit = DTYPE_BYTES[self.dtype]
        return unit if self.size_bytes % unit == 0 else 1

    @property
    def reduces(self) -> bool:
        """Whether contributions are combined."""
        return self.op in REDUCING

    @property
    def n_blocks(self) -> int:
        """Blocks: 1 where all ranks hold the same buffer, p where each owns a part, p*p (source*p + target) between pairs."""
        if self.op == "all-to-all":
            return self.p * self.p
        return self.p if self.op in PER_RANK or self.op == "send-recv" else 1

    @cached_property
    def block_bytes(self) -> np.ndarray:
        """Bytes of each block, int64; all-to-all returns one row of p where every rank's row is the same.

        Of shape (n_blocks,), or (p,) where all rows are alike.
        """
        import numpy as np

        if self.counts is not None:
            return np.array(self.counts, np.int64).reshape(-1)
        if self.op == "send-recv":
            return np.full(self.p, self.size_bytes, np.int64)
        if self.n_blocks == 1:
            return np.array([self.size_bytes], np.int64)
        return split(self.size_bytes, self.p, self.unit_bytes)

    def initial(self, rank: int) -> Sequence[int]:
        """Return the blocks that place ``rank`` holds before: its own contribution, or what it has to give."""
        p = self.p
        if self.op in ("all-gather", "gather", "send-recv"):
            return (rank,)
        if self.op == "all-to-all":
            return range(rank * p, rank * p + p)
        if self.op in ("broadcast", "scatter"):
            return range(self.n_blocks) if rank == self.root else ()
        return range(self.n_blocks)

    def final(self, rank: int) -> Sequence[int]:
        """Return the blocks that place ``rank`` must hold afterwards, whole (all contributions, where it reduces)."""
        p = self.p
        if self.op in ("reduce-scatter", "scatter"):
            return (rank,)
        if self.op == "all-to-all":
            return range(rank, p * p, p)
        if self.op == "send-recv":
            return ((rank - 1) % p,)
        if self.op in ("reduce", "gather"):
            return range(self.n_blocks) if rank == self.root else ()
        return range(self.n_blocks) if self.contributors(rank) else ()

    def contributors(self, rank: int) -> range:
        """Return the places whose contributions are in what place ``rank`` must hold afterwards, where it reduces."""
        if self.op == "scan":
            return range(rank + 1)
        return range(rank) if self.op == "exscan" else range(self.p)

    @property
    def bus_factor(self) -> float:
        """Return busbw / algbw as nccl-tests defines it; 0 where one rank has nobody to talk to."""
        return BUS_FACTORS[self.op] * (self.p - 1) / self.p if self.op in BUS_FACTORS else 1.0


def _named(group: Sequence[int]) -> str:
    """Return the ranks of a group in a few letters: ``0 to 15``, or the first ones."""
    if isinstance(group, range) and group.step == 1:
        return f"{group[0]:,} to {group[-1]:,}"
    return ", ".join(map(str, group[:8])) + (" ..." if len(group) > 8 else "")
