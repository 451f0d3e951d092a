"""The law of records: gaps in sequence numbers are counted, in the Inspector's and the Flight Recorder's recordings."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.analysis.summary import summarise
from ringwright.bounds.laws.records import gap
from ringwright.cli.reading import summarised
from ringwright.formats.sources import read
from ringwright.formats.sources.nccl_inspector import read_inspector
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import StrictError
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real
from sources.test_inspector import record


def inspector(*calls: tuple[int, int, str]) -> Trace:
    """Return the Trace of (rank, coll_sn, operation) of a group of two."""
    text = "".join(json.dumps(record(rank, sn=sn, coll=op)) + "\n" for rank, sn, op in calls).encode()
    return read_inspector([Source("a.log", lambda: io.BytesIO(text))])


def missing(trace: Trace) -> int:
    summary = summarise(trace)
    found: int = summary["ledger"]["missing"]
    assert [row["refused"] for row in summary["laws"] if row["law"] == "records"] == ([found] if found else [])
    assert (f", {found:,} missing (" in summary["coverage"]) == bool(found)
    return found


def test_half_of_the_records_removed() -> None:
    calls = [(rank, sn, "AllReduce") for rank in range(2) for sn in range(1, 1001)]
    assert missing(inspector(*calls)) == 0
    trace = inspector(*calls[::2])
    assert missing(trace) == 2 * 499  # between the first and the last
    summary = summarise(trace)
    assert (
        "1,000 understood, 0 repaired, 0 refused, 0 other, 998 missing (49.9% by sequence numbers)"
        in summary["coverage"]
    )
    assert summary["laws"][0]["example"] == (
        "communicator 0xa, rank 0, all-reduce: 499 of 999 between 1 and 999 (no 2, 4, 6, ...)"
    )
    with pytest.raises(StrictError, match="998 records are missing"):
        summarised(trace, ["a.log"], strict=True)


def test_a_rank_begins_where_its_group_begins() -> None:
    late = [(0, sn, "AllReduce") for sn in range(1, 11)] + [(1, sn, "AllReduce") for sn in range(6, 11)]
    assert missing(inspector(*late)) == 5
    # the end of one rank's file may only not be written yet
    early = [(0, sn, "AllReduce") for sn in range(1, 11)] + [(1, sn, "AllReduce") for sn in range(1, 6)]
    assert missing(inspector(*early)) == 0


@pytest.mark.parametrize(
    ("calls", "gone"),
    [
        ([(1, "AllReduce"), (2, "AllGather"), (3, "AllReduce"), (4, "AllGather")], 0),  # one counter for all operations
        ([(1, "AllReduce"), (2, "AllReduce"), (1, "AllGather"), (2, "AllGather")], 0),  # a counter for each
        ([(1, "AllReduce"), (3, "AllReduce"), (1, "AllGather"), (2, "AllGather")], 1),
        ([(1, "AllReduce"), (2, "AllGather"), (5, "AllReduce"), (6, "AllGather")], 2),
        ([(7, "AllReduce"), (7, "AllReduce"), (6, "AllReduce")], 0),
        ([(1, "AllReduce"), (1 << 40, "AllReduce")], 0),  # no sequence
    ],
)
def test_counters_of_one_operation_or_of_all(calls: list[tuple[int, str]], gone: int) -> None:
    assert missing(inspector(*[(0, sn, op) for sn, op in calls])) == gone


def dump(folder: Path, numbers: list[tuple[int, int]], rank: int = 0) -> Trace:
    """Return the Trace of a dump whose entries carry (collective, point-to-point) numbers."""
    one: dict[str, Any] = {
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "nccl:all_reduce",
        "state": "completed",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
    }
    entries = [one | {"record_id": at, "collective_seq_id": c, "p2p_seq_id": p} for at, (c, p) in enumerate(numbers)]
    whole = {"version": "2.9", "rank": rank, "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}}
    (folder / f"_dump_{rank}").write_text(json.dumps(whole | {"entries": entries}))
    return read(folder)


def test_gaps_of_the_flight_recorder(tmp_path: Path) -> None:
    assert missing(dump(tmp_path, [(n, 0) for n in range(100, 200)])) == 0  # the ring forgot what came before
    trace = dump(tmp_path, [(n, 0) for n in range(100, 200) if n % 4])
    assert missing(trace) == 24
    assert summarise(trace)["laws"][0]["example"] == (
        "rank 0, group 0 collectives: 24 of 99 between 101 and 199 (no 104, 108, 112, ...)"
    )
    assert missing(dump(tmp_path, [(5, 1), (5, 2), (5, 4), (6, 4)])) == 1  # of sends and receives


@needs_shared_data
@pytest.mark.parametrize("name", ["flight-recorder/gpu_error_2nd", "flight-recorder/lock_gil_1st", "inspector"])
def test_real_recordings_have_no_gaps(name: str) -> None:
    assert summarise(read(real(f"real/{name}")))["ledger"]["missing"] == 0


@given(st.sets(st.integers(0, 300), min_size=2), st.randoms(use_true_random=False))
def test_a_gap_is_what_is_absent(numbers: set[int], random: Any) -> None:
    held = list(numbers) + random.choices(sorted(numbers), k=5)
    random.shuffle(held)
    absent = sorted(set(range(min(held), max(held) + 1)) - numbers)
    found = gap(held)
    assert (found.missing if found else 0) == len(absent)
    assert (list(found.examples) if found else []) == absent[:3]
