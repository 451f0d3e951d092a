"""A comparison begins with what changed: a step, else the largest size, else calls; and says where times are missing."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from ringwright.analysis.compared.diff import diff
from ringwright.analysis.summary import summarise
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once


def table(factor: float, large: float = 1.0) -> dict[str, Any]:
    """Return a benchmark of three sizes, each measured eight times with 1 % of noise."""
    rows = [
        {
            "kind": "measurement", "op": "all-reduce", "size_bytes": size, "nranks": 8, "task": f"table {repeat}",
            "duration_s": size / 1e10 * (factor * (large if size > 1 << 21 else 1.0)) * (1 + 0.01 * ((repeat * 7 + size) % 3 - 1)),
            "value": 1.0, "multiplicity": 1, "text": "out-of-place",
        }
        for size in (1 << 20, 1 << 21, 1 << 22) for repeat in range(8)
    ]  # fmt: skip
    return dict(summarise(Trace.of({"events": pl.DataFrame(rows)}, {"source": "bench", "inputs": ["table.txt"]})))


def calls(count: int = 4, seconds: float | None = None) -> dict[str, Any]:
    row = {
        "kind": "collective",
        "op": "all-reduce",
        "size_bytes": 1 << 20,
        "communicator": 0,
        "multiplicity": 1,
        "clock": "one",
    }
    rows = [
        row | {"rank": rank, "sequence": number, "start_s": None if seconds is None else number * 1.0, "duration_s": seconds}
        for rank in range(2) for number in range(count)
    ]  # fmt: skip
    frames = {
        "events": pl.DataFrame(rows, schema_overrides={"start_s": pl.Float64, "duration_s": pl.Float64}),
        "communicators": pl.DataFrame({"communicator": [0], "size": [2], "members": [[0, 1]]}),
    }
    return dict(summarise(Trace.of(frames, {"source": "kineto", "inputs": ["job"]})))


def answer(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return dict(diff(before, after)["answer"])  # type: ignore[arg-type]


def stepping(op: str, seconds: float, pieces: int = 1) -> dict[str, Any]:
    """Return a job of twenty steps, each with calls of 1 MiB in all."""
    rows: list[dict[str, Any]] = []
    for number in range(20):
        at = {"rank": 0, "iteration": number, "start_s": number * seconds, "clock": "one", "multiplicity": 1}
        rows.append(at | {"kind": "step", "op": "step", "duration_s": seconds * (1 + 0.01 * (number % 2))})
        for piece in range(pieces):
            call = {"kind": "collective", "op": op, "size_bytes": (1 << 20) // pieces, "communicator": 0}
            rows.append(at | call | {"sequence": number * pieces + piece})
    group = pl.DataFrame({"communicator": [0], "size": [2], "members": [[0, 1]]})
    frames = {"events": pl.DataFrame(rows, infer_schema_length=None), "communicators": group}
    return dict(summarise(Trace.of(frames, {"source": "calls", "inputs": ["job"]})))


def test_a_step_of_another_job_is_not_faster() -> None:
    before = stepping("all-reduce", 1e-2)
    told = answer(before, stepping("send", 1e-3))
    assert told["kind"] == "cannot-tell"
    assert told["sentence"].startswith("These are different jobs: not one operation and size is in both")
    assert answer(before, stepping("all-reduce", 1e-3))["sentence"].startswith("Faster: a step takes 0.10x as long")
    recut = answer(before, stepping("all-reduce", 1e-3, pieces=4))
    assert recut["sentence"].startswith("Faster: a step takes 0.10x as long"), "the same bytes in other buckets"


@pytest.mark.parametrize(("factor", "kind", "word"), [(3.0, "slower", "Slower"), (0.5, "faster", "Faster")])
def test_the_largest_size_that_changed(factor: float, kind: str, word: str) -> None:
    told = answer(table(1.0), table(factor))
    assert told["kind"] == kind
    assert told["sentence"] == f"{word}: all-reduce of 4 MiB takes {factor:.2f}x as long."
    assert told["figures"][0] == {"name": "sizes slower", "value": f"{24 if factor > 1 else 0} of 24"}
    assert told["command"] == "ringwright report table.txt -o job.html"


def test_some_slower_and_some_faster() -> None:
    told = answer(table(1.0), table(0.5, large=8.0))
    assert told["kind"] == "changed"
    assert told["sentence"].startswith("Slower at some sizes, faster at others: all-reduce of 4 MiB takes 4.00x")


def test_the_same_is_equal() -> None:
    told = answer(table(1.0), table(1.0))
    assert told["kind"] == "equal"
    assert "no time changed" in told["sentence"]


def test_calls_without_times_cannot_tell_slower() -> None:
    assert answer(calls(), calls())["kind"] == "cannot-tell"
    told = answer(calls(4), calls(8))
    assert told["kind"] == "changed"
    assert told["sentence"] == "Calls changed: 50.0% of calls or bytes; times are not in both runs."
