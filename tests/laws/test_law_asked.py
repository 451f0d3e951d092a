"""The law of what was asked: every simulated answer says which machine, faults and release it is of, and what the faults cost."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ringwright.calls.provenance import asked_of, release_of
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply, in_words
from ringwright.ground.version import VERSION
from ringwright.jobs.predict import simulate
from ringwright.model.trace import Trace
from ringwright.model.workload import Workload
from ringwright_lab.survey.document import question_of
from ringwright_lab.survey.job_gains import Runs, figures
from ringwright_lab.survey.survey_job import NamedMachine, SurveySpec, of_model

pytestmark = pytest.mark.once
NIC, SLOW = "nic node0/nic0 rate 50%", "rank 1 slow 3x"
JOB = "simulate --model resnet-18 --gpus 4 --fabric switch:4,rate=100Gb/s --policy none,p3"
# A question of each verb that simulates, and a fault that slows what it asks about.
VERBS = {
    "collective": ("simulate all-reduce --fabric dgx-a100:2 --algorithm nccl-2-4@2.27,ring -b 64M -e 64M", NIC),
    "engine": ("simulate all-reduce --fabric dgx-a100:2 --algorithm ring -b 64M -e 64M --engine events", NIC),
    "winners": ("simulate all-reduce --fabric dgx-a100:2 --algorithm ring -b 64M -e 64M --winners", NIC),
    "job": (JOB, SLOW),
    "job where all links lose": (JOB, "link * rate 50%"),
    "job beside another": (JOB, "congestion from all-to-all 8MiB on 0-3"),
    "replay": ("simulate --sample --fabric dgx-h100:2", "link * rate 50%"),
    "synthesise": ("synthesise all-gather --fabric switch:4 --size 1M --alone", "link rank0 rate 50%"),
    "groups": ("synthesise all-reduce --fabric switch:4 --groups tp=2,dp=2 --size 1M", "link rank0 rate 50%"),
    "bound": ("bound all-reduce --fabric dgx-a100:2 -b 64M", NIC),
    "placements": (
        "workload resnet-18 --gpus 4 --place --fabric switch:4,rate=100Gb/s --policy none",
        SLOW,
    ),
    "advise": (
        "advise --model resnet-18 --gpus 4 --fabric switch:4,rate=10Gb/s --may ddp --budget 2s",
        SLOW,
    ),
}
WITHOUT_ROWS = ("winners", "groups", "advise", "bound")


def asked(question: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """Return the JSON answer to a command."""
    words = [*shlex.split(question), *more, "--json"]
    with pytest.MonkeyPatch.context() as typed:
        typed.setattr(sys, "argv", ["ringwright", *words])
        assert main(words) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.sampled(5, "*")
@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_says_what_was_asked_and_what_faults_cost(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    question, fault = VERBS[verb]
    answer = asked(question, capsys, "--fault", fault, "--seed", "5")
    said, name = answer["asked"], shlex.split(question)[shlex.split(question).index("--fabric") + 1]
    is_congestion = fault.startswith("congestion")
    assert said["fabric"] == name
    assert said["faults"] == ([] if is_congestion else [fault])
    assert said["beside"] == ([fault.removeprefix("congestion from ")] if is_congestion else [])
    assert said["version"] == VERSION
    assert said["transports"][name]
    assert said["command"].startswith(f"ringwright {question.split()[0]}")
    assert "--fault" in said["command"]
    assert is_congestion or said["seed"] == 5
    if verb in WITHOUT_ROWS:
        return
    for row in answer["rows"]:
        mine = row.get("step_us", row.get("time_us"))
        healthy = row["healthy"]["step_us" if "step_us" in row else "time_us"]
        assert mine > 1.02 * healthy > 0, f"{verb}: a fault that lengthens it, and its answer says by how much"


@pytest.mark.parametrize("verb", ["winners", "groups", "bound"])
def test_an_answer_without_a_healthy_one_beside_it_still_says_the_fault(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    question, fault = VERBS[verb]
    assert main([*shlex.split(question), "--fault", fault]) == 0
    assert f"faults: '{fault}'" in " ".join(capsys.readouterr().out.splitlines()[:5])


@pytest.mark.parametrize(
    "question",
    [
        "simulate all-reduce --fabric dgx-h100:2 -b 1M -e 1M",
        "simulate --model resnet-18 --gpus 16 --fabric dgx-h100:2",
        "synthesise all-gather --fabric dgx-h100:1 --size 1M --alone",
        "bound all-reduce --fabric dgx-h100:2 -b 1M",
    ],
)
def test_a_calibration_is_told(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(question, capsys, "--calibration", "p5")["asked"]["calibration"] == "p5"


def test_advice_says_for_which_release_it_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    question = "advise --model resnet-18 --gpus 4 --fabric switch:4 --may nccl --budget 1s --release 2.19"
    assert list(asked(question, capsys)["asked"]["release"].values()) == ["2.19"]


@pytest.mark.sampled(4, "verb")
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("winners", "groups", "bound")])
def test_what_faults_cost_comes_first(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    question, fault = VERBS[verb]
    assert main([*shlex.split(question), "--fault", fault]) == 0
    head = " ".join(" ".join(capsys.readouterr().out.splitlines()[:9]).split())
    assert fault.removeprefix("congestion from ") in head
    assert "without the fault" in head


@pytest.mark.sampled(4, "verb")
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in WITHOUT_ROWS])
def test_without_faults_nothing_is_said_of_any(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(VERBS[verb][0], capsys)
    assert answer["asked"]["faults"] == []
    assert {row["healthy"] is None for row in answer["rows"]} == {True}


@pytest.mark.parametrize("fault", [SLOW, "link * rate 50%"])
def test_the_baseline_of_a_survey_knows_the_fault(fault: str) -> None:
    healthy = fabric("switch:2,rate=10Gb/s")
    machine = NamedMachine(apply(healthy, [fault]), "", healthy=healthy)
    question = of_model("resnet-18", machine, SurveySpec())
    figured = figures(Runs(question).outcome(*question.baseline))
    assert question_of(question)["faults"] == [fault]
    assert figured["step_us"] > 1.05 * figured["healthy"]["step_us"]


def test_sizing_a_network_says_of_which_machines(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked("provision resnet-18 --fabric switch:2 --fabric leaf-spine:2,per_leaf=1", capsys)
    assert list(answer["asked"]["transports"]) == ["switch:2", "leaf-spine:2,per_leaf=1"]
    assert answer["asked"]["release"] == {"nccl-2-4": release_of("nccl-2-4")}


@pytest.mark.parametrize(
    ("question", "fabric_is", "release"),
    [
        ("library nccl-2-4@2.19 --ranks 16 --nodes 2 --fabric dgx-h100 -b 1M -e 1M", "dgx-h100:2", "2.19"),
        ("library mpich2 --ranks 4 --fabric switch:4 -b 1M -e 1M", "switch:4", None),
    ],
)
def test_a_library_says_on_which_machine_it_was_asked(
    question: str, fabric_is: str, release: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    said = asked(question, capsys)["asked"]
    assert said["fabric"] == fabric_is
    assert list(said["transports"]) == [fabric_is]
    assert list(said["release"].values()) == ([] if release is None else [release])
    assert said["command"] == f"ringwright {question} --json"


def test_measured_calls_say_of_which_releases_and_transports_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "case,system,gpu,nodes,gpus_per_node,ranks,collective,intra_node,inter_node,software,settings"
    row = "one,here,H100,{nodes},8,{ranks},all_reduce,NVSwitch,8 x 400 Gb/s InfiniBand a node,NCCL 2.20,"
    for name, nodes in (("mine", 1), ("before", 2)):
        (tmp_path / name).mkdir()
        written = (
            ("cases", head, row.format(nodes=nodes, ranks=8 * nodes)),
            ("times", "case,bytes,time_us", "one,4096,20"),
        )
        for table, columns, line in written:
            (tmp_path / name / f"my_{table}.csv").write_text(f"{columns}\n{line}\n")
    said = asked(f"accuracy {tmp_path / 'mine'} --calibrate {tmp_path / 'before'}", capsys)["asked"]
    assert (said["version"], said["transports"]) == (VERSION, {"here": "nvlink"})
    assert said["release"] == {"nccl-2-4@2.20": "2.20"}
    assert said["calibration"] == str(tmp_path / "before")


def test_measured_steps_say_on_which_machines_they_are_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(
        "model,gpus,data_parallel,global_batch,micro_batch,sequence,device,iteration_s\ngpt2,8,8,8,1,1024,h100,0.5\n"
    )
    answer = asked(f"compare --jobs {table}", capsys)
    assert answer["asked"]["version"] == VERSION
    assert list(answer["asked"]["transports"]) == ["dgx-h100:1,layout=switch"]


@pytest.mark.parametrize("verb", ["collective", "job", "replay"])
def test_a_saved_run_says_what_was_asked(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question, fault = VERBS[verb]
    asked(question, capsys, "--fault", fault, "--trace", str(tmp_path / "run"))
    said = Trace.open(tmp_path / "run").meta["asked"]
    assert said["faults"] == [fault]
    assert said["version"] == VERSION
    assert "--fault" in said["command"]
    assert main(["summary", str(tmp_path / "run"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["asked"] == said
    assert f"with '{fault}'" in summary["coverage"]


def test_a_healthy_run_of_yesterday_can_be_told_from_one_with_a_fault(tmp_path: Path) -> None:
    for name, more in (("healthy", []), ("ill", ["--fault", SLOW])):
        assert main([*shlex.split(JOB), *more, "--trace", str(tmp_path / name)]) == 0
    healthy, ill = (Trace.open(tmp_path / name).meta["asked"] for name in ("healthy", "ill"))
    assert (healthy["faults"], ill["faults"]) == ([], [SLOW])


@pytest.mark.parametrize("line", [line for _, line, _ in in_words()])
def test_a_machine_keeps_the_lines_of_its_faults(line: str) -> None:
    if line.startswith("congestion"):
        return  # traffic of another job: no property of a machine
    inside, between = "node0/gpu0>node0/gpu1" in line, "spine1" in line
    machine = fabric("dgx-1:1" if inside else "leaf-spine:16,per_leaf=4" if between else "dgx-h100:64")
    ill = apply(apply(machine, ["# a remark", line + "  # why"], seed=3), ["link * rate 50%"], seed=3)
    assert ill.fault_lines == (line, "link * rate 50%")
    assert asked_of(ill)["seed"] == 3


def test_a_release_is_that_of_the_spelling() -> None:
    assert asked_of(None, ["nccl-2-4@2.19", "ring"])["release"] == {"nccl-2-4@2.19": "2.19"}
    assert release_of("no such system") is None


def test_the_same_answer_from_python(resnet: Workload) -> None:
    for fault in (SLOW, "link * rate 50%"):
        answer = simulate(resnet, "switch:4,rate=10Gb/s", faults=[fault])
        assert answer.healthy is not None
        assert answer.healthy.step_s == simulate(resnet, "switch:4,rate=10Gb/s").step_s
        assert answer.step_s > 1.05 * answer.healthy.step_s


@pytest.fixture(scope="module")
def resnet() -> Workload:
    from ringwright.jobs.model_step import job

    return job("resnet-18", gpus=4)
