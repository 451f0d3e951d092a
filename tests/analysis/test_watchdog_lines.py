"""Who is behind, by what PyTorch's watchdogs print: in the words of each release, in groups whose ranks are not the job's."""

from __future__ import annotations

from pathlib import Path

import pytest

import ringwright
from ringwright.analysis.document import Culprit

OLD = "Exception (either an error or timeout) detected by watchdog at work: {at}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
NEW = " failure detected by watchdog at work sequence id: {at} PG status: last enqueued work: {enqueued}, last completed work: {completed}"
STARTED = " failure detected by watchdog at work sequence id: {at} PG status: last enqueued work: {enqueued}, last started work: 3, last completed work: {completed}"
DUMP = (
    "Received a dump signal due to a collective timeout from {whom} and we will try our best to dump the debug info. "
    "Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely caused by incorrect usages"
)


def line(rank: int, text: str, *, group: str = "PG ID 0 PG GUID 0(default_pg)", group_rank: int | None = None) -> str:
    said = rank if group_rank is None else group_rank
    return f"[rank{rank}]:[E810 03:04:11.063313477 ProcessGroupNCCL.cpp:2241] [{group} Rank {said}] {text}"


def timeout(rank: int, seq: int, op: str = "BROADCAST", group_rank: int | None = None) -> str:
    said = rank if group_rank is None else group_rank
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=80, NumelOut=80, Timeout(ms)=600000)"
    text = f"[Rank {said}] Watchdog caught collective operation timeout: {work} ran for 600003 milliseconds before timing out."
    return f"[rank{rank}]:[E810 03:04:10.850617863 ProcessGroupNCCL.cpp:683] {text}"


def verdict(folder: Path, lines: list[str]) -> Culprit:
    path = folder / "job.log"
    path.write_text("\n".join(lines) + "\n")
    found = ringwright.summary(ringwright.read(path))["verdict"]
    assert found is not None
    return found


@pytest.mark.parametrize("words", [OLD, NEW, STARTED])
def test_who_enqueued_less_is_told_in_the_words_of_each_release(tmp_path: Path, words: str) -> None:
    on_time = [1, 2, 3, 5, 6, 7]
    lines = [timeout(rank, 78) for rank in on_time]
    lines += [line(rank, words.format(at=78, enqueued=79, completed=77)) for rank in on_time]
    lines += [line(rank, DUMP.format(whom="rank 1", enqueued=77, completed=77)) for rank in (0, 4)]
    found = verdict(tmp_path, lines)
    assert (found["kind"], found["ranks"]) == ("hang", [0, 4])
    assert found["confidence"] == 0.8


def test_the_first_work_of_a_group_can_be_the_one_that_hangs(tmp_path: Path) -> None:
    lines = [timeout(rank, 1) for rank in range(3)]
    lines += [line(rank, NEW.format(at=1, enqueued=1, completed=-1)) for rank in range(2)]
    lines += [line(2, NEW.format(at=1, enqueued=0, completed=-1))]
    assert verdict(tmp_path, lines)["ranks"] == [2]


def test_ranks_are_those_of_the_job_and_not_of_the_group(tmp_path: Path) -> None:
    """Each group of two is ranks 0 and 1 to itself; the counters of different groups are never compared."""
    lines = []
    for first, done in ((0, 50), (2, 60), (4, 70), (6, 80)):
        group = f"PG ID 5 PG GUID {30 + first}(TENSOR_MODEL_PARALLEL_GROUP)"
        for of_group in (0, 1):
            rank = first + of_group
            lines.append(timeout(rank, 9, "ALLREDUCE", of_group))
            lines.append(line(rank, NEW.format(at=9, enqueued=done, completed=done), group=group, group_rank=of_group))
    found = verdict(tmp_path, lines)
    assert found["ranks"] == []
    assert any("cannot tell" in each for each in found["evidence"])
    assert len(ringwright.summary(ringwright.read(tmp_path / "job.log"))["errors"]) == 16


def test_a_rank_says_more_than_one_group(tmp_path: Path) -> None:
    """What a rank says of one group first must not hide what it says of another."""
    other = "PG ID 2 PG GUID 7(dp)"
    lines = [line(rank, NEW.format(at=5, enqueued=5, completed=4), group=other) for rank in range(4)]
    lines += [line(rank, DUMP.format(whom="this local rank", enqueued=62, completed=61)) for rank in range(3)]
    lines += [line(3, DUMP.format(whom="this local rank", enqueued=61, completed=61))]
    assert verdict(tmp_path, lines)["ranks"] == [3]


def test_ranks_are_known_behind_the_names_of_actors(tmp_path: Path) -> None:
    said = [timeout(rank, 9, "ALLREDUCE", rank % 2) for rank in (8, 9)]
    behind = [f"(MegatronPolicyWorker[rank={8 + at}] pid=309884{at}) {text}" for at, text in enumerate(said)]
    path = tmp_path / "job.log"
    path.write_text("\n".join(behind) + "\n")
    errors = ringwright.summary(ringwright.read(path))["errors"]
    assert [row["rank"] for row in errors] == [8, 9]


def old_timeout(rank: int, seq: int, op: str = "ALLREDUCE", sizes: str = "") -> str:
    work = f"WorkNCCL(SeqNum={seq}, OpType={op},{sizes} Timeout(ms)=1800000)"
    return f"[E ProcessGroupNCCL.cpp:458] [Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 1800003 milliseconds before timing out."


def said(folder: Path, lines: list[str]) -> str:
    path = folder / "job.log"
    path.write_text("\n".join(lines) + "\n")
    answer = ringwright.summary(ringwright.read(path))["answer"]
    assert answer is not None
    return answer["sentence"]


def test_two_numbers_are_not_the_same_operation(tmp_path: Path) -> None:
    """Of two ranks neither is a minority, and nobody says that both numbers are of one group."""
    sentence = said(tmp_path, [old_timeout(0, 117), old_timeout(0, 118), old_timeout(7, 88)])
    assert "same operation" not in sentence
    assert "ALLREDUCE 117 on rank 0; ALLREDUCE 88 on rank 7 (groups not named)" in sentence


def test_one_behind_in_a_group_that_nobody_names_is_a_suspect(tmp_path: Path) -> None:
    found = verdict(tmp_path, [*(old_timeout(rank, 120) for rank in range(7)), old_timeout(7, 88)])
    assert (found["ranks"], found["confidence"]) == ([7], 0.3)
    assert any("groups not named" in each for each in found["evidence"])


def test_one_rank_is_not_all_of_them(tmp_path: Path) -> None:
    gather = " NumelIn=100, NumelOut=800,"
    assert "rank 3 alone (of 8 by the sizes of the operation)" in said(
        tmp_path, [old_timeout(3, 9, "_ALLGATHER_BASE", gather)]
    )
    sentence = said(tmp_path, [old_timeout(rank, 9, "_ALLGATHER_BASE", gather) for rank in (0, 3, 4)])
    assert "3 ranks (of 8 by the sizes of the operation) reported" in sentence


def test_who_says_nothing_of_as_many_as_the_sizes_tell_is_a_suspect(tmp_path: Path) -> None:
    scatter = " NumelIn=800, NumelOut=100,"
    found = verdict(tmp_path, [old_timeout(rank, 9, "_REDUCE_SCATTER_BASE", scatter) for rank in range(8) if rank != 5])
    assert (found["ranks"], found["confidence"]) == ([5], 0.4)


def test_all_of_one_named_group_wait_for_the_same_operation(tmp_path: Path) -> None:
    work = "WorkNCCL(SeqNum=9, OpType=_ALLGATHER_BASE, NumelIn=100, NumelOut=400, Timeout(ms)=600000)"
    text = f"Process group watchdog thread terminated with exception: [Rank {{}}] Watchdog caught collective operation timeout: {work}"
    sentence = said(tmp_path, [line(rank, text.format(rank)) for rank in range(4)])
    assert "all 4 ranks wait for the same operation, _ALLGATHER_BASE 9 of group 0(default_pg)" in sentence


def test_a_rank_that_only_told_its_progress_does_not_wait_in_it(tmp_path: Path) -> None:
    lines = [old_timeout(rank, 9) for rank in (0, 4)]
    lines += [line(2, DUMP.format(whom="this local rank", enqueued=9, completed=8))]
    assert "3 ranks (of an unknown number) reported, those that wait in ALLREDUCE 9 on ranks 0, 4" in said(
        tmp_path, lines
    )
