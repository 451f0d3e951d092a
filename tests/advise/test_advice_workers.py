"""Who works changes no advice: one process, two and three say the same to the byte, but for who worked and how long it took."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ringwright.advise.evaluation import Evaluation, Evaluator, EvaluatorRecipe, evaluated, evaluator_of
from ringwright.advise.interval import Draws, steps_drawn
from ringwright.advise.settings import ORDER, Setting, Setup
from ringwright.advise.situation import MOST_READ_BYTES, Situation, SituationRecipe, of_model, of_recording
from ringwright.cli import main
from ringwright.executors.fan_out import FanOut
from ringwright.fabrics import fabric
from ringwright.formats.sources import read
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec

MODEL = ["--model", "gpt3-125m", "--gpus", "4", "--fabric", "switch:4,rate=10Gb/s"]
P3 = Setup((Setting("policy", ORDER, "p3", "", ""),))


@pytest.fixture(scope="module")
def situation() -> Situation:
    spec = GeneratedJobSpec(WorkloadSpec("gpt3-125m", 4, "dp4", 1))
    return of_model(spec, fabric("switch:4,rate=10Gb/s"), "pytorch-ddp")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of four ranks, one of them slow."""
    path = tmp_path_factory.mktemp("recorded") / "job"
    words = ["--model", "resnet-18", "--gpus", "4", "--fabric", "switch:4,rate=25Gb/s", "--fault", "rank 3 slow 4x"]
    assert main(["simulate", *words, "--trace", str(path)]) == 0
    return path


def told(capsys: pytest.CaptureFixture[str], executor: str, *words: str) -> tuple[str, dict[str, Any]]:
    """Return the answer but for its times and who worked, and who worked."""
    capsys.readouterr()
    assert main(["advise", *words, "--executor", executor, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    del answer["search_s"], answer["asked"]["command"]
    return json.dumps(answer), answer.pop("executor")


def without_executor(text: str) -> str:
    answer = json.loads(text)
    del answer["executor"]
    return json.dumps(answer)


@pytest.mark.once
@pytest.mark.parametrize("work", ["20000", "6000000"])
def test_two_and_three_processes_say_what_one_does(work: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*MODEL, "--may", "ddp,policy", "--work", work]
    answers, accounts = zip(*(told(capsys, f"local:{workers}", *words) for workers in (1, 2, 3)), strict=True)
    assert len({without_executor(each) for each in answers}) == 1
    assert [each["workers"] for each in accounts] == [1, 2, 3]
    assert len({each["tasks"] for each in accounts}) == 1
    answer = json.loads(answers[0])
    assert (answer["ended"], answer["stopped"]) == (("work", True) if work == "20000" else ("complete", False))
    assert 1 < answer["evaluated"] <= answer["setups"]


@pytest.mark.once
def test_a_recording_is_read_by_those_who_work(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [
        told(capsys, executor, str(job), "--may", "repair,ddp", "--work", "9000")[0]
        for executor in ("local:1", "local:2")
    ]
    assert without_executor(answers[0]) == without_executor(answers[1])
    assert json.loads(answers[0])["changes"][0]["layer"] == "repair"


def test_what_cannot_be_read_again_is_asked_about_here(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = read(str(job))
    assert of_recording(trace, None).again is None
    assert of_recording(trace, None, paths=["-"]).again is None
    assert of_recording(trace, None, paths=[str(job)]).again == SituationRecipe(None, paths=(str(job),))
    monkeypatch.setattr("ringwright.advise.situation.MOST_READ_BYTES", 1)
    assert of_recording(trace, None, paths=[str(job)]).again is None
    assert MOST_READ_BYTES > 1


class Backwards:
    """Who has the last task done first, and is interrupted after so many."""

    def __init__(self, most: int = 99) -> None:
        self.most, self.closed = most, False

    def map(
        self,
        function: Callable[..., Any],
        given: Sequence[tuple[Any, ...]],
        *,
        each: Callable[[int, Any], None],
        paths: Sequence[str],
    ) -> None:
        for done, at in enumerate(reversed(range(len(given)))):
            if done == self.most:
                raise KeyboardInterrupt
            each(at, function(*given[at]))

    def close(self, *, at_once: bool) -> None:
        self.closed = at_once


def test_runs_are_remembered_in_the_order_in_which_they_were_asked_for(situation: Situation) -> None:
    setups = [Setup(), P3, *(Setup((Setting("policy", ORDER, each, "", ""),)) for each in ("tictac", "pace"))]
    known, work = [], []
    for fan in (None, Backwards()):
        evaluator = Evaluator(situation, fan=cast("FanOut | None", fan))
        evaluator.ahead(setups)
        known.append(list(evaluator.known.items()))
        work.append(evaluator.work)
    assert known[0] == known[1]
    assert work[0] == work[1]


def test_whoever_interrupts_keeps_what_is_done(situation: Situation) -> None:
    fan = Backwards(1)
    evaluator = Evaluator(situation, fan=cast(FanOut, fan))
    with pytest.raises(KeyboardInterrupt):
        evaluator.ahead([Setup(), P3])
    assert [each.setup for each in evaluator.known.values()] == [P3]
    assert fan.closed, "nothing that was begun holds up what is asked next"


def test_an_evaluator_is_made_once_in_a_process(situation: Situation) -> None:
    assert situation.again is not None
    recipe = EvaluatorRecipe(situation.again, None, inexact=False)
    made = evaluator_of(recipe)
    assert evaluator_of(EvaluatorRecipe(situation.again, None, inexact=False)) is made
    assert evaluator_of(EvaluatorRecipe(situation.again, 1 << 40, inexact=False)) is not made
    mine: Evaluation = Evaluator(situation).run(P3)
    assert evaluated(recipe, P3) == mine
    draws = Draws(Evaluator(situation))
    assert steps_drawn(recipe, P3, tuple(draws.draws[:2])) == draws.steps(P3)[:2].tolist()
