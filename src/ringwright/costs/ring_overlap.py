"""What an operation and the product beside it take when both go block by block round a ring, in place of one after the other."""

from __future__ import annotations


def looped_time(product: float, operation: float, ranks: int, m: float = 1.0, e: float = 1.0) -> float:
    """Return the time of a loop over the ranks' blocks, in the unit of its arguments.

    Parameters
    ----------
    product, operation
        What the product and the operation take as wholes, alone.
    ranks
        Ranks of the group, and so blocks; times the tiles of a block where each is sent and worked on by itself.
    m
        The blocks' time one after another, over that of the operation as a whole.
    e
        The pieces' time of the product, over that of the product as a whole.

    Returns
    -------
    float
        max(e C, m G) + 2 m G / p: the longer of both, and a block before and behind. Source: the gate of openxla/xla,
        xla/service/spmd/dot_handler.cc, which takes e as 1.

    Examples
    --------
    >>> looped_time(10.0, 4.0, ranks=16)
    10.5
    """
    return max(e * product, m * operation) + 2 * m * operation / ranks
