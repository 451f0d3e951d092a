"""Every reader of the house keeps the contract of sources; one that forgets something is told what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from every_recording import MADE, put
from ringwright.formats.sources.kinds import kinds
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.trace import Trace
from ringwright_lab.contracts.conformance import check_source, failures

pytestmark = pytest.mark.once


def test_every_kind_has_a_recording_here() -> None:
    assert {name for name, kind in kinds().items() if kind.plugin is None} == set(MADE)


@pytest.mark.parametrize("kind", sorted(MADE))
def test_every_reader_keeps_its_contract(kind: str, tmp_path: Path) -> None:
    outcomes = check_source(kinds()[kind].read, put(tmp_path, MADE[kind](tmp_path)))
    assert failures(outcomes) == []
    assert len(outcomes[0].passed) == 14


# ------------------------------------------------------------------------------------------- a reader of somebody else's
def reader(**changed: Any) -> Callable[[list[Source]], Trace]:
    """Return a reader of lines ``op rank bytes start duration``; ``changed`` columns of each row, or None to leave one out."""

    def read(sources: list[Source]) -> Trace:
        found = Gathered("lines")
        for source in sources:
            for number, line in enumerate(source.head(1 << 20).decode().splitlines()):
                op, rank, size, start, duration = line.split()
                row: dict[str, Any] = {
                    "kind": "collective",
                    "op": op,
                    "rank": int(rank),
                    "size_bytes": int(size),
                    "line": number,
                }
                row |= {"start_s": float(start), "duration_s": float(duration), "clock": "wall", "file": source.name}
                row["communicator"] = found.communicator("world", size=2)
                found.events.add(**row | {key: value for key, value in changed.items() if not key.startswith("_")})
                if not changed.get("_no_device"):
                    found.device(int(rank), "n1")
            found.note(source.name, "understood", "lines", found.events.total)
        if not found.events.total and not changed.get("_silent"):
            raise InputError("no line", where=sources[0].name)
        if changed.get("_claim"):
            found.claim("fact", 1, "x", ground=changed["_claim"])
        return found.trace(limits=changed.get("_limits", []))

    return read


def told(tmp_path: Path, **changed: Any) -> dict[str, str]:
    files = put(tmp_path, {"a.txt": b"all-reduce 0 1024 1.0 0.5\nall-reduce 1 1024 1.0 0.5\n"})
    return check_source(reader(**changed), files)[0].failed


def test_a_reader_that_says_little_gets_defaults(tmp_path: Path) -> None:
    assert told(tmp_path) == {}
    row = reader()([Source("a", lambda: (tmp_path / "in" / "a.txt").open("rb"))]).df.row(0, named=True)
    assert (row["multiplicity"], row["records"], row["source"], row["ground"], row["confidence"]) == (
        1,
        1,
        "lines",
        "read",
        1.0,
    )


@pytest.mark.parametrize(
    ("changed", "check", "why"),
    [
        ({"op": "all_reduce"}, "operations", "'all_reduce' is no operation: write it as 'all-reduce'"),
        ({"op": "ncclAllGather"}, "operations", "write it as 'all-gather'"),
        ({"records": 0}, "counts", "has records below 1"),
        ({"multiplicity": -3}, "counts", "has multiplicity below 1"),
        ({"clock": None}, "clocks", "has times and no clock"),
        ({"duration_s": -1.0}, "clocks", "lasts less than nothing"),
        ({"_no_device": True}, "devices", "rank 0 has events and no device: call gathered.device(rank, host)"),
        ({"communicator": 7}, "communicators", "communicator 7 is in the events"),
        ({"rank": None}, "membership", "names no rank: add it, or say why not: trace(limits=['rank: ...'])"),
        ({"communicator": None}, "membership", "names no communicator: add it, or say why not"),
        ({"kind": "measurement", "rank": None, "communicator": None}, "membership", "names no nranks"),
        ({"size_bytes": -5}, "sizes", "has a size_bytes below 0"),
        ({"kind": None}, "kinds", "has no kind"),
        ({"_claim": "sworn"}, "grounds", "has the ground 'sworn'"),
        ({"_silent": True}, "nothing", "an empty file gives an empty Trace and no word"),
        ({"seq": 1}, "read", "events has no column 'seq' (try: perhaps sequence"),
    ],
)
def test_a_reader_that_forgets_something_is_told(changed: dict[str, Any], check: str, why: str, tmp_path: Path) -> None:
    assert why in told(tmp_path, **changed)[check]


@pytest.mark.parametrize("kept", [1, 2])
def test_a_reader_that_says_why_it_names_nobody_keeps_the_contract(kept: int, tmp_path: Path) -> None:
    limits = ["rank: the first process alone prints", "communicator: the file has one table for all"][:kept]
    failed = told(tmp_path, rank=None, communicator=None, _limits=limits)
    assert ("names no communicator" in failed.get("membership", "")) is (kept == 1)


def test_an_unknown_column_names_the_near_one() -> None:
    for name, near in (("seq", "sequence"), ("sizebytes", "size_bytes"), ("durations", "duration_s")):
        with pytest.raises(UsageError, match=f"events has no column '{name}'") as error:
            Gathered("x").events.add(**{name: None})
        assert near in error.value.remedy


def test_how_sure_one_is_stays_open_of_what_was_not_read() -> None:
    found = Gathered("x")
    found.events.add(kind="collective", ground="assumed")
    found.events.add(kind="collective")
    assert found.trace().df["confidence"].to_list() == [None, 1.0]
