"""One worker, two, three and eight: each verb that shares its work out says the same, to the byte but for times and who worked."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringwright.accuracy import judged
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.cli import main
from ringwright.executors.fan_out import FanOut, fan_out
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright_lab.contracts import campaign
from ringwright_lab.testing import back_tests, blind, campaigns, one_physics, place_verdicts
from ringwright_lab.testing.many_ranks import ManyRanks

TIMES = ("took_s", "started_s", "began", "search_s", "synthesis_s", "kept", "executor")
NAMED = ("command", "out", "table", "output", "outputs")  # what is asked by another name each time
SIMULATED = ["simulate", "all-reduce", "--fabric", "dgx-h100:2"]
FLAP = ["--fault", "link node1/nic2 flap 100ms every 2s", "-b", "1K", "-e", "1000G", "-f", "30000"]
VERBS = {
    "reproduce": ["reproduce", "blueconnect", "netai2020", "gradientflow"],
    "provision": ["provision", "resnet-18", "alexnet", "--fabric", "switch:2"],
    "several-systems": [*SIMULATED, "--algorithm", "ring,nccl-2-4,blueconnect:factors=2x4", "-b", "1K", "-e", "1M"],
    "outages": [*SIMULATED, *FLAP],
    "late-ranks": [*SIMULATED, "--arrivals", "exponential:20us", "-b", "1K", "-e", "64K"],
    "winners": [*SIMULATED, "--winners", "-b", "1K", "-e", "1M", "-f", "32"],
    "synthesise": ["synthesise", "all-gather", "--fabric", "switch:4", "--size", "1M", "--method", "forest,expand"],
    "sweep": ["sweep", "GRID", "-o", "OUT"],
    "accuracy": ["accuracy", "TABLES"],
    "events": ["accuracy", "TABLES", "--engine", "events"],
    "compare": ["compare", "--jobs", "STEPS"],
    "survey": ["survey", "resnet-18", "--fabric", "switch:2"],
    "advise": [
        "advise",
        "--model",
        "resnet-18",
        "--gpus",
        "2",
        "--fabric",
        "switch:2",
        "--may",
        "ddp",
        "--work",
        "20000",
    ],
    "summary": ["summary", "JOB"],
    "report": ["report", "JOB", "-o", "OUT"],
    "query": ["query", "select rank, count(*) as n from events group by rank order by rank", "JOB"],
    "diff": ["diff", "JOB", "JOB"],
    "check": ["check", "JOB"],
    "convert": ["convert", "JOB", "-o", "OUT"],
}
LONG = ("survey", "advise", "events", "provision", "reproduce", "diff")  # tests of their own hold them with two workers
FACTS = (
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
)
OURS = ("8", "all_reduce", "NVSwitch", "8 x 400 Gb/s InfiniBand a node", "NCCL 2.20", "")


def put(folder: Path) -> dict[str, str]:
    """Write what verbs read; return the paths by the words that stand for them."""
    ManyRanks(6, 6, late_rank=5).write(folder / "job")
    (folder / "grid.toml").write_text('[axes]\nmodel = ["llama"]\nparallel = ["ddp:dp=2"]\nbackend = ["nccl", "mpi"]\n')
    (folder / "tables").mkdir()
    with (folder / "tables" / "my_cases.csv").open("w", newline="") as cases:
        rows = csv.writer(cases)
        rows.writerow([*FACTS, "settings"])
        for nodes in (1, 2):
            rows.writerow([f"n{nodes}", "mine", "H100", nodes, "8", 8 * nodes, *OURS[1:]])
    sizes = "".join(f"n{nodes},{size},{20 * nodes + size / 1e5}\n" for nodes in (1, 2) for size in (1 << 16, 1 << 22))
    (folder / "tables" / "my_times.csv").write_text(f"case,bytes,time_us\n{sizes}")
    steps = "gpus,model,sequence,global_batch,micro_batch,tensor_parallel,pipeline_parallel,device,iteration_s\n"
    (folder / "steps.csv").write_text(
        steps + "".join(f"{8 * k},gpt3-125m,1024,{16 * k},1,1,1,a100,{k}\n" for k in (1, 2))
    )
    return {"JOB": "job", "GRID": "grid.toml", "TABLES": "tables", "STEPS": "steps.csv"}


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in (*TIMES, *NAMED)}
    return [without_times(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("read")


@pytest.fixture(scope="module")
def read(folder: Path) -> dict[str, str]:
    return put(folder)


def answer(words: list[str], folder: Path, workers: int, capsys: pytest.CaptureFixture[str]) -> tuple[str, Any]:
    capsys.readouterr()
    out = str(folder / f"{words[0]}-{workers}-{len(list(folder.iterdir()))}")
    asked = [out if word == "OUT" else word for word in words]
    code = main([*asked, "--json", "--executor", f"local:{workers}"])
    told = json.loads(capsys.readouterr().out)
    assert code in (0, 1), told
    return json.dumps(without_times(told), sort_keys=True), told["executor"]


@pytest.mark.parametrize("verb", [each for each in VERBS if each not in LONG])
def test_one_worker_and_eight_say_the_same(
    verb: str, folder: Path, read: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(folder / read[word]) if word in read else word for word in VERBS[verb]]
    one, alone = answer(words, folder, 1, capsys)
    eight, many = answer(words, folder, 8, capsys)
    assert one == eight
    assert alone["tasks"] == many["tasks"] or verb == "synthesise"  # of which each search has its turn where one works
    assert many["tasks"] > 0
    assert (alone["workers"], many["name"]) == (1, "local:8")


@pytest.mark.sampled(0, "*")  # with eight: test_one_worker_and_eight_say_the_same
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_any_number_of_workers_says_the_same(
    workers: int, verb: str, folder: Path, read: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(folder / read[word]) if word in read else word for word in VERBS[verb]]
    assert answer(words, folder, 1, capsys)[0] == answer(words, folder, workers, capsys)[0]


# ----------------------------------------------------------------------------------------------------- what is refused
def test_a_machine_that_only_the_caller_can_make_is_simulated_here() -> None:
    known = fabric("switch:4")
    through = 4  # the switch
    made = replace(known, paths=lambda src, dst: np.stack([src, np.full_like(src, through), dst], axis=1))
    told = sweep(SimulationSpec("all-reduce", made), ["ring", "linear"], [1 << 10, 1 << 20], executor="local:2")
    plain = sweep(SimulationSpec("all-reduce", known), ["ring", "linear"], [1 << 10, 1 << 20], executor="local:1")
    assert told["executor"]["name"] == "local:1"
    assert without_times(told["rows"]) == without_times(plain["rows"])


@pytest.mark.parametrize("workers", [1, 2])
def test_one_call_without_an_answer_is_a_row_and_all_of_them_an_error(workers: int) -> None:
    asked, executor = SimulationSpec("all-reduce", fabric("switch:7")), f"local:{workers}"
    told = sweep(asked, ["blueconnect:factors=2x4", "ring"], [1 << 10], executor=executor)
    assert [row["declined"] is None for row in told["rows"]] == [False, True]
    with pytest.raises(UsageError):
        sweep(asked, ["blueconnect:factors=2x4"], [1 << 10, 1 << 12], executor=executor)


def test_a_whole_job_has_no_sizes_to_share_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--model", "resnet50", "--gpus", "2", "--fabric", "switch:2"]
    assert main([*words, "--executor", "local:2"]) == 2
    assert "leave it out" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------- campaigns
def pieces(fan: FanOut) -> object:
    cases = tuple(campaign.cases("algorithms", 3, only="ring", some=True))
    told = fan.map(campaign.checked, [(cases[:20],), (cases[20:40],)])
    return [(each.cases, each.tallies, each.failures) for each in told]


def of_back_tests(fan: FanOut) -> object:
    return back_tests.campaign(back_tests.BackTestSizes(2, 0, 1, 0, 0), back_tests.SEALED, executor=fan)


def of_blind_faults(fan: FanOut) -> object:
    return blind.judge(blind.plan(2, 1, 0, 0, first_seed=100_000), executor=fan)


def of_planted(fan: FanOut) -> object:
    return fan.map(place_verdicts.judged, [(100_000, ""), (100_001, "")])


def of_physics(fan: FanOut) -> object:
    return fan.map(one_physics.tried, [(1,), (2,)])


def same_by_two(made: Callable[[FanOut], object]) -> None:
    told = []
    for executor in ("local:1", "local:2"):
        with fan_out(executor) as fan:
            told.append(made(fan))
    assert told[0] == told[1]


@pytest.mark.parametrize("made", [pieces, of_physics])
def test_a_campaign_is_the_same_by_two_as_by_one(made: Callable[[FanOut], object]) -> None:
    same_by_two(made)


@pytest.mark.sampled(0, "*")  # with smaller ones: test_a_campaign_is_the_same_by_two_as_by_one
@pytest.mark.parametrize("made", [of_back_tests, of_blind_faults, of_planted])
def test_long_campaigns_are_the_same_too(made: Callable[[FanOut], object]) -> None:
    same_by_two(made)


def interrupted(number: int) -> int:
    """A check that is worth keeping; the fourth is interrupted."""
    time.sleep(0.06)
    if number == 3 and not Path(sys.argv[0]).with_suffix(".again").exists():
        raise KeyboardInterrupt
    return number


def test_an_interrupted_campaign_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RINGWRIGHT_TASKS", str(tmp_path / "tasks"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "campaign")])
    given = [(number,) for number in range(6)]
    with pytest.raises(SystemExit) as ended:
        campaigns.drawn("local:1", interrupted, given)
    assert ended.value.code == campaigns.INTERRUPTED
    assert "3 results are kept: the same command goes on there" in capsys.readouterr().err
    (tmp_path / "campaign.again").touch()
    with campaigns.resumable("local:1") as fan:
        assert fan.map(interrupted, given) == list(range(6))
    assert fan.account.resumed == 3
    assert not (tmp_path / "tasks").exists()


def test_a_judge_asks_engines_call_by_call(folder: Path, read: dict[str, str]) -> None:
    told = judged.study([folder / read["TABLES"]], engine="events", executor="local:1")
    assert [row["case"] for row in told["rows"]] == ["n1", "n1", "n2", "n2"]
    assert told["executor"]["tasks"] == 2
