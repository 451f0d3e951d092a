"""Every scheduler keeps the laws of scheduling, with every knob; one that breaks a law is told which."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from ringwright.ground.errors import UsageError
from ringwright.model import registry
from ringwright.model.stages import Costs
from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright_lab.contracts import scheduler as contract
from ringwright_lab.contracts.conformance import check_scheduler, failures

pytestmark = pytest.mark.once


# A search on each of so many jobs spends little; scripts/conformance has it spend what it does by itself, and all it may.
SPENT = {"syndicate": "budget=64"}


@pytest.mark.parametrize("system", registry.schedulers(), ids=lambda system: system.slug)
def test_every_scheduler_keeps_its_contract(system: registry.System) -> None:
    of_knobs = {case.knobs.partition("=")[0]: case for case in contract.over_knobs([system], 7, 1)}
    cases = [
        *contract.cases([system], range(1)),
        *of_knobs.values(),
    ]  # a value of each; scripts/conformance has both its ends
    if spent := SPENT.get(system.slug):
        cases = [
            case if "budget" in case.knobs else replace(case, knobs=f"{case.knobs}:{spent}".strip(":"))
            for case in cases
        ]
    outcomes = [contract.check(case) for case in cases]
    assert failures(outcomes) == []
    answered = [each for each in outcomes if "legal" in each.passed]  # some systems are for one kind of job
    assert sum(len(each.passed) for each in answered) > 2 * sum(len(each.declined) for each in answered)
    assert {knob.name for knob in system.knobs().values()} == {
        each.case.knobs.partition("=")[0] for each in outcomes if each.case.knobs
    }


def test_a_case_replays_from_its_text() -> None:
    case = contract.SchedulerCase("p3", "mesh", "all-reduce", 5, "slice_elements=70")
    assert contract.SchedulerCase.parsed(str(case)) == case
    with pytest.raises(UsageError, match="is not a case"):
        contract.SchedulerCase.parsed("p3 boats all-reduce seed=1")


def good(workload: Workload, costs: Costs) -> Workload:
    """Smallest first."""
    keys = {each.name: each.size_bytes for each in workload.payloads}
    return workload.with_policy("good", queue=Queue(keys=keys), boundary="layer", agreement="static")


def by_luck(workload: Workload, costs: Costs) -> Workload:
    return workload.with_policy(
        "by-luck", queue=Queue(keys={each.name: random.randrange(99) for each in workload.payloads})
    )


def by_hash(workload: Workload, costs: Costs) -> Workload:
    keys = {name: at for at, name in enumerate({each.name for each in workload.payloads})}
    return workload.with_policy("by-hash", queue=Queue(keys=keys))


def unsigned(workload: Workload, costs: Costs) -> Workload:
    return replace(workload, policy=replace(workload.policy, queue=Queue()))


def generous(workload: Workload, costs: Costs) -> Workload:
    return replace(good(workload, costs), payloads=workload.payloads[1:])


def faster(workload: Workload, costs: Costs) -> Workload:
    return replace(good(workload, costs), tasks=tuple(replace(each, seconds=0.0) for each in workload.tasks))


def illegal(workload: Workload, costs: Costs) -> Workload:
    return workload.with_policy("illegal", queue=Queue(keys={"nothing of the kind": 1}))


def melting(workload: Workload, costs: Costs) -> Workload:
    return workload.with_policy("melting", rewrites=(Rewrite("melt"),))


def wordless(workload: Workload, costs: Costs) -> Any:
    return None


def failing(workload: Workload, costs: Costs) -> Workload:
    return workload.with_policy("failing", queue=Queue(keys={workload.payloads[99].name: 1}))


def test_a_scheduler_from_outside_is_checked() -> None:
    outcomes = check_scheduler(good, seeds=range(2))
    assert failures(outcomes) == []
    assert sum(len(each.passed) for each in outcomes) > 60


@pytest.mark.parametrize(
    ("broken", "law", "why"),
    [
        (by_luck, "same-again", "in another way the next time"),
        (by_hash, "same-on-every-rank", "another rank may decide differently"),
        (unsigned, "alone", "use workload.with_policy"),
        (generous, "legal", "which is no payload"),
        (faster, "alone", "it changes tasks; CHANGES"),
        (illegal, "legal", "nothing of the kind"),
        (melting, "legal", "melt"),
        (wordless, "workload", "it returned NoneType, not a Workload"),
        (failing, "workload", "raised IndexError"),
    ],
)
def test_a_broken_scheduler_is_told_what_it_breaks(broken: Any, law: str, why: str) -> None:
    told = {name: reason for each in check_scheduler(broken, seeds=range(3)) for name, reason in each.failed.items()}
    assert why in told[law]


def test_every_system_of_the_list_shows_its_contract() -> None:
    from ringwright_lab.survey.catalogue import catalogue

    for row in catalogue()["systems"]:
        if row["origin"] == "house":
            assert row["conformance"]["passed"] > 0, row["slug"]
            assert (row["conformance"]["failed"], row["conformance"]["recorded"]) == (0, True), row["slug"]
    now = catalogue(family="fifo", check=True, seed=3)
    assert all(row["conformance"]["passed"] > 50 and not row["conformance"]["failed"] for row in now["systems"])
    assert "seed 3" in now["ground"]
