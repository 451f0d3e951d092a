"""Orders of pipelines as PyTorch takes them: what is written, and on two gloo ranks gradients to the bit of the whole model."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from ringwright.cli import main
from ringwright.formats.exports.pipeline_csv import as_csv
from ringwright.graph.pipelines import order
from ringwright.ground.errors import UsageError, WorkloadError
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.schedulers.decompose.breadth_first_pp import breadth_first_pp
from ringwright.schedulers.decompose.ooo_backprop import ooo_backprop
from ringwright.workloads.pipeline_chain import pipeline_chain
from ringwright_lab.judges.pipeline_ranks import differing
from ringwright_lab.papers.figures.pipelines import UnitCosts, plain, units

FREE = UnitCosts()


def rows(text: bytes) -> list[list[str]]:
    return [line.split(",") for line in text.decode().splitlines()]


def test_breadth_first_is_written_as_pytorch_names_its_actions() -> None:
    written = rows(as_csv(breadth_first_pp(units(2, 2, 2), FREE)))
    assert written[0] == ["0F0", "0F1", "2F0", "2F1", "2B0", "2B1", "0B0", "0B1"]
    assert written[1] == ["1F0", "1F1", "3F0", "3F1", "3B0", "3B1", "1B0", "1B1"]


def test_halves_of_backward_are_actions_of_their_own() -> None:
    written = rows(as_csv(ooo_backprop(units(2, 2, 2), FREE)))
    assert written[1][-8:] == ["3I0", "3I1", "1I0", "1I1", "3W0", "3W1", "1W0", "1W1"]


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v", "dualpipe-v", "1f1b", "aiao"])
def test_every_schedule_is_written_as_it_is(schedule: str) -> None:
    """A folded stage 3 is the second chunk of the first device; I with its W right behind it is B."""
    chunks = 1 if schedule == "zb-h1" else 2
    written = rows(as_csv(pipeline_chain(2, 6, chunks, schedule=schedule)))
    stage = {(0, 0): 0, (1, 0): 1, (0, 1): 3, (1, 1): 2} if schedule in ("zb-v", "dualpipe-v") else {}
    for device in range(2):
        slots = order(schedule, 2, device, 6, chunks)
        named = [f"{stage.get((device, c), 2 * c + device)}{phase}{batch}" for phase, c, batch in slots]
        assert [each for each in written[device] if "F" in each] == [each for each in named if "F" in each]
        assert len(written[device]) <= len(named)


def test_the_verb_writes_the_order_of_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "order.csv"
    form = ["--parallel", "pp2,vp2", "--micro-batches", "4", "--policy", "breadth-first-pp"]
    assert main(["workload", "gpt2-small", "--gpus", "2", *form, "-o", str(file)]) == 0
    assert rows(file.read_bytes())[0][:5] == ["0F0", "0F1", "0F2", "0F3", "2F0"]


def test_orders_that_tear_passes_and_jobs_without_a_pipeline_are_refused() -> None:
    spec = GeneratedJobSpec(WorkloadSpec("gpt2-small", 2, "pp2,vp2", micro_batches=2))
    step = breadth_first_pp(workload(spec), FREE)
    line = list(step.policy.order["stage0"])  # type: ignore[index]
    second = next(at for at, (_, batch) in enumerate(line) if batch == 1)
    line.insert(second, line.pop(1))
    with pytest.raises(UsageError, match="not done in one go"):
        as_csv(step.with_policy("mine", order={**(step.policy.order or {}), "stage0": tuple(line)}))
    with pytest.raises(WorkloadError, match="not one line of stages"):
        as_csv(replace(units(2, 2, 2), payloads=()))
    with pytest.raises(UsageError, match="pipelines of 2, 4 devices"):
        differing([units(2, 2, 2), units(4, 4, 2)])


# ----------------------------------------------------------------------------------------------------------- real ranks
@pytest.mark.torch
@pytest.mark.once
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is absent: no real ranks")
@pytest.mark.usefixtures("forked_ranks")
def test_gradients_on_real_ranks_are_those_of_the_whole_model() -> None:
    """PyTorch's own breadth-first schedule, ours, out-of-order backward in a loop and under a limit, zero bubble, DualPipeV."""
    steps = [
        breadth_first_pp(units(2, 4, 2), FREE),
        breadth_first_pp(units(2, 6, 2), FREE, group=4),
        ooo_backprop(units(2, 4, 2), FREE),
        ooo_backprop(plain(2, 4, 1), FREE, live=2),
        pipeline_chain(2, 4, schedule="zb-h2"),
        pipeline_chain(2, 4, 2, schedule="zb-v"),
        pipeline_chain(2, 4, 2, schedule="dualpipe-v"),
    ]
    assert differing(steps, own=True) == {at: [] for at in range(-1, len(steps))}
