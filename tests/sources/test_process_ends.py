"""Exceptions of ranks and what torchrun says of those that failed, as they are pasted without NCCL's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringwright import read, summary
from ringwright.ground.errors import InputError

RAISED = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, {what} "
    "(run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5"
)


def told(folder: Path, *lines: str) -> dict[str, Any]:
    path = folder / "job.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return dict(summary(read(str(path))))


def of_rank(rank: int, what: str, last: str) -> list[str]:
    """Return what a rank prints of an error of NCCL."""
    lines = [RAISED.format(what=what), "ncclUnhandledCudaError: Call to CUDA function failed.", "Last error:", last]
    return [f"[rank{rank}]: {line}" for line in lines]


def test_what_nccl_said_last_is_the_cause_and_its_release_is_read(tmp_path: Path) -> None:
    said = told(tmp_path, *of_rank(7, "unhandled cuda error", "Cuda failure 2 'out of memory'"))
    answer = said["answer"]
    assert (answer["kind"], answer["ranks"]) == ("failed", [7])
    assert answer["sentence"].startswith(
        "Failed: Cuda failure 2 'out of memory', unhandled cuda error (rank 7): the GPU's"
    )
    assert said["nccl_versions"] == ["2.20.5"]
    assert "job.log:1" in answer["evidence"][0]


def test_the_rank_whose_peer_went_away_is_not_the_first(tmp_path: Path) -> None:
    remote = "remote process exited or there was a network error"
    shadow = of_rank(0, remote, "socketProgressOpt: Call to recv from 10.0.0.3<3> failed : Connection reset by peer")
    cause = of_rank(3, "unhandled cuda error", "Cuda failure 'an illegal memory access was encountered'")
    assert told(tmp_path, *shadow, *cause)["answer"]["ranks"] == [3]
    assert told(tmp_path, *shadow)["answer"]["ranks"] == [0]


def test_an_exception_that_no_rank_signs_counts_only_where_nothing_went_on(tmp_path: Path) -> None:
    line = "ValueError: the configuration holds no optimizer"
    assert told(tmp_path, line)["answer"]["kind"] == "failed"
    call = (
        "n1:10:11 [3] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f1 recvbuff 0x7f2 count 1024 datatype 7 op 0 root 0 comm 0x5 "
        "[nranks=1] stream 0x9"
    )
    assert told(tmp_path, line, call)["answer"]["kind"] != "failed"
    assert told(tmp_path, f"[rank1]: {line}", call)["answer"]["ranks"] == [1]


def failure(at: int, rank: int, code: int, how: str) -> list[str]:
    return [
        f"[{at}]:",
        "  time      : 2025-05-01_11:12:35",
        "  host      : n1",
        f"  rank      : {rank} (local_rank: {rank})",
        f"  exitcode  : {code} (pid: 443{rank})",
        "  error_file: <N/A>",
        f"  traceback : {how}",
    ]


def test_torchrun_names_who_failed_first(tmp_path: Path) -> None:
    abort = "Signal 6 (SIGABRT) received by PID 4437"
    root = ["Root Cause (first observed failure):", *failure(0, 2, -6, abort)]
    said = told(tmp_path, "Failures:", *failure(1, 5, -6, abort), *root)["answer"]
    assert (said["kind"], said["ranks"]) == ("failed", [2])
    assert said["sentence"] == "Failed: rank 2 ended first, by signal 6 (SIGABRT), as its launcher saw it."
    several = told(tmp_path, *failure(1, 5, 1, "To enable traceback see: URL"), *failure(2, 6, 1, "-"))["answer"]
    assert several["ranks"] == [5, 6]
    assert "by exit code 1" in several["sentence"]


def test_a_watchdog_comes_before_the_exceptions_that_follow_from_it(tmp_path: Path) -> None:
    report = (
        "[rank0]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600061 milliseconds before timing out."
    )
    assert told(tmp_path, report, *of_rank(0, "remote process exited", "x failed"))["answer"]["kind"] == "hung"


@pytest.mark.parametrize("word", ["ProcessGroupNCCL.cpp:607", "NCCL INFO", "opCount 7", "busbw"])
def test_nothing_known_is_not_said_of_text_that_holds_words_of_ours(tmp_path: Path, word: str) -> None:
    with pytest.raises(InputError) as refused:
        told(tmp_path, f"somebody said {word} and the rest was cut")
    assert word.split(maxsplit=1)[0].split(".", maxsplit=1)[0] in refused.value.what or "busbw" in word
    assert "nor another recording" not in refused.value.what


@pytest.mark.parametrize(
    ("line", "ranks", "how"),
    [
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 2 (pid: 77) of binary: /usr/bin/python3",
            [],
            "local rank 2 ended first, by signal 9",
        ),
        ("srun: error: n04: task 3: Segmentation fault (core dumped)", [3], "Segmentation fault"),
        (
            "mpirun noticed that process rank 5 with PID 312 on node n1 exited on signal 9 (Killed).",
            [5],
            "signal 9 (Killed)",
        ),
    ],
)
def test_a_launcher_tells_in_one_line_who_ended(tmp_path: Path, line: str, ranks: list[int], how: str) -> None:
    answer = told(tmp_path, line)["answer"]
    assert (answer["kind"], answer["ranks"]) == ("failed", ranks)
    assert how in answer["sentence"]


def test_an_exception_behind_a_loggers_level_is_one(tmp_path: Path) -> None:
    line = "ERROR 05-01 12:00:00 [core.py:390] RuntimeError: NCCL Error 1: unhandled cuda error"
    answer = told(tmp_path, line)["answer"]
    assert answer["sentence"].startswith("Failed: RuntimeError: NCCL Error 1")


def test_a_traceback_whose_end_is_cut_off_tells_where_it_was(tmp_path: Path) -> None:
    behind = "(Worker pid=97) ERROR 07-28 23:29:37 utils.py:226] "
    frames = [
        f'{behind}  File "/x/parallel_state.py", line 176, in __init__',
        f'{behind}  File "/x/pynccl.py", line 89, in __init__',
        f"{behind}    self.comm = self.nccl.ncclCommInitRank(",
    ]
    answer = told(tmp_path, *frames)["answer"]
    assert answer["sentence"].startswith(
        "Perhaps failed: an exception in ncclCommInitRank, whose own words are cut off"
    )
    assert "pynccl.py:89" in told(tmp_path, *frames[:2])["answer"]["sentence"]
    whole = told(tmp_path, *frames, "RuntimeError: NCCL error: unhandled system error")["answer"]
    assert whole["sentence"].startswith("Failed: RuntimeError: NCCL error")
    assert "cut off" not in " ".join(whole["evidence"])


def test_a_library_that_says_that_the_program_hangs_is_believed(tmp_path: Path) -> None:
    line = "n1:1:1 [0] init.cc:1 NCCL WARN Your program may be hanging, this may be caused by a collective mismatch around rank 3."
    answer = told(tmp_path, line)["answer"]
    assert (answer["kind"], answer["ranks"]) == ("hung", [3])
    assert "mismatch around rank 3" in answer["sentence"]


def test_a_number_within_a_node_is_no_rank_and_several_tasks_are_none_of_them_the_first(tmp_path: Path) -> None:
    of_node = "torch.distributed.elastic.multiprocessing.api: failed (exitcode: 1) local_rank: 2 (pid: 77) of binary: /usr/bin/python3"
    answer = told(tmp_path, of_node)["answer"]
    assert (answer["kind"], answer["ranks"]) == ("failed", [])
    assert "local rank 2 ended first, by exit code 1" in answer["sentence"]
    several = told(tmp_path, "srun: error: n04: tasks 3-5: Killed")["answer"]
    assert several["ranks"] == []
    assert "tasks 3-5" in several["sentence"]


def test_who_was_ended_by_the_launcher_is_not_the_first(tmp_path: Path) -> None:
    lines = ["srun: error: n01: task 0: Terminated", "srun: error: n04: task 3: Segmentation fault"]
    assert told(tmp_path, *lines)["answer"]["ranks"] == [3]


def test_tracebacks_of_several_ranks_are_told_apart(tmp_path: Path) -> None:
    frames = [f'[rank{rank}]:   File "/x/f{rank}.py", line {rank}, in g{rank}' for rank in (1, 2, 1, 2)]
    ended = "[rank2]: RuntimeError: NCCL error: unhandled system error"
    said = told(tmp_path, *frames, ended)
    assert said["answer"]["ranks"] == [2]
    assert sum("cut off" in row["text"] for row in said["errors"]) == 1  # rank 1's, whose exception is not there


def test_a_dump_of_stacks_is_no_exception(tmp_path: Path) -> None:
    lines = ["Current thread 0x00007f (most recent call first):", '  File "/x/train.py", line 7 in step']
    call = "n1:1:1 [0] NCCL INFO Using network IB"
    assert told(tmp_path, call, *lines)["answer"]["kind"] == "cannot-tell"
