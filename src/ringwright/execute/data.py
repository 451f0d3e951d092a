"""What ranks are filled with, and what must come out: any rank can work out every other's data from a seed.

Values are small whole numbers, so that sums and products of ``p`` of them are exact in every element type and in any order:
where a type holds too few numbers for that, only some ranks, others for each element, give more than the neutral one. Random
reals are there too, for checks that allow any order of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringwright.execute.arithmetic import MANTISSA_BITS, STORED, combiner, element, narrow, scale

if TYPE_CHECKING:
    from ringwright.model.collective import Collective

_ODD, _SPREAD = np.uint32(2654435761), np.uint32(40503)  # Knuth's multiplicative hash, and a smaller one


def values(collective: Collective, rank: int, block: int, size: int, seed: int, *, reals: bool = False) -> np.ndarray:
    """Return the elements, as stored, of a rank's own contribution to a block of ``size`` bytes.

    Of the dtype ``STORED[...]`` of its elements and of shape (elements,).
    """
    dtype = element(collective)
    count = size // np.dtype(STORED[dtype]).itemsize
    if reals and dtype in MANTISSA_BITS:
        draw = np.random.default_rng((seed, rank, block)).standard_normal(count)
        return narrow(draw if dtype == "float64" else draw.astype(np.float32), dtype)
    mixed = np.arange(count, dtype=np.uint32) * _SPREAD
    mixed += np.uint32((rank * 7919 + block * 104729 + seed * 31 + 1) & 0xFFFFFFFF)
    mixed *= _ODD
    numbers = (mixed >> np.uint32(13)) % np.uint32(_most(collective, dtype)) + np.uint32(1)
    turns = -(-collective.p // _givers(collective, dtype))
    if turns > 1:
        numbers[(np.arange(count) + rank) % turns != 0] = collective.reduce_op == "prod"
    return narrow(numbers.astype(np.float32) if dtype in MANTISSA_BITS else numbers, dtype)


def _most(collective: Collective, dtype: str) -> int:
    """Return up to which number the result of p values (products: powers of two) stays exact."""
    if collective.reduces and collective.reduce_op == "prod":
        return 2
    adders = collective.p if collective.reduces and collective.reduce_op in ("sum", "avg") else 1
    bits = MANTISSA_BITS.get(dtype)
    if bits is None:
        return max(1, 100 // adders) if STORED[dtype] in (np.int8, np.uint8) else 100
    return max(1, min(100, (1 << bits) // adders))


def _givers(collective: Collective, dtype: str) -> int:
    """Return how many ranks may add to, or multiply, one element."""
    if collective.reduces and collective.reduce_op == "prod":
        return 8
    adds = collective.reduces and collective.reduce_op in ("sum", "avg")
    return 1 << MANTISSA_BITS[dtype] if adds and dtype in MANTISSA_BITS else collective.p


def block_bytes(collective: Collective, block: int) -> int:
    """Return the bytes of one block."""
    sizes = collective.block_bytes
    return int(sizes[block % len(sizes)])


def expected(collective: Collective, block: int, seed: int, *, reals: bool = False, rank: int = 0) -> np.ndarray:
    """Return what a block of ``rank`` must be in the end, as stored, contributions added in the order of the ranks.

    Of the dtype ``STORED[...]`` of its elements and of shape (elements,).
    """
    size = block_bytes(collective, block)
    if not collective.reduces:
        return values(collective, _owner(collective, block), block, size, seed, reals=reals)
    dtype = element(collective)
    total = values(collective, 0, block, size, seed, reals=reals)
    combine = combiner(dtype, collective.reduce_op)
    with np.errstate(all="ignore"):
        for other in collective.contributors(rank)[1:]:
            combine(total, values(collective, other, block, size, seed, reals=reals))
    return scale(total, dtype, collective.p) if collective.reduce_op == "avg" else total


def _owner(collective: Collective, block: int) -> int:
    if collective.op == "all-to-all":
        return block // collective.p
    return collective.root if collective.op in ("broadcast", "scatter") else block


def inputs(collective: Collective, seed: int, *, reals: bool = False) -> list[dict[int, np.ndarray]]:
    """Return per rank the blocks that it holds before, as stored.

    Each is of the dtype ``STORED[...]`` of its elements and of shape (elements,).
    """
    return [
        {
            block: values(collective, rank, block, block_bytes(collective, block), seed, reals=reals)
            for block in collective.initial(rank)
        }
        for rank in range(collective.p)
    ]


def wrong(data: np.ndarray, wanted: np.ndarray) -> int:
    """Return how many stored elements differ."""
    return int((data != wanted).sum()) if data.shape == wanted.shape else max(len(data), len(wanted))


def order_bound(given: Sequence[np.ndarray], additions: int, dtype: str) -> np.ndarray:
    """Return how far a sum may be from the exact one, whatever the order: ((1+u)**additions - 1) times the sum of magnitudes.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 4.2. float64 of shape (elements,).
    """
    unit = 2.0 ** -MANTISSA_BITS[dtype]
    total = np.sum([np.abs(np.asarray(each, np.float64)) for each in given], axis=0)
    bound: np.ndarray = np.expm1(additions * np.log1p(unit)) * total
    return bound
