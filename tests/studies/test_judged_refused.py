"""What of folders of measured tables cannot be judged is a row with its reason, and never the end of the others."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ringwright.accuracy import judged
from ringwright.cli import main
from ringwright.costs.nccl.constants import ALGORITHMS, PROTOCOLS
from ringwright.costs.nccl.names import algorithm_named, printed_algorithm, protocol_named

pytestmark = pytest.mark.once

FACTS = {
    "system": "here",
    "gpu": "H100",
    "nodes": "2",
    "gpus_per_node": "8",
    "ranks": "16",
    "collective": "all_reduce",
    "intra_node": "NVSwitch",
    "inter_node": "8 x 400 Gb/s InfiniBand a node",
    "software": "NCCL 2.26",
    "settings": "",
}
RACKS = {"gpu": "GB200", "gpus_per_node": "4", "inter_node": "4 x 400 Gb/s InfiniBand a node"}
DOMAIN = "NVLink 5 domain of 72 GPUs, 900 GB/s a GPU each way"


def folder(at: Path, cases: Mapping[str, Mapping[str, str]], times: str = "") -> Path:
    """Write one pair of files: each case with 1 MiB in 100 us and 1 GiB in 100 ms, or the times that are given."""
    at.mkdir(exist_ok=True)
    with (at / "my_cases.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["case", *FACTS])
        writer.writeheader()
        writer.writerows({"case": name, **FACTS, **changed} for name, changed in cases.items())
    rows = [f"{name},{size},{time_us}\n" for name in cases for size, time_us in ((1 << 20, 100), (1 << 30, 100_000))]
    (at / "my_times.csv").write_text("case,bytes,time_us\n" + (times or "".join(rows)))
    return at


def reasons(result: Mapping[str, Any]) -> dict[str, str]:
    return {each["case"]: each["reason"] for each in result["refused"]}


@pytest.mark.parametrize(
    "setting", ["NCCL_ALGO=NVLSTree", "NCCL_ALGO=nvls_tree NCCL_PROTO=Simple", "NCCL_ALGO=NVLSTREE"]
)
def test_algorithms_are_known_as_nccl_spells_them(tmp_path: Path, setting: str) -> None:
    made = judged.study([folder(tmp_path, {"one": {"settings": setting}})])
    assert (len(made["rows"]), made["refused"]) == (2, [])
    plain = judged.study([folder(tmp_path, {"one": {"settings": "NCCL_ALGO=Ring"}})])
    assert made["rows"][1]["time_us_p50"] != plain["rows"][1]["time_us_p50"]


def test_every_spelling_means_one_algorithm_wherever_it_comes_from() -> None:
    spelled = {
        "collnet_direct": (
            "CollNetDirect",
            "CollnetDirect",
            "COLLNET_DIRECT",
            "collnet-direct",
            "NCCL_ALGO_COLLNET_DIRECT",
        ),
        "collnet_chain": ("CollNetChain", "CollnetChain", "COLLNET_CHAIN"),
        "nvls_tree": ("NVLSTree", "NVLS_TREE", "nvls-tree", "NCCL_ALGO_NVLS_TREE", "nvlstree"),
        "nvls": ("NVLS", "nvls"),
        "pat": ("PAT",),
        "ring": ("Ring", "RING", "NCCL_ALGO_RING"),
        "tree": ("Tree", "TREE"),
    }
    assert set(spelled) == set(ALGORITHMS)
    for name, words in spelled.items():
        assert {algorithm_named(word) for word in words} == {name}
        assert {printed_algorithm(word) for word in words} == {name.replace("_", "-")}
    assert [protocol_named(word) for word in ("LL", "ll128", "Simple", "NCCL_PROTO_SIMPLE", "LL_128", "")] == [
        *PROTOCOLS,
        "simple",
        "ll128",
        None,
    ]
    assert algorithm_named("MSCCL") is None
    assert main(["simulate", "all-reduce", "--fabric", "dgx-h100:2", "--algorithm", "nccl-2-4:algorithm=NVLSTree"]) == 0


def test_what_cannot_be_placed_is_a_row_and_the_others_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        "fine": {},
        "collnet": {"settings": "NCCL_ALGO=CollnetDirect"},
        "strange word": {"settings": "NCCL_ALGO=Rign"},
        "two": {"settings": "NCCL_ALGO=Ring,CollnetChain"},
        "tree gathers": {"settings": "NCCL_ALGO=Tree", "collective": "all_gather"},
        "too old": {"settings": "NCCL_ALGO=NVLSTree", "software": "NCCL 2.10"},
        "gpu": {"gpu": "Gaudi3"},
        "operation": {"collective": "broadcast"},
        "no operation": {"collective": "barrier"},
        "no rate": {"inter_node": "8 x 0 Gb/s"},
        "alone": {"nodes": "1", "gpus_per_node": "1"},
        "no number": {"nodes": "many", "ranks": "all"},
        "not measured": {},
    }
    sized = "".join(f"{name},1048576,100\n" for name in cases if name != "not measured")
    rows = "fine,x,100\nfine,1024,0\nfine,1024,inf\nfine,-5,100\nstranger,1024,5\n"
    at = folder(tmp_path, cases, sized + rows)
    (at / "lone_times.csv").write_text("case,bytes,time_us\na,1,1\n")
    (at / "odd_cases.csv").write_text("name\n")
    (at / "odd_times.csv").write_text("name,bytes\na,1\n")
    assert main(["accuracy", str(at), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {row["case"] for row in result["rows"]} == {"fine"}
    said = reasons(result)
    assert {*cases} - {"fine"} <= {*said}
    assert {"stranger", "lone_times.csv", "odd_times.csv"} <= {*said}
    for case, part in {
        "collnet": "no closed form",
        "strange word": "none of",
        "two": "which of them ran is not said",
        "tree gathers": "no closed form" if "closed" in said["tree gathers"] else "does not do",
        "too old": "has no nvls_tree",
        "not measured": "no size was measured",
        "stranger": "says what was measured",
        "odd_times.csv": "no columns",
    }.items():
        assert part in said[case]
    first = 2 + sized.count("\n")
    lines = [each["line"] for each in result["refused"] if each["case"] == "fine"]
    assert lines == [first, first + 1, first + 2, first + 3]
    assert main(["accuracy", str(at)]) == 0
    shown = capsys.readouterr().out
    assert f"refused, {len(result['refused'])} tables or rows of them" in shown
    assert all(word in shown for word in ("collnet", "stranger", "odd_times.csv"))


def test_a_list_that_leaves_what_nccl_takes_by_itself_changes_nothing(tmp_path: Path) -> None:
    said = [
        [row["time_us_p50"] for row in judged.study([folder(tmp_path, {"one": {"settings": setting}})])["rows"]]
        for setting in ("", "NCCL_ALGO=^CollnetDirect", "NCCL_ALGO=allgather:ring", "NCCL_ALGO=allreduce:ring")
    ]
    assert said[0] == said[1] == said[2] != said[3]


@pytest.mark.parametrize(
    "facts",
    [
        {"gpu": "V100-SXM2-32GB", "nodes": "1", "ranks": "8", "intra_node": "NVLink2, hybrid cube mesh"},
        {"gpu": "V100", "nodes": "2", "gpus_per_node": "16", "ranks": "32"},
        {"gpu": "MI300X", "intra_node": "xGMI full mesh, 64 GB/s a pair each way", "software": "RCCL 2.20"},
        {"gpu": "MI355X", "nodes": "1", "ranks": "8", "intra_node": "xGMI full mesh, 76.5 GB/s a pair each way"},
    ],
)
def test_machines_that_can_be_simulated_are_placed(tmp_path: Path, facts: dict[str, str]) -> None:
    made = judged.study([folder(tmp_path, {"one": facts})])
    assert (len(made["rows"]), made["refused"]) == (2, [])
    assert all(row["time_us_p05"] < row["time_us_p50"] < row["time_us_p95"] for row in made["rows"])
    if "MI3" in facts["gpu"]:
        assert all("gpu" in row["outside"] for row in made["rows"])


@pytest.mark.sampled(1, "hosts", "fabric", "collective", "op")
@pytest.mark.parametrize(
    ("hosts", "fabric", "collective", "op"),
    [
        (36, "gb200-nvl72:2", "all_reduce", "all-reduce"),
        (36, "gb200-nvl72:2", "alltoall", "all-to-all"),
        (360, "gb200-nvl72:20", "all_reduce", "all-reduce"),
    ],
)
def test_racks_of_a_table_are_those_of_a_fabric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: int, fabric: str, collective: str, op: str
) -> None:
    """A domain of 72 holds 72 GPUs: more are several, over the network, and both verbs say the same of them."""
    facts = {
        **RACKS,
        "nodes": str(hosts),
        "ranks": str(hosts * 4),
        "collective": collective,
        "intra_node": DOMAIN,
    }
    at = folder(tmp_path, {"one": facts}, f"one,{1 << 29},7108\n")
    row = judged.study([at])["rows"][0]
    asked = ["simulate", op, "--fabric", fabric, "--algorithm", "nccl-2-4@2.26", "-b", "512M", "--json"]
    assert main(asked) == 0
    told = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["transport"] == "infiniband"
    assert row["time_us_p50"] == pytest.approx(told["time_us_p50"], rel=1e-9)
    assert row["outside"] == tuple(told["outside"])
    assert "gpu" in row["outside"]


def test_a_domain_holds_as_many_as_is_said(tmp_path: Path) -> None:
    facts = {**RACKS, "nodes": "20", "ranks": "80", "collective": "alltoall"}
    words = {
        "72": DOMAIN,
        "name": "NVL72",
        "unsaid": "one NVLink domain a rack",
        "larger": "domain of 576 GPUs",
        "none": "NVLink",
    }
    rows = judged.study(
        [
            folder(
                tmp_path,
                {name: {**facts, "intra_node": each} for name, each in words.items()},
                "".join(f"{name},{8 << 30},180200\n" for name in words),
            )
        ]
    )["rows"]
    time_us = {row["case"]: row["time_us_p50"] for row in rows}
    kinds = {row["case"]: row["transport"] for row in rows}
    assert time_us["72"] == time_us["name"] == time_us["unsaid"]
    assert kinds == {
        "72": "infiniband",
        "name": "infiniband",
        "unsaid": "infiniband",
        "larger": "nvlink",
        "none": "infiniband",
    }
    assert time_us["72"] > 5 * time_us["larger"]
