"""What software a time has in it, and where a table would compare times of unlike kinds: there nobody is called the fastest.

A program of a library is charged what its library takes to start a call, its protocol and its work a message. One that no
library has runs in nobody's software: it has the usual or calibrated costs of its messages, or the wire alone. Beside a library's
it seems shorter by what was left out, which is at the most what a call of that library takes that carries next to nothing, by the
slowest of its protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ringwright.costs.nccl import PROTOCOLS
from ringwright.ground.errors import RingwrightError
from ringwright.ground.units import format_size

if TYPE_CHECKING:
    from ringwright.calls.arguments import Algorithm
    from ringwright.calls.without_faults import AskedOnce
    from ringwright.model.program import Program

WIRE, MESSAGES, LIBRARY = "none", "messages", "library"  # in the order in which they have more in them
ORDER: Final = (WIRE, MESSAGES, LIBRARY)
WIRE_ALONE: Final = ". To compare the wire alone add :tuning=false to the library"
SAID: Final = {
    LIBRARY: "the start of a call, the protocol and the messages of its library",
    MESSAGES: "no software charged but what a message costs: no start of a call, no protocol",
    WIRE: "no software charged: no start of a call, no protocol, the wire alone",
}


def software_of(program: Program, asked: AskedOnce) -> str:
    """Return what software is in a program's time: ``library``, ``messages`` or ``none``."""
    if program.software.is_library:
        return LIBRARY
    on = asked.on(program)
    costed = program.software.message_s or on.message_s or on is not asked.question.topology
    return MESSAGES if costed else WIRE


@dataclass(frozen=True)
class TimedSoftware:
    """A time in us with what software is in it."""

    algorithm: Algorithm
    time_us: float
    software: str


def unlike(asked: AskedOnce, by_size: Mapping[int, Sequence[TimedSoftware]]) -> dict[int, float]:
    """Return the sizes at which less software may be all that makes the shortest time the shortest.

    Each with how much that may be, in us: what a call with more software in it takes that carries next to nothing.
    """
    empty: dict[str, float] = {}
    told: dict[int, float] = {}
    for size, times in by_size.items():
        first = min(times, key=lambda each: each.time_us)
        more = [each for each in times if ORDER.index(each.software) > ORDER.index(first.software)]
        for each in more:
            if each.algorithm.spelling not in empty:
                empty[each.algorithm.spelling] = _empty_us(each.algorithm, asked)
        most_us = max((empty[each.algorithm.spelling] for each in more), default=0.0)
        if more and first.time_us + most_us >= min(each.time_us for each in more):
            told[size] = most_us
    return told


def _empty_us(algorithm: Algorithm, asked: AskedOnce) -> float:
    """Return what a call takes that carries an element a rank, by the slowest protocol, in us; infinite where nothing says it."""
    collective = asked.question.collective(0)
    times_us = []
    for protocol in (None, *PROTOCOLS):
        by = algorithm if protocol is None else replace(algorithm, knobs={**algorithm.knobs, "protocol": protocol})
        with suppress(RingwrightError, TypeError):  # a protocol that does not do this, a program without protocols
            times_us.append(asked.answer(by, collective.p * collective.unit_bytes).time_us)
    return max(times_us, default=float("inf"))


def notes(by_size: Mapping[int, Sequence[TimedSoftware]], sizes: Mapping[int, float]) -> list[str]:
    """Say what software is in the times of a table that has more than one kind of it, and where nobody is starred for that."""
    kinds: dict[str, dict[str, None]] = {}
    for times in by_size.values():
        for each in times:
            kinds.setdefault(each.software, {})[each.algorithm.spelling] = None
    if len(kinds) < 2:
        return []
    told = "; ".join(f"{', '.join(kinds[kind])}: {SAID[kind]}" for kind in reversed(ORDER) if kind in kinds)
    if not sizes:
        return [told]
    at, least, most = ", ".join(map(format_size, sorted(sizes))), min(sizes.values()), max(sizes.values())
    much = f"{most:.3g} us" if least == most else f"{least:.3g} to {most:.3g} us"
    where = f"at {at} what is left out may be all of the lead (an empty call takes up to {much}), so nobody is starred there"
    return [f"{told}; {where}{WIRE_ALONE}"]
