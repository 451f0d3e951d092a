"""Words of a recording are shown, never obeyed: no control character reaches a terminal, no query reads a file."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from ringwright.cli import main
from ringwright.ground.errors import EXIT_GOOD, EXIT_OUR_BUG, EXIT_USAGE, UsageError
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"


def hostile(folder: Path) -> Path:
    """Save a capture with the words in every column that holds words."""
    frames = {}
    for name, columns in TABLES.items():
        words = {column: [f"{column}{EVIL}"] * 2 for column, kind in columns.items() if kind == "str"}
        frames[name] = pl.DataFrame(words)
    numbers = {
        "rank": [0, 1],
        "communicator": [0, 0],
        "nranks": [2, 2],
        "size_bytes": [8, 8],
        "start_s": [0.0, 1.0],
        "duration_s": [1.0, 2.0],
    }
    kinds = {"kind": ["collective", "error"], "clock": ["device"] * 2, "ground": ["read"] * 2}
    frames["events"] = frames["events"].with_columns(
        **{name: pl.Series(value) for name, value in (numbers | kinds).items()}
    )
    frames["communicators"] = frames["communicators"].head(1).with_columns(communicator=0, size=2, members=[0, 1])
    frames["topology"] = frames["topology"].with_columns(kind=pl.lit("device"), rank=pl.Series([0, 1]))
    frames["ledger"] = frames["ledger"].with_columns(
        outcome=pl.Series(["understood", "refused"]), lines=2, example_line=1
    )
    return Trace.of(frames, {"source": f"kineto{EVIL}", "inputs": [EVIL], "losses": [EVIL], "library": EVIL}).save(
        folder / "capture"
    )


@pytest.mark.parametrize("width", ["40", "200"])
def test_no_control_character_is_printed(
    width: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    capture = str(hostile(tmp_path))
    evil_name = tmp_path / f"no{EVIL}log"
    evil_name.write_bytes(b"\x00\x01\x02")
    for command in (
        ["summary", capture],
        ["diff", capture, capture],
        ["check", capture],
        ["query", "select * from events", capture],
        ["query", "select text, file from ledger, events", capture],
        ["read", capture],
        ["read", str(evil_name)],
        ["summary", str(evil_name)],
        ["doctor", capture],
        ["summary", EVIL],
        ["query", f"select {EVIL}", capture],
        [EVIL],
        ["summary", f"--{EVIL}"],
    ):
        assert main(command) != EXIT_OUR_BUG
        told = capsys.readouterr()
        bad = {c for c in told.out + told.err if (ord(c) < 32 and c not in "\n\t") or ord(c) in (0x7F, 0x9B, 0x202E)}
        assert not bad, (command[0], bad)


@pytest.mark.parametrize(
    "table",
    [
        "read_csv('{0}')",
        "READ_CSV ( '{0}')",
        "\"read_csv\"('{0}')",
        "read_csv/* x */('{0}')",
        "read_csv -- x\n('{0}')",
        "read_parquet('{0}')",
        "read_json('{0}')",
        "read_ipc('{0}')",
    ],
)
def test_a_query_reads_no_file(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("name\nhunter2\n")
    assert main(["query", f"select * from {table.format(secret)}", "--sample"]) == EXIT_USAGE
    told = capsys.readouterr()
    assert "hunter2" not in told.out + told.err
    assert "--files" in told.err


def test_a_query_reads_a_file_where_it_may_and_words_like_one_where_they_are_words(tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text("name\nhunter2\n")
    trace = Trace.of({"claims": pl.DataFrame({"field": ["read_csv('x')"], "value": ["1"]})})
    assert trace.query(f"select * from read_csv('{table}')", files=True).rows() == [("hunter2",)]
    assert trace.query("select value from claims where field = 'read_csv(''x'')'").rows() == [("1",)]
    with pytest.raises(UsageError):
        trace.query(f"select * from '{table}'")


def test_json_has_no_control_character_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(hostile(tmp_path)), "--json"]) == EXIT_GOOD
    text = capsys.readouterr().out
    assert json.loads(text)["source"] == f"kineto{EVIL}"
    assert not {c for c in text if (ord(c) < 32 and c != "\n") or ord(c) > 126}
