"""The law of messages: what is sent is received; and of sizes in every source: what is unknown is never 0 bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringwright
from every_recording import MADE, put
from kineto_traces import Maker, collectives, read
from ringwright.analysis.summary import summarise
from ringwright.formats.sources.kineto.columns import EventColumns
from ringwright.formats.sources.kineto.spans import Spans
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real


def calls(trace: Trace) -> list[tuple[Any, ...]]:
    frame = trace.df.filter(pl.col("kind").is_in(["p2p", "collective"]))
    return sorted(frame.group_by("rank", "op", "size_bytes").len().rows(), key=str)


def told(trace: Trace) -> list[str]:
    return [row["example"] for row in summarise(trace)["laws"] if row["law"] == "messages"]


def labelled(job: Maker, op: str, asked: float, begins: float, lasts: float, elements: int, peer: int) -> None:
    """Add a send or receive as gloo's profile has it: the call that asks, and a label as long as the work."""
    dims = [[[elements]], [], [], []]
    kinds, said = ["TensorList", "", "Scalar", "Scalar"], ["", "", str(peer), "0"]
    name = "c10d::send" if op == "send" else "c10d::recv_"
    job.add("cpu_op", name, asked, 2, **{"Input Dims": dims, "Input type": kinds, "Concrete Inputs": said})
    work = {"Input Dims": [[elements]], "Input type": ["float"]}
    job.add("user_annotation", f"gloo:{op}", begins, lasts, **work)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.floats(0, 300)), min_size=1, max_size=12))
def test_overlapping_messages_stay_what_they_are(messages: list[tuple[bool, int, float]]) -> None:
    jobs = [Maker(rank, backend="gloo") for rank in (0, 1)]
    for number, (is_first, elements, lasts) in enumerate(messages):
        at = 5.07824028e12 + 20.0 * number
        for rank, job in enumerate(jobs):
            op = "send" if (rank == 0) == is_first else "recv"
            labelled(job, op, at, at + 1.9, lasts * (1 + rank), elements, 1 - rank)
    trace = read(*jobs)
    rows = collectives(trace)
    expected = [("send" if is_first else "recv", 4 * elements, 1) for is_first, elements, _ in messages]
    assert [(row["op"], row["size_bytes"], row["peer"]) for row in rows if row["rank"] == 0] == expected
    assert told(trace) == []


def test_by_how_much_two_sides_differ_is_told() -> None:
    jobs = [Maker(rank, backend="gloo") for rank in (0, 1)]
    for number in range(3):
        labelled(jobs[0], "send", 10 * number, 10 * number + 1, 5, 100, 1)
        if number:
            labelled(jobs[1], "recv", 10 * number, 10 * number + 1, 5, 100, 0)
    trace = read(*jobs)
    assert told(trace) == ["communicator 0: 3 sends and 2 receives between the same ranks"]
    (finding,) = [each for each in summarise(trace)["findings"] if each["title"].startswith("law messages")]
    assert (finding["severity"], finding["title"]) == ("info", "law messages: 1 unmatched")
    # the other end was not read: nothing can be said
    assert told(read(jobs[0])) == []


@pytest.mark.parametrize("kind", sorted(MADE))
def test_unknown_is_never_no_bytes(kind: str, tmp_path: Path) -> None:
    trace = ringwright.read(put(tmp_path, MADE[kind](tmp_path))[0].parent)
    is_nothing = (pl.col("op") == "barrier") | (pl.col("count") == 0)
    frame = trace.df.filter(pl.col("kind").is_in(["p2p", "collective"]) & ~is_nothing.fill_null(value=False))
    assert frame.filter(pl.col("size_bytes") == 0).height == 0


@pytest.mark.parametrize(
    "op", ["all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "send", "recv", "all_reduce", "broadcast"]
)
def test_what_a_profile_does_not_say_is_unknown(op: str) -> None:
    job = Maker(rank=None)
    job.add("user_annotation", f"gloo:{op}", 10, 20)
    job.add("user_annotation", f"gloo:{op}", 40, 20, **{"Input Dims": [[3]], "Input type": ["Unheard"]})
    rows = collectives(read(job))
    assert [(row["size_bytes"], row["sent_bytes"], row["received_bytes"]) for row in rows] == [(None, None, None)] * 2


@needs_shared_data
def test_a_pipeline_that_pytorch_profiled() -> None:
    trace = ringwright.read(real("foreign/pp-kineto"))
    sizes = {0: {"send": 166, "recv": 167}, 1: {"send": 167, "recv": 166}}
    expected = [
        (rank, op, size, count)
        for rank, odd in sizes.items()
        for op, last in odd.items()
        for size, count in ((4, 1), (8, 1), (last, 1), (32_768, 32))
    ]
    assert calls(trace) == sorted(expected, key=str)
    assert told(trace) == []


@needs_shared_data
@pytest.mark.parametrize("name", ["serial", "overlap"])
def test_two_messages_of_a_rank(name: str) -> None:
    trace = ringwright.read(real(f"foreign/gloo-{name}-rank0.json"))
    assert calls(trace) == [(0, "recv", 4000, 1), (0, "send", 4000, 1)]
    assert trace.df.filter(pl.col("op") == "recv")["duration_s"].to_list() == pytest.approx([200e-6])


@needs_shared_data
def test_every_element_type_has_a_size() -> None:
    trace = ringwright.read(real("foreign/gloo-types-rank0.json"))
    rows = collectives(trace)
    assert [row["size_bytes"] // 1000 for row in rows] == [4, 8, 4, 8, 2, 2, 1, 1, 1, 2, 4]
    assert None not in [row["datatype"] for row in rows]


def test_what_was_asked_says_more_than_the_work() -> None:
    """gloo carries a reduce-scatter out as an all-reduce, and a label of an all-gather says what goes in."""
    job = Maker(rank=None)
    two = {"Input type": ["float", "float", ""], "Concrete Inputs": ["", "", ""]}
    for number, (name, work, dims) in enumerate(
        [
            ("c10d::_allgather_base_", "all_gather", [[200], [100], []]),
            ("c10d::_reduce_scatter_base_", "all_reduce", [[50], [100], []]),
        ]
    ):
        job.add("cpu_op", name, 100 * number, 5, **{**two, "Input Dims": dims})
        job.add(
            "user_annotation",
            f"gloo:{work}",
            100 * number + 9,
            50,
            2,
            **{"Input Dims": [[100]], "Input type": ["float"]},
        )
    job.add("user_annotation", "gloo:all_reduce", 300, 9, **{"Input Dims": [[]], "Input type": ["float"]})
    rows = collectives(read(job))
    assert [(row["op"], row["size_bytes"], row["sent_bytes"], row["received_bytes"]) for row in rows] == [
        ("all-gather", 800, 400, 800),
        ("reduce-scatter", 400, 400, 200),
        ("all-reduce", 4, 4, None),
    ]
    assert rows[0]["enqueue_s"] == pytest.approx(rows[0]["start_s"] - 9e-6)


def test_calls_are_joined_with_their_work_in_order() -> None:
    """Work may begin long after it was asked for, on threads of the library."""
    job = Maker(rank=None)
    said = {"Input Dims": [[[7]], [], []], "Input type": ["TensorList", "", ""], "Concrete Inputs": ["", "", ""]}
    for asked in (10, 20, 30):
        job.add("cpu_op", "c10d::allreduce_", asked, 2, **said)
    for begins in (100, 200, 300):
        job.add("user_annotation", "gloo:all_reduce", begins, 9, 2, **{"Input Dims": [[7]], "Input type": ["float"]})
    rows = collectives(read(job))
    assert [row["start_s"] - row["enqueue_s"] for row in rows] == pytest.approx([90e-6, 180e-6, 270e-6])


def test_a_span_that_begins_with_an_interval_lies_in_it() -> None:
    """Also where a microsecond is a billionth of a billionth of the time since the machine began."""
    table = EventColumns()
    for at in (5.07824028e12, 5.07824028e12 + 3):
        table.ts.append(at)
        table.dur.append(1.0)
        table.thread.append(0)
    assert Spans(table).within(0, 5.07824028e12, 5.07824028e12 + 3) == [0, 1]


def test_work_on_the_host_is_no_record_of_what_follows() -> None:
    """A label of gloo may last while NCCL is called on the same thread."""
    job = Maker()
    job.add("user_annotation", "gloo:all_reduce", 10, 400, **{"Input Dims": [[7]], "Input type": ["long int"]})
    job.collective(100, 20)
    rows = collectives(read(job))
    assert [(row["kernel_class"], row["size_bytes"]) for row in rows] == [("gloo", 56), ("nccl", 2000)]
