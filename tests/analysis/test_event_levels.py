"""The timeline's arrays hold what the events say: every event once, bins as busy as their events, at every level."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ringwright.analysis.timeline import event_view
from ringwright.analysis.timeline.event_levels import FULL, EventLevels, levels
from ringwright.analysis.timeline.event_view import Sight, view
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once
RANKS = 4


def made(events: int = 900, seed: int = 1) -> Trace:
    """Return calls and compute of four ranks on one clock, with gaps, and events that overlap."""
    random = np.random.default_rng(seed)
    rows = []
    for rank in range(RANKS):
        for kind in ("collective", "compute"):
            start = np.cumsum(random.exponential(10e-6, events))
            rows += [
                {
                    "kind": kind,
                    "op": ("all-reduce", "all-gather")[number % 2] if kind == "collective" else None,
                    "kernel": f"kernel_{number % 7}" if kind == "compute" else None,
                    "rank": rank,
                    "communicator": 0,
                    "sequence": number if kind == "collective" else None,
                    "size_bytes": 1 << (number % 20),
                    "start_s": float(start[number]),
                    "duration_s": float(random.exponential(8e-6)),
                    "clock": "one",
                    "multiplicity": 1,
                }
                for number in range(events)
            ]
    return Trace.of({"events": pl.DataFrame(rows, infer_schema_length=None)})


@pytest.fixture(scope="module")
def trace() -> Trace:
    return made()


@pytest.fixture(scope="module")
def drawn(trace: Trace) -> EventLevels:
    return levels(trace)


def every_row(drawn: EventLevels, begin: float, end: float, **more: object) -> Sight:
    return Sight(begin, end, tuple(range(len(drawn.rows))), **more)  # type: ignore[arg-type]


def test_every_event_is_there_once(trace: Trace, drawn: EventLevels) -> None:
    events = trace.df
    assert drawn.first[-1] == events.height
    assert [(row.rank, row.track, row.events) for row in drawn.rows] == [
        (rank, track, 900) for rank in range(RANKS) for track in ("calls", "compute")
    ]
    first = events["start_s"].min()
    for number, row in enumerate(drawn.rows):
        kind = "collective" if row.track == "calls" else "compute"
        mine = events.filter((pl.col("rank") == row.rank) & (pl.col("kind") == kind)).sort("start_s")
        part = slice(int(drawn.first[number]), int(drawn.first[number + 1]))
        assert np.allclose(drawn.columns["start_us"][part], (mine["start_s"] - first).to_numpy() * 1e6)
        assert np.allclose(drawn.columns["duration_us"][part], mine["duration_s"].to_numpy() * 1e6, rtol=1e-5)
        assert drawn.columns["size_bytes"][part].tolist() == mine["size_bytes"].to_list()


def test_bins_are_as_busy_as_their_events(drawn: EventLevels) -> None:
    """Against the plainest sum there is; overlapping events count each, and a full bin is full."""
    for busy, count in zip(drawn.busy, drawn.count, strict=True):
        bins = busy.shape[2]
        width = drawn.end_us / bins
        for row in range(len(drawn.rows)):
            part = slice(int(drawn.first[row]), int(drawn.first[row + 1]))
            start, length, of = (drawn.columns[name][part] for name in ("start_us", "duration_us", "operation"))
            assert count[row].sum() == 900
            for at in (0, bins // 3, bins - 1):
                low, high = at * width, (at + 1) * width
                for operation in np.unique(of):
                    chosen = of == operation
                    covered = np.clip(np.minimum(start + length, high) - np.maximum(start, low), 0, None)[chosen].sum()
                    wanted = min(covered / width, 1.0) * FULL
                    assert abs(float(busy[operation, row, at]) - wanted) <= 1.01, (bins, row, at)


def test_waiting_is_what_a_call_lasted_longer_than_the_shortest(drawn: EventLevels) -> None:
    calls = [number for number, row in enumerate(drawn.rows) if row.track == "calls"]
    waits = np.array([drawn.columns["wait_us"][drawn.first[row] : drawn.first[row + 1]] for row in calls])
    lasted = np.array([drawn.columns["duration_us"][drawn.first[row] : drawn.first[row + 1]] for row in calls])
    assert np.allclose(waits, lasted - lasted.min(axis=0), atol=1e-2)
    assert (waits.min(axis=0) == 0).all()


def test_a_view_has_the_events_that_touch_it_and_no_others(drawn: EventLevels) -> None:
    begin, end = drawn.end_us * 0.4, drawn.end_us * 0.45
    seen = view(drawn, every_row(drawn, begin, end))
    for number, events in zip(seen["rows"], seen["events"], strict=True):
        part = slice(int(drawn.first[number]), int(drawn.first[number + 1]))
        start, length = drawn.columns["start_us"][part], drawn.columns["duration_us"][part]
        wanted = np.flatnonzero((start <= end) & (start + length >= begin)) + int(drawn.first[number])
        assert [event[0] for event in events] == wanted.tolist()
        assert all(abs(event[1] + begin - drawn.columns["start_us"][event[0]]) < 1e-2 for event in events)


def test_a_wide_view_is_bounded_and_shows_every_stretch_that_is_busy(drawn: EventLevels) -> None:
    seen = view(drawn, every_row(drawn, 0.0, drawn.end_us, pixels=500))
    assert "bins" in seen
    for number, (operations, busy, events) in enumerate(seen["bins"]):
        of, share = (np.frombuffer(b64decode(each), np.uint8) for each in (operations, busy))
        assert events == 900
        assert 250 <= len(of) == len(share) <= 4 * 500
        part = slice(int(drawn.first[number]), int(drawn.first[number + 1]))
        at = np.minimum((drawn.columns["start_us"][part] / seen["bin_us"]).astype(int), len(share) - 1)
        assert (share[at] > 0).all()
        assert set(of[at]) <= set(drawn.columns["operation"][part])


@pytest.mark.parametrize("whole", [False, True])
def test_filters_leave_what_they_say(drawn: EventLevels, whole: bool) -> None:
    end = drawn.end_us if whole else drawn.end_us / 20
    seen = view(drawn, every_row(drawn, 0.0, end, least_bytes=1 << 15))
    sizes = drawn.columns["size_bytes"]
    if "events" in seen:
        numbers = [event[0] for row in seen["events"] for event in row]
        assert numbers
        assert (sizes[numbers] >= 1 << 15).all()
    else:
        assert sum(row[2] for row in seen["bins"]) == (sizes >= 1 << 15).sum()
    operation = list(drawn.operations).index("all-gather")
    seen = view(drawn, every_row(drawn, 0.0, drawn.end_us / 20, operations=frozenset({operation})))
    assert {event[3] for row in seen["events"] for event in row} == {operation}
    assert not any(view(drawn, every_row(drawn, 0.0, drawn.end_us / 20, communicator=9))["events"])


def test_saved_and_mapped_is_the_same(drawn: EventLevels, tmp_path: Path) -> None:
    drawn.save(tmp_path / "levels")
    again = EventLevels.open(tmp_path / "levels")
    assert again.rows == drawn.rows
    for end in (drawn.end_us, drawn.end_us / 30):
        assert view(again, every_row(drawn, 0.0, end)) == view(drawn, every_row(drawn, 0.0, end))


@pytest.mark.parametrize("damage", ["levels.json", "start_us.npy", "busy-0.npy"])
def test_what_is_not_whole_is_refused(drawn: EventLevels, damage: str, tmp_path: Path) -> None:
    drawn.save(tmp_path / "levels")
    file = tmp_path / "levels" / damage
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match="no timeline"):
        EventLevels.open(tmp_path / "levels")


def test_search_goes_round_and_counts(drawn: EventLevels) -> None:
    hit = event_view.search(drawn, "KERNEL_3", -1.0)
    assert hit["hits"] == sum(1 for number in range(900) if number % 7 == 3) * RANKS
    seen = []
    at = -1.0
    for _ in range(hit["hits"]):
        event = event_view.search(drawn, "kernel_3", at)["event"]
        seen.append(event["number"])
        at = event["start_us"]
    assert len(set(seen)) == hit["hits"]
    assert event_view.search(drawn, "kernel_3", at)["event"]["number"] == seen[0]
    assert event_view.search(drawn, "kernel_3", seen[0], back=True)["event"] is not None
    assert event_view.search(drawn, "nothing", 0.0) == {"hits": 0, "event": None}


def test_sends_are_joined_to_their_receives() -> None:
    rows = [
        {
            "kind": "p2p", "op": "send" if rank == 0 else "recv", "rank": rank, "comm_rank": rank, "peer": 1 - rank,
            "communicator": 0, "start_s": number * 1e-3 + rank * 1e-4, "duration_s": 1e-4, "clock": "one",
        }
        for rank in range(2) for number in range(3)
    ]  # fmt: skip
    drawn = levels(Trace.of({"events": pl.DataFrame(rows)}))
    assert drawn.links.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert view(drawn, Sight(0.0, drawn.end_us, (0, 1)))["links"] == [[0, 3], [1, 4], [2, 5]]


def test_ranks_without_a_common_clock_begin_at_their_own_first_event() -> None:
    rows = [
        {"kind": "collective", "op": "all-reduce", "rank": rank, "start_s": 100.0 * rank + number * 1e-3, "duration_s": 1e-4,
         "clock": f"host {rank}"}
        for rank in range(2) for number in range(2)
    ]  # fmt: skip
    drawn = levels(Trace.of({"events": pl.DataFrame(rows)}))
    assert "own first event" in drawn.note
    assert drawn.end_us == pytest.approx(1100.0)


def test_nothing_with_a_time_is_an_empty_picture() -> None:
    drawn = levels(Trace.of({}))
    assert list(drawn.rows) == []
    assert view(drawn, Sight(0.0, 1.0))["events"] == []


@pytest.mark.parametrize("wrong", [{"end_us": 0.0}, {"pixels": 0}, {"pixels": 10**9}, {"rows": tuple(range(10_000))}])
def test_a_stretch_that_is_none_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Sight(**{"begin_us": 1.0, "end_us": 2.0} | wrong)  # type: ignore[arg-type]
