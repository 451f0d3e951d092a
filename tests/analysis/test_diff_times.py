"""Differences in time: by size, by step, in waiting; noise; and a gate that can fail."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from analysis.test_disturbance import job
from ringwright.analysis import noise
from ringwright.analysis.compared import diff, diff_gate
from ringwright.cli import main
from shared_data import needs_shared_data, real
from sources.test_inspector import lines, record

POLARIS = "real/nccl-tests/alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_reduce_output.dat"


def table(path: Path, slower: Any = 1.0, *, inplace: bool = True, op: str = "all_reduce") -> str:
    """Write what ``all_reduce_perf`` prints for two ranks; ``slower(size)`` or a number is put before each time."""
    factor = slower if callable(slower) else lambda size: slower
    text = [f"# nThread 1 nGpus 2 minBytes 8 maxBytes 1073741824\n#  {op}_perf\n# Using devices"]
    text += [f"#  Rank  {rank} Group  0 Pid  {rank + 9} on node0 device  {rank} [0x07] NVIDIA A100" for rank in (0, 1)]
    text.append(
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        + "     time   algbw   busbw #wrong" * inplace
    )
    for power in range(3, 31, 3):
        size = 1 << power
        row = f"{size:12} {size // 4:12} float sum -1"
        for offset in (1.0, 1.02)[: 1 + inplace]:
            time_us = (20 + size / 40e3) * offset * factor(size)
            row += f" {time_us:.4f} {size / time_us / 1e3:.4f} {size / time_us / 1e3:.4f} 0"
        text.append(row)
    path.write_text("\n".join([*text, "# Avg bus bandwidth    : 10.0", ""]))
    return str(path)


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    code = main(["diff", *arguments, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


# ---------------------------------------------------------------------------------------------------- benchmark tables
@needs_shared_data
def test_two_real_tables_six_times_apart_fail_the_gate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fast, slow = (str(real(f"{POLARIS}.{number}.txt")) for number in (5, 1))
    code, found, err = told([fast, slow, "--fail-over", "5%"], capsys)
    largest = next(row for row in found["bandwidth"] if row["size_bytes"] == 1 << 30)
    assert (code, largest["op"], largest["before_us"], largest["after_us"]) == (1, "all-reduce", 56948, 347600)
    assert largest["ratio"] == pytest.approx(6.1, abs=0.01)
    assert "6.10x" in err
    assert told([slow, fast, "--fail-over", "5%"], capsys)[0] == 1
    assert told([slow, fast, "--fail-over", "5%", "--slower-only"], capsys)[0] == 0
    assert main(["diff", fast, slow]) == 0
    text = capsys.readouterr().out
    assert "6.10x" in text
    assert "are equal" not in text


@needs_shared_data
@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_real_table_and_itself_with_a_percent_of_noise_pass(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = real(f"{POLARIS}.{number}.txt")
    draw = random.Random(number)
    noisy = tmp_path / "noisy_all_reduce_output.txt"
    noisy.write_text("\n".join(_noisy(line, draw) for line in path.read_text().splitlines()) + "\n")
    code, found, _ = told([str(path), str(noisy), "--fail-over", "5%"], capsys)
    assert code == 0
    assert any(row["ratio"] != 1 for row in found["bandwidth"])


def _noisy(line: str, draw: random.Random) -> str:
    words = line.split()
    if len(words) != 13 or not words[0].isdigit():
        return line
    for at in (5, 9):
        time_us = float(words[at]) * draw.gauss(1, 0.01)
        rate = int(words[0]) / time_us / 1e3
        words[at : at + 3] = [f"{time_us:.2f}", f"{rate:.3f}", f"{rate * 62 / 32:.3f}"]
    return " ".join(words)


def test_a_table_is_compared_size_by_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = table(tmp_path / "before.txt")
    after = table(tmp_path / "after.txt", lambda size: 6.0 if size == 1 << 27 else 1.0)
    code, found, err = told([before, after, "--fail-over", "5%"], capsys)
    assert code == 1
    assert [row["size_bytes"] for row in found["bandwidth"] if row["changed"]] == [1 << 27]
    assert {"op", "size_bytes", "before_us", "after_us", "ratio"} <= set(found["bandwidth"][0])
    assert "all-reduce of 128 MiB: 6.00x" in err
    assert told([before, before, "--fail-over", "0%"], capsys)[0] == 0


def test_what_was_measured_once_says_that_its_noise_is_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table(tmp_path / "before.txt", inplace=False)
    after = table(tmp_path / "after.txt", 1.08, inplace=False)
    _, found, _ = told([before, after], capsys)
    assert {row["noise_from"] for row in found["bandwidth"]} == {noise.UNKNOWN.source}
    assert any("is assumed" in note for note in found["notes"])
    assert told([before, table(tmp_path / "twice.txt", 2, inplace=False), "--fail-over", "5%"], capsys)[0] == 1


def test_a_class_of_sizes_shows_what_each_row_hides(tmp_path: Path) -> None:
    rows = [
        {
            "kind": "job",
            "op": "all-reduce",
            "size_bytes": 4096 + 8 * n,
            "nranks": 8,
            "task": "job",
            "time_us": 100.0,
            "spread": 0.02,
            "samples": 1,
        }
        for n in range(40)
    ]
    slower = [row | {"time_us": 107.0} for row in rows]
    found = diff.diff({"bandwidth": rows}, {"bandwidth": slower})
    assert not any(row["changed"] for row in found["bandwidth"])
    assert [row["changed"] for row in found["time_classes"]] == [True]
    assert diff_gate.over(found, 0.05)[0].startswith("1 of 1 size classes")


def test_other_operations_and_empty_inputs_do_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reduce, gather = table(tmp_path / "all_reduce.txt"), table(tmp_path / "all_gather.txt", op="all_gather")
    code, found, err = told([reduce, gather, "--fail-over", "5%"], capsys)
    assert (code, found["bandwidth"]) == (1, [])
    assert "in one run only" in err
    nothing = diff.diff({}, {})
    assert diff_gate.over(nothing, 0.05) == ["nothing is in both runs that could be compared"]


# ------------------------------------------------------------------------------------------------- jobs and recordings
def inspector(folder: Path, slower: float = 1.0, seed: int = 0, ranks: int = 4) -> str:
    draw = random.Random(seed)
    folder.mkdir()
    for rank in range(ranks):
        records = [
            record(
                rank,
                nranks=ranks,
                sn=sn,
                coll_exec_time_us=round(400 * slower * draw.gauss(1, 0.02)),
                coll_msg_size_bytes=1 << 24,
            )
            for sn in range(1, 60)
        ]
        (folder / f"rank{rank}.log").write_text(lines(*records))
    return str(folder)


def test_an_inspector_folder_three_times_slower_fails_the_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual, again, slow = (
        inspector(tmp_path / "a"),
        inspector(tmp_path / "b", seed=1),
        inspector(tmp_path / "c", 3.0, seed=2),
    )
    code, found, err = told([usual, slow, "--fail-over", "5%"], capsys)
    assert code == 1
    assert found["bandwidth"][0]["ratio"] == pytest.approx(3, rel=0.03)
    assert found["bandwidth"][0]["noise_from"] == "repeated calls"
    assert "x the time" in err
    assert told([usual, again, "--fail-over", "5%"], capsys)[0] == 0


def test_a_recording_with_longer_steps_fails_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "before", transfer_ms=50, own_ms=10)
    job(tmp_path / "after", transfer_ms=50, own_ms=83.2)
    job(tmp_path / "again", transfer_ms=lambda step: 50 + step % 2, own_ms=10)
    before, after, again = (str(tmp_path / name) for name in ("before", "after", "again"))
    code, found, err = told([before, after, "--fail-over", "5%"], capsys)
    step = next(row for row in found["times"] if row["what"] == "step")
    assert (code, step["ratio"], step["changed"]) == (1, 2.22, True)
    assert "a step takes 2.22x the time" in err
    assert told([before, again, "--fail-over", "5%"], capsys)[0] == 0


def test_waiting_for_a_late_rank_fails_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "before")
    job(tmp_path / "after", own_ms=lambda rank, step: 30 if rank == 2 else 10)
    code, found, err = told([str(tmp_path / "before"), str(tmp_path / "after"), "--fail-over", "10%"], capsys)
    waited = next(row for row in found["times"] if row["what"] == "waiting")
    assert (code, waited["before_share"]) == (1, 0)
    assert waited["after_share"] > 0.1
    assert "waiting for late ranks: 0.0% before" in err


def test_exposed_communication_is_compared() -> None:
    sides: list[dict[str, Any]] = [{"overlap": {"comm_us": 1000.0, "exposed_us": bare}} for bare in (200.0, 700.0)]
    found = diff.diff(*sides)
    assert [(row["what"], row["before_share"], row["after_share"]) for row in found["times"]] == [("exposed", 0.2, 0.7)]
    assert diff_gate.over(found, 0.05) == ["communication not hidden behind compute: 20.0% before, 70.0% after"]
    assert diff_gate.over(diff.diff(sides[1], sides[0]), 0.05, slower_only=True) == []


def test_communication_without_sizes_is_compared_per_step() -> None:
    def side(comm_us: float) -> dict[str, Any]:
        ranks = [{"rank": rank, "comm_us": comm_us} for rank in range(2)]
        return {"overlap": {"ranks": ranks}, "iterations": [{"iteration": n, "time_s": 0.1} for n in range(5)]}

    found = diff.diff(side(5000.0), side(15000.0))
    assert [row["ratio"] for row in found["times"]] == [1.0, 3.0]
    assert diff_gate.over(found, 0.05) == [
        "communication in a step takes 3.00x the time (1.00 ms before, 3.00 ms after)"
    ]
    assert diff_gate.over(diff.diff(side(5000.0), side(5400.0)), 0.05) == []


def test_noise_comes_from_what_was_repeated() -> None:
    assert noise.spread([100.0, 101.0]) is None
    assert noise.spread([100.0, 100.0, 400.0]) == 0  # one outlier says nothing of the others
    draw = random.Random(1)
    assert noise.spread([100 * draw.gauss(1, 0.05) for _ in range(400)]) == pytest.approx(0.05, rel=0.2)
