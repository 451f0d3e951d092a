"""The reader of calls files: what is readable is kept, whatever stands beside it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.executors import fan_out as fan_outs
from ringwright.executors.fan_out import fan_out
from ringwright.formats.sources import read
from ringwright.formats.sources.calls import batches, read_calls
from ringwright.formats.sources.calls.build import read_process
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.gate.packed import PackedPart, unpacked
from ringwright.formats.sources.parts import source_part
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once

HEAD = {
    "ringwright": "calls/1",
    "source": "torch-hook",
    "host": "n1",
    "pid": 7,
    "rank": 0,
    "world": 2,
    "wall_ns": 10**18,
    "clock_ns": 10**9,
    "library": "torch 2.13.0",
}
GROUP = ["g", 0, "0", "default_pg", "gloo", 2, 0, [0, 1]]


def call(number: int, op: str = "all-reduce", at_ns: int = 0, **more: Any) -> list[Any]:
    row = {
        "count": 4,
        "sent": 16,
        "received": 16,
        "root": None,
        "peer": None,
        "reduction": "sum",
        "context": None,
        "async": 0,
        "thread": 1,
    } | more
    return ["b", number, at_ns or 10**9 + 1000 * number, 0, op, "float32", *row.values()]


def end(number: int, after_ns: int = 500) -> list[Any]:
    return ["e", number, 10**9 + 1000 * number + after_ns]


def text(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def traced(*files: bytes) -> Trace:
    """The Trace of some files, as if they lay in one folder."""
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(files):
            Path(folder, f"calls.n1.{number}.jsonl").write_bytes(data)
        found = read(folder)
        return Trace.of({name: found.table(name) for name in found.tables}, found.meta)


def events(trace: Trace, kind: str = "collective") -> pl.DataFrame:
    return trace.table("events").filter(pl.col("kind") == kind)


def refused(trace: Trace) -> int:
    return int(trace.table("ledger").filter(pl.col("outcome") == "refused")["lines"].sum())


WHOLE = text(
    HEAD,
    GROUP,
    ["c", 0, None, "forward", "layers.1", 64],
    call(0, context=0),
    end(0),
    ["s", 0, 10**9, 10**9 + 5000],
    call(1, "all-gather", sent=16, received=32),
    end(1),
    call(2, "send", received=None, peer=1),
    ["x", "exit", 10**9 + 9000, None],
)


def test_a_file_becomes_events() -> None:
    found = traced(WHOLE)
    first, second = events(found).sort("op_count").rows(named=True)
    assert (first["op"], first["size_bytes"], first["phase"], first["layer"], first["tokens"]) == (
        "all-reduce",
        16,
        "forward",
        "layers.1",
        64,
    )
    assert (first["sequence"], first["iteration"], first["state"], first["element_bytes"]) == (0, 0, "completed", 4)
    assert first["duration_s"] == pytest.approx(500e-9)
    assert first["enqueue_s"] == pytest.approx(0)
    assert (second["size_bytes"], second["sent_bytes"], second["received_bytes"], second["sequence"]) == (32, 16, 32, 1)
    assert events(found, "p2p").select("op", "peer", "size_bytes", "sequence").rows() == [("send", 1, 16, 0)]
    assert events(found, "step").select("iteration", "duration_s").rows() == [(0, 5e-6)]
    assert found.table("communicators").select("size", "members", "role").rows() == [(2, [0, 1], "world")]
    assert refused(found) == 0
    assert found.meta["world"] == 2


def test_cut_at_any_byte(request: pytest.FixtureRequest) -> None:
    """On either side of every end of a line, and every eleventh byte between; in campaigns at every one."""
    ends = {at + side for at, byte in enumerate(WHOLE) for side in (0, 1, 2) if byte == ord("\n")}
    every = 1 if request.config.getoption("--campaigns") else 11
    for cut in sorted({*range(0, len(WHOLE), every), *ends} - {len(WHOLE), len(WHOLE) + 1}):
        whole = WHOLE[:cut].count(b"\n")
        try:
            found = traced(WHOLE[:cut])
        except InputError:
            assert whole == 0
            continue
        if not whole:
            continue  # without its first line it is no calls file
        torn = len(WHOLE[:cut].rpartition(b"\n")[2]) > 0
        understood = found.table("ledger").filter(pl.col("outcome") == "understood")["lines"].sum()
        assert understood >= whole
        assert understood + refused(found) == whole + torn
        assert events(found).height + events(found, "p2p").height == sum(
            line.startswith(b'["b"') for line in WHOLE[:cut].split(b"\n")[: whole + (refused(found) < torn)]
        )


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_cost_their_lines_alone(changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    try:
        found = traced(bytes(data))
    except InputError:
        return
    rows = WHOLE.split(b"\n")
    touched = {WHOLE[:place].count(b"\n") for place, _ in changes}
    if 1 not in touched and 0 not in touched and bytes(data).count(b"\n") == WHOLE.count(b"\n"):
        least = sum(row.startswith(b'["b"') for line, row in enumerate(rows) if line not in touched)
        assert events(found).height + events(found, "p2p").height >= least


hostile = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.text(max_size=30),
    st.just([[[[]]]]),
    st.just({"first": 0, "step": 0, "count": 10**9}),
    st.just({"first": 0, "step": 3, "count": 10}),
    st.lists(st.integers(-5, 2**33), max_size=4),
)


@given(
    st.lists(st.tuples(st.sampled_from([*"gbecsrdx", "q"]), st.lists(hostile, max_size=16)), max_size=12), st.booleans()
)
def test_hostile_values_are_read_or_refused(rows: list[tuple[str, list[Any]]], is_between: bool) -> None:
    strange = [[kind, *values] for kind, values in rows]
    good = [call(0), end(0), call(1), end(1)]
    # A group or an end that takes the place of a good one may change what good calls mean; their number stays.
    found = traced(text(HEAD, GROUP, *(strange if is_between else []), *good, *strange))
    assert events(found).height >= 2
    assert set(found.table("events")["rank"].to_list()) <= {0, None}


def test_a_call_with_one_strange_value_is_kept() -> None:
    row = call(1)
    row[6:9] = [2**90, -1.5, "many"]
    found = events(traced(text(HEAD, GROUP, call(0), row, end(1)))).sort("op_count")
    assert found["count"].to_list() == [4, None]
    assert found["sequence"].to_list() == [0, 1]


def test_a_receive_is_what_came_and_from_whom() -> None:
    buffer = {"count": 16, "sent": None, "received": 64}
    rows = [call(0, "recv", **buffer, peer=None), call(1, "recv", **buffer, peer=1), call(2, "recv", **buffer, peer=1)]
    found = events(traced(text(HEAD, GROUP, *rows, [*end(0), 8, 1], [*end(1), 0, 1], end(2))), "p2p").sort("op_count")
    assert found["size_bytes"].to_list() == [8, 0, 64]
    assert found["received_bytes"].to_list() == [8, 0, 64]
    assert found["peer"].to_list() == [1, 1, 1]
    assert found["element_bytes"].to_list() == [4, 4, 4]


def test_missing_calls_leave_the_count_unknown() -> None:
    """Where lines were lost, later calls are not taken for those of other sequences; unless the writer counts itself."""
    rows = [call(number) for number in (0, 1, 4, 5)]
    assert events(traced(text(HEAD, GROUP, *rows))).sort("op_count")["sequence"].to_list() == [0, 1, None, None]
    rows = [[*call(number), turn] for number, turn in ((0, 0), (1, 1), (4, 3), (5, 4))]
    assert events(traced(text(HEAD, GROUP, *rows))).sort("op_count")["sequence"].to_list() == [0, 1, 3, 4]


def test_duplicates_and_ends_before_beginnings() -> None:
    found = traced(text(HEAD, GROUP, call(0), call(0), end(0), end(0, 900), call(1), end(1, -700)))
    assert events(found)["duration_s"].drop_nulls().to_list() == [pytest.approx(500e-9)] * 2


def test_losses_are_counted_once() -> None:
    """The writer tells of losses again and again, each time of all of them."""
    found = traced(text(HEAD, GROUP, ["d", "full", 3], call(0), ["d", "full", 5], ["d", "other", 1]))
    assert refused(found) == 6
    assert any("5 records are missing (full)" in loss for loss in found.meta["losses"])


def test_a_large_group_and_a_larger_one() -> None:
    many = ["g", 0, "0", "default_pg", "fake", 10**6, 5, {"first": 0, "step": 1, "count": 10**6}]
    found = traced(text(HEAD, many, call(0)))
    assert found.table("communicators")["size"].to_list() == [10**6]
    too_many = ["g", 0, "0", "default_pg", "fake", 10**12, 5, {"first": 0, "step": 1, "count": 10**12}]
    assert refused(traced(text(HEAD, too_many, call(0)))) == 2  # and the call of it


def test_lives_of_a_rank_are_not_merged() -> None:
    """A rank that first came in the second life belongs to it; one without a word of its life, by order."""

    def rank(number: int, life: str, wall_ns: int, calls: int) -> bytes:
        head = HEAD | {"rank": number, "life": life, "wall_ns": wall_ns}
        return text(head, [*GROUP[:6], number, [0, 1]], *(call(i) for i in range(calls)))

    found = traced(rank(0, "a/0", 10**18, 3), rank(0, "a/1", 2 * 10**18, 5), rank(1, "a/1", 2 * 10**18 + 5, 5))
    assert sorted(found.table("communicators")["ranks_seen"].to_list()) == [1, 2]
    found = traced(
        rank(0, "", 10**18, 3), rank(1, "", 10**18 + 1, 3), rank(0, "", 2 * 10**18, 5), rank(1, "", 2 * 10**18 + 5, 5)
    )
    assert found.table("communicators")["ranks_seen"].to_list() == [2, 2]
    assert events(found).group_by("communicator", "sequence").len()["len"].to_list() == [2] * 8


def test_groups_of_one_name_with_other_members_stand_apart() -> None:
    others = [["g", 0, "9", "", "gloo", 6, 0, [0, 1, 2, 3, 4, last]] for last in (5, 6)]
    found = traced(*(text(HEAD | {"rank": rank}, group, call(0)) for rank, group in enumerate(others)))
    assert found.table("communicators").height == 2


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\x00" * 100, b'{"ringwright":', b"[" * 100_000, b'"calls/1"'])
def test_what_is_no_calls_file_is_refused_in_words(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "calls.n1.1.jsonl"
    path.write_bytes(data)
    with pytest.raises(InputError):
        read_calls(find([str(path)]))


def test_calls_in_flight_when_a_job_is_ended_hang_nobody(tmp_path: Path) -> None:
    """An open call is no hang where the job's end follows the last record at once; after a pause it is."""
    from ringwright.analysis.hangs.hang import hang

    rows = [value for number in range(4) for value in (call(number), end(number))]
    for rank, more in ((0, [call(4)]), (1, []), (2, [call(4)])):
        head, group = HEAD | {"rank": rank, "world": 3}, ["g", 0, "0", "default_pg", "gloo", 3, rank, [0, 1, 2]]
        (tmp_path / f"calls.n1.{rank}.jsonl").write_bytes(text(head, group, *rows, *more))
    for pause_s, expected in ((0.2, []), (60, [[1]])):
        ended_ns = 10**18 + 4000 + int(pause_s * 1e9)
        manifest = {"ringwright": "run/1", "host": "n1", "ended_ns": ended_ns, "exit_code": 143}
        (tmp_path / "run.n1.1.json").write_text(json.dumps(manifest))
        assert [culprit["ranks"] for culprit in hang(read(tmp_path))] == expected


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a job of six ranks whose rows are many."""
    (job := tmp_path / "job").mkdir()
    for rank in range(6):
        lines = [
            HEAD | {"rank": rank, "pid": rank, "world": 6},
            GROUP,
            *(call(n) for n in range(1500)),
            *(end(n) for n in range(1500)),
            ["r", None, 10**6, f"rank {rank} gives up"],
        ]
        (job / f"calls.n1.{rank}.jsonl").write_bytes(text(*lines))
    monkeypatch.setenv("RINGWRIGHT_TASKS", str(tmp_path / "tasks"))
    return job


def test_the_rows_of_many_processes_wait_in_a_folder(
    large: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is read is the same, in another order; only what a few processes made is in memory at a time.

    Several workers leave what they read beside each other and write the batches; whoever asks looks at heads alone.
    """
    in_memory = read(str(large))
    monkeypatch.setattr(batches, "MOST_ROWS", 2000)
    spilled = read(str(large), executor="local:1")
    with fan_out("local:2") as fan:
        shared = read(str(large), executor=fan)
        assert fan.account.tasks == 6 + 3
        assert {each.suffix for each in (tmp_path / "tasks").iterdir()} <= {".msgpack", ".asks"}
    assert not (tmp_path / "tasks").exists()
    assert in_memory.held is None
    assert len(list(spilled.held.path.glob("part-*.parquet"))) > 2
    assert len(list(shared.held.path.glob("part-*.parquet"))) == 3
    order = ("rank", "kind", "line", "op")
    assert spilled.df.sort(order).equals(in_memory.df.sort(order))
    assert shared.df.equals(spilled.df)
    folder = spilled.held.path
    del spilled
    assert not folder.exists()


def test_where_nothing_can_be_left_rows_travel(large: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker that does not see the folder of who asks, and one who asks that can write none."""
    file = next(large.iterdir())
    asks = tmp_path / "asks"
    asks.touch()
    assert source_part(file, file.name, "calls", None, str(tmp_path / "of another machine")).tables
    left = source_part(file, file.name, "calls", None, str(asks))
    assert (left.tables, Path(left.file).parent) == (b"", tmp_path)
    Path(left.file).unlink()
    with pytest.raises(InputError, match="what a worker read of it is gone") as gone:
        unpacked(PackedPart(left.head, Path(left.file)), read_process, file.name)
    assert gone.value.where == file.name
    whole = read(str(large), executor="local:1")
    monkeypatch.setenv("RINGWRIGHT_TASKS", str(file / "no folder"))
    assert read(str(large), executor="local:2").df.equals(whole.df)


def test_a_reading_that_was_cut_short_goes_on_where_it_was(
    large: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What workers had left by then is taken over; a file of it that is gone is read again."""
    monkeypatch.setattr(fan_outs, "KEPT_S", 0.0)
    whole, seen = read(str(large), executor="local:1"), []

    def stop(size_bytes: int) -> None:
        seen.append(size_bytes)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), fan_out("local:2") as fan:
        read(str(large), executor=fan, progress=stop)
    left = [*(tmp_path / "tasks").glob("*.tables")]
    assert len(left) >= 4
    left[0].unlink()
    with fan_out("local:2") as fan:
        assert read(str(large), executor=fan).df.equals(whole.df)
        assert fan.account.resumed >= 4
    never_told = [*(tmp_path / "tasks").glob("*")]  # what a worker wrote when it was ended
    assert {each.suffix for each in never_told} <= {".tables", ".asks"}
    assert len(never_told) <= 2 + 4


@pytest.mark.parametrize(
    ("phases", "code", "is_ended", "is_told"),
    [
        (("setup", "checkpoint"), 15, True, False),
        (("setup", "checkpoint"), 9, True, True),
        (("setup", "checkpoint"), 15, False, True),
        (("setup", "backward", "checkpoint"), 15, True, True),
        (("setup",), 15, True, True),
    ],
)
def test_a_process_that_only_saves_is_let_go_and_no_death(
    phases: tuple[str, ...], code: int, is_ended: bool, is_told: bool
) -> None:
    contexts = [["c", number, None, phase, "", None] for number, phase in enumerate(phases)]
    ends = [end(0)] if is_ended else []
    trace = traced(text(HEAD, GROUP, *contexts, call(0), *ends, ["y", 10**6, "signal", code, "", ""]))
    assert any("stops early" in told for told in trace.meta["losses"]) == is_told
    assert bool(events(trace, "error").height) == is_told
