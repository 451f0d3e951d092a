"""What a server keeps: whole or absent, found again after a restart, and under no name that a browser chose."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ringwright.formats.sources.many_jobs import file_stamp
from ringwright.ground.errors import UsageError
from ringwright.reports.serve import workspace
from ringwright.reports.serve.workspace import AskedRun, OpenedJob, Workspace

pytestmark = pytest.mark.once


def opened(folder: Path) -> Workspace:
    kept = Workspace(folder)
    job = OpenedJob(workspace.job_id("a.log"), "a.log", "a.log", 1.0, state="done")
    kept.keep(job)
    kept.keep(AskedRun("0" * 12, "what-if", "What if?", ["simulate", "a.log"], [job.id], 2.0, state="running"))
    return kept


def test_a_restart_finds_everything_and_says_what_was_cut_off(tmp_path: Path) -> None:
    before = opened(tmp_path)
    after = Workspace(tmp_path)
    assert after.jobs == before.jobs
    assert after.runs["0" * 12].state == "interrupted"
    assert after.runs["0" * 12].command == ["simulate", "a.log"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 7}', "\xff" * 10, '{"id": "fffffffffffe"}'])
def test_a_record_that_is_damaged_is_no_job_and_harms_no_other(text: str, tmp_path: Path) -> None:
    kept = opened(tmp_path)
    (tmp_path / "jobs" / "ffffffffffff").mkdir()
    (tmp_path / "jobs" / "ffffffffffff" / "job.json").write_bytes(text.encode("latin-1"))
    assert Workspace(tmp_path).jobs == kept.jobs


def test_records_cut_anywhere_are_refused_or_whole(tmp_path: Path) -> None:
    kept = opened(tmp_path)
    (job,) = kept.jobs.values()
    file = kept.job_folder(job.id) / "job.json"
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        assert Workspace(tmp_path).jobs == {}
    file.write_bytes(whole)
    assert Workspace(tmp_path).jobs == kept.jobs


@pytest.mark.parametrize("name", ["..", ".", "", "../x", "a" * 12 + "/..", "A" * 12, "g" * 12, "a" * 13])
def test_ids_lead_nowhere_else(name: str, tmp_path: Path) -> None:
    kept = Workspace(tmp_path)
    for folder in (kept.job_folder, kept.run_folder, kept.upload_folder):
        with pytest.raises(UsageError):
            folder(name)


def test_names_of_a_browser_stay_below_their_folder(tmp_path: Path) -> None:
    random_ = random.Random(3)
    letters = "./\\~ab\x00\n:*?é "
    made = 0
    for _ in range(3000):
        name = "".join(random_.choices(letters, k=random_.randint(0, 20)))
        try:
            path = workspace.safe_name(name)
        except UsageError:
            continue
        made += 1
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert (tmp_path / path).resolve().is_relative_to(tmp_path.resolve())
    assert made > 1000


def test_a_stamp_changes_with_the_files_and_with_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "nccl.log"
    file.write_text("a")
    first = file_stamp(tmp_path)
    assert file_stamp(tmp_path) == first
    file.write_text("ab")
    assert file_stamp(tmp_path) != first


def test_forgetting_a_job_leaves_its_recording(tmp_path: Path) -> None:
    recording = tmp_path / "nccl.log"
    recording.write_text("x")
    kept = Workspace(tmp_path / "keep")
    job = OpenedJob(workspace.job_id(str(recording)), "nccl.log", str(recording), 1.0)
    kept.keep(job)
    kept.keep(AskedRun("1" * 12, "summary", "Summary", ["summary"], [job.id], 2.0, state="done"))
    kept.forget(job.id)
    assert recording.read_text() == "x"
    assert not list((tmp_path / "keep" / "jobs").iterdir())
    assert not list((tmp_path / "keep" / "runs").iterdir())


def test_forgetting_what_was_sent_removes_it(tmp_path: Path) -> None:
    kept = Workspace(tmp_path)
    folder = kept.upload_folder("2" * 12)
    folder.mkdir()
    (folder / "a.log").write_text("x")
    job = OpenedJob(workspace.job_id(str(folder)), "a", str(folder), 1.0, uploaded=True)
    kept.keep(job)
    kept.forget(job.id)
    assert not folder.exists()
