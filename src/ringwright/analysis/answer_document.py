"""The first thing that a summary says, as a typed structure."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Kind = Literal[
    "wrong",
    "hang",
    "died",
    "slow",
    "exposed",
    "healthy",
    "normal",
    "slower",
    "faster",
    "changed",
    "equal",
    "cannot-tell",
]


class Figure(TypedDict):
    """One number behind the answer, as it is read."""

    name: str
    value: str


class FirstAnswer(TypedDict):
    """The answer; ``command`` is empty where no input can be typed.

    Where somebody is to blame, ``ranks`` are those concerned and ``place`` what of them: rank, nic, host, group or network.
    """

    kind: Kind
    sentence: str
    figures: list[Figure]
    command: str
    ranks: NotRequired[list[int]]
    place: NotRequired[str]
