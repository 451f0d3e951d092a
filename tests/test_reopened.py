"""What is opened again is validated: a damaged capture is read as far as it can be, told, and never a bug of ours."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ringwright.analysis.compared.diff import diff
from ringwright.analysis.machine import topology
from ringwright.analysis.summary import summarise
from ringwright.cli import main
from ringwright.formats.sources import read
from ringwright.ground.errors import EXIT_GOOD, EXIT_INPUT, InputError, RingwrightError
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import Trace

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import fuzzing

pytestmark = pytest.mark.once
CALLS, RUN = "calls", "run"


@pytest.fixture(scope="module")
def whole() -> dict[str, fuzzing.Base]:
    return {kind: held[0] for kind, held in fuzzing.bases(None).items()}


@pytest.fixture
def capture(whole: dict[str, fuzzing.Base], tmp_path: Path) -> Path:
    source = tmp_path / whole[CALLS].name
    source.write_bytes(whole[CALLS].data)
    return read(str(source)).save(tmp_path / "capture")


def rewrite(capture: Path, table: str, *columns: pl.Expr, drop: str = "") -> None:
    path = capture / f"{table}.parquet"
    frame = pl.read_parquet(path).with_columns(*columns)
    (frame.drop(drop) if drop else frame).write_parquet(path)


def told(capture: Path) -> tuple[dict[str, Any], str]:
    summary = summarise(Trace.open(capture))
    return summary, "; ".join(summary["losses"])


def meta(capture: Path, **values: Any) -> None:
    path = capture / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("table", "column", "reason"),
    [
        ("events", pl.lit(-5).cast(pl.Int64).alias("size_bytes"), "size_bytes is out of range"),
        ("events", pl.lit(float("nan")).alias("enqueue_s"), "enqueue_s is out of range"),
        ("events", pl.lit(float("inf")).alias("duration_s"), "duration_s is out of range"),
        ("events", pl.lit(2**62).cast(pl.Int64).alias("multiplicity"), "multiplicity is out of range"),
        ("events", pl.lit(2**31 - 1).cast(pl.Int32).alias("nranks"), "nranks is out of range"),
        ("events", pl.lit("many").alias("value"), "column value is of type String"),
        ("communicators", pl.lit([2**31 - 1] * 3, dtype=pl.List(pl.Int32)).alias("members"), "members is out of range"),
        ("communicators", pl.lit(None, dtype=pl.Int32).alias("communicator"), "without communicator"),
        ("communicators", pl.lit(0).cast(pl.Int32).alias("communicator"), "told more than once"),
        ("claims", pl.lit("launch tp").alias("field"), "a claim that is not in its form"),
        ("claims", pl.lit("ras").alias("field"), "a claim that is not in its form"),
        ("ledger", pl.lit(None, dtype=pl.String).alias("outcome"), "without outcome, lines"),
    ],
)
def test_a_value_that_no_writer_makes_is_left_out_and_told(
    table: str, column: pl.Expr, reason: str, capture: Path
) -> None:
    rewrite(capture, table, column)
    summary, losses = told(capture)
    assert reason in losses
    assert f"{table}.parquet: was changed since it was written" in losses
    assert any(row["outcome"] == "refused" and reason in row["reason"] for row in summary["ledger_detail"])


def test_a_column_that_an_older_release_did_not_write_is_unknown(capture: Path) -> None:
    rewrite(capture, "events", drop="layer")
    assert Trace.open(capture).df["layer"].null_count() == Trace.open(capture).df.height


def test_a_sound_capture_tells_no_fault(capture: Path, tmp_path: Path) -> None:
    before = read(str(tmp_path / "calls.n1.7.jsonl"))
    trace = Trace.open(capture)
    assert trace.meta["losses"] == before.meta["losses"]
    for name in TABLES:
        assert trace.table(name).equals(before.table(name))


def test_a_changed_byte_inside_a_table_is_told(capture: Path) -> None:
    path = capture / "events.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    try:
        assert "events.parquet: was changed since it was written" in told(capture)[1]
    except InputError as error:
        assert "cannot be read" in str(error)  # noqa: PT017 - which of the two depends on what the byte means


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"\x00" * 500])
def test_a_small_table_that_is_gone_costs_itself_alone(damage: bytes, capture: Path) -> None:
    (capture / "topology.parquet").write_bytes(damage)
    summary, losses = told(capture)
    assert "topology.parquet: cannot be read" in losses
    assert summary["operations"]


def test_events_that_cannot_be_read_are_an_error_of_three_parts(capture: Path) -> None:
    (capture / "events.parquet").write_bytes(b"PAR1" + b"\xff" * 64 + b"PAR1")
    with pytest.raises(InputError, match="table events cannot be read") as found:
        Trace.open(capture)
    assert found.value.where.endswith("events.parquet")
    assert found.value.remedy.startswith("read the recordings again")


@pytest.mark.parametrize(
    "values",
    [
        {"source": None},
        {"inputs": 7},
        {"losses": [[]]},
        {"world": -1},
        {"world": 2**40},
        {"errors_dropped": "x"},
        {"origin_ns": 1.5},
        {"records": 1 << 2000},
    ],
    ids=str,
)
def test_meta_data_of_another_type_is_left_out(values: dict[str, Any], capture: Path) -> None:
    meta(capture, **values)
    assert f"meta.json: {next(iter(values))} is no" in told(capture)[1]


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"[" * 100_000, b'{"schema_version": 1e999}', b'{"schema_version": true}'], ids=len
)
def test_meta_data_that_cannot_be_read_is_an_error_of_ours(data: bytes, capture: Path) -> None:
    (capture / "meta.json").write_bytes(data)
    with pytest.raises(InputError, match="not a capture"):
        Trace.open(capture)


def test_a_folder_without_events_is_still_no_capture(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("[]")
    with pytest.raises(InputError, match="not a capture"):
        Trace.open(tmp_path)


def test_one_strange_byte_in_a_manifest_does_not_lose_the_recording(
    whole: dict[str, fuzzing.Base], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / whole[RUN].name).write_bytes(whole[RUN].data.replace(b"train.py", b"tr\xffin.py"))
    (tmp_path / whole[CALLS].name).write_bytes(whole[CALLS].data)
    assert main(["summary", str(tmp_path), "--json"]) == EXIT_GOOD
    summary = json.loads(capsys.readouterr().out)
    assert summary["operations"]
    assert any(claim["field"] == "exit code" and claim["value"] == "1 (signal 9)" for claim in summary["claims"])


def test_the_command_line_says_where(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (capture / "events.parquet").write_bytes(b"x")
    assert main(["summary", str(capture)]) == EXIT_INPUT
    assert "events.parquet" in capsys.readouterr().err


def test_calls_of_unknown_size_can_be_compared(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"kind": ["collective"] * 2, "op": ["all-reduce"] * 2, "size_bytes": [None, 8], "rank": [0, 0]}
    )
    summary = summarise(Trace.of({"events": frame}, {"source": "kineto"}))
    assert diff(summary, summary)


def test_a_ring_through_ranks_that_its_group_does_not_have_is_left_out_and_told(tmp_path: Path) -> None:
    capture = read(str(files("ringwright") / "samples" / "job.log.gz")).save(tmp_path / "capture")
    is_hit = (pl.col("kind") == "ring") & (pl.col("channel") == 0)
    rewrite(capture, "topology", pl.when(is_hit).then(pl.col("dst") + 1000).otherwise(pl.col("dst")).alias("dst"))
    wiring = summarise(Trace.open(capture))["topology"]
    assert all(max(ring["ranks"]) < 16 for ring in wiring["rings"])
    assert 0 not in {
        ring["channel"] for ring in wiring["rings"] if ring["communicator"] == wiring["shown"]["communicator"]
    }
    assert any("name ranks that a communicator of" in note for note in wiring["shown"]["notes"])


def test_the_depth_of_a_tree_that_is_a_circle_is_found() -> None:
    assert topology._depths({1: 0, 2: 1, 3: 2, 5: 1}) == {1: 1, 2: 2, 3: 3, 5: 2}
    assert max(topology._depths({0: 1, 1: 2, 2: 0}).values()) == 3


# ------------------------------------------------------------------------------------------- a small seeded campaign
@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("kind", ["calls", "network", "nccl-profiler", "nsys", "run", "nccl-log"])
def test_a_few_damaged_recordings_of_each_kind(kind: str, whole: dict[str, fuzzing.Base], tmp_path: Path) -> None:
    import random

    for number in range(12):
        draw = random.Random(f"ci {kind} {number}")
        target = tmp_path / whole[kind].name
        target.write_bytes(fuzzing.hurt(whole[kind], draw, list(whole.values())))
        outcome = fuzzing.watched(lambda target=target, draw=draw: fuzzing.used(read(str(target)), draw))
        assert outcome.what != "failed", f"{kind} {number}: {outcome.place} {outcome.wrong}"


def test_the_watch_tells_a_failure_from_a_refusal() -> None:
    def bug() -> None:
        _ = {}[1]

    def refusal() -> None:
        raise RingwrightError("no")

    assert fuzzing.watched(bug).what == "failed"
    assert fuzzing.watched(refusal).what == "refused"
    assert fuzzing.watched(lambda: None).what == "trace"
