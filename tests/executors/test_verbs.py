"""Who works changes no answer: verbs by one process and by two, beside each other, to the byte but for who worked and how long."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import ThreadpoolController

from ringwright.cli import main
from ringwright.costs.learnt.prior import Prior, shipped
from ringwright.executors.fan_out import fan_out
from ringwright.fabrics import fabric
from ringwright_lab.survey.job_gains import Runs
from ringwright_lab.survey.survey_job import NamedMachine, SurveySpec, of_model
from ringwright_lab.testing.many_ranks import ManyRanks

TIMES = ("took_s", "started_s", "began")
PAIRS = [("nccl-2-4", "pytorch-ddp"), ("blueconnect", "pytorch-ddp"), ("nccl-2-4", "p3"), ("accl", "pytorch-ddp")]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a verb's answer without what is about this run alone, and who worked."""
    main([*words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    executor = answer.pop("executor")
    answer.get("asked", {}).pop("command", None)
    answer.pop("command", None)
    return without_times(answer), executor


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in TIMES}
    return [without_times(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "words",
    [
        ["reproduce", "blueconnect", "netai2020", "gradientflow"],
        ["provision", "resnet-18", "alexnet", "--fabric", "switch:2"],
        ["provision", "resnet-18", "--fabric", "switch:2", "--fabric", "switch:3,rate=25Gb/s", "--interval"],
    ],
    ids=lambda words: words[0],
)
def test_two_processes_answer_what_one_does(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    one, alone = told(capsys, *words, "--executor", "local:1")
    two, both = told(capsys, *words, "--executor", "local:2")
    assert one == two
    assert (alone["name"], alone["workers"], both["name"], both["workers"]) == ("local:1", 1, "local:2", 2)
    assert alone["tasks"] == both["tasks"] > 1
    assert both["cpu_s"] > 0


def test_a_sweep_is_the_same_and_its_folder_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('[axes]\nmodel = ["llama"]\nparallel = ["ddp:dp=2", "tp:tp=2"]\nbackend = ["nccl", "mpi"]\n')
    answers = [
        told(capsys, "sweep", str(grid), "-o", str(tmp_path / at), "--executor", at)[0] for at in ("local:1", "local:2")
    ]
    for each in answers:
        del each["out"], each["table"]
    assert answers[0] == answers[1]
    files = [
        sorted(each.relative_to(tmp_path / at) for each in (tmp_path / at).rglob("*")) for at in ("local:1", "local:2")
    ]
    assert files[0] == files[1]
    for path in (each for each in files[0] if each.name == "simulated.json"):
        assert (tmp_path / "local:1" / path).read_bytes() == (tmp_path / "local:2" / path).read_bytes()
    again, executor = told(capsys, "sweep", str(grid), "-o", str(tmp_path / "local:2"))
    assert (again["counts"], executor["tasks"]) == ({"run": 0, "kept": 4, "failed": 0}, 0)


@pytest.mark.parametrize("verb", ["summary", "diff", "check", "query", "report", "convert"])
def test_a_recording_of_many_files_is_the_same(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ManyRanks(24, 12, late_rank=5, damaged=1, missing=1).write(tmp_path / "job")
    job = str(tmp_path / "job")
    words = {
        "diff": ["diff", job, job],
        "query": ["query", "select rank, count(*) as n from events group by rank order by rank", job],
        "report": ["report", job, "-o", str(tmp_path / "page.html"), "--force"],
        "convert": ["convert", job, "-o", str(tmp_path / "saved"), "--force"],
    }
    answers = []
    for executor in ("local:1", "local:2", "local:3"):
        main([*words.get(verb, [verb, job]), "--json", "--executor", executor])
        answers.append(json.loads(capsys.readouterr().out))
    told_by = [each.pop("executor") for each in answers]
    assert answers[0] == answers[1] == answers[2]
    read = 46 if verb == "diff" else 23
    assert [(each["workers"], each["tasks"]) for each in told_by] == [(1, read), (2, read), (3, read)]


def test_an_experiment_takes_no_executor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "collective-profiling-poster", "--executor", "local:2"]) == 2
    assert "leave --executor out" in capsys.readouterr().err


def test_pairs_of_the_survey_are_those_that_one_process_finds() -> None:
    asked = of_model("resnet-18", NamedMachine(fabric("switch:2"), "--fabric switch:2"), SurveySpec())
    with fan_out("local:2") as fan:
        runs = Runs(asked, fan=fan)
        runs.ahead(PAIRS)
    assert runs.outcomes == {pair: Runs(asked).outcome(*pair) for pair in PAIRS}
    assert fan.account.tasks == len(PAIRS)
    nobody = Runs(replace(asked, again=None), fan=fan)
    nobody.ahead(PAIRS)
    assert not nobody.outcomes


def test_learnt_times_do_not_depend_on_the_threads_of_linear_algebra() -> None:
    fields = {name: getattr(shipped(), name) for name in Prior.__struct_fields__}
    known = []
    for threads in (1, 2):
        with ThreadpoolController().limit(limits=threads, user_api="blas"):
            known.append(Prior(**fields).known)
    assert all((one == two).all() for one, two in zip(*known, strict=True))
