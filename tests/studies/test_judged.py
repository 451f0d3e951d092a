"""Learnt answers beside measured tables: made ones, and those of real systems, each system left out in turn."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.shared_data import needs_shared_data, real

from ringwright.accuracy import judged, mpi_accuracy
from ringwright.accuracy.measured_calls import measured_folder
from ringwright.cli import main
from ringwright.costs.learnt import expected, shipped
from ringwright.costs.learnt.trusted import NINETY
from ringwright.ground.errors import InputError
from ringwright_lab.judges import learning

pytestmark = pytest.mark.once

CASES = (
    "case",
    "system",
    "gpu",
    "nodes",
    "gpus_per_node",
    "ranks",
    "collective",
    "intra_node",
    "inter_node",
    "software",
    "settings",
)
SIZES = tuple(1 << power for power in range(12, 33, 4))


def folder(at: Path, *, nodes: int, factor: float, system: str = "here", gpu: str = "H100") -> Path:
    """Write a folder of one table: what is expected of its machine, times a factor."""
    at.mkdir()
    row = [
        "one",
        system,
        gpu,
        str(nodes),
        "8",
        str(8 * nodes),
        "all_reduce",
        "NVSwitch",
        "8 x 400 Gb/s InfiniBand a node",
        "NCCL 2.20",
        "",
    ]
    write(at / "my_cases.csv", CASES, [row])
    write(at / "my_times.csv", ("case", "bytes", "time_us"), [["one", size, "1e7"] for size in SIZES])
    found = measured_folder([at])
    if found.calls:
        said = expected([found.calls[0].call])[0]
        rows = [["one", each.size_bytes, f"{each.p50_s * factor * 1e6:.6f}"] for each in said]
        write(at / "my_times.csv", ("case", "bytes", "time_us"), rows)
    return at


def write(path: Path, head: tuple[str, ...], rows: list[list[object]] | list[list[str]]) -> None:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([head, *rows])


def test_tables_of_the_same_system_move_what_is_judged(tmp_path: Path) -> None:
    asked, own = folder(tmp_path / "asked", nodes=8, factor=1.5), folder(tmp_path / "own", nodes=4, factor=1.5)
    stranger = folder(tmp_path / "stranger", nodes=4, factor=1.5, system="elsewhere")
    plain, helped, other = (judged.study([asked], given) for given in ((), [own], [stranger]))
    assert [row["calibrated"] for each in (plain, helped, other) for row in each["rows"][:1]] == [False, True, False]
    errors = [line["geomean_error"] for each in (plain, helped) for line in each["summary"] if line["class"] == "all"]
    count = len(errors) // 2
    assert all(after < before for before, after in zip(errors[:count], errors[count:], strict=True))
    assert other["rows"] == plain["rows"]  # another system's tables say nothing here
    assert errors[:count] == pytest.approx([0.5] * count, rel=0.02)  # the answer is the median, the table 1.5 times it
    for row in plain["rows"]:
        assert row["time_us_p05"] < row["time_us_p50"] < row["time_us_p95"]
        assert row["measured_us"] == pytest.approx(1.5 * row["time_us_p50"], rel=1e-3)


def test_a_table_that_cannot_be_placed_is_listed_with_its_reason(tmp_path: Path) -> None:
    result = judged.study(
        [folder(tmp_path / "odd", nodes=2, factor=1.0, gpu="Gaudi3"), folder(tmp_path / "fine", nodes=2, factor=1.0)]
    )
    reasons = [each["reason"] for each in result["left_out"] if "law" not in each["reason"]]
    assert ["Gaudi3" in each for each in reasons] == [True]
    assert len(result["rows"]) == len(SIZES)


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pair"):
        judged.study([tmp_path])
    with pytest.raises(InputError, match="no such file"):
        judged.study([tmp_path / "missing"])


def test_the_closed_form_alone_has_no_interval(tmp_path: Path) -> None:
    result = judged.study([folder(tmp_path / "asked", nodes=8, factor=1.0)], engine="closed-form")
    assert {row["time_us_p05"] for row in result["rows"]} == {None}
    assert {line["coverage"] for line in result["summary"]} == {None}


@needs_shared_data
def test_systems_that_are_left_out_are_met_within_what_was_promised(pytestconfig: pytest.Config) -> None:
    """100, 80 and 35 % in the three regions, 90 % intervals that hold 85 % and more; variances as they ship."""
    every = 3 if pytestconfig.getoption("--campaigns") else 5
    calls = measured_folder([real("validation")]).calls[::every]
    tables = learning.tables_of(calls)
    owners = np.array([each.call.owner for each in calls for _ in each.times_s])
    mean, sigma = np.zeros(len(owners)), np.zeros(len(owners))
    for owner in sorted(set(owners)):
        out = owners == owner
        mean[out], sigma[out] = learning.left_out(tables, dict(shipped().variances), out)
    off = np.abs(mean - tables.logs)
    sizes = np.exp(tables.points.size)
    for region, promised in (
        (sizes <= 1 << 16, 1.0),
        ((sizes > 1 << 16) & (sizes < 1 << 26), 0.8),
        (sizes >= 1 << 26, 0.35),
    ):
        error = np.exp(np.mean([off[region & (owners == owner)].mean() for owner in sorted(set(owners[region]))])) - 1
        assert error <= promised
        assert (off[region] <= NINETY * sigma[region]).mean() >= 0.85


@needs_shared_data
def test_every_table_of_the_open_data_is_placed_or_says_why() -> None:
    result = judged.study([real("validation")], engine="closed-form")
    placed = {row["case"] for row in result["rows"]}
    reasons = {each["case"]: each["reason"] for each in result["left_out"]}
    with (
        (real("validation") / "nccl_cases.csv").open() as one,
        (real("validation") / "nccl_more_cases.csv").open() as more,
        (real("validation") / "nccl_third_cases.csv").open() as third,
    ):
        rows = [row for stream in (one, more, third) for row in csv.DictReader(stream)]
    named = {row["case"] for row in rows}
    assert {row["case"] for row in rows if "NCCL_ALGO=NVLSTree" in row["settings"]} <= placed
    assert placed | set(reasons) >= named
    assert all("law" in reasons[case] or "no closed form" in reasons[case] for case in named - placed)


MPI_HEAD = "system,nodes,collective,algorithm,bytes,median_us\n"


def mpi_table(folder: Path, rows: list[str]) -> Path:
    path = folder / "mpi_times.csv"
    path.write_text(MPI_HEAD + "".join(f"{row}\n" for row in rows))
    return path


def test_tables_of_mpi_algorithms_are_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times that are three prices times what each program declares: all in order. Two names of one program tie: a miss."""
    names = {"ring": "ring", "recursive_doubling": "recursive_doubling", "rabenseifner": "rabenseifner"}
    rows = []
    for size in (1 << power for power in range(10, 26, 2)):
        for name, block in names.items():
            cost = mpi_accuracy.program(block, "all-reduce", 16, size).cost
            time_us = 2.0 * cost.messages + 1e-4 * cost.path_bytes + 1e-5 * cost.reduced_bytes
            rows.append(f"here,16,allreduce,{name},{size},{time_us}")
    path = mpi_table(tmp_path, rows)
    found = judged.study([tmp_path])
    line = found["mpi"][0]["ranked"][0]
    assert (found["rows"], line["tau"], line["first_two"]) == ([], pytest.approx(1.0), 1.0)
    assert main(["accuracy", str(path)]) == 0
    assert "mean tau 1.00; fastest predicted among the first two: 100%" in " ".join(capsys.readouterr().out.split())
    twins = [row.replace(",ring,", ",default-ring,") for row in rows if ",ring," in row]
    third = [row.replace(",ring,", ",RING-B_CONT,") for row in rows if ",ring," in row]
    mpi_table(tmp_path, [row for row in rows if ",ring," in row] + twins + third)
    assert judged.study([tmp_path])["mpi"][0]["ranked"][0]["first_two"] == 0.0


@pytest.mark.parametrize(
    "row", ["here,16,allreduce,ring,x,5", "here,0x3,allreduce,ring,64,5", "here,16,allreduce,ring,64,0"]
)
def test_a_row_of_mpi_that_is_none_is_named(tmp_path: Path, row: str) -> None:
    path = mpi_table(tmp_path, ["here,16,allreduce,ring,1024,5", row])
    refused = judged.study([path])["refused"]
    assert [(each["case"], each["line"]) for each in refused] == [("mpi_times.csv", 3)]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\x00binary",
        b"",
        b"case,bytes,time_us\nx,99999999999999999999999,5\n",
        b"case,bytes,time_us\nx,1024,inf\n",
        b"case,bytes,time_us\nx\n",
        b"case,bytes,time_us\n" + b"x" * 200_000 + b",1024,5\n",
        MPI_HEAD.encode() + b"here,16\n",
        MPI_HEAD.encode() + b"here,16,allreduce,ring,99999999999999999999999,5\n",
        MPI_HEAD.encode() + b"here,99999999999,allreduce,ring,64,5\n",
        MPI_HEAD.encode() + b"x" * 200_000 + b",16,allreduce,ring,64,5\n",
        MPI_HEAD.encode() + b"here,16,allreduce,ring-UTOFU-0-0,64,inf\n",
    ],
)
def test_a_table_that_is_none_is_a_row_with_its_reason(
    tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd_times.csv"
    path.write_bytes(data)
    result = judged.study([path])
    assert not result["rows"]
    assert all(each["reason"] for each in result["refused"])
    assert result["refused"][0]["case"][:60] in {"odd_times.csv", "x", "x" * 60}
    assert main(["accuracy", str(path)]) == 3  # nothing usable could be read
    assert "refused, " in capsys.readouterr().out
