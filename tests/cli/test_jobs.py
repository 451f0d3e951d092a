"""Whole jobs from the command line: what the answers promise, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ringwright.analysis.summary import summarise
from ringwright.cli import main
from ringwright.ground.errors import EXIT_PROGRAM, EXIT_USAGE
from ringwright.jobs import model_job, study
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model import registry
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once

BASE = ["simulate", "--model", "llama3-8b", "--gpus", "16", "--parallel", "tp2,pp2", "--seq", "2048"]
SMALL = {"layers": 4, "vocabulary": 4096}  # with all its words the last of two stages would compute most
POLICIES = ["none", *(system.slug for system in registry.schedulers())]
# These do not change operations. Others make several of one, each with a size of its own.
OF_WHOLE = {"none", *(system.slug for system in registry.schedulers() if system.kind in ("fifo", "priority"))}


@pytest.fixture(scope="module")
def few_layers(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Return the words that simulate a model of four layers, written as a workload."""
    folder = tmp_path_factory.mktemp("few-layers")

    @cache
    def simulated(model: str, gpus: int, form: str, micro_batches: int = 2) -> list[str]:
        from ringwright.jobs import workload_files

        spec = WorkloadSpec(model, gpus, form, seq=1024, micro_batches=micro_batches, dims=SMALL)
        path = folder / f"{model}-{gpus}-{form}-{micro_batches}.json"
        workload_files.save(model_job.workload(model_job.GeneratedJobSpec(spec)), path)
        return ["simulate", str(path)]

    return simulated


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys, *BASE, "--policy", "pytorch-ddp,p3")
    assert result["schema"] == "ringwright.simulate-job/1"
    assert any("fabric: dgx-h100:2" in each for each in result["assumptions"])
    assert [row["policy"] for row in result["rows"]] == ["pytorch-ddp", "p3"]
    for row in result["rows"]:
        assert row["ranks"] == 16
        assert row["simulated_ranks"] == 2
        assert row["folded"] is True
        assert row["engine_s"] > 0
        assert 1 < row["ceiling"] < 1.5
        parts = row["compute_us"] + row["update_us"] + row["exposed_comm_us"] + row["idle_us"]
        assert parts == pytest.approx(row["step_us"], rel=1e-6)
        assert sum(role["exposed_us"] for role in row["by_role"].values()) == pytest.approx(row["exposed_comm_us"])
        assert set(row["by_role"]) == {"tp", "pp", "dp"}


def test_a_job_says_whether_ranks_stood_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--model", "resnet18", "--gpus", "8", "--policy", "none"]
    (folded,), (whole,) = (ask(capsys, *words, *more)["rows"] for more in ((), ("--unfolded",)))
    assert (folded["folded"], whole["folded"]) == (True, False)
    assert (folded["simulated_ranks"], whole["simulated_ranks"]) == (1, 8)
    assert folded["step_us"] == whole["step_us"]


def test_a_program_says_whether_messages_stood_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "all-reduce", "--fabric", "dgx-h100:2,sharp=true", "-b", "1M", "-e", "1M"]
    rows = ask(capsys, *words, "--algorithm", "ring,collnet-direct,nvls-tree")["rows"]
    assert [row["folded"] for row in rows] == [True, True, False]


def test_every_policy_sends_every_byte(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--model", "resnet18", "--gpus", "4", "--fabric", "switch:4", "--policy", ",".join(POLICIES)]
    whole, *rows = ask(capsys, *words)["rows"]
    assert [row["policy"] for row in rows] == POLICIES[1:]
    assert len([row for row in rows if not row["declined"]]) >= 8
    for row in (each for each in rows if not each["declined"]):
        smaller = 0.5 if row["policy"] == "gradientflow" else 1.0
        if row["policy"] in OF_WHOLE - {"poseidon"}:  # that sends factors of the last layer
            assert row["by_role"]["dp"]["bytes"] == pytest.approx(whole["by_role"]["dp"]["bytes"] * smaller, rel=1e-6)
        assert row["step_us"] >= row["compute_us"]
        assert row["compute_us"] == pytest.approx(whole["compute_us"])


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("form", ["tp2,zero1", "tp2,sp,pp2,zero1", "fsdp"])
def test_every_policy_goes_with_every_form(
    form: str, part: int, few_layers: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    policies = ["none", *POLICIES[1:][part::3]]  # each part is held against none
    rows = ask(capsys, *few_layers("gpt2", 8, form), "--policy", ",".join(policies))["rows"]
    assert [row["policy"] for row in rows] == policies
    assert all(row["declined_by"]["why"] for row in rows if row["declined"])
    taken = [row for row in rows if not row["declined"]]
    assert len(taken) >= 3
    assert all(row["step_us"] >= row["compute_us"] > 0 for row in taken)
    assert (
        len({round(row["by_role"]["dp"]["bytes"]) for row in taken if row["policy"] in OF_WHOLE - {"gradientflow"}})
        == 1
    )


@pytest.mark.slow
def test_slow_rank_slow_link(few_layers: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    words = [*few_layers("llama3-8b", 16, "tp2,pp2", 8), "--fabric", "dgx-h100:2", "--policy", "none"]
    (healthy,) = ask(capsys, *words)["rows"]
    (slow,) = ask(capsys, *words, "--fault", "rank 3 slow 2x")["rows"]
    (thin,) = ask(capsys, *words, "--fault", "link node0/nic2 rate 5%")["rows"]
    (lossy,) = ask(capsys, *words, "--fault", "loss 10%")["rows"]
    assert slow["step_us"] > 1.5 * healthy["step_us"]
    assert slow["simulated_ranks"] > healthy["simulated_ranks"]
    assert thin["step_us"] > healthy["step_us"]
    assert lossy["exposed_comm_us"] > healthy["exposed_comm_us"]
    assert lossy["simulated_ranks"] == healthy["simulated_ranks"]


def test_algorithm_and_policy_together(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*BASE, "--fabric", "dgx-h100:2", "--policy", "p3+gradientflow", "--algorithm", "ring"]
    result = ask(capsys, *words)
    assert any("collectives by ring" in each for each in result["assumptions"])
    assert result["rows"][0]["policy"] == "p3+gradientflow"


@pytest.mark.slow
def test_largest_job_folds() -> None:
    question = model_job.GeneratedJobSpec(WorkloadSpec("llama3-405b", 16384, "tp8,pp16,dp128", 16))
    found = study.answer(model_job.made(question), "pytorch-ddp")
    assert len(found.run.laid.rank_classes) == 16
    assert sum(found.run.laid.rank_classes.counts) == 16384
    assert found.engine_s < 60
    assert found.steady


@pytest.mark.slow
def test_page_and_trace(
    few_layers: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, saved = tmp_path / "job.html", tmp_path / "job"
    words = [*few_layers("llama3-8b", 16, "tp2,pp2"), "--policy", "bytescheduler,none"]
    result = ask(capsys, *words, "--trace", str(saved))
    assert main([*words, "-o", str(page)]) == 0
    assert "Why it is not hidden" in capsys.readouterr().out
    text = page.read_text()
    assert "<h2>One step, rank by rank</h2>" in text
    assert text.count('<figure class="plot timeline"') == 2
    trace = Trace.open(saved)
    events = trace.df
    assert set(events["kind"]) == {"compute", "collective", "p2p", "step"}
    assert summarise(trace)["iterations"][-1]["time_s"] * 1e6 == pytest.approx(result["rows"][0]["step_us"], rel=0.02)
    # One event a rank of each group: four tensor parallel pairs in each of two stages.
    sums = events.filter(kind="collective", role="tp", iteration=0)
    assert sums["multiplicity"].unique().to_list() == [1]
    assert sums["rank"].n_unique() == 16
    assert not trace.table("edges").is_empty()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--parallel", "tp3"], "tp3"),
        (["--parallel", "pp5"], "pp5"),
        (["--policy", "p4"], "p3"),
        (["--policy", "ring"], "--algorithm ring"),
        (["--policy", "p3,p3"], "named twice"),
        (["--policy", "p3:slice=4"], "slice"),
        (["--gpu", "h1000"], "no device"),
        (["--dtype", "fp7"], "no element type"),
        (["--interference", "much"], "no model"),
        (["--schedule", "2f2b"], "no pipeline schedule"),
        (["--fabric", "dgx-h100:1"], "do not fit"),
        (["--micro-batches", "0"], "micro-batches"),
    ],
)
def test_refusals_say_what_and_how(words: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", "--model", "llama3-8b", "--gpus", "16", *words]
    assert main(asked) == EXIT_USAGE
    told = capsys.readouterr().err
    assert what in told
    assert "try:" in told


def test_a_workload_is_written_changed_and_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.json"
    words = ["workload", "gpt2", "--gpus", "8", "--parallel", "tp2,pp2", "--micro-batches", "2", "-o"]
    assert main([*words, str(file)]) == 0
    assert main([*words, str(file)]) == EXIT_USAGE  # it exists
    assert main([*words, str(tmp_path / "traces")]) == 0
    assert len(list((tmp_path / "traces").glob("*.et"))) == 8
    assert (tmp_path / "traces" / "comm_group.json").exists()
    capsys.readouterr()
    fabric = ("--fabric", "switch:8", "--policy", "none")
    (row,) = ask(capsys, "simulate", str(file), *fabric)["rows"]
    model = ["simulate", "--model", "gpt2", "--gpus", "8", "--parallel", "tp2,pp2", "--micro-batches", "2"]
    (same,) = ask(capsys, *model, *fabric)["rows"]
    assert row["step_us"] == same["step_us"]
    document = json.loads(file.read_text())
    for task in document["tasks"]:
        task["time_s"] = 2 * task.get("time_s", 0)
    file.write_text(json.dumps(document))
    (slower,) = ask(capsys, "simulate", str(file), *fabric)["rows"]
    assert slower["compute_us"] == pytest.approx(2 * row["compute_us"])


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda d: d["edges"].append({"src": d["edges"][0]["dst"], "dst": d["edges"][0]["src"]}), "cycle"),
        (lambda d: d["payloads"][0].update(size_bytes=0), "0 B"),
        (lambda d: d["payloads"][0].update(producers=["nobody"]), "nobody"),
        (lambda d: d["payloads"][0].update(axes=["zp"]), "zp"),
    ],
    ids=["cycle", "zero-size", "no-producer", "no-axis"],
)
def test_a_spoilt_workload_is_refused_by_name(
    spoil: Callable[[dict[str, Any]], None], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.json"
    assert main(["workload", "gpt2", "--gpus", "4", "--parallel", "tp2", "-o", str(file)]) == 0
    document = json.loads(file.read_text())
    spoil(document)
    file.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["simulate", str(file)]) == EXIT_PROGRAM
    told = capsys.readouterr().err
    assert what in told
    assert "at:" in told
    assert "try:" in told
