"""The launcher: exit codes, signals, time limits, folders shared by launchers; no PyTorch needed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANG_S
from recorded_jobs import Job, environment, wait_for
from ringwright.capture.folder import PATTERNS, Manifest, claim, job_name
from ringwright.ground.errors import UsageError

pytestmark = pytest.mark.once

PYTHON = [sys.executable, "-c"]
SRUN = """
import os, subprocess, sys
tasks = int(sys.argv[1])
def task(number):
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(number), "SLURM_NTASKS": str(tasks), "SLURM_LOCALID": str(number)}
    return subprocess.Popen(sys.argv[2:], env=os.environ | slurm)
sys.exit(max(each.wait() for each in [task(number) for number in range(tasks)]))
"""


@pytest.mark.parametrize(
    ("code", "expected"), [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_the_jobs(tmp_path: Path, code: str, expected: int) -> None:
    with Job(tmp_path, [*PYTHON, f"print('out'); {code}"], "--no-summary") as job:
        ended, out, err = job.ends()
    assert (ended, out) == (expected, "out\n") or expected == 137, err
    assert ended == expected
    [manifest] = [json.loads(path.read_text()) for path in job.out.glob("run.*.json")]
    assert manifest["exit_code"] == expected
    assert manifest["ended_ns"] >= manifest["started_ns"]


def test_a_time_limit_ends_sessions_and_orphans_too(tmp_path: Path) -> None:
    """A child that ignores SIGTERM, one in a session of its own, one that lost its parent, one that is stopped."""
    code = (
        "import subprocess, sys, time; sleep = 'import time; time.sleep(1000)'; deaf = 'import signal; signal.signal(15, signal.SIG_IGN); ' + sleep\n"
        "subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True)\n"
        "subprocess.Popen([sys.executable, '-c', f'import subprocess, sys; subprocess.Popen([sys.executable, chr(45) + chr(99), {sleep!r}], start_new_session=True)'])\n"
        "subprocess.Popen([sys.executable, '-c', sleep]).send_signal(19)\n"
        "time.sleep(1000)\n"
    )
    with Job(tmp_path, [*PYTHON, code], "--timeout", "3s", "--no-summary") as job:
        ended, _, err = job.ends()
        assert ended == 5, err
        assert not job.alive()
    assert "out of time" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_signals_reach_the_job(tmp_path: Path, number: signal.Signals) -> None:
    code = f"import signal, time; signal.signal({int(number)}, lambda *_: exit(42)); open('ready', 'w').close(); time.sleep(60)"
    with Job(tmp_path, [*PYTHON, code], "--no-summary") as job:
        wait_for((tmp_path / "ready").exists)
        job.process.send_signal(number)
        assert job.ends()[0] == 42


def test_launchers_of_one_job_share_a_folder(tmp_path: Path) -> None:
    srun, out = tmp_path / "srun", tmp_path / "shared"
    srun.write_text(SRUN)
    words = [
        sys.executable,
        "-m",
        "ringwright",
        "run",
        "--no-summary",
        "--nccl",
        "off",
        "--out",
        str(out),
        "--",
        *PYTHON,
        "pass",
    ]
    first = subprocess.run(
        [sys.executable, str(srun), "4", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert first.returncode == 0, first.stderr
    assert len(list(out.glob("run.*.json"))) == 4
    other = subprocess.run(
        words, env=environment(SLURM_JOB_ID="78"), capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert other.returncode == 2
    assert "--force" in other.stderr
    assert "--job NAME" in other.stderr


def test_force_removes_only_what_a_recording_wrote(tmp_path: Path) -> None:
    for name in (
        "run.a.1.json",
        "calls.a.1.jsonl",
        "calls.a.1-2.jsonl",
        "nccl.a.1.log",
        "fr_rank_0",
        "notes.txt",
        "kineto.json",
    ):
        (tmp_path / name).write_text("{}")
    claim(tmp_path, "new", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kineto.json", "notes.txt"]
    assert all("*" in pattern or pattern == "dump-request" for pattern in PATTERNS)


def test_a_folder_that_cannot_be_had_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(UsageError) as told:
            claim(folder, "", force=False)
        assert str(told.value.remedy).endswith("with --output")


def test_a_manifest_is_not_written_over_by_another_life(tmp_path: Path) -> None:
    for _ in range(2):
        assert Manifest(tmp_path, {"job": "x"}).write()
    assert len(list(tmp_path.glob("run.*.json"))) == 2
    claim(tmp_path, "x", force=False)
    with pytest.raises(UsageError):
        claim(tmp_path, "y", force=False)


def test_names_of_jobs() -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2"}
    assert [job_name("given", slurm), job_name("", slurm), job_name("", {})] == ["given", "7.2", ""]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with Job(tmp_path, ["no-such-program-anywhere"], "--no-summary") as job:
        code, _, err = job.ends()
    assert code == 2
    assert "no-such-program-anywhere cannot be started" in err
    assert job.out.exists()


DOCUMENTED = Path(__file__).parents[2] / "docs" / "how-to" / "run.md"


def test_the_kubernetes_manifest_parses() -> None:
    yaml = pytest.importorskip("yaml", reason="no YAML parser")
    blocks = [block.split("```")[0] for block in DOCUMENTED.read_text().split("```yaml\n")[1:]]
    documents = [document for block in blocks for document in yaml.safe_load_all(block)]
    assert {document["kind"] for document in documents} == {"Job", "PersistentVolumeClaim"}
    [job] = [document for document in documents if document["kind"] == "Job"]
    words = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert words[:2] == ["ringwright", "run"]
    assert "--job" in words
    assert "--" in words
