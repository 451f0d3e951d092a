"""The conformance campaign in pieces: each is done whole, by whoever works, and kept until all are, however often it stops."""

from __future__ import annotations

import atexit
import datetime as dt
import itertools
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ringwright import __version__
from ringwright.ground.cache_folder import cache_folder
from ringwright_lab.contracts import campaign
from ringwright_lab.contracts.outcome import add
from ringwright_lab.testing import campaigns

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "lab" / "src" / "ringwright_lab" / "contracts" / campaign.RECORD
ROOMS = campaign.ROOMS
PIECE = 500  # cases: half a minute
Tallies = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Asked:
    """What is to run: rooms, one system or all (""), the seed; ``some``: a seeded part; ``replay``: one case by its text."""

    rooms: tuple[str, ...]
    only: str = ""
    seed: int = 0
    some: bool = False
    replay: str = ""

    def cases(self, room: str) -> list[campaign.Case]:
        """Return the cases of a room, so that any beginning of them is a fair part."""
        if self.replay:
            case = campaign.parsed(self.replay)
            if room == "sources" == campaign.room_of(case):
                return list(campaign.cases(room, self.seed, only=case.slug, recordings=made_recordings()))
            return [case] if campaign.room_of(case) == room else []
        recordings = made_recordings() if room == "sources" else {}
        listed = campaign.cases(room, self.seed, only=self.only, some=self.some, recordings=recordings)
        return in_turn(list(listed), self.seed)


@dataclass
class Done:
    """What has been done: per room cases done and asked for, tallies and CPU seconds by slug; and every failed check."""

    of: dict[str, int] = field(default_factory=dict)
    cases: dict[str, int] = field(default_factory=dict)
    tallies: dict[str, Tallies] = field(default_factory=dict)
    cpu_s: dict[str, dict[str, float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def take(self, room: str, answer: campaign.CheckedCases) -> None:
        """Add what a piece said."""
        self.cases[room] = self.cases.get(room, 0) + answer.cases
        add(self.tallies.setdefault(room, {}), answer.tallies)
        spent = self.cpu_s.setdefault(room, {})
        for slug, seconds in answer.cpu_s.items():
            spent[slug] = spent.get(slug, 0.0) + seconds
        self.failures += answer.failures


@cache
def made_recordings() -> dict[str, tuple[str, ...]]:
    """Return a small recording of every kind that is read, its files in the user's cache for workers elsewhere, till the end."""
    sys.path.append(str(ROOT / "tests"))
    from every_recording import MADE, put

    home = cache_folder("conformance")
    home.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=home))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = {}
    for kind, make in MADE.items():
        (folder / kind).mkdir()
        files[kind] = tuple(map(str, put(folder / kind, make(folder / kind))))
    return files


def in_turn(cases: list[campaign.Case], seed: int) -> list[campaign.Case]:
    """Return the cases so that any beginning of them is a fair part: drawn within each system, systems in turn."""
    draw = random.Random(seed)  # noqa: S311 - an order of tests
    by_slug: dict[str, list[campaign.Case]] = {}
    for case in cases:
        by_slug.setdefault(case.slug, []).append(case)
    for mine in by_slug.values():
        draw.shuffle(mine)
    return [case for row in itertools.zip_longest(*by_slug.values()) for case in row if case is not None]


def cut(asked: Asked, size: int = PIECE) -> Iterator[tuple[str, list[tuple[campaign.Case, ...]]]]:
    """Yield each room with its pieces."""
    for room in asked.rooms:
        cases = asked.cases(room)
        yield room, [tuple(cases[at : at + size]) for at in range(0, len(cases), size)]


def run(asked: Asked, executor: str | None = None, seconds: float = float("inf")) -> Done:
    """Run what is not kept, print each failure as it comes, and return all that is done in so many seconds."""
    done, pieces = Done(), [(room, piece) for room, listed in cut(asked) for piece in listed]
    for room in asked.rooms:
        done.of[room] = sum(len(piece) for of, piece in pieces if of == room)
    with campaigns.resumable(executor) as fan:
        for number, answer in campaigns.within(fan, campaign.checked, [(piece,) for _, piece in pieces], seconds):
            done.take(pieces[number][0], answer)
            print(*answer.failures, sep="\n", end="\n" if answer.failures else "", flush=True)
    return done


def show(done: Done) -> None:
    """Print a line for each system, and what it cost."""
    for room, tallies in done.tallies.items():
        for slug, row in sorted(tallies.items()):
            print(
                f"{room:10} {slug:28} passed {row['passed']:7,}  declined {row['declined']:7,}  failed {row['failed']:4,}"
                f"  {done.cpu_s[room][slug]:8.1f} CPU s"
            )
    cases, of = sum(done.cases.values()), sum(done.of.values())
    cpu_s = sum(sum(each.values()) for each in done.cpu_s.values())
    part = "" if cases == of else f" of {of:,}"
    print(f"{cases:,}{part} cases, {len(done.failures)} failed checks, {cpu_s:.0f} CPU s")


def record(done: Done, seed: int) -> None:
    """Write the record that the package carries."""
    kept = {
        "version": __version__,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "seed": seed,
        "cases": sum(done.cases.values()),
        "of": sum(done.of.values()),
        "cpu_s": round(sum(sum(each.values()) for each in done.cpu_s.values())),
        "rooms": {room: dict(sorted(tallies.items())) for room, tallies in done.tallies.items()},
    }
    RECORD.write_text(json.dumps(kept, indent=1) + "\n")
