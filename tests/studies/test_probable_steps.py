"""A training step's most probable time: from measured steps of such jobs, wide without a fit, none where nothing was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ringwright
from ringwright.calls.arrivals import Asked
from ringwright.cli import main
from ringwright.costs.learnt.steps import factors, named
from ringwright.jobs.study import PolicyResult

pytestmark = pytest.mark.once

ASKED = ("simulate", "--model", "llama3-8b", "--gpus", "8", "--parallel", "tp8,sp", "--fabric", "dgx-h100:1")


def row(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--policy", "none", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["rows"][0]
    return found


def test_a_step_has_an_interval_that_a_fit_narrows(capsys: pytest.CaptureFixture[str]) -> None:
    plain, fitted = row(capsys, *ASKED), row(capsys, *ASKED, "--fit", "h100-megatron")
    for each in (plain, fitted):
        assert each["step_us_p05"] < each["step_us_p50"] < each["step_us_p95"]
        assert each["outside"] == []
    wide, narrow = (each["step_us_p95"] / each["step_us_p05"] for each in (plain, fitted))
    assert narrow < 1.5 < 2 < wide
    held = factors(named(experts=False, fitted=True))
    assert fitted["step_us_p50"] == pytest.approx(fitted["step_us"] * held.middle)
    mixture = row(capsys, *(word.replace("llama3-8b", "mixtral-8x7b") for word in ASKED), "--fit", "h100-megatron")
    assert mixture["step_us_p95"] / mixture["step_us_p05"] > narrow


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "vgg16", "--gpus", "16"),
        ("--model", "gpt3-125m", "--gpus", "16", "--mode", "decode"),
        ("--model", "gpt3-125m", "--gpus", "16", "--step-ms", "300"),
        ("--model", "gpt3-125m", "--gpus", "16", "--arrivals", "normal:20us,seed=1"),
    ],
)
def test_where_no_such_steps_were_measured_there_is_none(capsys: pytest.CaptureFixture[str], words: tuple[str]) -> None:
    found = row(capsys, "simulate", *words, "--fabric", "dgx-h100:2")
    assert (found["step_us_p05"], found["step_us_p50"], found["step_us_p95"]) == (None, None, None)
    assert found["outside"] == ["job"]


def test_what_is_extrapolated_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    old = row(capsys, "simulate", "--model", "llama3-8b", "--gpus", "16", "--fabric", "dgx-h100:2", "--gpu", "v100")
    assert old["outside"] == ["gpu"]
    many = row(
        capsys, "simulate", "--model", "llama3-8b", "--gpus", "2048", "--parallel", "tp8", "--fabric", "dgx-h100:256"
    )
    assert many["outside"] == ["gpus"]
    assert main([*ASKED, "--policy", "none,pytorch-ddp"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Time of a step in ms most probable, from measured steps of such models on GPUs" in told
    assert "--fit h100-megatron takes those of measured steps" in told


def test_python_has_it_too() -> None:
    job = ringwright.job("llama3-8b", gpus=8)
    answer = ringwright.simulate(job, "dgx-h100:1", policy="none")
    assert answer.probable is None  # a Workload is no model: nobody measured it
    named_model = ringwright.simulate("llama3-8b", "dgx-h100:1", policy="none")
    assert isinstance(named_model, PolicyResult)
    assert named_model.probable is not None
    assert named_model.probable.p50_us != pytest.approx(named_model.step_s * 1e6)
    late: Asked = "late:3=2ms"
    assert ringwright.simulate("llama3-8b", "dgx-h100:1", policy="none", arrivals=late).probable is None


def test_the_page_has_a_table_of_them(tmp_path: Path) -> None:
    page = tmp_path / "job.html"
    for words, has_some in (
        (ASKED, True),
        (("simulate", "--model", "vgg16", "--gpus", "8", "--fabric", "dgx-h100:1"), False),
    ):
        assert main([*words, "--policy", "none", "-o", str(page), "--force"]) == 0
        assert ("Most probable step, from measured steps" in page.read_text()) == has_some
