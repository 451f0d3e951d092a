"""What a recording's step took has one number in every verb: the mean of its steps is measured, the step that is replayed took."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.model.registry import scheduler
from ringwright.model.trace import Trace
from ringwright.workloads.recorded.lines import steady_steps
from ringwright.workloads.replay import replayed
from ringwright_lab.survey.survey_job import NamedMachine
from ringwright_lab.survey.survey_job import of_recording as surveyed
from ringwright_lab.testing.drawn_jobs import drawn, recorded

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recording whose steadiest step is not as long as the mean of all."""
    job = drawn(7)
    folder = tmp_path_factory.mktemp("job") / "trace"
    recorded(job, job.planned(scheduler("pytorch-ddp")[1]), 0).save(folder)
    return folder


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_simulate_and_advise_have_one_measured_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lasted = [each for each in steady_steps(Trace.open(folder)).values() if each is not None]
    baseline = asked(capsys, "simulate", str(folder), "--policy", "none")["baseline"]
    base = asked(capsys, "advise", str(folder), "--may", "ddp", "--budget", "0.2")["base"]
    assert baseline["measured_us"] == base["measured_us"] == pytest.approx(mean(lasted) * 1e6)
    assert baseline["steps"] == base["steps"] == len(lasted) > 1
    assert baseline["step_us"] == pytest.approx(replayed(Trace.open(folder)).measured_s * 1e6)  # type: ignore[operator]
    assert abs(baseline["step_us"] / baseline["measured_us"] - 1) > 1e-3, "else the test shows nothing"
    assert baseline["error"] == pytest.approx(baseline["replayed_us"] / baseline["step_us"] - 1)


def test_text_and_page_say_which_is_which(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = replayed(Trace.open(folder))
    page = tmp_path / "page.html"
    assert main(["simulate", str(folder), "--policy", "none", "-o", str(page)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert found.measured_s is not None
    for told in (text, page.read_text()):
        assert f"{found.step} took {found.measured_s * 1e3:.4g}"[:24] in told
        assert f"a step, the mean of {len(found.steps_s)} steps" in told
    assert main(["advise", str(folder), "--may", "ddp", "--budget", "0.2"]) == 0
    measured = text.split("measured ")[1].split(" steps")[0]
    assert f"measured {measured} steps" in " ".join(capsys.readouterr().out.split())


def test_the_survey_measures_the_same(folder: Path) -> None:
    from ringwright.fabrics import fabric

    found = replayed(Trace.open(folder))
    machine = NamedMachine(fabric(f"switch:{found.workload.mesh.size}"), "")
    assert surveyed(str(folder), found, machine).measured_us == pytest.approx(mean(found.steps_s) * 1e6)
