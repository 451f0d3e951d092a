"""Many jobs of a folder: which they are, what they are called, their table, what changed, and that nothing stops it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

import ringwright
from ringwright.analysis.fleet_document import FleetRecord, FleetRow
from ringwright.analysis.fleet_row import fleet_change, fleet_record
from ringwright.cli import main
from ringwright.executors.fan_out import FanOut
from ringwright.formats.sources.many_jobs import file_stamp, is_many_jobs, job_title, recorded_jobs
from ringwright.ground.errors import LostTaskError, UsageError
from ringwright.reports.serve import fleet_reading, job_opening
from ringwright.reports.serve.fleet import ServedFleet, moment, read_table
from ringwright.reports.serve.site import MOST_OPENED, ServedJobs
from ringwright.reports.serve.workspace import AskedRun, OpenedJob, Workspace, job_id
from ringwright_lab.testing.drawn_jobs import drawn, recorded
from serve_process import Served, serving

LINE = "host:1:1 [0] NCCL INFO AllReduce: opCount {} sendbuff 0x1 recvbuff 0x2 count 1024 datatype 7 op 0 root 0 comm 0x9 [nranks=2] stream 0x3\n"
HOSTILE = ("<img src=x onerror=alert(1)>", "x..%2f..%2fetc", "späte Läufe 火", "a" * 200, "'\"&;|$(x)`")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with recordings of one job: two alike, and one with a late rank."""
    folder = tmp_path_factory.mktemp("traces")
    job = drawn(1)
    for name, one, turn in (("one", job, 0), ("two", job, 1), ("late", replace(job, slowed={1: 1.8}), 2)):
        recorded(one, job.workload, turn).save(folder / name)
    return folder


@pytest.fixture
def jobs(traces: Path, tmp_path: Path) -> Path:
    """Return a folder of many jobs: four recordings of two names, an hour apart."""
    folder = tmp_path / "jobs"
    for hour, (name, kind) in enumerate(
        [("gpt-run-1", "one"), ("gpt-run-2", "two"), ("gpt-run-3", "late"), ("moe-20261130", "one")]
    ):
        added(folder / name, traces / kind, hour)
    return folder


def added(target: Path, trace: Path, hour: int) -> None:
    shutil.copytree(trace, target)
    for file in target.iterdir():
        os.utime(file, (1.76e9 + 3600 * hour, 1.76e9 + 3600 * hour))


def log(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(LINE.format(number) for number in range(20)))
    return path


def read(kept: Path, folder: Path, *, every: bool = False) -> dict[str, FleetRow]:
    """Read the jobs of a folder as the server has them read; return the rows by the last part of their path."""
    assert fleet_reading.main([str(kept), "local:1", "every" if every else "", str(folder)]) == 0
    return {Path(row.path).name: row for row in read_table(kept).rows}


# ---- which they are


def test_a_folder_of_many_jobs_is_told_from_one_job(jobs: Path, traces: Path, tmp_path: Path) -> None:
    assert is_many_jobs(jobs)
    assert not is_many_jobs(traces / "one")
    assert not is_many_jobs(jobs / "no" / "such")
    (tmp_path / "empty").mkdir()
    assert not is_many_jobs(tmp_path / "empty")
    shutil.copytree(traces / "one", tmp_path / "single" / "trace")
    assert not is_many_jobs(tmp_path / "single")
    log(tmp_path / "hosts" / "node0" / "nccl.log")
    log(tmp_path / "hosts" / "node1" / "nccl.log")
    assert not is_many_jobs(tmp_path / "hosts")
    log(jobs / "nccl.log")
    assert not is_many_jobs(jobs), "a log beside saved Traces is the recording, as everywhere"


def test_folders_of_the_launcher_are_jobs_and_another_programs_are_not(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        log(tmp_path / name / "nccl.h.1.log")
    assert not is_many_jobs(tmp_path)
    for name in ("monday", "tuesday"):
        (tmp_path / name / "meta.json").write_text('{"format": "of somebody else"}')
    assert not is_many_jobs(tmp_path)
    for name in ("monday", "tuesday"):
        (tmp_path / name / "run.h.12.json").write_text('{"ringwright": "run/1"}')
    assert is_many_jobs(tmp_path)


def test_links_drafts_and_what_is_no_job_are_not_taken(jobs: Path) -> None:
    (jobs / "loop").symlink_to(jobs)
    (jobs / "latest").symlink_to(jobs / "gpt-run-3")
    shutil.copytree(jobs / "gpt-run-1", jobs / "half.draft")
    shutil.copytree(jobs / "gpt-run-1", jobs / "deep" / "er" / "gpt-run-4")
    (jobs / "gpt-run-1" / "loop").symlink_to(jobs)
    log(jobs / "node0" / "nccl.log")
    (jobs / "notes.txt").write_text("ours")
    found, beside = recorded_jobs(jobs, every=False)
    assert [each.within for each in found] == [
        ("deep", "er", "gpt-run-4"), ("gpt-run-1",), ("gpt-run-2",), ("gpt-run-3",), ("moe-20261130",),
    ]  # fmt: skip
    assert beside == ["node0", "notes.txt"]
    assert [each.within[-1] for each in recorded_jobs(jobs, every=True)[0]][-2:] == ["node0", "notes.txt"]


def test_a_name_that_is_no_text_stops_nothing(jobs: Path, traces: Path, tmp_path: Path) -> None:
    shutil.copytree(traces / "one", os.fsdecode(os.fsencode(jobs) + b"/bad-\xff\xfe"))
    assert len(read(tmp_path / "kept", jobs)) == 4
    assert read_table(tmp_path / "kept").beside == ["bad-??"]


@pytest.mark.parametrize(
    ("told", "within", "title"),
    [
        ("", "gpt3-125m-2026-11-30T10-00-00", "gpt3-125m"), ("", "gpt_20261130_101500", "gpt"), ("", "gpt-run-17", "gpt"),
        ("", "resnet-50", "resnet-50"), ("", "llama3-70b-1234567.0", "llama3-70b"), ("", "nightly.trace", "nightly"),
        ("", "bert-007.tar.gz", "bert"), ("", "gpt-1764493200", "gpt"), ("", "moe/2026-11-30", "moe"), ("", "2026/11", "2026/11"),
        ("nightly #12", "x", "nightly"), ("1234.0", "gpt-run-1", "gpt"), ("", "gpt-2026-11-30-run-2", "gpt"),
    ],
)  # fmt: skip
def test_a_job_is_called_by_its_name_without_stamps_and_numbers(told: str, within: str, title: str) -> None:
    assert job_title(told, within.split("/")) == title


def test_a_stamp_ends_where_links_turn_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    file = log(tmp_path / "a.log")
    os.utime(file, (5.0, 5.0))
    stamp, changed_s = file_stamp(tmp_path)
    assert changed_s == 5.0
    file.write_text("")
    assert file_stamp(tmp_path)[0] != stamp


# ---- rows


def test_a_row_says_what_the_summary_says(traces: Path) -> None:
    trace = ringwright.read(traces / "late")
    summary = ringwright.summary(trace)
    row = fleet_record(trace, summary).row
    assert row.sentence == summary["answer"]["sentence"]  # type: ignore[index]
    assert row.late_ranks == [1]
    assert row.late_us == pytest.approx(sum(each["caused_us"] for each in summary["waits"] if each["rank"] == 1))
    waited_s = sum(each["wait_us"] for each in summary["waits"]) * 1e-6
    assert row.lost_by == "waiting"
    assert row.lost_ranks == pytest.approx(waited_s / sum(each["time_s"] for each in summary["iterations"]), rel=1e-3)
    assert (
        fleet_record(
            ringwright.read(traces / "one"), ringwright.summary(ringwright.read(traces / "one"))
        ).row.late_ranks
        == []
    )


def test_what_no_compute_hides_is_lost_and_what_is_unknown_is_not_nothing(traces: Path) -> None:
    trace = ringwright.read(traces / "one")
    summary = ringwright.summary(trace)
    overlap = {"span_us": 100.0, "comm_us": 30.0, "ranks": []}
    exposed: Any = {**summary, "ranks_expected": 8, "exposed_us": 25.0, "overlap": overlap}
    row = fleet_record(trace, exposed).row
    assert (row.lost_ranks, row.lost_by) == (2.0, "exposed")
    silent: Any = {**summary, "exposed_us": 0.0, "overlap": {**overlap, "comm_us": 0.0}, "waits": []}
    assert fleet_record(trace, silent).row.lost_ranks is None
    empty: Any = {"iterations": [], "waits": [], "exposed_us": None, "overlap": {}, "bandwidth": []}
    nobody: Any = {**summary, **empty, "verdict": None, "arrivals": None, "ranks_seen": 0}
    row = fleet_record(trace, nobody).row
    assert [row.ranks, row.step_us, row.busbw_gbs, row.share, row.lost_ranks, row.late_ranks] == [None] * 6


def test_the_share_is_of_the_links_of_the_gpu_that_is_named() -> None:
    claims = {"field": ["gpu"], "value": ["NVIDIA H100"], "source": ["t"]}
    rows = {
        "kind": ["measurement"], "op": ["all-gather"], "size_bytes": [1 << 30], "duration_s": [7 / 8 / 225 * 1.073741824], "nranks": [8],
        "nnodes": [1], "text": ["t"],
    }  # fmt: skip
    import polars as pl

    from ringwright.model.trace import Trace

    for gpu, share in (("NVIDIA H100", 0.5), ("a card of nobody", None)):
        frames = {"events": pl.DataFrame(rows), "claims": pl.DataFrame({**claims, "value": [gpu]})}
        trace = Trace.of(frames, {"source": "bench"})
        row = fleet_record(trace, ringwright.summary(trace)).row
        assert row.busbw_gbs == pytest.approx(225, rel=1e-3)
        assert row.share == (share if share is None else pytest.approx(share, rel=1e-2))


def test_only_what_is_more_than_noise_has_changed(traces: Path) -> None:
    one, two, late = (job_opening.recorded(str(traces / name)) for name in ("one", "two", "late"))
    assert fleet_change(one, two).kind == "equal"
    slower = fleet_change(two, late)
    assert slower.kind == "slower"
    assert slower.step_ratio is not None
    assert slower.step_ratio > 1.2
    assert fleet_change(FleetRecord(FleetRow(error="x")), late).kind == "cannot-tell"


# ---- the table


def test_the_table_has_those_first_that_lose_most(jobs: Path, tmp_path: Path) -> None:
    rows = read(tmp_path / "kept", jobs)
    assert [row.name for row in rows.values()] == ["gpt", "gpt", "gpt", "moe"] or next(iter(rows)) == "gpt-run-3"
    lost = [row.lost_ranks or 0.0 for row in rows.values()]
    assert lost == sorted(lost, reverse=True)
    assert [rows[name].change and rows[name].change.kind for name in sorted(rows)] == [None, "equal", "slower", None]  # type: ignore[union-attr]
    assert [rows[name].is_last for name in sorted(rows)] == [False, False, True, True]
    assert rows["gpt-run-2"].at_ms == 1_760_003_600_000
    assert not rows["gpt-run-2"].is_end_told


def test_what_hangs_or_died_stands_before_what_loses() -> None:
    rows = [
        FleetRow(name="a", lost_ranks=9.0),
        FleetRow(name="b", kind="hung"),
        FleetRow(name="c"),
        FleetRow(name="d", error="x"),
    ]
    assert [row.name for row in sorted(rows, key=fleet_reading._by_loss)] == ["b", "a", "c", "d"]


def test_a_second_start_reads_only_what_is_new(
    jobs: Path, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(tmp_path / "kept", jobs)
    asked: list[str] = []
    true = job_opening.recorded

    def counted(path: str) -> FleetRecord:
        asked.append(Path(path).name)
        return true(path)

    counted.__module__, counted.__qualname__ = true.__module__, true.__qualname__
    monkeypatch.setattr(fleet_reading, "recorded", counted)
    monkeypatch.setattr(job_opening, "recorded", counted)
    read(tmp_path / "kept", jobs)
    assert asked == []
    added(jobs / "gpt-run-4", traces / "one", 9)
    shutil.rmtree(jobs / "gpt-run-2")
    rows = read(tmp_path / "kept", jobs)
    assert asked == ["gpt-run-4"]
    assert rows["gpt-run-4"].change.kind == "faster"  # type: ignore[union-attr]
    assert rows["gpt-run-3"].since == rows["gpt-run-1"].key
    assert len(list((tmp_path / "kept" / "rows").iterdir())) == 4


def test_what_cannot_be_read_is_a_row_with_its_reason(jobs: Path, tmp_path: Path) -> None:
    events = jobs / "gpt-run-1" / "events.parquet"
    events.write_bytes(events.read_bytes()[:200])
    (jobs / "gpt-run-2" / "meta.json").write_text('{"format": "ringwright.trace", "schema": 10000}')
    for file in (events, jobs / "gpt-run-2" / "meta.json"):
        os.utime(file, (1.76e9, 1.76e9))
    (jobs / "notes.txt").write_text("nothing of ours\n")
    (jobs / "void").mkdir()
    rows = read(tmp_path / "kept", jobs, every=True)
    assert rows["gpt-run-3"].late_ranks == [1]
    for name in ("gpt-run-2", "notes.txt", "void"):
        assert rows[name].error, name
        assert not rows[name].error.startswith("our mistake"), rows[name].error
    assert rows["gpt-run-3"].change.kind == "cannot-tell"  # type: ignore[union-attr]


def test_our_own_mistake_is_a_row_too(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("ringwright.formats.sources.read", broken)
    assert job_opening.recorded(str(jobs / "gpt-run-1")).row.error == "our mistake: ZeroDivisionError: division by zero"


def test_a_recording_that_ends_its_worker_keeps_no_other_back(
    jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = FanOut.stream

    def lossy(self: FanOut, function: Any, given: Any, **more: Any) -> Iterator[tuple[int, Any]]:
        at = next((number for number, (path,) in enumerate(given) if path.endswith("gpt-run-2")), None)
        if at is not None:
            raise LostTaskError("its worker was killed", number=at)
        yield from true(self, function, given, **more)

    monkeypatch.setattr(FanOut, "stream", lossy)
    rows = read(tmp_path / "kept", jobs)
    assert rows["gpt-run-2"].error == "its worker was killed"
    assert rows["gpt-run-3"].late_ranks == [1]


# ---- what the server does


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1760000000000", 1_760_000_000_000), ("1760000000", 1_760_000_000_000), ("2025-10-09T08:53:20Z", 1_760_000_000_000),
     ("2025-10-09T08:53:20", 1_760_000_000_000), ("2025-10-09T10:53:20+02:00", 1_760_000_000_000)],
)  # fmt: skip
def test_a_moment_has_several_spellings(text: str, ms: int) -> None:
    assert moment(text) == ms


@pytest.mark.parametrize("text", ["now", "-1", "1e9", "9" * 40, "٣", "2025-13-01", "<script>"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        moment(text)


def test_a_moment_asks_for_the_recording_that_ran_then(jobs: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    read(kept, jobs)
    fleet = ServedFleet([jobs], kept, every=False, executor="")
    asked = {
        at: [Path(row.path).name for row in fleet.table("gpt", at).rows]
        for at in ("1", "1760003600000", "1760003601", "9" * 13)
    }
    assert asked == {
        "1": ["gpt-run-1"],
        "1760003600000": ["gpt-run-2"],
        "1760003601": ["gpt-run-3"],
        "9" * 13: ["gpt-run-3"],
    }
    assert fleet.table("none", "1").rows == []


def test_pages_of_jobs_are_not_kept_without_end(tmp_path: Path) -> None:
    async def opened() -> ServedJobs:
        site = ServedJobs(Workspace(tmp_path / "keep"), [tmp_path])
        site.fleet = ServedFleet([tmp_path / "jobs"], tmp_path / "kept", every=True, executor="")
        for number in range(MOST_OPENED + 6):
            path = str(tmp_path / ("jobs" if number else "alone") / f"job-{number}")
            site.workspace.keep(OpenedJob(job_id(path), "", path, float(number), "done", following=number == 1))
        asked = job_id(str(tmp_path / "jobs" / "job-2"))
        site.workspace.keep(AskedRun("1" * 12, "summary", "", [], [asked], 0.0, state="done"))
        site._close_oldest()
        return site

    kept = sorted(int(job.opened_unix_s) for job in asyncio.run(opened()).workspace.jobs.values())
    assert kept == [0, 1, 2, *range(6, MOST_OPENED + 6)]


def table(served: Served, count: int) -> dict[str, Any]:
    """Return the rows by the last part of their path once so many are read and compared."""
    served.until(lambda state: state["fleet"]["told"] == "" and len(served.json("GET", "/fleet.json")["rows"]) == count)
    return {Path(row["path"]).name: row for row in served.json("GET", "/fleet.json")["rows"]}


@pytest.mark.once
@pytest.mark.slow
def test_a_server_of_many_jobs(jobs: Path, traces: Path, tmp_path: Path) -> None:
    for name in HOSTILE:
        shutil.copytree(traces / "one", jobs / name)
    with serving(tmp_path / "keep", str(jobs), "--executor", "local:1") as served:
        rows = table(served, 4 + len(HOSTILE))
        assert served.json("GET", "/api/state")["jobs"] == [], "no job is opened before somebody asks for it"
        for name in HOSTILE:
            assert served.json("GET", f"/fleet.json?name={quote(name)}")["rows"] == [rows[name]]
            status, headers, _ = served.ask("GET", f"/job/{quote(name, safe='')}?at=2026-01-01")
            assert (status, headers["location"].isascii()) == (303, True)
            assert urlsplit(headers["location"]).path == "/"
            assert not set("<>\"'\n") & set(headers["location"])
        assert served.ask("GET", "/job/gpt?at=never")[0] == 400
        assert served.ask("GET", "/job/../../etc/passwd")[0] in (303, 404)
        assert served.json("POST", "/api/jobs", {"path": rows["gpt-run-1"]["path"]})["name"] == "gpt-run-1"
        assert served.job(rows["gpt-run-1"]["path"])["state"] == "done"
        # gone between the table and the click
        shutil.rmtree(jobs / "gpt-run-2")
        assert served.ask("POST", "/api/jobs", {"path": rows["gpt-run-2"]["path"]})[0] == 400
        added(jobs / "moe-run-9", traces / "late", 20)
        served.until(lambda _: "moe-run-9" in table(served, 4 + len(HOSTILE)))
        assert table(served, 4 + len(HOSTILE))["moe-run-9"]["change"]["kind"] == "slower"
    with serving(tmp_path / "keep", str(jobs), "--executor", "local:1") as served:
        assert len(served.json("GET", "/fleet.json")["rows"]) == 4 + len(HOSTILE), (
            "a second start has the table at once"
        )


@pytest.mark.once
@pytest.mark.slow
def test_one_job_stays_one_job(traces: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "keep", str(traces / "one")) as served:
        served.until(lambda state: state["jobs"] and state["jobs"][0]["state"] == "done")
        status, _, body = served.ask("GET", "/fleet.json")
        assert (status, json.loads(body)["error"]["try"]) == (404, "ringwright serve --fleet FOLDER")
        assert served.json("GET", "/api/state")["fleet"] is None


@pytest.mark.once
@pytest.mark.slow
def test_a_recording_that_grows_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    file = log(tmp_path / "jobs" / "a" / "nccl.log")
    log(tmp_path / "jobs" / "b" / "nccl.log")
    with serving(tmp_path / "keep", str(tmp_path / "jobs"), "--fleet", "--executor", "local:1") as served:
        before = table(served, 2)
        with file.open("a") as more:
            more.write(LINE.format(20)[:40])
        served.until(lambda _: table(served, 2)["a"]["key"] != before["a"]["key"])
        assert table(served, 2)["b"] == before["b"]


@pytest.mark.once
@pytest.mark.slow
def test_a_table_that_is_replaced_while_it_is_sent_is_whole(tmp_path: Path) -> None:
    log(tmp_path / "jobs" / "a" / "nccl.log")
    with serving(tmp_path / "keep", str(tmp_path / "jobs"), "--fleet", "--executor", "local:1") as served:
        table(served, 1)
        (file,) = (tmp_path / "keep" / "fleet").glob("*/table.json")
        text, ended = file.read_text(), threading.Event()

        def replaced() -> None:
            for size in itertools.cycle((0, 3 << 20)):
                file.with_name("next").write_text(text + " " * size)
                file.with_name("next").replace(file)
                if ended.is_set():
                    return

        writer = threading.Thread(target=replaced)
        writer.start()
        try:
            for _ in range(100):
                assert len(served.json("GET", "/fleet.json")["rows"]) == 1
        finally:
            ended.set()
            writer.join()


def test_ranks_of_mpi_read_for_no_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RINGWRIGHT_EXECUTOR", "mpi")
    assert main(["serve", "--sample"]) == 2
    assert "serve reads in processes of its own" in capsys.readouterr().err
