"""All contracts over all that is there: a seeded part of it now, or everything, and the record of the last time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ringwright.ground.errors import UsageError
from ringwright.model.registry import System, schedulers, systems
from ringwright_lab.contracts import algorithm, rooms, scheduler
from ringwright_lab.contracts.outcome import Outcome, tally

RECORD = "recorded.json"  # written by scripts/conformance
ROOMS = ("algorithms", "schedulers", *rooms.ROOMS)
Case = algorithm.AlgorithmCase | scheduler.SchedulerCase | rooms.RoomCase


def every_case(chosen: Sequence[System], seed: int) -> Iterator[Case]:
    """Yield the whole campaign: each system as it is, and over its knobs; of those that search, whose cases take long, pairs."""
    sums, orders = _apart(chosen)
    searching = [each for each in sums if each.kind == "synthesis"]
    swift = [each for each in sums if each.kind != "synthesis"]
    yield from algorithm.cases(swift)
    yield from algorithm.over_knobs(swift, seed)
    yield from algorithm.pairwise(searching, seed)
    yield from algorithm.few_over_knobs(searching, seed)
    yield from scheduler.cases(orders)
    yield from scheduler.over_knobs(orders, seed)


def some_cases(chosen: Sequence[System], seed: int) -> Iterator[Case]:
    """Yield a seeded part: pairs of sizes and fabrics, each knob twice, each kind of job once."""
    sums, orders = _apart(chosen)
    yield from algorithm.pairwise(sums, seed)
    yield from algorithm.few_over_knobs(sums, seed)
    yield from scheduler.cases(orders, [seed])
    yield from scheduler.over_knobs(orders, seed, 0)


def _apart(chosen: Sequence[System]) -> tuple[list[System], list[System]]:
    order = {system.slug for system in schedulers()}
    return [each for each in chosen if each.slug not in order], [each for each in chosen if each.slug in order]


def cases(
    room: str, seed: int, *, only: str = "", some: bool = False, recordings: rooms.Recordings = rooms.NO_RECORDINGS
) -> Iterator[Case]:
    """Yield the cases of a room: all, or those of one system, or (``some``) a seeded part.

    ``recordings``: files by kind of source, to read each kind on.
    """
    if room in rooms.ROOMS:
        yield from (case for case in rooms.cases(room, recordings) if only in ("", case.slug))
        return
    listed = systems() if room == "algorithms" else schedulers()
    chosen = [system for system in listed if only in ("", system.slug) and not system.problem]
    yield from (some_cases if some else every_case)(chosen, seed)


def room_of(case: Case) -> str:
    """Return the room of a case."""
    if isinstance(case, rooms.RoomCase):
        return case.room
    return "schedulers" if isinstance(case, scheduler.SchedulerCase) else "algorithms"


def check(case: Case) -> Outcome:
    """Run every check of a case."""
    if isinstance(case, rooms.RoomCase):
        return rooms.check(case)
    return scheduler.check(case) if isinstance(case, scheduler.SchedulerCase) else algorithm.check(case)


@dataclass(frozen=True)
class CheckedCases:
    """What some cases came to: how many, tallies and processor seconds by slug, and each failure with its replay."""

    cases: int
    tallies: dict[str, dict[str, int]]
    cpu_s: dict[str, float]
    failures: list[str]


def checked(listed: tuple[Case, ...]) -> CheckedCases:
    """Run every check of some cases."""
    outcomes: list[Outcome] = []
    spent: dict[str, float] = {}
    failures: list[str] = []
    for case in listed:
        begun_s = time.process_time()
        outcomes.append(check(case))
        spent[case.slug] = spent.get(case.slug, 0.0) + time.process_time() - begun_s
        failures += [
            f'scripts/conformance --replay "{case}"   # {name}: {reason}'
            for name, reason in outcomes[-1].failed.items()
        ]
    return CheckedCases(len(outcomes), tally(outcomes), spent, failures)


def parsed(text: str) -> Case:
    """Return the case that its text replays; UsageError for anything else."""
    slug = (text.split() or [""])[0]
    if slug in rooms.ROOMS:
        return rooms.RoomCase.parsed(text)
    if slug in {system.slug for system in schedulers()}:
        return scheduler.SchedulerCase.parsed(text)
    if slug in {system.slug for system in systems()}:
        return algorithm.AlgorithmCase.parsed(text)
    raise UsageError(f"'{text}' is not a case", remedy=f"as in: {algorithm.EXAMPLE}, or {scheduler.EXAMPLE}")


def recorded() -> dict[str, Any]:
    """Return the record of the last campaign: cases, seed, and tallies by room and slug under ``rooms``; empty for none."""
    record = files("ringwright_lab") / "contracts" / RECORD
    document: dict[str, Any] = json.loads(record.read_text()) if record.is_file() else {}
    return document
