"""A rank that dies is the verdict, with what it died of; those that failed because of it are not blamed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringwright.analysis.summary import summarise
from ringwright.capture.recorder import children
from ringwright.formats.sources import read

pytestmark = pytest.mark.once
RECORDER = Path(children.__file__).parent
PEER = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:25475"
S = 10**9


def recorded(folder: Path, ends: dict[int, list[list[Any]]], *, code: int | None = 1) -> dict[str, Any]:
    """The summary of a job of as many ranks as ``ends``, each with what its file holds after five calls of eight bytes."""
    world = len(ends)
    for rank, last in ends.items():
        head = {
            "ringwright": "calls/1",
            "host": "n1",
            "pid": 100 + rank,
            "rank": rank,
            "world": world,
            "wall_ns": S,
            "clock_ns": 0,
        }
        rows: list[Any] = [
            head | {"library": "torch 2.13.0"},
            ["g", 0, "0", "default_pg", "gloo", world, rank, [*range(world)]],
        ]
        for number in range(5):
            rows.append(
                [
                    "b",
                    number,
                    S + number * S,
                    0,
                    "all-reduce",
                    "float32",
                    2,
                    8,
                    8,
                    None,
                    None,
                    "sum",
                    None,
                    0,
                    1,
                    number,
                ]
            )
            rows.append(["e", number, S + number * S + 1000])
        text = "".join(json.dumps(row) + "\n" for row in [*rows, *last])
        (folder / f"calls.n1.{100 + rank}.jsonl").write_text(text)
    run = {
        "ringwright": "run/1",
        "host": "n1",
        "pid": 1,
        "command": ["train"],
        "started_ns": S,
        "ended_ns": 20 * S,
        "exit_code": code,
    }
    (folder / "run.n1.1.json").write_text(json.dumps(run))
    return summarise(read(str(folder)))


def waits(rank: int) -> list[list[Any]]:
    """A sixth call that fails because a peer is gone, and the process with it."""
    begun = ["b", 5, 6 * S, 0, "all-reduce", "float32", 2, 8, 8, None, None, "sum", None, 0, 1, 5]
    return [
        begun,
        ["r", 5, 7 * S, PEER],
        ["y", 7 * S + rank, "exception", 1, *PEER.split(": ", 1)],
        ["x", "exit", 8 * S, None],
    ]


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (
            [["y", 6 * S, "exception", 1, "ValueError", "loss is NaN"], ["x", "exit", 6 * S, None]],
            "ValueError: loss is NaN",
        ),
        (
            [["y", 6 * S, "exit", 3, "sys.exit", ""], ["x", "exit", 6 * S, None], ["y", 9 * S, "exit", 3, "", ""]],
            "exit code 3",
        ),
        ([["y", 6 * S, "exit", 7, "os._exit", ""]], "exit code 7 by os._exit"),
        ([["y", 8 * S, "signal", 9, "", ""]], "signal 9 (SIGKILL)"),
        ([["y", 8 * S, "signal", 11, "", ""]], "signal 11 (SIGSEGV)"),
        ([], "stopped without a word"),
        ([["x", "exit", 6 * S, None]], "left before the others were done"),
    ],
)
def test_who_died_is_the_verdict_and_the_conclusion_comes_first(
    tmp_path: Path, last: list[list[Any]], says: str
) -> None:
    found = recorded(tmp_path, {0: waits(0), 1: last, 2: waits(2)})
    verdict = found["verdict"]
    assert (verdict["kind"], verdict["ranks"]) == ("rank-died", [1])
    assert verdict["evidence"][0].startswith("rank 1")
    assert says in verdict["evidence"][0]
    assert "ranks 0, 2 failed because of it" in verdict["evidence"][1]
    assert not any(one["kind"].startswith("hang") for one in found["culprits"])
    assert verdict["confidence"] >= 0.6
    assert says in found["findings"][0]["title"]


def test_a_process_that_dies_of_its_failed_call_is_not_to_blame_however_long_the_message(tmp_path: Path) -> None:
    """Its words name no peer; the rank that died later of something else is the one."""
    long = "RuntimeError: timed out " + "in the backward pass of a layer " * 8
    died = ["y", 7 * S, "exception", 1, *long.split(": ", 1)]
    failed = [waits(0)[0], ["r", 5, 7 * S, long], died, ["x", "exit", 8 * S, None]]
    own = [["y", 9 * S, "exception", 1, "ValueError", "loss is NaN"], ["x", "exit", 9 * S, None]]
    verdict = recorded(tmp_path, {0: failed, 1: own, 2: failed})["verdict"]
    assert (verdict["kind"], verdict["ranks"]) == ("rank-died", [1])


def test_what_the_launcher_ends_is_not_to_blame(tmp_path: Path) -> None:
    ended = [["y", 9 * S, "signal", 15, "", ""]]
    killed = [["y", 10 * S, "signal", 9, "", ""]]
    assert (recorded(tmp_path, {0: ended, 1: killed, 2: ended})["verdict"] or {}).get("kind") != "rank-died"
    assert (recorded(tmp_path, {0: ended, 1: [], 2: ended})["verdict"] or {}).get("kind") != "rank-died"


def test_an_error_of_all_ranks_is_the_programs(tmp_path: Path) -> None:
    same = {rank: [["y", 6 * S + rank, "exception", 1, "KeyError", "'lr'"]] for rank in range(4)}
    verdict = recorded(tmp_path, same)["verdict"]
    assert verdict["ranks"] == [0, 1, 2, 3]
    assert "KeyError: 'lr'" in verdict["evidence"][0]


def test_a_job_that_still_runs_has_nobody_dead(tmp_path: Path) -> None:
    found = recorded(tmp_path, {0: waits(0)[:1], 1: []}, code=None)
    assert not any(one["kind"] == "rank-died" and one["confidence"] > 0.7 for one in found["culprits"])


PROGRAM = """
import sys, os, itertools, importlib.util
spec = importlib.util.spec_from_file_location("recorder", {front!r}, submodule_search_locations=[{here!r}])
package = importlib.util.module_from_spec(spec); sys.modules["recorder"] = package; spec.loader.exec_module(package)
from recorder import exit_status, writer
import atexit
class Job: pass
job = Job(); job.pid = os.getpid(); job.calls = itertools.count(); job.writer = writer.Writer({folder!r}, "t", "t")
atexit.register(exit_status.leaving); exit_status.watch(job)
{what}
"""
ENDS = {
    "raise ValueError('loss is NaN')": ["exception", 1, "ValueError", "loss is NaN"],
    "sys.exit(3)": ["exit", 3, "sys.exit", ""],
    "sys.exit('no data')": ["exit", 1, "sys.exit", "no data"],
    "os._exit(7)": ["exit", 7, "os._exit", ""],
    "os.kill(os.getpid(), 9)": ["signal", 9, "", ""],
    "sys.excepthook = lambda *_: None\nraise KeyError('x')": ["exception", 1, "KeyError", "'x'"],
    "pass": None,
    "sys.exit(0)": None,
    "try:\n    sys.exit(3)\nexcept SystemExit:\n    next(job.calls)": None,
}


@pytest.mark.parametrize("what", ENDS)
def test_the_recorder_tells_how_its_process_ends(tmp_path: Path, what: str) -> None:
    program = PROGRAM.format(front=str(RECORDER / "__init__.py"), here=str(RECORDER), folder=str(tmp_path), what=what)
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    code = process.wait()
    if code < 0:
        children.ended(str(tmp_path), process.pid, code)
    (file,) = tmp_path.glob("calls.*")
    told = [
        row[2:] for line in file.read_text().splitlines() if isinstance(row := json.loads(line), list) and row[0] == "y"
    ]
    assert told == ([ENDS[what]] if ENDS[what] else [])


def test_a_line_torn_by_the_kill_is_ended_before_the_parents_word(tmp_path: Path) -> None:
    file = tmp_path / f"calls.{os.uname().nodename}.77.jsonl"
    file.write_bytes(b'{"ringwright":"calls/1"}\n["b",0,12')
    children.ended(str(tmp_path), 77, -9)
    assert json.loads(file.read_text().splitlines()[-1])[2:4] == ["signal", 9]
    children.ended(str(tmp_path), 78, -9)  # not recorded: nothing is made
    assert len(list(tmp_path.iterdir())) == 1
