"""Numbers that look drawn and are not: a hash of 64 bits, the same on every machine and in every process.

Source: the output function of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

STEP = 0x9E3779B97F4A7C15  # what splitmix64 adds before each number
_ALL = 2**64 - 1
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def mixed(state: np.ndarray) -> np.ndarray:
    """Return numbers in which every bit depends on every bit of those given; uint64, of their shape."""
    import numpy as np

    for shift, factor in _ROUNDS:
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    told: np.ndarray = state ^ (state >> np.uint64(31))
    return told


def following(state: np.ndarray) -> np.ndarray:
    """Return what splitmix64 draws next from a state; uint64, of its shape."""
    import numpy as np

    return mixed(state + np.uint64(STEP))


def mixed_int(state: int) -> int:
    """Return ``mixed`` of one number, without arrays; the state is taken modulo 2^64."""
    state &= _ALL
    for shift, factor in _ROUNDS:
        state = ((state ^ (state >> shift)) * factor) & _ALL
    return state ^ (state >> 31)
