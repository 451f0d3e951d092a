"""Predicted training steps stay as near to measured ones as the fit has shown, on rows that had no part in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.shared_data import needs_shared_data, real

from ringwright.accuracy.jobs import Predictor, document, fitted, judge, median
from ringwright.cli import main
from ringwright.costs.fits import load, names
from ringwright.costs.gpus import gpu
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import InputError, UsageError
from ringwright.jobs import model_job
from ringwright.jobs.condensed_workload import condensed
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.step_tables import half, read
from ringwright.model.stages import LinkCosts
from ringwright.schedulers.decompose.collective_einsum_overlap import saved_s

pytestmark = pytest.mark.once

HEAD = "gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor_parallel,data_parallel,pipeline_parallel,iteration_ms"
ROW = "8,16,2,1024,16,4,1024,2,2,2,100"


def table(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "steps.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


@pytest.mark.sampled(1, "name", "most")
@needs_shared_data
@pytest.mark.parametrize(("name", "most"), [("vtrain-single", 0.07), ("vtrain-multi", 0.10)])
def test_rows_kept_apart_are_predicted_as_well_as_stated(name: str, most: float, pytestconfig: pytest.Config) -> None:
    rows = [row for row in read(real("validation/training_iterations.csv")) if (row.table, row.half) == (name, "test")]
    small = [row for row in rows if row.gpus <= 64 or row.micro_batches <= 32]
    if not pytestconfig.getoption("--campaigns"):
        small = sorted(small, key=lambda row: row.gpus * row.micro_batches)[:16]
    judged, refused = judge(small)
    assert not refused
    assert len(judged) >= 10
    assert median(judged) <= most


@pytest.mark.sampled(1, "most")
@needs_shared_data
@pytest.mark.parametrize(("devices", "most"), [(("h100",), 0.19), (("b200", "gb200", "b300", "gb300"), 0.11)])
def test_newer_devices_on_rows_kept_apart(devices: tuple[str, ...], most: float, pytestconfig: pytest.Config) -> None:
    """Of Megatron-Bridge's table, the rows of few GPUs, for time."""
    few_gpus = 64 if pytestconfig.getoption("--campaigns") else 32
    rows = [
        row
        for row in read(real("overlap/megatron_bridge_performance_summary.csv"))
        if row.device in devices and row.half == "test" and row.gpus <= few_gpus
    ]
    judged, _ = judge(rows)
    assert len(judged) >= 5
    assert median(judged) <= most


@needs_shared_data
def test_a_fit_of_one_system_holds_on_another() -> None:
    rows = [row for row in read(real("validation/megatron_iterations.csv")) if row.gpus == 8]
    judged, _ = judge(rows)
    assert len(judged) == 2
    assert max(abs(each.error) for each in judged) <= 0.05


def test_a_condensed_job_takes_what_the_whole_takes_where_nothing_overlaps() -> None:
    card = WorkloadSpec("llama3-8b", 8, "tp2,pp4", 8, 1, 512)
    made = model_job.made(model_job.GeneratedJobSpec(card, gpu="a100"), fabric("dgx-a100:1"))
    whole = simulate(made.workload, made.costs, steps=3).step_s
    joined = simulate(condensed(made.workload, made.costs), made.costs, steps=2).step_s
    assert joined == pytest.approx(whole, rel=0.03)  # its messages leave behind the gradients of weights


def hides(parallel: str, *hidden: str, model: str = "llama3-8b") -> float:
    card = WorkloadSpec(model, 8, parallel, 8, 1, 2048, dims={"layers": 4})
    made = model_job.made(model_job.GeneratedJobSpec(card, gpu="h100"), fabric("dgx-h100:1"))
    joined = condensed(made.workload, made.costs, hidden)
    return sum(task.seconds for task in joined.tasks if task.kind in ("F", "B"))


def test_hidden_exchanges_leave_what_compute_does_not_cover() -> None:
    card = WorkloadSpec("llama3-8b", 8, "tp8,sp", 8, 1, 2048, dims={"layers": 4})
    made = model_job.made(model_job.GeneratedJobSpec(card, gpu="h100"), fabric("dgx-h100:1"))
    saved = sum(saved_s(made.workload, made.costs).values())
    assert saved > 0
    assert hides("tp8,sp") - hides("tp8,sp", "tp") == pytest.approx(saved)
    assert hides("tp8,sp", "ep") == hides("tp8,sp")  # no experts, nothing of theirs to hide


@pytest.mark.parametrize("rate", [1e15, 1e8])  # bytes a second: compute covers all, or not
def test_hidden_exchanges_of_experts_leave_what_both_passes_do_not_cover(rate: float) -> None:
    card = WorkloadSpec("qwen3-30b-a3b", 8, "dp8,ep8", 8, 1, 2048, dims={"layers": 4})
    made = model_job.made(model_job.GeneratedJobSpec(card, gpu="h100"), fabric("dgx-h100:1"))
    costs = LinkCosts(rate)
    inline, left = (
        sum(task.seconds for task in condensed(made.workload, costs, hidden).tasks if task.kind in ("F", "B"))
        for hidden in ((), ("ep",))
    )
    computed = sum(task.seconds for task in made.workload.tasks if task.slot[0] in ("F", "B"))
    assert left == pytest.approx(max(computed, inline - computed))


def test_a_row_says_what_its_job_hides(tmp_path: Path) -> None:
    head = HEAD + ",overlap"
    (inline,) = read(table(tmp_path, ROW))
    (same,) = read(table(tmp_path, ROW + ",ep", head=head))  # it has no experts
    (row,) = read(table(tmp_path, ROW + ",tp", head=head))
    assert (inline.overlap, same.overlap, row.overlap) == ((), (), ("tp",))
    assert (row.half, "tp overlapped" in row.label) == (inline.half, True)
    with pytest.raises(InputError, match="overlap: 'pp'"):
        read(table(tmp_path, ROW + ",pp", head=head))


@needs_shared_data
def test_megatron_bridges_recipes_say_what_overlaps() -> None:
    rows = read(real("overlap/megatron_bridge_performance_summary.csv"))
    assert {row.overlap for row in rows if row.model == "deepseek-v3" and row.device == "gb300"} == {(), ("ep",)}
    said = {(row.model, row.device, row.dtype == "nvfp4"): row.overlap for row in rows if "tp1" not in row.parallel}
    assert said["llama3-405b", "gb200", False] == ("tp",)
    assert said["llama3-405b", "gb200", True] == ()
    assert said["qwen3-235b-a22b", "h100", False] == ("ep",)
    assert {row.overlap for row in rows if row.model == "qwen3-235b-a22b" and row.device != "h100"} == {()}


def test_the_halves_depend_on_the_question_alone(tmp_path: Path) -> None:
    before = {"gpus": "8", "iteration_ms": "1"}
    assert half(before) == half({**before, "iteration_ms": "2"})
    assert len({half({"gpus": str(number)}) for number in range(20)}) == 2


def test_small_kernels_wait_for_the_host(tmp_path: Path) -> None:
    (row,) = read(table(tmp_path, ROW))
    quick, slow = (fitted_step(row.parallel, issue_s) for issue_s in (0.0, 1e-4))
    assert slow > 2 * quick


def fitted_step(parallel: str, issue_s: float) -> float:
    card = WorkloadSpec("gpt2-small", 8, parallel, 4, 1, 512)
    made = model_job.made(
        model_job.GeneratedJobSpec(card, gpu="a100", fit="a100-megatron", compute={"issue_s": issue_s}),
        fabric("dgx-a100:1"),
    )
    assert any("a100-megatron" in each for each in made.assumptions)
    return simulate(condensed(made.workload, made.costs), made.costs, steps=2).step_s


def test_a_fit_finds_the_figure_that_made_the_times(tmp_path: Path) -> None:
    rows = [
        row
        for row in read(table(tmp_path, *(f"8,{16 * n},2,4096,32,4,1024,2,2,2,100" for n in range(1, 9))))
        if row.half == "fit"
    ]
    truth = Predictor({"efficiency": 0.5, "issue_s": 0.0})
    made = [replace(row, seconds=truth.seconds(row)) for row in rows]
    figures, error = fitted(made, {"efficiency": (0.4, 0.5, 0.6), "issue_s": (0.0,)})
    assert figures == {"efficiency": 0.5, "issue_s": 0.0}
    assert error == pytest.approx(0.0, abs=1e-9)


def test_every_shipped_fit_is_of_a_device_and_says_its_ground() -> None:
    assert names()
    for name in names():
        fit = load(name)
        assert set(fit.fitted) <= set(fit.figures)
        assert len(fit.fitted) <= 2
        assert fit.source in fit.provenance
        assert gpu(fit.gpu, **fit.figures).peak == gpu(fit.gpu).peak


def test_a_table_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--jobs", str(table(tmp_path, ROW))]) == 0
    assert "median error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("8,16,2,1024,16,4,1024,2,2,3,100", "not 8 GPUs"),
        ("8,15,2,1024,16,4,1024,2,2,2,100", "cannot be shared out"),
        ("8,16,x,1024,16,4,1024,2,2,2,100", "micro_batch"),
        ("8,16,2,1024,16,4,1024,2,2,2,-1", "no time of a step"),
        ("8,16,2,1024,16,4,1024,2,2,2,", "iteration_ms"),
    ],
)
def test_rows_without_sense_are_named(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read(table(tmp_path, row))
    assert "line 2" in caught.value.where


def test_a_fit_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no fit"):
        load("a101")
    path = tmp_path / "mine.json"
    path.write_text('{"schema": "other"}')
    with pytest.raises(InputError, match="schema"):
        load(path)


def test_a_row_that_the_model_refuses_is_kept_with_the_reason(tmp_path: Path) -> None:
    judged, refused = judge(read(table(tmp_path, ROW, "16,16,2,1024,16,4,1024,2,1,8,100")))
    assert len(judged) == len(refused) == 1
    assert document(judged, refused)["refused"][0]["why"]


def test_a_column_says_that_stages_send_in_parts_and_the_halves_stay(tmp_path: Path) -> None:
    head = "hidden,heads,layers,sequence,global_batch,micro_batch,gpus,tensor_parallel,pipeline_parallel,iteration_ms"
    cells = "3072,32,30,2048,512,8,64,2,2,3566.5"
    (tmp_path / "whole.csv").write_text(f"{head}\n{cells}\n")
    (tmp_path / "parts.csv").write_text(f"{head},scatter_gather\n{cells},1\n")
    (whole,), (parts,) = (read(tmp_path / f"{name}.csv") for name in ("whole", "parts"))
    assert parts.parallel == f"{whole.parallel},sg"
    assert parts.half == whole.half


def test_a_column_of_yes_or_no_is_read_as_such(tmp_path: Path) -> None:
    head = "hidden,heads,layers,sequence,global_batch,micro_batch,gpus,tensor_parallel,pipeline_parallel,iteration_ms"
    cells = "3072,32,30,2048,512,8,64,2,2,3566.5"

    def form(column: str, cell: str) -> str:
        (tmp_path / "rows.csv").write_text(f"{head},{column}\n{cells},{cell}\n")
        (row,) = read(tmp_path / "rows.csv")
        return row.parallel

    for column, word in (("sequence_parallel", "sp"), ("scatter_gather", "sg"), ("fsdp", "zero3")):
        assert {form(column, cell) for cell in ("1", "yes", "True")} == {form(column, "1")}
        assert word in form(column, "1").split(",")
        assert {form(column, cell) for cell in ("", "0", "no", "False")} == {form("name", "x")}
        with pytest.raises(InputError, match=f"{column}: 'maybe'"):
            form(column, "maybe")
