"""What must not change: order of lines, number of files, compression; what must add up: histograms, matrix, captures."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from reading import members, operations, put, small_job, summary_of
from ringwright.formats.sources import read
from ringwright.ground.errors import InputError, RingwrightError, SchemaError, UsageError
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import META_FILE, Trace
from ringwright_lab.testing import GeneratedLog, NcclJob, make_job, training_job, write_log
from ringwright_lab.testing.nccl_job import everywhere

LOG = write_log(small_job(), "2.27")
TRUE = operations(LOG.truth)
LINES = LOG.text.splitlines(keepends=True)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=3, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("invariants")


def put_files(folder: Path, files: list[bytes]) -> list[Path]:
    """Write files under fresh names and return their paths."""
    start = sum(1 for _ in folder.iterdir())
    paths = [folder / f"part-{start + number:05d}.log" for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    return paths


# ------------------------------------------------------------------------------------------------ same log, other shape
@few
@given(seed=seeds, events=st.sampled_from(["auto", "folded"]))
def test_the_order_of_lines_is_irrelevant(folder: Path, seed: int, events: str) -> None:
    """Every line names its process and communicator, so any order gives the same totals."""
    lines = list(LINES)
    random.Random(seed).shuffle(lines)
    assert operations(summary_of(put_files(folder, [b"".join(lines)]), events)) == TRUE


@few
@given(seed=seeds, count=st.integers(2, 6))
def test_cutting_a_log_into_files_is_irrelevant(folder: Path, seed: int, count: int) -> None:
    """Cuts fall between lines, so one process may have lines in several files."""
    draw = random.Random(seed)
    cuts = [0, *sorted(draw.sample(range(1, len(LINES)), count - 1)), len(LINES)]
    files = [b"".join(LINES[a:b]) for a, b in pairwise(cuts)]
    summary = summary_of(put_files(folder, files))
    assert operations(summary) == TRUE
    assert members(summary) == members(LOG.truth)
    assert summary["ledger"]["lines"] == len(LINES)


@few
@given(seed=seeds, count=st.integers(2, 5))
def test_dealing_lines_to_files_is_irrelevant(folder: Path, seed: int, count: int) -> None:
    draw = random.Random(seed)
    files: list[list[bytes]] = [[] for _ in range(count)]
    for line in LINES:
        draw.choice(files).append(line)
    assert operations(summary_of(put_files(folder, [b"".join(lines) for lines in files]))) == TRUE


def test_joining_files_of_processes_is_irrelevant(tmp_path: Path) -> None:
    log = write_log(small_job(), "2.27", per_process=True)
    apart = summary_of(put(log, tmp_path / "apart"))
    together = summary_of(put(GeneratedLog(b"".join(log.files.values()), {}, log.truth), tmp_path / "together"))
    assert operations(apart) == operations(together) == TRUE
    assert members(apart) == members(together)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("frames", [1, 3])
def test_compression_is_irrelevant(tmp_path: Path, ending: str, frames: int) -> None:
    """Files may hold several members or frames, as when a rotated log was appended to."""
    pack = gzip.compress if ending == ".gz" else zstandard.ZstdCompressor().compress
    size = -(-len(LOG.text) // frames)
    path = tmp_path / f"job.log{ending}"
    path.write_bytes(b"".join(pack(LOG.text[at : at + size]) for at in range(0, len(LOG.text), size)))
    summary = summary_of(path)
    assert operations(summary) == TRUE
    assert summary["ledger"] == summary_of(put(LOG, tmp_path / "plain"))["ledger"]


def test_carriage_returns_and_a_missing_last_newline_are_irrelevant(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG.text.replace(b"\n", b"\r\n").rstrip())
    assert operations(summary_of(tmp_path / "a.log")) == TRUE


# ------------------------------------------------------------------------------------------------------ what adds up
@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    ep=st.sampled_from([None, 2]),
    seed=seeds,
    release=st.sampled_from(["2.7", "2.18", "2.27"]),
    events=st.sampled_from(["auto", "folded"]),
)
def test_every_mass_is_conserved(
    folder: Path, tp: int, pp: int, ep: int | None, seed: int, release: str, events: str
) -> None:
    job = training_job(2, 4, tp=tp, pp=pp, ep=ep, iterations=1, layers=1, tokens=32, seed=seed)
    summary = summary_of(put_files(folder, [write_log(job, release).text]), events)
    for row in summary["operations"]:
        assert sum(line["count"] for line in row["size_histogram"]) == row["count"]
        assert sum(line["count"] * line["size_bytes"] for line in row["size_histogram"]) == row["bytes"]
    assert sum(row["count"] for row in summary["size_classes"]) == sum(row["count"] for row in summary["operations"])
    assert sum(row["bytes"] for row in summary["by_role"]) == sum(row["bytes"] for row in summary["operations"])
    assert summary["pair_ground"]["conserved"]


def sent_by(summary: dict[str, Any]) -> dict[int, int]:
    """Return bytes that each rank sends, over all destinations."""
    sent: Counter[int] = Counter()
    for row in summary["pair_bytes"]:
        assert row["src"] != row["dst"]
        sent[row["src"]] += row["bytes"]
    return dict(sent)


def job_of(op: str, count: int, ranks: int = 4) -> NcclJob:
    job = make_job(1, ranks)
    job.items += everywhere(job, "world", op, count)
    return job


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(
    ("op", "size_bytes", "share"),
    [("all-reduce", 2 * 4096, 2.0), ("all-gather", None, 1.0), ("reduce-scatter", None, 1.0)],
)
def test_each_rank_sends_what_a_ring_sends(
    tmp_path: Path, ranks: int, op: str, size_bytes: int | None, share: float
) -> None:
    """Ring: every rank passes on (p-1)/p of the size, for all-reduce twice; 4096 bf16 elements are printed."""
    log = write_log(job_of(op, 4096, ranks), "2.27", subsystems=("INIT", "GRAPH", "COLL"))
    summary = summary_of(put(log, tmp_path / "job"))
    total_bytes = size_bytes if size_bytes is not None else 2 * 4096 * ranks
    assert summary["operations"][0]["bytes"] == total_bytes
    assert sent_by(summary) == dict.fromkeys(range(ranks), round(share * (ranks - 1) / ranks * total_bytes))
    assert summary["pair_ground"]["ground"] == "assumed"


@pytest.mark.parametrize("release", ["2.7", "2.18", "2.27", "2.30"])
def test_all_to_all_sends_its_share_to_every_peer(tmp_path: Path, release: str) -> None:
    """Grouped sends and receives before 2.28, an operation of its own since: the matrix is the same."""
    summary = summary_of(put(write_log(job_of("all-to-all", 512), release), tmp_path / "job"))
    (row,) = summary["operations"]
    assert (row["op"], row["count"], row["bytes"]) == ("all-to-all", 1, 4 * 512 * 2)
    pairs = {(row["src"], row["dst"]): row["bytes"] for row in summary["pair_bytes"]}
    assert pairs == {(a, b): 512 * 2 for a in range(4) for b in range(4) if a != b}


def test_send_and_receive_count_once_in_the_matrix(tmp_path: Path) -> None:
    log = write_log(training_job(1, 4, pp=4, iterations=1, layers=1, tokens=16, hidden=64, buckets=None), "2.27")
    summary = summary_of(put(log, tmp_path / "job"))
    rows = {row["op"]: row for row in summary["operations"]}
    ring_bytes = defaultdict[int, int](int)
    for pair in summary["pair_bytes"]:
        ring_bytes[pair["src"]] += pair["bytes"]
    world = rows["all-reduce"]["bytes"] * 2 * 3  # one element over four ranks: 2(p-1) times its size on all wires
    assert sum(ring_bytes.values()) == pytest.approx(rows["send"]["bytes"] + world, abs=4)


# ----------------------------------------------------------------------------------------------------- what is missing
@pytest.mark.parametrize("omitted", [(3,), (0,), (0, 5)], ids=str)
@pytest.mark.parametrize("release", ["2.10", "2.27"])
def test_missing_ranks_are_told_and_never_guessed(tmp_path: Path, release: str, omitted: tuple[int, ...]) -> None:
    job = training_job(2, 4, tp=2, iterations=1, layers=1, tokens=32)
    summary = summary_of(put(write_log(job, release, omit_ranks=omitted), tmp_path / "job"))
    assert (summary["ranks_seen"], summary["ranks_expected"]) == (8 - len(omitted), 8)
    seen = {rank for row in summary["communicator_list"] for rank in row["members"] if rank >= 0}
    assert not seen & set(omitted)
    world = next(row for row in summary["communicator_list"] if row["size"] == 8)
    assert [world["members"][rank] for rank in omitted] == [-1] * len(omitted)
    assert any(f"{8 - len(omitted)} of 8 ranks" in text for text in summary["warnings"])


# ------------------------------------------------------------------------------------------------------------ captures
@pytest.fixture(scope="module")
def capture(folder: Path) -> Path:
    made = put_files(folder, [LOG.text])[0]
    return read(made).save(folder.parent / f"{folder.name}-capture")


def copy(capture: Path, to: Path) -> Path:
    to.mkdir()
    for file in capture.iterdir():
        if file.is_file():
            (to / file.name).write_bytes(file.read_bytes())
    return to


@pytest.mark.parametrize("events", ["auto", "folded"])
def test_a_capture_says_the_same(tmp_path: Path, events: str) -> None:
    path = put(write_log(small_job(), "2.27", timestamps=True), tmp_path / "job")
    trace = read(path, events=events)
    trace.save(tmp_path / "capture")
    assert summary_of(tmp_path / "capture") == summary_of(path, events)
    for name in TABLES:
        assert Trace.open(tmp_path / "capture").table(name).equals(trace.table(name))


def test_an_existing_capture_is_not_overwritten(tmp_path: Path, capture: Path) -> None:
    with pytest.raises(UsageError, match="exists"):
        Trace.open(capture).save(capture)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("keep me")
    with pytest.raises(UsageError, match="not a capture"):
        Trace.open(capture).save(tmp_path / "letters", force=True)
    assert (tmp_path / "letters" / "dear.txt").exists()


def test_an_older_capture_opens(tmp_path: Path) -> None:
    """Columns and tables that a first writer did not know read as null and as empty."""
    meta = {"format": "ringwright.trace", "schema_version": 1, "source": "nccl-log", "world": 2}
    (tmp_path / META_FILE).write_text(json.dumps(meta))
    events = {"kind": ["collective"] * 2, "op": ["all-reduce"] * 2, "communicator": [0, 0], "sequence": [0, 1]}
    numbers = {"multiplicity": [1, 1], "records": [2, 2], "size_bytes": [1024, 4096], "nranks": [2, 2]}
    pl.DataFrame(events | numbers).write_parquet(tmp_path / "events.parquet")
    comms = {"communicator": [0], "size": [2], "members": [[0, 1]]}
    pl.DataFrame(comms).write_parquet(tmp_path / "communicators.parquet")
    summary = summary_of(tmp_path)
    assert operations(summary) == {"all-reduce": (2, 4, 5120, {1024: 1, 4096: 1})}
    assert summary["ranks_expected"] == 2
    json.dumps(summary)


def test_a_newer_capture_is_refused_by_name(tmp_path: Path, capture: Path) -> None:
    newer = copy(capture, tmp_path / "newer")
    meta = json.loads((newer / META_FILE).read_text())
    (newer / META_FILE).write_text(json.dumps(meta | {"schema_version": 999}))
    with pytest.raises(SchemaError, match="999") as caught:
        read(newer)
    assert caught.value.remedy


@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize("table", ["events", "communicators", "ledger"])
@pytest.mark.parametrize("kept", [0, 3, 0.5, -1])
def test_a_truncated_table_is_an_input_error(tmp_path: Path, capture: Path, table: str, kept: float) -> None:
    path = copy(capture, tmp_path / "cut") / f"{table}.parquet"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)] if 0 < kept < 1 else data[: int(kept)])
    with pytest.raises(InputError) as caught:
        summary_of(path.parent)
    assert path.name in caught.value.where


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": null}', '{"schema_version": "x"}', "\x00"])
def test_broken_meta_data_is_an_input_error(tmp_path: Path, capture: Path, text: str) -> None:
    broken = copy(capture, tmp_path / "broken")
    (broken / META_FILE).write_text(text)
    with pytest.raises(RingwrightError):
        read(broken)


def test_a_damaged_year_does_not_stretch_the_timeline(tmp_path: Path) -> None:
    """Two times that lie centuries apart must not make millions of bins."""
    text = write_log(small_job(), "2.27", timestamps=True).text.decode()
    dates = re.findall(r"\d{4}-\d\d-\d\d", text)
    (tmp_path / "a.log").write_text(
        text.replace(dates[-1], "2399-01-01").replace("2399-01-01", dates[-1], len(dates) // 2)
    )
    timeline = summary_of(tmp_path / "a.log")["timeline"]
    assert timeline["bin_s"] > 3600
    assert all(len(series["bytes"]) <= 300 for series in timeline["series"])
