"""Real jobs under ``ringwright run``: how they end, what is left of them on disk, and who is said to have stopped them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from recorded_jobs import LOOP, Job, calls, environment, lines, silent_s, summary, torchrun, under_way_s, wait_for
from started_ranks import command as started

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]


def looped(
    folder: Path, steps: int, what: str = "none", who: int = -1, *options: str, ranks: int = 2, by: Any = started
) -> Job:
    script = folder / "loop.py"
    script.write_text(LOOP)
    return Job(folder, by(script, str(steps), what, str(who), ranks=ranks), *options)


def understood(folder: Path) -> dict[str, object]:
    """The summary, after every whole line on disk was counted as understood."""
    whole = len(lines(folder))  # before: ranks may go on
    found = summary(folder)
    assert found["ledger"]["refused"] <= len(list(folder.glob("calls.*")))  # torn last lines at most
    assert found["ledger"]["understood"] >= whole
    return found


def test_an_ordinary_job_is_recorded_whole(tmp_path: Path) -> None:
    with looped(tmp_path, 10, by=torchrun) as job:
        code, out, err = job.ends()
    assert code == 0, err
    assert out.count("sum") == 2
    found = understood(job.out)
    assert found["ledger"]["refused"] == 0
    assert {row["op"]: row["count"] for row in found["operations"]} == {"broadcast": 10, "all-reduce": 10}
    assert not found["losses"]
    # of two ranks a busy machine may hold one up: then the recorder says so, and is right
    assert found["verdict"] is None or found["verdict"]["kind"] == "straggler"
    assert calls(job.out, "b") == calls(job.out, "e") == 40


@pytest.mark.sampled(1, "what")
@pytest.mark.parametrize("what", ["kill", "leave", "raise"])
def test_a_rank_that_ends_early_is_named(tmp_path: Path, what: str) -> None:
    with looped(tmp_path, 4000, what, 1, ranks=3, by=torchrun) as job:
        code, _, err = job.ends()
    assert code == 1, err  # torchrun's own
    found = understood(job.out)
    assert found["verdict"]["ranks"] == [1]
    assert found["verdict"]["kind"] == "rank-died"
    how = {"kill": "SIGKILL", "leave": "left before the others", "raise": "ValueError: on purpose"}[what]
    assert how in found["verdict"]["evidence"][0]
    assert any("exit code 1" in text for text in found["losses"])
    assert any("rank 1" in text and "SIGKILL" in text for text in found["losses"]) == (what == "kill")


def test_torchrun_killed(tmp_path: Path) -> None:
    with looped(tmp_path, 4000, "slow", by=torchrun) as job:
        wait_for((tmp_path / "five").exists)
        [runner] = set(job.pids("torch.distributed.run")) - set(job.pids("ringwright"))
        os.kill(runner, signal.SIGKILL)
        job.process.wait(HANG_S)
        assert job.process.returncode == 128 + signal.SIGKILL
        found = understood(job.out)
    assert any("exit code 137 (signal 9)" in text for text in found["losses"])
    assert sum(row["count"] for row in found["operations"]) >= 10


def test_the_recorder_killed_leaves_the_job_recording(tmp_path: Path) -> None:
    with looped(tmp_path, 200, "slow") as job:
        wait_for((tmp_path / "five").exists)
        job.process.kill()
        wait_for(lambda: not job.alive())
    found = understood(job.out)
    assert {row["op"]: row["count"] for row in found["operations"]} == {"broadcast": 200, "all-reduce": 200}
    assert any("launcher left no end" in text for text in found["losses"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on(tmp_path: Path, number: signal.Signals) -> None:
    with looped(tmp_path, 4000, "slow", by=torchrun) as job:
        wait_for((tmp_path / "five").exists)
        job.process.send_signal(number)
        code, _, err = job.ends()
        assert not job.alive()
    assert code != 0, err
    found = understood(job.out)
    kind = (found["verdict"] or {}).get("kind", "")
    assert "hang" not in kind  # a slow rank perhaps, on a busy machine: the job was going on
    assert any(f"exit code {code}" in text for text in found["losses"])


@pytest.mark.parametrize(("what", "who"), [("sleep", 1), ("stop", 2)])
def test_a_hang_is_told_and_ended(tmp_path: Path, what: str, who: int) -> None:
    stall = silent_s(3)
    with looped(tmp_path, 4000, what, who, "--stall", f"{stall}s", "--timeout", under_way_s(12), ranks=3) as job:
        wait_for(lambda: (tmp_path / "five").exists() or job.process.poll() is not None)
        live = subprocess.run(
            [sys.executable, "-m", "ringwright", "live", str(job.out), "--once"],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        code, _, err = job.ends()
        assert not job.alive()
    assert code == 5
    silent = re.search(
        rf"ringwright: nothing was recorded for (\d+) s: hang-not-entered, ranks {who}: rank {who} never entered", err
    )
    assert silent, err
    assert int(silent[1]) >= stall  # a busy machine notices later
    assert live.returncode == 0, live.stderr
    assert "all-reduce" in live.stdout
    found = understood(job.out)
    assert found["verdict"]["ranks"] == [who]
    assert found["verdict"]["kind"] == "hang-not-entered"


def test_a_skipped_collective_is_named(tmp_path: Path) -> None:
    with looped(tmp_path, 12, "skip", 1, "--timeout", under_way_s(10), ranks=3) as job:
        code, _, _ = job.ends()
    assert code != 0
    verdict = understood(job.out)["verdict"]
    assert verdict["ranks"] == [1]
    assert verdict["kind"].startswith("hang-mismatch")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", disk], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("file systems may not be mounted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


FULL = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
held = torch.ones(10)
for step in range(1600):
    dist.all_reduce(held)
    if step == 1500:
        if dist.get_rank() == 0: os.unlink(sys.argv[1])
        dist.barrier()
print("sum", held.sum().item())
dist.destroy_process_group()
"""


def test_a_full_disk_disturbs_nothing(tmp_path: Path, small_disk: Path) -> None:
    script = tmp_path / "full.py"
    script.write_text(FULL)
    plug = small_disk / "plug"
    plug.write_bytes(b"x" * (32 << 10))
    with Job(tmp_path, started(script, str(plug)), out=small_disk / "out") as job:
        code, out, err = job.ends()
    assert code == 0, err
    assert out.count("sum") == 2
    kept = [value for value in lines(job.out, torn=True) if isinstance(value, list)]
    lost = [value for value in kept if value[0] == "d"]
    assert lost
    assert all("space" in value[1] or "part" in value[1] for value in lost)
    assert [value for value in kept if value[0] == "x"], "the last lines were written again"
    found = summary(job.out)
    assert found["ledger"]["refused"] >= max(value[2] for value in lost)
    assert any("records are missing (write failed: No space left on device)" in text for text in found["losses"])
    kinds = ("fail-slow", "stragglers-in-turn")  # what a busy machine makes of two ranks
    assert found["verdict"] is None or found["verdict"]["kind"] in kinds, "lost lines are no mismatch"


def test_a_folder_removed_disturbs_nothing(tmp_path: Path) -> None:
    with looped(tmp_path, 100, "slow") as job:
        wait_for((tmp_path / "five").exists)
        for path in job.out.iterdir():
            path.unlink()
        job.out.rmdir()
        code, out, err = job.ends()
    assert code == 0, err
    assert out.count("sum") == 2
    assert "no summary" in err or "could not be noted" in err


RESTARTED = """
import os, sys
import torch, torch.distributed as dist
again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
ranks = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
dist.init_process_group("gloo", store=dist.FileStore(f"{sys.argv[1]}{again}", ranks["world_size"]), **ranks)
for step in range(10 + again):
    dist.all_reduce(torch.ones(10 + again))
    if not again and step == 5 and dist.get_rank() == 1: raise ValueError("once")
dist.destroy_process_group()
"""


def test_restarted_ranks_are_two_lives(tmp_path: Path) -> None:
    script = tmp_path / "restarted.py"
    script.write_text(RESTARTED)
    with Job(tmp_path, torchrun(script, str(tmp_path / "met"), more=["--max-restarts", "1"])) as job:
        code, _, err = job.ends()
    assert code == 0, err
    found = understood(job.out)
    first, second = ((row["ranks_seen"], row["operations"]) for row in found["communicator_list"])
    assert first in ((2, 6), (2, 7))
    assert second == (2, 11)


def test_two_sources_agree(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(STEPS)
    # Now and then PyTorch itself aborts where its profiler ends beside a backward pass: a mutex that is already gone.
    for attempt in ("first", "second", "third"):
        (tmp_path / attempt).mkdir()
        with Job(tmp_path / attempt, started(script), "--flight", "--profile", "1:1") as job:
            code, _, err = job.ends()
        if code == 0 or "___pthread_mutex_lock: Assertion" not in err:
            break
    assert code == 0, err
    both = summary(job.out)
    assert "flight-recorder" in both["source"]
    assert "kineto" in both["source"]
    alone = tmp_path / "alone"
    alone.mkdir()
    for path in job.out.glob("calls.*"):
        (alone / path.name).write_bytes(path.read_bytes())
    counts = [{row["op"]: row["count"] for row in found["operations"]} for found in (both, summary(alone))]
    assert counts[0] == counts[1]
    assert [claim for claim in both["claims"] if claim["ground"] == "contradiction"] == []


STEPS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)]))
best = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    best.zero_grad()
    model(torch.ones(8, 32)).sum().backward()
    best.step()
dist.destroy_process_group()
"""
