"""A recorded job, replayed and changed, from the command line."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.ground.errors import EXIT_USAGE
from ringwright.model.trace import Trace
from shared_data import real

pytestmark = pytest.mark.once

SAMPLE = str(files("ringwright") / "samples" / "job.log.gz")


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["simulate", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_log_without_times_is_communication_only(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys, SAMPLE, "--policy", "none", "--fabric", "dgx-h100:2")
    assert result["ground"] == "communication-only"
    assert result["baseline"] is None
    (row,) = result["rows"]
    assert row["compute_us"] == 0
    assert row["exposed_comm_us"] == pytest.approx(row["step_us"])
    assert any("no times" in each for each in result["assumptions"])
    assert main(["simulate", SAMPLE]) == 0
    assert "communication alone" in capsys.readouterr().out


def test_a_log_on_a_worse_network(capsys: pytest.CaptureFixture[str]) -> None:
    words = (SAMPLE, "--policy", "none", "--fabric", "dgx-h100:2")
    (healthy,) = ask(capsys, *words)["rows"]
    (thin,) = ask(capsys, *words, "--fault", "rate 25%")["rows"]
    (ring,) = ask(capsys, *words, "--algorithm", "ring")["rows"]
    assert thin["step_us"] > 2 * healthy["step_us"]
    assert ring["step_us"] != healthy["step_us"]


@pytest.mark.slow
def test_a_simulated_job_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "gpt2", "--gpus", "4", "--parallel", "tp2", "--policy", "none", "--unfolded"]
    (was,) = ask(capsys, *words, "--trace", str(tmp_path / "job"))["rows"]
    result = ask(capsys, str(tmp_path / "job"), "--policy", "none")
    (now,) = result["rows"]
    assert now["step_us"] == pytest.approx(was["step_us"], rel=0.05)
    assert {name: round(each["bytes"]) for name, each in now["by_role"].items()} == {
        name: round(each["bytes"]) for name, each in was["by_role"].items()
    }


@pytest.mark.shared_data
def test_a_profiler_trace_with_blueconnect_and_loss(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(real("real/kineto/hta_nccl_data.json.gz"))
    result = ask(capsys, path, "--algorithm", "blueconnect", "--policy", "none,bytescheduler", "--fault", "loss 0.1%")
    assert abs(result["baseline"]["error"]) < 0.05
    assert any("simulated with blueconnect" in each and "with faults" in each for each in result["assumptions"])
    whole, scheduled = result["rows"]
    assert whole["step_us"] == pytest.approx(result["baseline"]["measured_us"], rel=0.1)
    assert scheduled["step_us"] <= whole["step_us"] * 1.001


def test_neither_a_collective_nor_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "no/such/file"]) == EXIT_USAGE
    assert "try:" in capsys.readouterr().err


def test_what_is_asked_of_a_model_is_refused_for_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--model", "vgg16"], ["--gpu", "a100"], ["--step-ms", "5"]):
        assert main(["simulate", SAMPLE, *words]) == EXIT_USAGE
        assert words[0] in capsys.readouterr().err


def test_a_replay_is_saved_as_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys, SAMPLE, "--policy", "none", "--trace", str(tmp_path / "run"))
    assert any("fabric: switch:16, for none was named" in each for each in result["assumptions"])
    assert not Trace.open(tmp_path / "run").df.is_empty()


def test_who_did_the_collectives_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Ring does no all-to-all: the library does, and the answer says so."""
    words = ["--model", "mixtral-8x7b", "--gpus", "8", "--parallel", "ep8", "--seq", "512", "--algorithm", "ring"]
    told = ask(capsys, *words, "--policy", "none", "--fabric", "dgx-h100:1")["assumptions"]
    assert any(each.startswith("all-to-all among 8 ranks by nccl-2-4: ring does no all-to-all") for each in told)


def test_no_time_is_no_scale(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--model", "vgg16", "--step-ms", "0"]) == EXIT_USAGE
    assert "a step of 0 ms" in capsys.readouterr().err


@pytest.mark.sampled(2, "replayed", "warned")
@pytest.mark.parametrize(("replayed", "warned"), [(140.0, "40% longer"), (60.0, "40% shorter"), (109.0, "")])
def test_a_replay_far_from_its_recording_warns_before_it_recommends(
    replayed: float, warned: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from ringwright.jobs import recorded_job

    beside = {"measured_us": 100.0, "step_us": 100.0, "steps": 1, "replayed_us": replayed, "error": replayed / 100 - 1}
    monkeypatch.setattr(recorded_job, "_baseline", lambda found: beside)
    words = ["simulate", SAMPLE, "--fabric", "switch:16", "--policy", "none,p3"]
    assert main([*words, "-o", str(tmp_path / "page.html")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert bool(warned) is ("warning:" in text)
    if warned:
        assert (
            text.index(f"the replay, unchanged, is {warned}")
            < text.index("Time of a step")
            < text.index("Against each other")
        )
    assert ("the replay, unchanged, is" in (tmp_path / "page.html").read_text()) is bool(warned)
    assert [warned in each for each in ask(capsys, *words[1:])["warnings"]] == [True] * bool(warned)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["all-reduce", "--fabric", "switch:8"], "it is of a recording"),
        (["--model", "gpt3-125m", "--gpus", "8", "--fabric", "switch:8"], "it is of a recording"),
        (["--sample", "--fabric", "dgx-h100:2"], "has no times"),
    ],
)
def test_what_a_recording_ran_on_is_refused_where_it_changes_nothing(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *words, "--ran-on", "dgx-a100:2"]) == EXIT_USAGE
    assert says in " ".join(capsys.readouterr().err.split())
