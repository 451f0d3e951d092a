"""The first thing that a summary says, as a typed structure."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Kind = Literal[
    "failed",
    "hung",
    "slow",
    "normal",
    "wrong",
    "cannot-tell",
    "slower",  # this one and those below: of two runs
    "faster",
    "changed",
    "equal",
]


class Figure(TypedDict):
    """One number behind the answer, as it is read."""

    name: str
    value: str


class FirstAnswer(TypedDict):
    """The answer; ``command`` is empty where no input can be typed; ``evidence`` are lines or figures that decided it.

    Where somebody is to blame, ``ranks`` are those concerned and ``place`` what of them: rank, nic, host, group or network.
    """

    kind: Kind
    sentence: str
    figures: list[Figure]
    command: str
    evidence: NotRequired[list[str]]
    ranks: NotRequired[list[int]]
    place: NotRequired[str]
