"""A second process that bounds setups says the same as the first, and may die at any time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from ringwright.advise import evaluation, second_process
from ringwright.advise.evaluation import Evaluator
from ringwright.advise.search import searched
from ringwright.advise.second_process import BoundsBeside
from ringwright.advise.settings import GRAPH, PLACED, Setting, Setup
from ringwright.advise.situation import Situation, of_model
from ringwright.fabrics import fabric
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.cost_cache import KnownOperations

FORM = "tp2,dp2"


@pytest.fixture(scope="module")
def situation() -> Situation:
    spec = GeneratedJobSpec(WorkloadSpec("gpt3-125m", gpus=4, parallel=FORM))
    return of_model(spec, fabric("rail-optimised:2,gpus=2"), "pytorch-ddp")


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_process, "processors", lambda: 2)


def setups() -> list[Setup]:
    settings = [Setting("rewrites", GRAPH, each, "", "") for each in ("dear", "lynx", "pace")]
    settings += [Setting("placement", PLACED, "dp: gpu 2; tp: node 2", "", "")]
    return [Setup((each,)) for each in settings]


def answers(of: BoundsBeside) -> Iterator[tuple[Setup, float]]:
    while of.is_working:
        yield from of.answered(wait_s=60.0)


@pytest.mark.once
def test_the_second_process_says_what_the_first_would(situation: Situation) -> None:
    evaluator, alone = Evaluator(situation), Evaluator(situation)
    evaluator.run(Setup())
    alone.run(Setup())
    process = BoundsBeside(evaluator, setups())
    try:
        bounds = dict(answers(process))
    finally:
        process.close()
    assert bounds == {each: alone.least_s(each) for each in setups()}
    for each in setups():  # what it planned is run here
        assert evaluator.run(each).step_s == alone.run(each).step_s
        assert evaluator.run(each).refused == alone.run(each).refused
    assert evaluator.work == alone.work


@pytest.mark.once
def test_what_a_dead_process_owes_is_bounded_here(situation: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = {GRAPH: tuple(each.settings[0] for each in setups()[:3])}
    wanted = searched(Evaluator(situation), slots)
    monkeypatch.setattr(evaluation, "MANY_TASKS", 1)

    def dies(self: Evaluator, setup: Setup) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(Evaluator, "tell", dies)
    assert searched(Evaluator(situation), slots) == wanted


@pytest.mark.once
def test_a_search_with_a_second_process_ends_alike(situation: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = {each.settings[0].slot: (each.settings[0],) for each in setups()}
    wanted = searched(Evaluator(situation), slots)
    asked = []
    learn = Evaluator.learn
    monkeypatch.setattr(evaluation, "MANY_TASKS", 1)
    monkeypatch.setattr(Evaluator, "learn", lambda self, told: (asked.append(told), learn(self, told)))
    assert searched(Evaluator(situation), slots) == wanted
    monkeypatch.setattr(BoundsBeside, "taken", lambda self: iter(()))  # all turns are the second process's
    asked.clear()
    assert searched(Evaluator(situation), slots) == wanted
    assert len(asked) == 2


@pytest.mark.once
def test_each_setup_is_taken_by_one_of_both(situation: Situation) -> None:
    evaluator = Evaluator(situation)
    process = BoundsBeside(evaluator, setups())
    try:
        mine = [each for _, each in zip(range(2), process.taken(), strict=False)]
        theirs = [each for each, _ in answers(process)]
    finally:
        process.close()
    assert len(mine) == 2
    assert set(mine) | set(theirs) == set(setups())
    assert not set(mine) & set(theirs)


def test_nothing_is_started_for_nothing(situation: Situation) -> None:
    process = BoundsBeside(Evaluator(situation), [])
    assert not process.is_working
    assert not [*process.answered(), *process.taken()]
    process.close()


def test_one_processor_is_left_alone(situation: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_process, "processors", lambda: 1)
    process = BoundsBeside(Evaluator(situation), setups())
    assert not process.is_working
    assert process.left == setups() == list(process.taken())


def test_what_is_known_since() -> None:
    before = KnownOperations(sent={("ring", "all-reduce", None, 1): 2.0})
    now = before.copy()
    now.sent["ring", "all-reduce", None, 2] = 4.0
    assert now.since(before).sent == {("ring", "all-reduce", None, 2): 4.0}
    before.update(now.since(before))
    assert before == now
