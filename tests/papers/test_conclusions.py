"""The poster's conclusions: steps that can be typed, what is kept, and rows that pass and fail where they should."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import UsageError
from ringwright.jobs import model_job, study
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright_lab.papers.poster import conclusion_rows, conclusions, published_cases
from ringwright_lab.papers.poster.conclusions import (
    BUFFERS,
    EFFECTS,
    FOLLOWED,
    HEALTHY,
    OTHERS,
    ConclusionAnswer,
    PacketCheck,
    SimulatedModel,
)
from ringwright_lab.papers.poster.study import PARTS, experiment, parts_of
from ringwright_lab.reports import experiment as page

pytestmark = pytest.mark.once  # whole jobs, many times: with the compiled loops alone

SPELLED = "leaf-spine:4,per_leaf=2"
COMPUTED, FOLLOWED_AGAIN = SimulatedModel.answers, SimulatedModel.as_packets
SMALL = {"resnet-18": WorkloadSpec("resnet-18", 4, "dp4"), "resnet-50": WorkloadSpec("resnet-50", 4, "dp4")}


def _answers(pair: SimulatedModel) -> list[ConclusionAnswer]:
    """Return what a pair answers, computed once for all tests; whoever asks gets it anew."""
    return deepcopy(_answered(pair.model, pair.spelled))


@cache
def _answered(model: str, spelled: str) -> list[ConclusionAnswer]:
    return COMPUTED(SimulatedModel(model, spelled))


def _as_packets(pair: SimulatedModel, name: str, slowdown: float | None) -> PacketCheck:
    """Return what packets say of a pair's disturbance, followed once for all tests."""
    return deepcopy(_followed(pair.model, pair.spelled, name, slowdown))


@cache
def _followed(model: str, spelled: str, name: str, slowdown: float | None) -> PacketCheck:
    return FOLLOWED_AGAIN(SimulatedModel(model, spelled), name, slowdown)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedModel, "answers", _answers)
    monkeypatch.setattr(SimulatedModel, "as_packets", _as_packets)
    monkeypatch.setattr(conclusions, "MODELS", SMALL)
    monkeypatch.setattr(conclusions, "TOPOLOGIES", (SPELLED,))
    monkeypatch.setattr(conclusions, "IN_SHORT", (("resnet-18",), (SPELLED,)))


def simulated(model: str, *faults: str, algorithm: str = "") -> float:
    algorithms = {"": algorithm} if algorithm else {}
    job = model_job.made(GeneratedJobSpec(SMALL[model], "h100", algorithms), apply(fabric(SPELLED), faults))
    return study.answer(job, "pytorch-ddp").step_s * 1e6


@pytest.mark.usefixtures("small")
def test_every_answer_is_what_simulate_says(pytestconfig: pytest.Config) -> None:
    told = SimulatedModel("resnet-18", SPELLED).answers()
    by = {(each["disturbance"], each["algorithm"]): each for each in told}
    assert set(by) == {(name, "") for name in (HEALTHY, *EFFECTS, BUFFERS)} | {(HEALTHY, other) for other in OTHERS}
    anew = {(HEALTHY, ""), ("rate step", ""), (BUFFERS, ""), (HEALTHY, OTHERS[0])}  # of each engine, and a program
    for asked, each in by.items():
        assert each["engine"]
        assert each["slowdown"] == pytest.approx((each["step_us"] or 0) / (by[HEALTHY, ""]["step_us"] or 1))
        if asked not in anew and not pytestconfig.getoption("--campaigns"):
            continue
        faults = [each["fault"]] if each["fault"] else []
        assert each["step_us"] == pytest.approx(simulated("resnet-18", *faults, algorithm=asked[1]), rel=1e-9)
    assert (by["rate step", ""]["slowdown"] or 0) > (by["degraded optic", ""]["slowdown"] or 0) >= 1
    assert (by[BUFFERS, ""]["slowdown"] or 0) >= 1
    engines = {name: each["engine"] for (name, algorithm), each in by.items() if not algorithm}
    assert engines[HEALTHY] == engines["rate step"] == conclusions.JOBS
    assert engines[BUFFERS] == engines["loss 1 %"] == conclusions.LEARNT


@pytest.mark.usefixtures("small")
def test_a_rate_by_packets_is_near_that_by_events() -> None:
    pair = SimulatedModel("resnet-18", SPELLED)
    events = next(each for each in pair.answers() if each["disturbance"] == "rate step")["slowdown"]
    told = pair.as_packets("rate step", events)
    assert told["why"] == ""
    assert told["ratio"] == pytest.approx((told["by_packets"] or 0) / (events or 1))
    assert told["ratio"] == pytest.approx(1, abs=0.35)
    assert (pair.as_packets("loss 1 %", 1.0)["by_packets"] or 0) >= 1


@pytest.mark.usefixtures("small")
def test_what_lies_there_is_taken_over_unless_it_is_to_be_fresh(tmp_path: Path) -> None:
    first, checks = conclusions.conclusions(tmp_path, short=True)
    assert {each["model"] for each in first} == {"resnet-18"}
    assert len(checks) == len(FOLLOWED)
    (file,) = (each for each in tmp_path.glob("resnet*.json"))
    changed = json.loads(file.read_text())
    changed[0]["step_us"] = 1.0
    file.write_text(json.dumps(changed))
    assert conclusions.conclusions(tmp_path, short=True)[0][0]["step_us"] == 1.0
    assert conclusions.conclusions(tmp_path, short=True, fresh=True)[0][0]["step_us"] == first[0]["step_us"]


# ---------------------------------------------------------------------------------------------------------------- rows
def made(model: str, on: str, step_us: float | None, name: str = HEALTHY, slowdown: float = 1.0, by: str = "") -> Any:
    answer: ConclusionAnswer = {
        "model": model,
        "fabric": on,
        "disturbance": name,
        "fault": "",
        "algorithm": by,
        "engine": "events",
        "step_us": step_us,
        "slowdown": None if step_us is None else slowdown,
        "why": "" if step_us is not None else "it ends",
    }
    return answer


def check(ratio: float | None, name: str) -> PacketCheck:
    return {
        "model": "a",
        "fabric": "x",
        "disturbance": name,
        "by_events": 1.0,
        "by_packets": ratio,
        "ratio": ratio,
        "why": "" if ratio else "it ends",
    }


ALIKE = [made(model, on, time) for model in "abc" for on, time in (("x", 1.0), ("y", 2.0))]


def passing(
    answers: list[Any], checks: list[Any] | None = None, drop: float = 0.06, throughput: float = 0.0
) -> dict[str, bool]:
    return {row["figure"]: row["pass"] for row in conclusion_rows.rows(answers, checks or [], drop, throughput)}


def test_orders_pass_only_where_models_differ() -> None:
    fastest, whole = "the fastest topology depends on the model", "the order of all topologies depends on the model"
    same = passing(ALIKE)
    assert not same[fastest]
    assert not same[whole]
    differing = passing([*ALIKE, made("d", "x", 3.0), made("d", "y", 2.0)])
    assert differing[fastest]
    assert differing[whole]
    assert fastest not in passing(ALIKE[:4])  # two models


def test_a_disturbance_that_changes_the_order() -> None:
    name = "a disturbance changes the order of topologies"
    kept = [made("a", "x", 1.5, "rate step", 1.5), made("a", "y", 2.0, "rate step")]
    turned = [made("a", "x", 2.5, "rate step", 2.5), made("a", "y", 2.0, "rate step")]
    partly = [made("a", "x", None, "rate step"), made("a", "y", 2.0, "rate step")]
    assert [passing([*ALIKE, *more])[name] for more in (kept, turned, partly)] == [False, True, False]


def test_slowdowns_that_differ_and_steps_that_get_faster() -> None:
    name = "rate step: slow-down of the step differs by model on one topology"
    apart = [made("a", "x", 1.0, "rate step", 1.1), made("b", "x", 1.0, "rate step", 1.25)]
    elsewhere = [made("a", "x", 1.0, "rate step", 1.1), made("b", "y", 1.0, "rate step", 1.25)]
    assert passing([*ALIKE, *apart])[name]
    assert not passing([*ALIKE, *elsewhere])[name]
    law = "no disturbance makes a step faster"
    assert passing([*ALIKE, *apart])[law]
    assert not passing([*ALIKE, made("a", "x", 0.9, "rate step", 0.9)])[law]


def test_programs_that_are_faster_than_the_library() -> None:
    (name,) = (each for each in passing(ALIKE) if each.startswith("a step is shorter by the best known program"))
    assert not passing([*ALIKE, made("a", "x", 0.97, by="ring")])[name]
    assert passing([*ALIKE, made("a", "x", 0.9, by="ring"), made("b", "x", None, by="ring")])[name]


def test_packets_beside_events() -> None:
    names = [f"{what}: slow-down by packets over slow-down by events, of drawn steps" for what in ("losses", "rates")]
    near = [check(1.1, "loss 1 %")] * 3 + [check(3.0, "loss 1 %")]
    far = [check(1.1, "rate step")] * 2 + [check(3.0, "rate step"), check(None, "rate step")]
    told = passing(ALIKE, [*near, *far])
    assert [told[name] for name in names] == [True, False]
    assert not passing(ALIKE)[names[0]]  # nothing was run again


@pytest.mark.parametrize(("drop", "throughput", "passed"), [(0.05, 0.05, (True, True)), (0.002, 0.8, (False, False))])
def test_published_effects_are_held_to_their_tolerance(
    drop: float, throughput: float, passed: tuple[bool, bool]
) -> None:
    told = passing(ALIKE, drop=drop, throughput=throughput)
    assert tuple(told.values())[-2:] == passed
    kinds = {row["figure"]: row["kind"] for row in conclusion_rows.rows(ALIKE, [], drop, throughput)}
    assert kinds["loss of training throughput with one of a NIC's two links down"] == "prediction"


def test_half_of_the_steps_that_are_drawn_are_losses() -> None:
    answers = [made(model, on, 1.0, name) for model in "abcdefg" for on in "vwxyz" for name in (*EFFECTS, BUFFERS)]
    drawn = conclusions.drawn([*answers, made("h", "x", None, "loss 1 %")])
    assert len(drawn) == conclusions.CHECKED
    assert sum("loss" in each["disturbance"] for each in drawn) == conclusions.CHECKED // 2
    assert all(each["step_us"] is not None and each["disturbance"] in FOLLOWED for each in drawn)
    assert drawn == conclusions.drawn([*answers, made("h", "x", None, "loss 1 %")])


def test_go_back_n_loses_throughput_with_packets() -> None:
    assert 0 <= (published_cases.lossy_throughput() or 0) < 0.95


# ------------------------------------------------------------------------------------------------------------- command
def test_parts_of_the_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert parts_of(None) == PARTS
    assert parts_of("conclusions,served,conclusions") == ("conclusions", "served")
    with pytest.raises(UsageError, match="'conclusion' is no part"):
        parts_of("conclusion")
    assert main(["reproduce", "collective-profiling-poster", "--part", "nothing"]) == 2
    assert "--part agreement,served" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_the_part_is_shown_at_any_width_and_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_cases, "link_down", lambda: 0.06)
    document = experiment(tmp_path, short=True, parts=("conclusions",))
    assert document["conclusions"]["unanswered"]
    for width in (40, 80, 200):
        out = io.StringIO()
        page.write(document, out, width=width)
        text = out.getvalue()
        assert all(len(line) <= width for line in text.splitlines() if str(tmp_path) not in line)
        assert "Slow-down by rate step" in text
        assert "Slow-down by flapping port" in text
        assert "competing traffic: not answered" in " ".join(text.split())
    html = page.page(document, "ringwright reproduce collective-profiling-poster --part conclusions")
    assert "Every simulated step" in html
    assert "Slow-downs again, by packets" in html
    assert "Every simulated step" not in page.page(document | {"conclusions": None}, "again")
