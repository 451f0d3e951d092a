"""What answers about jobs say of memory: by stage, against the device, and nothing where nothing is known."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.graph.algebra import RULES
from ringwright.graph.memory import UNKNOWN
from ringwright.ground.documents import as_json, read_json
from ringwright.jobs import model_job, rows, study
from ringwright.jobs.memory import PeakMemory, StageMemory, limited, peak, stages
from ringwright.jobs.model_workload import WorkloadSpec, workload
from ringwright.jobs.workload_document import WorkloadFigures
from ringwright.model.values import Applied, Change
from ringwright.model.workload import Workload
from ringwright.reports.steps import workload as report
from ringwright.schedulers.compose import PolicyConflictError
from typed_documents import departures

PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers")
ASKED = WorkloadSpec("gpt3-1.3b", 8, "tp2,pp4", 8)


def test_what_holds_the_peak_of_a_stage_adds_up_to_it() -> None:
    made = model_job.workload(model_job.GeneratedJobSpec(ASKED))
    rows = stages(made)
    assert [*departures(as_json(rows), list[StageMemory])] == []
    assert [*departures(peak(made), PeakMemory)] == []
    assert [row.stage for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert sum(as_json(row)[part] for part in PARTS) == row.peak_bytes
    assert rows[0].activations > rows[1].activations > rows[2].activations
    assert peak(made)["peak_memory_bytes"] == max(row.peak_bytes for row in rows)


def test_the_verb_says_the_same_whatever_the_number_of_micro_batches(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline is at its peak after a few micro-batches: a billion of them are not laid out."""
    words = "workload gpt3-1.3b --gpus 8 --parallel tp2,pp4 --json --micro-batches".split()
    found = []
    for number in ("8", "1000000000"):
        assert main([*words, number]) == 0
        found.append(json.loads(capsys.readouterr().out))
    held = stages(model_job.workload(model_job.GeneratedJobSpec(ASKED)))
    assert found[0]["memory"] == found[1]["memory"] == as_json(held)
    assert found[0]["device_memory_bytes"] == 80e9
    assert main([*words, "8", "--gpu", "v100"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert kept["device_memory_bytes"] == 32e9
    assert kept["memory"][0]["activations"] > 1.5 * found[0]["memory"][0]["activations"]  # scores are kept, too
    assert any("scores of attention among them" in each for each in kept["assumptions"])


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_fits_and_a_device_that_is_too_small_is_named(width: int) -> None:
    text = io.StringIO()
    report.write(read_json(WorkloadFigures, workload(WorkloadSpec("llama3-70b", 8, "tp8"))), text, width=width)
    told = " ".join(text.getvalue().split())
    assert "Memory of a rank at its peak" in told
    assert "the device has 74.5 GiB" in told
    assert max(len(line) for line in text.getvalue().splitlines()) <= width
    small = io.StringIO()
    report.write(read_json(WorkloadFigures, workload(ASKED)), small, width=width)
    assert "the device has" not in small.getvalue()


def test_a_row_has_the_peak_of_its_policy_and_the_rules_that_were_applied(capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate --model gpt2 --gpus 8 --parallel tp2,pp2 --fabric switch:8 --policy none,pytorch-ddp".split()
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["applied"] == [] and row["memory_unknown"] is None for row in rows)
    assert all(0 < row["peak_memory_bytes"] < row["device_memory_bytes"] == 80e9 for row in rows)
    assert main(words) == 0
    assert "all policies: " in capsys.readouterr().out


def test_a_row_says_what_was_applied_where_and_what_it_changed() -> None:
    job = model_job.made(model_job.GeneratedJobSpec(WorkloadSpec("gpt2", 4, "tp2")))
    change = Change({"dp": 12.0}, 1, 2.0, 3)
    rewritten = replace(
        job,
        workload=replace(
            job.workload, applied=(Applied("split", "stage0.F", {"parts": 2}, change), Applied("fuse", ""))
        ),
    )
    first, second = rows.row(study.answer(rewritten, "none"))["applied"]
    assert (first["rule"], first["site"], first["knobs"]) == ("split", "stage0.F", {"parts": 2})
    assert (first["delta"]["wire_bytes"], first["delta"]["operations"], first["delta"]["held_bytes"]) == (
        {"dp": 12.0},
        1,
        3,
    )
    assert (second["rule"], second["site"]) == ("fuse", "")


def test_a_policy_over_the_limit_of_memory_is_declined_and_says_what_it_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "simulate --model gpt2 --gpus 8 --parallel tp2,pp2 --fabric switch:8 --policy none,pytorch-ddp".split()
    assert main([*words, "--memory", "512MiB"]) == 5
    error = capsys.readouterr().err
    assert "at its peak, more than the limit of 512 MiB" in error
    assert main([*words, "--memory", error.split("--memory ")[1].split(",")[0]]) == 0
    capsys.readouterr()
    assert main([*words, "--memory", "12 elephants"]) == 2


def test_the_limit_of_memory_is_what_schedulers_see() -> None:
    job = model_job.made(model_job.GeneratedJobSpec(WorkloadSpec("gpt2", 4, "tp2")))
    assert peak(limited(job.workload, 1 << 30))["device_memory_bytes"] == 1 << 30


def test_policies_that_conflict_and_rules_that_do_not_apply_are_rows_with_rule_site_and_why() -> None:
    job = model_job.made(model_job.GeneratedJobSpec(WorkloadSpec("gpt2", 4, "tp2")))

    def refused(workload: Workload, costs: object) -> Workload:
        return RULES["split-all-reduce"](workload, "nothing")

    def contradicting(workload: Workload, costs: object) -> Workload:
        raise PolicyConflictError("p3's boundary contradicts the agreement of dear", remedy="one of them")

    told = rows.document(job, ["none", refused, contradicting])["rows"]  # type: ignore[list-item]
    assert told[0]["declined_by"] is None
    assert told[1]["declined_by"]["rule"] == "split-all-reduce"
    assert told[1]["declined_by"]["site"] == "nothing"
    assert "no payload" in told[1]["declined_by"]["why"]
    assert "contradicts" in told[2]["declined"]


def test_of_a_recording_memory_is_not_known_and_the_reason_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--sample", "--fabric", "dgx-h100:2", "--policy", "none"]
    assert main([*words, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["peak_memory_bytes"], row["memory_unknown"]) == (None, UNKNOWN)
    assert main(words) == 0
    assert f"not known, for {UNKNOWN}" in capsys.readouterr().out


def test_chunks_of_experts_hold_what_their_whole_holds_and_packed_ones_say_why_it_is_not_known() -> None:
    """A chunk holds its share of the tokens, so that the peak is at most that of whole tasks, and states are the same."""
    spec = WorkloadSpec("mixtral-8x7b", 16, "ep8,dp16", 1, 1, 1024, dims={"layers": 2})
    job = model_job.made(model_job.GeneratedJobSpec(spec), fabric("dgx-h100:2"))
    plain, cut, packed = rows.document(job, ["none", "lina:partition_mb=4", "lina:packing=2:memory_gb=1000"])["rows"]
    assert any("#" in task.name for task in study.answer(job, "lina:partition_mb=4").workload.tasks), "it is cut"
    assert 0.9 * plain["peak_memory_bytes"] < cut["peak_memory_bytes"] <= plain["peak_memory_bytes"]
    assert (cut["memory_unknown"], packed["peak_memory_bytes"]) == (None, None)
    assert packed["memory_unknown"].startswith("lina:packing=2:memory_gb=1000 puts other tasks in their stead")
