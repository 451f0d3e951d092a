"""``simulate``, ``bound``, ``library``, ``systems`` and ``verify`` as a user and a script meet them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.ground.errors import EXIT_INFEASIBLE, EXIT_USAGE

NIC_GBS = 50.0


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def times(result: dict[str, Any]) -> dict[tuple[str, int], float]:
    return {(row["algorithm"], row["size_bytes"]): row["time_us"] for row in result["rows"]}


def test_the_contract_of_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(
        capsys,
        "simulate",
        "all-reduce",
        "--fabric",
        "switch:8,rate=50GB/s,latency_s=1us",
        "--algorithm",
        "ring,recursive-doubling",
        "-b",
        "1K",
        "-e",
        "64M",
        "-f",
        "4",
    )
    assert result["schema"] == "ringwright.simulate/1"
    assert result["left_out"]
    keys = {"algorithm", "engine", "ranks", "size_bytes", "time_us", "algbw_gbs", "busbw_gbs", "bound_us", "events"}
    assert all(keys <= row.keys() for row in result["rows"])
    assert all(row["time_us"] >= row["bound_us"] > 0 for row in result["rows"])
    row = result["rows"][-1]
    assert row["busbw_gbs"] == pytest.approx(row["algbw_gbs"] * 2 * 7 / 8)


@pytest.mark.parametrize("p", [2, 8, 64])
@pytest.mark.parametrize("size", [8192, 1 << 20, 1 << 30])
def test_the_ring_takes_what_its_closed_form_says(capsys: pytest.CaptureFixture[str], p: int, size: int) -> None:
    fabric = f"full:{p},rate=50GB/s,latency_s=0.5us"
    result = answer(capsys, "simulate", "all-reduce", "--fabric", fabric, "--algorithm", "ring", "-b", str(size))
    assert result["rows"][0]["time_us"] == pytest.approx(2 * (p - 1) * (0.5 + size / p / 50e3), rel=1e-9)


def test_a_group_of_one_and_no_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    alone = answer(capsys, "simulate", "all-reduce", "--fabric", "switch:1", "--algorithm", "ring", "-b", "1M")
    assert alone["rows"][0]["time_us"] == 0
    nothing = answer(capsys, "simulate", "all-gather", "--fabric", "switch:4", "--algorithm", "ring", "-b", "0")
    assert nothing["rows"][0]["time_us"] > 0


def test_a_flapping_link_costs_the_time_it_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["simulate", "all-reduce", "--fabric", "dgx-h100:4", "--algorithm", "blueconnect", "-b", "64M"]
    healthy = answer(capsys, *common)["rows"][0]
    faulty = answer(capsys, *common, "--fault", "link node3/nic2 flap 100ms every 2s")["rows"][0]
    assert healthy["worst_us"] is None
    assert faulty["worst_us"] == pytest.approx(100_000 + healthy["time_us"], rel=0.01)


def test_a_dead_link_is_an_answer_not_a_hang(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        [
            "simulate",
            "all-reduce",
            "--fabric",
            "dgx-h100:2",
            "--algorithm",
            "blueconnect",
            "-b",
            "1M",
            "--fault",
            "nic node1/nic0 dead at 0s",
        ]
    )
    assert code == EXIT_INFEASIBLE
    out = " ".join(capsys.readouterr().out.split())
    assert "blueconnect at 1 MiB: the job ends after 532.7 ms: ib gives up after 7 retries (node" in out
    assert "the library would print: NET/IB: Got completion with status=12" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fabric", "switch:8", "--algorithm", "rings"], "no system is called 'rings'"),
        (["--fabric", "swich:8"], "swich"),
        (["--fabric", "switch:8", "-b", "-5"], "-5"),
        (["--fabric", "switch:8", "--ranks", "0-99"], "rank 8 is not on"),
        (["--fabric", "switch:8", "--engine", "magic"], "'magic' is no engine"),
        (["--fabric", "switch:8", "--alpha", "half"], "half"),
        (["--fabric", "switch:8", "--fault", "link nowhere dead"], "nowhere"),
        (["--fabric", "switch:8", "-b", "1M", "-e", "1K"], "sizes from"),
        ([], "name one fabric"),
    ],
)
def test_questions_that_make_no_sense(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert main(["simulate", "all-reduce", *arguments]) == EXIT_USAGE
    assert words in capsys.readouterr().err


def test_the_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            "simulate",
            "all-reduce",
            "--fabric",
            "dgx-h100:2",
            "--algorithm",
            "ring-allreduce,blueconnect,torus-2d-allreduce,nccl-2-4@2.27",
            "-b",
            "1K",
            "-e",
            "1G",
            "-f",
            "1024",
            "--fault",
            "link node1/nic2 flap 100ms every 2s",
        ]
    )
    out = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    for words in (
        "nccl-2-4@2.27",
        "worst moment",
        "90 % interval",
        "Ground",
        "bound",
        "What limits it",
        "Left out",
        "1 GiB",
    ):
        assert words in out


def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "simulated.html"
    command = [
        "simulate",
        "all-reduce",
        "--fabric",
        "dgx-h100:1",
        "--algorithm",
        "nvls,ring",
        "-b",
        "1K",
        "-e",
        "1M",
        "-o",
        str(page),
    ]
    assert main(command) == 0
    text = page.read_text()
    assert len(text) < 2_000_000
    for piece in ('id="chart-times"', 'id="load-1"', 'id="steps-2"', ">sw0<", "Left out"):
        assert piece in text
    assert main(command) == EXIT_USAGE  # it exists, and nobody said --force
    capsys.readouterr()


def test_the_contract_of_bound(capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(capsys, "bound", "all-gather", "--fabric", "dgx-a100:2", "--size", "1G")
    assert {"schema", "algbw_gbs", "kind", "certificate"} <= result.keys()
    assert result["time_us"] == pytest.approx(3097.3, abs=0.05)
    assert result["certificate"]


def test_the_contract_of_library(capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(
        capsys,
        "library",
        "nccl-2-4@2.27",
        "--collective",
        "all-reduce",
        "--ranks",
        "64",
        "--nodes",
        "8",
        "-b",
        "1K",
        "-e",
        "1G",
        "-f",
        "16",
    )
    assert result["rows"][0]["algorithm"] == "tree"
    assert all(row["time_us"] > 0 and row["protocol"] in ("ll", "ll128", "simple") for row in result["rows"])
    for name in ("open-mpi", "mpich2", "mvapich"):
        rows = answer(capsys, "library", name, "--ranks", "64", "--nodes", "8", "-b", "8", "-e", "1M", "-f", "8")[
            "rows"
        ]
        assert len({row["algorithm"] for row in rows}) > 1


def test_the_contract_of_systems(capsys: pytest.CaptureFixture[str]) -> None:
    systems = answer(capsys, "systems")["systems"]
    assert {"slug", "family", "class", "lines", "conformance", "figure"} <= systems[0].keys()
    found = {system["slug"]: system for system in systems}
    assert found["blueconnect"]["conformance"].keys() >= {"passed", "declined"}
    assert found["blueconnect"]["conformance"]["passed"] > 500  # of a recorded sample
    assert "87 %" in found["blueconnect"]["figure"]


def test_first_answer_does_not_wait_for_frames() -> None:
    """Polars takes a quarter of a second to import, and a simulation needs none of it."""
    import subprocess
    import sys

    code = (
        "import sys; from ringwright.cli import main; "
        "main(['simulate', 'all-reduce', '--fabric', 'switch:8', '--algorithm', 'ring', '-b', '1M', '--json']); "
        "print('polars' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "False"


def test_a_simulated_run_is_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The measured trace and the simulated one are one data model: every verb for logs works on it."""
    capture = tmp_path / "run"
    fabric = ["--fabric", "dgx-h100:2", "--algorithm", "blueconnect", "-b", "64M", "--trace", str(capture)]
    result = answer(capsys, "simulate", "all-reduce", *fabric)
    summary = answer(capsys, "summary", str(capture))
    assert (summary["hosts"], summary["ranks_seen"], summary["ranks_expected"]) == (2, 16, 16)
    operation = summary["operations"][0]
    assert (operation["op"], operation["count"], operation["bytes"]) == ("all-reduce", 1, 64 << 20)
    assert (
        main(
            [
                "query",
                "select sum(sent_bytes * multiplicity) as sent from events where kind = 'proxy'",
                str(capture),
                "--json",
            ]
        )
        == 0
    )
    sent = json.loads(capsys.readouterr().out)["rows"][0]
    assert sent in ([2 * 15 * (64 << 20)], {"sent": 2 * 15 * (64 << 20)})
    assert main(["query", "select max(start_s + duration_s) as t from events", str(capture), "--json"]) == 0
    last = json.loads(capsys.readouterr().out)["rows"][0]
    time_s = last["t"] if isinstance(last, dict) else last[0]
    assert time_s * 1e6 == pytest.approx(result["rows"][0]["witnesses"]["events"], rel=1e-9)


@pytest.mark.parametrize("kind", ["msccl-xml", "mscclpp-json"])
@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling", "blueconnect:factors=2x4"])
def test_what_is_exported_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, algorithm: str
) -> None:
    target = tmp_path / "program"
    common = ["export", "all-reduce", "--fabric", "switch:8", "--algorithm", algorithm, "--to", kind, "-o", str(target)]
    assert main(common) == 0
    assert main(common) == EXIT_USAGE  # it exists
    capsys.readouterr()
    verdict = answer(capsys, "verify", str(target))
    assert verdict["valid"]
    assert (verdict["collective"], verdict["ranks"]) == ("all-reduce", 8)


@pytest.mark.parametrize(
    "kind", ["goal", "goal-binary", "nccl-tuner-csv", "ompi-rules", "ompi-rules-json", "mpich-json", "topology-json"]
)
def test_other_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    target = tmp_path / "file"
    found = answer(capsys, "export", "all-reduce", "--fabric", "dgx-h100:2", "--to", kind, "-o", str(target))
    assert found["files"] == [str(target)]
    assert target.stat().st_size > 20


def test_a_file_per_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(
        capsys, "export", "all-gather", "--fabric", "switch:4", "--to", "chakra", "-o", str(tmp_path / "run")
    )
    assert [Path(name).name for name in found["files"]] == [f"run.{rank}.et" for rank in range(4)]


def test_a_barrier_carries_nothing_whatever_size_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    common = ("simulate", "barrier", "--fabric", "switch:8", "--algorithm", "knomial")
    large = answer(capsys, *common, "-b", "1M", "-e", "4M")
    assert [row["size_bytes"] for row in large["rows"]] == [0]
    assert large["rows"] == answer(capsys, *common, "-b", "0")["rows"]
    assert "sizes: a barrier carries no data" in large["left_out"]
