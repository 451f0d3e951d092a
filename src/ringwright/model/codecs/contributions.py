"""What all number formats take and give: contributions of several workers, cut into packets, and their sum at a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range

Packet = Annotated[int, Range(1, 1 << 20)]  # numbers in a packet
CARRIED = ("float16", "float32")  # what the formats encode; NumPy has no bfloat16, each of which is a float32 too


@dataclass(frozen=True)
class NodeSum:
    """What a node gives back for the contributions to a result, and what happened on the way.

    Parameters
    ----------
    values
        The result, of the dtype of the contributions and of shape (elements,).
    sent
        What the format kept of each contribution, of the same dtype and of shape (workers, elements): what error feedback
        holds against what a worker had.
    overflows
        Additions whose sum left the register.
    overwrites
        Additions that threw away what the register held.
    resent
        Packets that were sent anew as floats.
    not_finite
        Elements to which some worker gave NaN or an infinity.
    """

    values: np.ndarray
    sent: np.ndarray
    overflows: int = 0
    overwrites: int = 0
    resent: int = 0
    not_finite: int = 0


def encodable(codec: str, given: np.ndarray, packet: int = 1) -> np.ndarray:
    """Return contributions of shape (workers, elements), of dtype float16 or float32, as they were given.

    Raises UsageError for any other shape or dtype, and for packets that hold nothing.
    """
    given = stacked(given)
    if given.dtype.name not in CARRIED:
        raise UsageError(
            f"{codec} carries no {given.dtype.name}", remedy=f"one of: {', '.join(CARRIED)}; whole numbers go as native"
        )
    within(codec, "packet", packet, 1, 1 << 20)
    return given


def stacked(given: np.ndarray) -> np.ndarray:
    """Return contributions of shape (workers, elements) and of any dtype as they were given; UsageError for any other shape."""
    given = np.asarray(given)
    if given.ndim != 2 or not len(given):
        raise UsageError(f"contributions of shape {given.shape}", remedy="one row of numbers for each worker")
    return given


def within(codec: str, name: str, value: float, low: float, high: float) -> None:
    """Raise UsageError where a knob of a format is out of its range."""
    if not low <= value <= high:
        raise UsageError(f"{codec}: {name}={value:g} is out of range", remedy=f"{name} from {low:g} to {high:g}")


def one_of(codec: str, name: str, value: str, words: Sequence[str]) -> None:
    """Raise UsageError where a knob of a format is none of its words."""
    if value not in words:
        raise UsageError(f"{codec}: {name}={value} is not known", remedy=f"one of: {', '.join(words)}")


def in_order(given: np.ndarray, order: Sequence[int] | None) -> np.ndarray:
    """Return contributions as they arrive, of the dtype and shape of ``given``; UsageError where ``order`` is none of all."""
    if order is None:
        return given
    if sorted(order) != list(range(len(given))):
        raise UsageError(f"no order of {len(given)} workers: {list(order)[:8]}", remedy="each of their numbers once")
    return given[np.asarray(order, np.int64)]


def in_packets(given: np.ndarray, packet: int) -> np.ndarray:
    """Return contributions cut into packets, the last one filled up with zeros: float64 of shape (workers, packets, packet)."""
    workers, elements = given.shape
    packets = -(-elements // packet)
    padded = np.zeros((workers, packets * packet), np.float64)
    padded[:, :elements] = given
    return padded.reshape(workers, packets, packet)


def out_of_packets(cut: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return numbers in packets, of shape (..., packets, packet), as rows of the length and dtype of ``like``."""
    flat = cut.reshape(*cut.shape[:-2], -1)[..., : like.shape[-1]]
    with np.errstate(over="ignore", invalid="ignore"):
        return flat.astype(like.dtype)


def unfinite(given: np.ndarray) -> int:
    """Return how many elements have a contribution that is NaN or infinite."""
    return int((~np.isfinite(given)).any(axis=0).sum())
