"""The picture of a pipeline: passes where the run had them, idle shares by the closed form, memory beside, and a page with it."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from ringwright.engines.job.run import simulate
from ringwright.graph.memory import memory
from ringwright.ground.documents import read_json
from ringwright.jobs import model_job, rows
from ringwright.jobs.explained.pipeline_picture import as_json, picture
from ringwright.jobs.job_document import JobSteps, PipelineOfStep
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.reports.draw import pipeline_picture
from ringwright.reports.pages import job_page
from ringwright.schedulers.decompose.ooo_backprop import ooo_backprop
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.pipeline_chain import pipeline_chain

FREE = LinkCosts(1e30)


def shown(step: Workload) -> dict[str, object]:
    made = as_json(picture(step, simulate(step, FREE, steps=4)))
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("schedule", "bubble", "chunks"), [("1f1b", 9, 1), ("zb-h1", 3, 1), ("zb-h2", 0, 1), ("zb-v", 0, 2)]
)
def test_idle_is_the_bubble_of_the_closed_form(schedule: str, bubble: int, chunks: int) -> None:
    step = pipeline_chain(4, 8, chunks, schedule=schedule)
    told = picture(step, simulate(step, FREE, steps=5))
    assert told is not None
    work = 24 * chunks
    assert told.span_s == pytest.approx(work + bubble)
    assert told.idle == pytest.approx(bubble / (work + bubble))
    assert [each.of for each in told.devices] == [f"device{at}" for at in range(4)]
    assert [each.peak_bytes for each in told.devices] == [each.peak_bytes for each in memory(step)]


def test_every_pass_is_a_bar_of_its_kind_with_its_micro_batch() -> None:
    step = ooo_backprop(pipeline_chain(2, 3, 2, splits=True), FREE)
    row = SimpleNamespace(policy="ooo-backprop", step_us=1e6, pipeline=read_json(PipelineOfStep, shown(step)))
    (drawn,) = pipeline_picture.pictures([row])
    assert {name for name, _ in pipeline_picture.legend([row])} >= {
        "forward",
        "gradients of inputs",
        "gradients of weights",
    }
    first = [bar for bar in drawn.bars if bar.y == drawn.bars[0].y and bar.colour == pipeline_picture.COLOURS["F"]]
    assert [bar.number for bar in first] == ["0", "1", "2"] * 2
    assert {bar.opacity for bar in first} == {1.0, pipeline_picture.FAINTEST}
    assert all(drawn.left <= bar.x and bar.x + bar.width <= drawn.width for bar in drawn.bars)
    assert next(said for _, _, said in drawn.rows).startswith("idle ")


def test_what_is_no_pipeline_has_no_picture() -> None:
    step = chain("two", [ChainLayer(1.0, 2.0, 64)] * 2)
    assert picture(step, simulate(step, FREE, steps=2)) is None
    large = pipeline_chain(2, 2, 1)
    assert picture(large, simulate(large, FREE, steps=2)) is not None


def test_the_page_of_a_job_draws_its_pipeline_and_one_without_does_not() -> None:
    spec = model_job.GeneratedJobSpec(WorkloadSpec("gpt2-small", 8, "pp4,dp2", micro_batches=4), schedule="zb-h1")
    result = rows.document(model_job.made(spec), ["none"], pictures=True)
    page = job_page.page(read_json(JobSteps, result), "ringwright simulate")
    section = re.search(r'<section id="pipeline">(.*?)</section>', page, re.DOTALL)
    assert section is not None
    assert section[1].count("<rect") >= 40  # a half right behind the other one is one pass with it
    assert "gradients of weights, stage 0 of stage3, micro-batch 2" in section[1]
    assert section[1].count("GiB") + section[1].count("MiB") == 4
    plain = model_job.GeneratedJobSpec(WorkloadSpec("gpt2-small", 2, "dp2"))
    other = rows.document(model_job.made(plain), ["none"], pictures=True)
    assert 'id="pipeline"' not in job_page.page(read_json(JobSteps, other), "ringwright simulate")
