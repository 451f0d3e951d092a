"""Everything written is a draft beside its target, then renamed: whole, or the old one, and never two writers at once."""

from __future__ import annotations

import ast
import contextlib
import gzip
import io
import os
import resource
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest

import ringwright
import ringwright_lab
from ringwright.cli import main
from ringwright.formats.sources.gate import archives
from ringwright.ground import drafts, scratch
from ringwright.ground.errors import EXIT_GOOD, EXIT_USAGE, OutputError, UsageError
from ringwright.ground.scratch import Scratch, remove_left
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once

SAMPLE = str(files("ringwright") / "samples" / "job.log.gz")
PACKAGE = Path(ringwright.__file__).parent
LABORATORY = Path(ringwright_lab.__file__).parent


@contextlib.contextmanager
def little_room(size_bytes: int) -> Iterator[None]:
    """Have no file of this process grow beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("drafts") / "capture"
    assert main(["convert", SAMPLE, "-o", str(place)]) == EXIT_GOOD
    return place


def copied(capture: Path, place: Path) -> Path:
    Trace.open(capture).save(place)
    return place


def test_a_capture_converted_onto_itself_keeps_what_it_held(capture: Path, tmp_path: Path) -> None:
    own = copied(capture, tmp_path / "self")
    assert main(["convert", str(own), "-o", str(own), "--force"]) == EXIT_GOOD
    assert Trace.open(own).df.equals(Trace.open(capture).df)
    assert [path.name for path in tmp_path.iterdir()] == ["self"]


def test_a_log_redacted_onto_itself_is_read_before_it_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(gzip.decompress(Path(SAMPLE).read_bytes()))
    lines = log.read_bytes().count(b"\n")
    assert main(["convert", str(log), "-o", str(log), "--format", "log", "--redact", "--force"]) == EXIT_GOOD
    assert log.read_bytes().count(b"\n") == lines


def test_a_folder_does_not_take_the_place_of_a_file(tmp_path: Path) -> None:
    letter = tmp_path / "letter"
    letter.write_text("dear reader")
    assert main(["convert", SAMPLE, "-o", str(letter), "--force"]) == EXIT_USAGE
    assert letter.read_text() == "dear reader"


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "log"])
def test_a_full_disk_is_told_and_leaves_the_old_one(
    form: str, capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    options = ["-o", str(target), "--format", form, "--force"]
    source = [SAMPLE, "--redact"] if form == "log" else [str(capture)]
    assert main(["convert", *source, *options]) == EXIT_GOOD
    before = {path: path.read_bytes() for path in [target, *target.rglob("*")] if path.is_file()}
    capsys.readouterr()
    with little_room(2000):
        assert main(["convert", *source, *options]) == EXIT_USAGE
    told = capsys.readouterr().err
    assert "the disk is full" in told
    assert "try: free some space" in told
    assert {path: path.read_bytes() for path in [target, *target.rglob("*")] if path.is_file()} == before
    assert list(tmp_path.iterdir()) == [target]


def test_a_page_on_a_full_disk_is_told_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "job.html"
    page.write_text("old")
    with little_room(2000):
        assert main(["report", SAMPLE, "-o", str(page), "--force"]) == EXIT_USAGE
    assert page.read_text() == "old"
    assert "the disk is full" in capsys.readouterr().err


def test_a_place_that_is_closed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", SAMPLE, "-o", "/proc/out.jsonl", "--format", "jsonl"]) == EXIT_USAGE
    assert "/proc/out.jsonl cannot be written" in capsys.readouterr().err
    with pytest.raises(OutputError, match="does not exist"):
        drafts.write(tmp_path / "none" / "file", "x")


def test_a_second_writer_is_refused_and_a_dead_ones_draft_is_taken(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with drafts.draft(target) as first:
        first.write_text("first")
        with pytest.raises(UsageError, match="another process is writing"), drafts.draft(target):
            pass
    assert target.read_text() == "first"
    (tmp_path / ".folder.draft").mkdir()
    (tmp_path / ".folder.draft" / "left").write_text("by a killed one")
    with drafts.draft_folder(tmp_path / "folder") as folder:
        assert not list(folder.iterdir())
        (folder / "file").write_text("new")
        with pytest.raises(UsageError, match="another process"), drafts.draft_folder(tmp_path / "folder"):
            pass
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file"]


def test_a_folder_that_somebody_fills_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with (
        drafts.alone(tmp_path / "folder"),
        pytest.raises(UsageError, match="another process"),
        drafts.draft_folder(tmp_path / "folder") as folder,
    ):
        (folder / "file").write_text("never seen")
    assert not list((tmp_path / "folder").iterdir())


def test_an_error_leaves_the_old_file_with_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    target.chmod(0o640)
    with contextlib.suppress(KeyboardInterrupt), drafts.draft(target) as path:
        path.write_text("half")
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    drafts.write(target, "new")
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o640)
    assert (drafts.write(tmp_path / "own", "x", mode=drafts.PRIVATE)).stat().st_mode & 0o777 == 0o600


def test_a_link_is_followed_and_a_pipe_written_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    drafts.write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    drafts.write("/dev/null", "x")
    assert Path("/dev/null").is_char_device()


def test_a_spreadsheet_finds_no_formula(tmp_path: Path) -> None:
    hostile = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "plain", None]
    frame = pl.DataFrame({"text": hostile, "kind": ["error"] * len(hostile)})
    Trace.of({"events": frame}).save(tmp_path / "capture")
    assert main(["convert", str(tmp_path / "capture"), "-o", str(tmp_path / "csv"), "--format", "csv"]) == EXIT_GOOD
    found = pl.read_csv(tmp_path / "csv" / "events.csv")["text"].to_list()
    assert found == ["'" + word if word and word != "plain" else word for word in hostile]


# ------------------------------------------------------------------------------------------- what reading leaves
def test_what_a_killed_reader_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, living = tmp_path / "mine-dead", Scratch("mine-", tmp_path)
    left.mkdir()
    remove_left("mine-", tmp_path)
    assert left.exists()  # made just now: it may be somebody's who has not locked it yet
    monkeypatch.setattr(scratch, "YOUNG_S", -1.0)
    remove_left("mine-", tmp_path)
    assert not left.exists()
    assert living.path.exists()
    living.close()
    assert not living.path.exists()


def bomb(path: Path, size_bytes: int) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("job.log")
        entry.size = size_bytes
        archive.addfile(entry, io.BytesIO(bytes(size_bytes)))
    return path


def test_a_bomb_is_bounded_by_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bomb(tmp_path / "bomb.tar.gz", 24 << 20)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: os.terminal_size((0, 0)) and _Room(16 << 20))
    found = archives.unpack(packed)
    assert any("half of the free space" in reason for reason, _ in found[-1].losses)
    with found[0].open() as stream:
        assert len(stream.read()) <= 10 << 20


class _Room:
    def __init__(self, free: int) -> None:
        self.free = free


def test_sigterm_takes_temporary_files_with_it(tmp_path: Path) -> None:
    """The command ends itself in the middle of an archive: what it had unpacked goes."""
    packed = bomb(tmp_path / "bomb.tar.gz", 3 << 20)
    code = (
        "import os, signal, sys\n"
        "from ringwright.formats.sources.gate import archives\n"
        "before = archives.copy_bounded\n"
        "def copy(stream, target, most):\n"
        "    found = before(stream, target, most)\n"
        "    assert target.stat().st_size\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return found\n"
        "archives.copy_bounded = copy\n"
        "from ringwright.cli import main\n"
        f"sys.exit(main(['summary', {str(packed)!r}]))\n"
    )
    (tmp_path / "scratch").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path / "scratch")}, check=False
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert not list((tmp_path / "scratch").iterdir())


# ---------------------------------------------------------------------------------------------- nobody goes past
WRITES = {
    "write_text",
    "write_bytes",
    "write_parquet",
    "write_csv",
    "write_ndjson",
    "sink_parquet",
    "sink_csv",
    "sink_ndjson",
}
PAST_THE_GATE = {
    "ground/drafts.py": "the gate",
    "executors/kept_results.py": "with a digest, renamed when it is whole: what a failing machine cuts is made again",
    "ground/decoder.py": "into a folder for the time of a question",
    "model/trace.py": "into the draft of a folder",
    "formats/exports/csv.py": "into the draft of a folder",
    "formats/exports/jsonl.py": "into a draft",
    "formats/exports/log.py": "into a draft",
    "formats/exports/perfetto.py": "into a draft",
    "sweep/table.py": "into a draft",
    "advise/networks.py": "into a draft, which is read back",
    "analysis/timeline/event_levels.py": "into the draft of a folder",
    "reports/serve/application.py": "a part of a file that is sent, renamed when all of it has come",
    "reports/serve/runs.py": "what a command prints while it runs, in its own folder",
    "ground/untrusted_tables.py": "into a folder for the time of a question",
    "judges/graph_ranks.py": "words between ranks, in a folder that goes with their job",
    "judges/pipeline_ranks.py": "words between ranks, in a folder that goes with their job",
    "judges/partitioned/": "words between ranks, in a folder that goes with their job",
    "formats/sources/": "into a folder for the time of a question",
    "capture/recorder/": "lines that grow while a job runs, without this package",
    "capture/folder.py": "a probe that goes at once",
    "execute/": "words between ranks, in a folder that goes with their job",
    "live/": "words between ranks, in a folder that goes with their job",
    "models/": "words between ranks, in a folder that goes with their job",
    "network/": "settings of the kernel, and words between daemons",
    "contracts/export.py": "made for tests",
    "testing/": "made for tests",
}


def test_everything_written_goes_through_the_gate() -> None:
    found = []
    for package in (PACKAGE, LABORATORY):
        for module in sorted(package.rglob("*.py")):
            name = str(module.relative_to(package))
            if not name.startswith(tuple(PAST_THE_GATE)):
                found += [f"{name}:{line}" for line in writes(ast.parse(module.read_text()))]
    assert not found


def writes(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that write a file: a method that does, or an ``open`` for it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        modes = [
            each.value for each in [*node.args, *(key.value for key in node.keywords)] if isinstance(each, ast.Constant)
        ]
        opens = name == "open" and any(isinstance(mode, str) and set(mode) <= set("wxab+t") and mode for mode in modes)
        if name in WRITES or opens:
            yield node.lineno


def test_the_search_for_writers_finds_them() -> None:
    lines = "a.open('wb')\nopen(p, mode='a')\nb.write_text('x')\nc.open('rb')\nc.open()\nframe.write_parquet(p)"
    assert list(writes(ast.parse(lines))) == [1, 2, 3, 6]


def test_a_second_writer_of_a_folder_that_grows_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "new" / "sweep"
    with drafts.grown(place):
        with pytest.raises(UsageError, match="another process is writing"), drafts.grown(place):
            pass
        with pytest.raises(UsageError, match="another process"), drafts.alone(place, with_others=True):
            pass
    joined = drafts.alone(place, with_others=True)
    with drafts.alone(place, with_others=True), joined, pytest.raises(UsageError, match="another process"):
        drafts.grown(place).__enter__()


@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "GRID", "-o", "OUT"],
        ["bench", "all-reduce", "-g", "2", "-b", "8", "--out", "OUT"],
        ["reproduce", "collective-profiling-poster", "--short", "-o", "OUT"],
    ],
)
def test_a_verb_that_fills_a_folder_is_refused_beside_another(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, grid = tmp_path / "out", tmp_path / "grid.toml"
    grid.write_text('[[cell]]\nmodel="gpt2"\n')
    place = {"OUT": str(out), "GRID": str(grid)}
    (out / "cells").mkdir(parents=True)
    with drafts.alone(out):
        code = main([place.get(word, word) for word in words])
    said = capsys.readouterr().err
    assert (code, "another process is writing" in said) == (2, True), said


def test_a_recording_that_runs_is_not_recorded_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Launchers of one job share their folder; anybody else waits, with --force too."""
    calls = tmp_path / "calls.0.jsonl"
    calls.write_text("kept")
    with drafts.alone(tmp_path, with_others=True):
        assert main(["run", "--force", "--no-summary", "-o", str(tmp_path), "--", "true"]) == 2
    assert "another process is writing" in capsys.readouterr().err
    assert calls.read_text() == "kept"
    assert main(["run", "--force", "--no-summary", "-o", str(tmp_path), "--", "true"]) == 0
    assert not calls.exists()
