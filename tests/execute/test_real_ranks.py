"""Real gloo ranks: one job recorded three ways, and faults put in on purpose."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from forked_ranks import Forks
from patience import HANG_S
from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is absent: no real ranks"),
]


MECHANISMS = ("killed", "stopped", "lock", "wrong-size", "wrong-order", "sleep")


def ran_job(*line: str) -> str:
    """Run a job, a fork of what has loaded PyTorch and what its profiler needs, and return what it said."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", "ringwright_lab.testing.gloo_job", *line]
        job = Forks.Popen(command, env=dict(os.environ), stdout=said, stderr=errors, start_new_session=True)
        code = job.wait(HANG_S)
        for each in (said, errors):
            each.seek(0)
        assert code == 0, errors.read().decode()
        return said.read().decode()


def faulty(folder: Path, mechanism: str, seed: int) -> list[str]:
    slow = ["--profile", "--steps", "30"] if mechanism == "sleep" else []
    return [str(folder), "--mechanism", mechanism, "--rank", "2", "--amount", "0.15", "--seed", str(seed), *slow]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of a job without a fault and of one with each, and what the first said."""
    folder = tmp_path_factory.mktemp("ranks")
    lines = [[str(folder / "job"), "--profile"], *(faulty(folder / each, each, 0) for each in MECHANISMS)]
    said = [ran_job(*line) for line in lines]
    return folder, said[0]


def operations(summary: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {row["op"]: (row["count"], row["bytes"]) for row in summary["operations"]}


def test_three_recordings_of_one_job_agree(ran: tuple[Path, str]) -> None:
    folder = ran[0] / "job"
    assert "finished" in ran[1]
    found = {kind: summarise(read(str(folder / f"{kind}_rank_*"))) for kind in ("kineto", "fr", "et")}
    assert found["kineto"]["kind"] == "kineto"
    assert found["et"]["kind"] == "pytorch-et"
    counts = operations(found["fr"])
    assert sum(count for count, _ in counts.values()) == 36
    assert operations(found["kineto"]) == operations(found["et"]) == counts
    whole = summarise(read(str(folder)))
    assert operations(whole) == counts
    assert whole["ranks_seen"] == whole["ranks_expected"] == 4
    # a busy machine may hold one of four up
    assert whole["verdict"] is None or whole["verdict"]["kind"] == "straggler"
    # and its ranks may take so long to answer each other that their clocks are known too badly for a timeline
    refused = whole["bars"]["refused"]
    assert refused == "" or refused.startswith("clocks agree to ")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_fault_on_purpose_names_its_rank(ran: tuple[Path, str], tmp_path: Path, mechanism: str) -> None:
    """On a busy machine a run may stop where nothing can be told; another rank must never be named."""
    for attempt in range(4):
        folder = tmp_path / f"job{attempt}" if attempt else ran[0] / mechanism
        if attempt:
            ran_job(*faulty(folder, mechanism, attempt))
        verdict = summarise(read(str(folder)))["verdict"]
        if verdict is not None and verdict["ranks"]:
            break
    assert verdict is not None
    assert verdict["ranks"] == [2]
    assert verdict["evidence"]
