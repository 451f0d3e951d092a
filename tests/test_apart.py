"""A table that no check sum vouches for is decoded elsewhere: damage that ends the decoder costs a table, never our process."""

from __future__ import annotations

import gc
import json
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.summary import summarise
from ringwright.cli import main
from ringwright.formats.sources import read
from ringwright.ground import untrusted_tables
from ringwright.ground.errors import EXIT_GOOD, EXIT_INPUT, InputError, OutputError, UsageError
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once

SAMPLE = str(files("ringwright") / "samples" / "job.log.gz")


@pytest.fixture(scope="module")
def sample() -> Trace:
    return read(SAMPLE)


@pytest.fixture
def capture(sample: Trace, tmp_path: Path) -> Path:
    return sample.save(tmp_path / "capture")


def bend(table: Path) -> None:
    """Flip the sign bit of the number of values in the heads of a table's pages (field 1 of a head, a zigzag varint)."""
    head, left = b"\x15", 2 * pl.scan_parquet(table).select(pl.len()).collect().item()
    while left > 127:
        head, left = head + bytes([left & 127 | 128]), left >> 7
    head += bytes([left])
    data = table.read_bytes()
    assert head in data
    table.write_bytes(data.replace(head, head[:1] + bytes([head[1] ^ 1]) + head[2:]))


def without_sums(capture: Path) -> None:
    path = capture / "meta.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "files"}))


@pytest.mark.parametrize("has_sums", [True, False], ids=["sums", "no sums"])
def test_a_page_that_ends_the_decoder_costs_its_table(has_sums: bool, sample: Trace, capture: Path) -> None:
    bend(capture / "topology.parquet")
    if not has_sums:
        without_sums(capture)
    trace = Trace.open(capture)
    told = [loss for loss in summarise(trace)["losses"] if "topology.parquet: cannot be read, and is left out" in loss]
    assert len(told) == 1
    assert "ended by signal 6: memory allocation of" in told[0]
    reasons = trace.table("ledger").filter(pl.col("file") == f"{capture}/topology.parquet")["reason"].to_list()
    assert any("cannot be read" in reason for reason in reasons)
    for name in set(TABLES) - {"topology", "ledger"}:
        assert trace.table(name).equals(sample.table(name))


@pytest.mark.parametrize("has_sums", [True, False], ids=["sums", "no sums"])
def test_events_that_end_the_decoder_are_an_error_of_three_parts(
    has_sums: bool, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bend(capture / "events.parquet")
    if not has_sums:
        without_sums(capture)
    assert main(["query", "select count(*) from events", str(capture)]) == EXIT_INPUT
    what, where, remedy = capsys.readouterr().err.strip().split("\n")
    assert "table events cannot be read: the process that decoded it ended by signal 6" in what
    assert where.endswith("capture/events.parquet")
    assert remedy.endswith("ringwright convert LOG -o DIR")


def test_a_damaged_part_of_the_events_is_found_too(capture: Path) -> None:
    (capture / "events").mkdir()
    (capture / "events.parquet").rename(capture / "events" / "part-00000.parquet")
    bend(capture / "events" / "part-00000.parquet")
    with pytest.raises(InputError, match="table events cannot be read"):
        Trace.open(capture)


def test_tables_without_their_meta_data_are_told_as_such(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bend(capture / "events.parquet")
    (capture / "meta.json").unlink()
    assert main(["summary", str(capture)]) == EXIT_INPUT
    assert "tables without a meta.json" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"meta\.json is missing"):
        Trace.open(capture)


def test_several_damaged_tables_cost_themselves(sample: Trace, capture: Path) -> None:
    for name in ("topology", "claims"):
        bend(capture / f"{name}.parquet")
    (capture / "links.parquet").write_bytes(b"PAR1")
    trace = Trace.open(capture)
    assert sum("cannot be read" in loss for loss in trace.meta["losses"]) == 3
    assert trace.df.equals(sample.df)


def test_a_capture_of_an_older_release_reads_as_before(sample: Trace, capture: Path) -> None:
    without_sums(capture)
    trace = Trace.open(capture)
    assert trace.meta["losses"] == sample.meta["losses"]
    place = trace.held.path
    for name in TABLES:
        assert trace.table(name).equals(sample.table(name))
    del trace
    gc.collect()
    assert not place.exists()


def test_a_whole_capture_starts_no_process(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_tables, "DECODER", capture / "none")
    assert Trace.open(capture).held is None
    without_sums(capture)
    with pytest.raises(InputError, match="ended by exit code 2"):
        Trace.open(capture)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import time; time.sleep(600)", "takes too long"),
        ("raise SystemExit('no library')", "exit code 1: no library"),
        ('print(\'["events", "x\'); raise SystemExit(3)', "exit code 3"),
    ],
    ids=["late", "at once", "half a line"],
)
def test_a_decoder_that_gives_no_answer_is_told(
    program: str, words: str, capture: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (capture / "decoder.py").write_text(program)
    monkeypatch.setattr(untrusted_tables, "DECODER", capture / "decoder.py")
    monkeypatch.setattr(untrusted_tables, "LEAST_S", 1 if "late" in request.node.name else untrusted_tables.LEAST_S)
    found = untrusted_tables.copies({"events": [capture / "events.parquet"]}, TABLES)
    assert words in found.lost["events"]


def test_no_room_for_the_copies_is_told(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (capture / "decoder.py").write_text('print(\'["events", "No space left on device (os error 28)"]\')')
    monkeypatch.setattr(untrusted_tables, "DECODER", capture / "decoder.py")
    without_sums(capture)
    with pytest.raises(OutputError, match="disk is full"):
        Trace.open(capture)


def test_a_folder_in_the_place_of_a_table_costs_that_table(capture: Path) -> None:
    (capture / "topology.parquet").unlink()
    (capture / "topology.parquet").mkdir()
    assert any("topology.parquet: is missing" in loss for loss in Trace.open(capture).meta["losses"])
    (capture / "events.parquet").unlink()
    with pytest.raises(InputError, match="table events cannot be read: it is missing"):
        Trace.open(capture)


def test_a_query_says_what_its_tables_lack(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bend(capture / "topology.parquet")
    assert main(["query", "select count(*) from topology", str(capture)]) == EXIT_GOOD
    assert "not in the answer: the capture's topology.parquet: cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("has_sums", [True, False], ids=["sums", "no sums"])
def test_a_path_with_brackets_is_a_path(has_sums: bool, sample: Trace, tmp_path: Path) -> None:
    capture = sample.save(tmp_path / "run[1]*" / "capture")
    if not has_sums:
        without_sums(capture)
    assert Trace.open(capture).df.equals(sample.df)


# ------------------------------------------------------------------------------------------------- queries that read files
@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A table of somebody else's, whose name has a quote."""
    path = tmp_path / "it's.parquet"
    pl.DataFrame({"op": ["all-reduce", None], "at": [1.5, 2.5]}).write_parquet(path)
    return path


def reads(path: Path, what: str = "*") -> str:
    return f"select {what} from read_parquet('{str(path).replace(chr(39), chr(39) * 2)}')"


def test_a_query_joins_what_it_reads_with_a_trace(sample: Trace, foreign: Path) -> None:
    assert sample.query(reads(foreign), files=True).rows() == [("all-reduce", 1.5), (None, 2.5)]
    joined = f"select sum(multiplicity) as calls from events join ({reads(foreign)}) as other on events.op = other.op"
    expected = sample.df.filter(op="all-reduce")["multiplicity"].sum()
    assert sample.query(joined, files=True).rows() == [(expected,)]


def test_a_damaged_file_of_others_is_an_error_of_three_parts(
    capture: Path, foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl.DataFrame({"at": range(5000)}).write_parquet(foreign)
    bend(foreign)
    assert main(["query", reads(foreign), str(capture), "--files"]) == EXIT_INPUT
    what, where, remedy = capsys.readouterr().err.strip().split("\n")
    assert (
        "a file that the query reads cannot be read: the process that decoded it ended by signal 6: memory all" in what
    )
    assert where.endswith("it's.parquet")
    assert "there and whole" in remedy


@pytest.mark.parametrize(
    ("data", "words"),
    [(None, "No such file"), (b"", "parquet: File out of specification"), (b"PAR1" * 9, "parquet: ")],
    ids=["missing", "empty", "torn"],
)
def test_a_file_that_is_none_is_told(data: bytes | None, words: str, sample: Trace, tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match=words) as raised:
        sample.query(reads(path), files=True)
    assert raised.value.where == str(path)


def test_a_query_that_is_wrong_is_blamed_itself(sample: Trace, foreign: Path) -> None:
    for sql in (reads(foreign, "nope"), reads(foreign, "cast(op as int)"), f"{reads(foreign)} where"):
        with pytest.raises(UsageError, match="the query could not be answered"):
            sample.query(sql, files=True)


def test_a_query_of_no_files_starts_no_process(sample: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_tables, "DECODER", Path("none"))
    assert sample.query("select count(*) from events", files=True).item() == len(sample.df)


def test_no_room_for_an_answer_is_told(
    sample: Trace, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "decoder.py").write_text('print(\'["files", "No space left on device (os error 28)"]\')')
    monkeypatch.setattr(untrusted_tables, "DECODER", tmp_path / "decoder.py")
    with pytest.raises(OutputError, match="disk is full"):
        sample.query(reads(foreign), files=True)


def test_nothing_is_left_of_a_query(
    sample: Trace, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    answer = sample.query(reads(foreign), files=True)
    gc.collect()
    assert not list((tmp_path / "scratch").iterdir())
    assert answer["at"].to_list() == [1.5, 2.5]
