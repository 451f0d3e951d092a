"""A job that a device cannot hold says so in the first line of every verb that times it, and in the same fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringwright.cli import main

pytestmark = pytest.mark.once
LARGE = ("--gpus", "2", "--parallel", "fsdp", "--micro-batch-size", "4", "--seq", "8192")
FIELDS = ("peak_memory_bytes", "device_memory_bytes", "fits", "too_large")
VERBS: dict[str, tuple[str, ...]] = {
    "simulate": ("simulate", "--model", "llama3-8b", *LARGE, "--fabric", "dgx-h100:1", "--policy", "none"),
    "workload": ("workload", "llama3-8b", *LARGE),
    "advise": (
        "advise",
        "--model",
        "llama3-8b",
        *LARGE,
        "--fabric",
        "dgx-h100:1",
        "--may",
        "policy",
        "--budget",
        "0.5",
    ),
    "provision": ("provision", "llama3-8b", *LARGE, "--fabric", "dgx-h100:1"),
}


def told(document: dict[str, Any]) -> dict[str, Any]:
    """Return where a verb says what fits."""
    mine = document.get("base") or (document.get("rows") or [document])[0]
    return {name: mine[name] for name in FIELDS}


@pytest.mark.parametrize("verb", VERBS)
def test_what_does_not_fit_is_the_first_line(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*VERBS[verb]]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "does not fit" in first
    assert main([*VERBS[verb], "--json"]) == 0
    mine = told(json.loads(capsys.readouterr().out))
    assert mine["fits"] is False
    assert mine["peak_memory_bytes"] > mine["device_memory_bytes"] == 80e9
    assert " needs " in mine["too_large"]
    assert " on a device of 74.5 GiB" in mine["too_large"]


def test_measured_jobs_that_would_not_fit_are_counted_first(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(
        "model,gpus,data_parallel,fsdp,global_batch,micro_batch,sequence,device,recompute,iteration_s\n"
        "llama3-8b,8,8,1,32,4,8192,h100,none,3.0\n"
        "llama3-8b,8,8,1,8,1,2048,h100,none,0.5\n"
    )
    assert main(["compare", "--jobs", str(table)]) == 0
    assert capsys.readouterr().out.startswith("1 of 2 would not fit")
    assert main(["compare", "--jobs", str(table), "--json"]) == 0
    assert [row["fits"] for row in json.loads(capsys.readouterr().out)["rows"]] == [False, True]


def test_what_fits_says_nothing_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", "--model", "alexnet", "--gpus", "2", "--policy", "none,p3")
    assert main([*words]) == 0
    assert capsys.readouterr().out.startswith("simulated: ")
    assert main([*words, "--json"]) == 0
    assert [(row["fits"], row["too_large"]) for row in json.loads(capsys.readouterr().out)["rows"]] == [
        (True, None)
    ] * 2


def test_a_policy_that_needs_more_than_the_device_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Weight gradients that are put off are kept: the plain job fits where the policy's does not."""
    words = ("simulate", "--model", "gpt3-6.7b", "--gpus", "8", "--parallel", "tp4,pp2", "--micro-batches", "8")
    words += ("--micro-batch-size", "4")
    assert main([*words, "--policy", "none,ooo-backprop", "--fabric", "dgx-h100:1", "--json"]) == 0
    plain, delayed = json.loads(capsys.readouterr().out)["rows"]
    assert plain["fits"]
    assert not delayed["fits"]
    assert main([*words, "--policy", "none,ooo-backprop", "--fabric", "dgx-h100:1"]) == 0
    assert capsys.readouterr().out.startswith("does not fit, ooo-backprop: a rank needs ")
