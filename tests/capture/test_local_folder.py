"""A recording on a node's own disk comes to its folder however the job or its launcher ends; nothing of it is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from patience import HANG_S
from recorded_jobs import LOOP, Job, environment, lines, torchrun, wait_for
from ringwright.capture.local_folder import GOAL, collect, local_folder
from ringwright.cli import main
from ringwright.ground.errors import EXIT_USAGE

pytestmark = pytest.mark.once

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
EPILOG = DEPLOY / "slurm-epilog.sh"
PYTHON = [sys.executable, "-c"]
WRITES = "import os, time; open(os.environ['RINGWRIGHT_CAPTURE'] + '/calls.here.%d.jsonl' % os.getpid(), 'w').write('written\\n'); "
SRUN = """
import os, subprocess, sys
def task(number):
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)}
    return subprocess.Popen(sys.argv[1:], env=os.environ | slurm)
sys.exit(max(each.wait() for each in [task(number) for number in range(4)]))
"""


def epilog(local: Path, job: str = "77", **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script as Slurm does: almost without an environment."""
    words = {"RINGWRIGHT_LOCAL": str(local), "SLURM_JOB_ID": job, **more}
    return subprocess.run([str(EPILOG)], env=words, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.mark.parametrize(
    ("code", "expected"), [("pass", 0), ("raise SystemExit(7)", 7), ("os.kill(os.getpid(), 9)", 137)]
)
def test_what_was_written_here_comes_to_the_folder(tmp_path: Path, code: str, expected: int) -> None:
    local = tmp_path / "node" / "disk"
    with Job(tmp_path, [*PYTHON, WRITES + code], "--no-summary", "--local", str(local)) as job:
        ended, _, err = job.ends()
    assert ended == expected, err
    [manifest] = [json.loads(path.read_text()) for path in job.out.glob("run.*.json")]
    assert manifest["exit_code"] == expected
    [written] = job.out.glob("calls.*.jsonl")
    assert written.read_text() == "written\n"
    assert written.stat().st_mode & 0o777 == 0o600
    assert not list(local.iterdir())


def test_sigterm_brings_it_too(tmp_path: Path) -> None:
    local = tmp_path / "disk"
    with Job(
        tmp_path, [*PYTHON, WRITES + "open('ready', 'w'); time.sleep(1000)"], "--no-summary", "--local", str(local)
    ) as job:
        wait_for((tmp_path / "ready").exists)
        assert list(local.glob("ringwright-*/calls.*")), "it is written on the node's disk"
        assert not list(job.out.iterdir()), "and nowhere else"
        job.process.send_signal(signal.SIGTERM)
        assert job.ends()[0] == 143
    assert {path.name.split(".")[0] for path in job.out.iterdir()} == {"run", "calls"}
    assert not list(local.iterdir())


@pytest.mark.torch
@pytest.mark.slow
def test_a_killed_launcher_loses_nothing(tmp_path: Path) -> None:
    """The launcher is killed in the middle, the job goes on and is killed too; what lies there is what the epilog brings."""
    script, local = tmp_path / "loop.py", tmp_path / "disk"
    script.write_text(LOOP)
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    with Job(tmp_path, torchrun(script, "100000", "slow", "0"), "--no-summary", "--local", str(local), **slurm) as job:
        wait_for((tmp_path / "five").exists)
        job.process.kill()
        [folder] = local.glob("ringwright-77.0.*")
        before = len(lines(folder))
        wait_for(lambda: len(lines(folder)) > before)
        for pid in job.alive():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not job.alive())
    there = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
    assert len([name for name in there if name.startswith("calls.")]) == 2
    assert not epilog(local, job="7").stdout
    assert folder.exists(), "job 7 is another one"
    done = epilog(local)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name: path.read_bytes() for path in job.out.iterdir()} == there
    assert not folder.exists()
    assert main(["summary", str(job.out), "--json"]) == 0


def test_launchers_of_one_job_bring_theirs_to_one_folder(tmp_path: Path) -> None:
    srun, out, local = tmp_path / "srun", tmp_path / "shared", tmp_path / "disk"
    srun.write_text(SRUN)
    words = ["run", "--no-summary", "--nccl", "off", "--local", str(local), "--out", str(out), "--", *PYTHON, WRITES]
    command = [sys.executable, str(srun), sys.executable, "-m", "ringwright", *words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(out.glob("run.*.json"))) == len(list(out.glob("calls.*.jsonl"))) == 4
    assert not list(local.iterdir())


def test_what_cannot_be_brought_stays_and_is_told(tmp_path: Path) -> None:
    local = tmp_path / "disk"
    code = WRITES + "import shutil; shutil.rmtree('out'); open('out', 'w')"
    with Job(tmp_path, [*PYTHON, code], "--no-summary", "--local", str(local), SLURM_JOB_ID="77") as job:
        ended, _, err = job.ends()
    assert ended == 0, "the job's own code"
    assert "stays there" in err
    [folder] = local.iterdir()
    done = epilog(local)
    assert done.returncode == 0, "a node is never drained"
    assert f"{folder} stays" in done.stderr
    job.out.unlink()
    assert (epilog(local).stderr, {path.name.split(".")[0] for path in job.out.iterdir()}) == ("", {"run", "calls"})
    assert not folder.exists()


@pytest.mark.parametrize("by", ["launcher", "epilog"])
def test_nothing_is_written_over(tmp_path: Path, by: str) -> None:
    """A container that starts again has the same host and process ids."""
    out, local = tmp_path / "a folder's\nname", tmp_path / "disk"
    out.mkdir()
    for life in ("first", "second", "third"):
        made = local_folder(local, out, "", {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "1"})
        (made / "calls.h.1.jsonl").write_text(life)
        (made / "fr_rank_0").write_text(life)
        (made / ".run.h.1.draft").write_text("half")
        assert collect(made, out) == [] if by == "launcher" else not epilog(local).stderr
        assert not made.exists()
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "calls.h.1.jsonl": "first",
        "calls.h.1-2.jsonl": "second",
        "calls.h.1-3.jsonl": "third",
        "fr_rank_0": "first",
        "fr_rank_0-2": "second",
        "fr_rank_0-3": "third",
    }


def test_the_epilog_follows_no_link_and_takes_no_folder_of_others(tmp_path: Path) -> None:
    local, out, secret = tmp_path / "disk", tmp_path / "out", tmp_path / "secret"
    secret.write_text("secret")
    made = local_folder(local, out, "", {"SLURM_JOB_ID": "77"})
    (made / "calls.h.1.jsonl").symlink_to(secret)
    (local / "ringwright-77.link").symlink_to(made)
    (local / "ringwright-77.bare").mkdir()
    assert "stays" in epilog(local).stderr
    assert not list(out.iterdir())
    assert secret.read_text() == "secret"
    assert (made / GOAL).exists()
    assert epilog(local, job="77; touch x").stderr == "ringwright: SLURM_JOB_ID is not set\n"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root has what it would give away"
)
def test_the_epilog_of_root_works_as_the_user(tmp_path: Path) -> None:
    """A user's folder that names root's own as its goal gets nothing written there."""
    top = Path(tempfile.gettempdir())
    for folder in (tmp_path, *(each for each in tmp_path.parents if top in each.parents)):
        folder.chmod(0o755)
    script = tmp_path / "epilog.sh"
    shutil.copy(EPILOG, script)
    local, private, out = tmp_path / "disk", tmp_path / "private", tmp_path / "out"
    private.mkdir(mode=0o700)
    out.mkdir()
    made = [local_folder(local, goal, "", {"SLURM_JOB_ID": "77"}) for goal in (private, out)]
    for each in made:
        (each / "calls.h.1.jsonl").write_text("x")
        for path in (each, *each.iterdir()):
            os.chown(path, 65534, 65534)
    os.chown(out, 65534, 65534)
    local.chmod(0o1777)
    around = {"RINGWRIGHT_LOCAL": str(local), "SLURM_JOB_ID": "77", "SLURM_JOB_UID": "65534", "SLURM_JOB_GID": "65534"}
    done = subprocess.run([str(script)], env=around, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0
    assert not list(private.iterdir())
    assert made[0].exists()
    [brought] = out.iterdir()
    assert brought.stat().st_uid == 65534


def test_a_launcher_of_other_nodes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "-o", str(tmp_path / "out"), "--local", str(tmp_path), "--", "mpirun", "-n", "2", "true"]
    assert main(words) == EXIT_USAGE
    assert "mpirun ... ringwright run --local" in capsys.readouterr().err
    words[4] = "/proc/nowhere"
    assert main([*words[:6], "true"]) == EXIT_USAGE
    assert "with --local" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["slurm-epilog.sh", "run.sbatch"])
def test_the_scripts_parse(name: str) -> None:
    shell = "sh" if name.endswith(".sh") else "bash"
    assert subprocess.run([shell, "-n", str(DEPLOY / name)], check=False).returncode == 0
    assert (DEPLOY / name).read_text().isascii()
