"""Generated jobs issue what the closed forms say, stage by stage; and they run."""

from __future__ import annotations

from collections import Counter

import pytest

from ringwright.costs.gpus import gpu
from ringwright.engines.job.run import simulate
from ringwright.graph.pipelines import order
from ringwright.ground.errors import UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.workloads.collectives import collectives
from ringwright.workloads.job import job
from ringwright.workloads.models import model
from ringwright.workloads.parallel import parse
from ringwright.workloads.step import StepSpec
from ringwright.workloads.times import Roofline

CASES = [
    ("llama3-8b", "tp2,pp2,dp2", 4, 1024),
    ("llama3-8b", "tp2,sp,pp2,dp2,zero1", 4, 1024),
    ("llama3-8b", "tp2,sg,pp2,dp2", 4, 1024),
    ("llama3-8b", "tp4,sg,cp2,pp4,vp2,dp2", 8, 2048),
    ("llama3-8b", "tp2,sg,fsdp,dp4,pp2", 2, 1024),
    ("gpt2-medium", "tp2,sg,pp3,dp2", 6, 1024),
    ("bert-large", "tp2,sg,pp2,dp2", 4, 512),
    ("mixtral-8x7b", "tp2,sg,dp2,pp2", 2, 2048),
    ("llama3-8b", "tp4,sp,cp2,pp4,vp2,dp2", 8, 2048),
    ("llama3-8b", "fsdp,dp8", 2, 1024),
    ("llama3-8b", "tp2,fsdp,dp4", 2, 1024),
    ("llama3-70b", "cp4,tp2,dp2", 2, 8192),
    ("llama3-405b", "tp8,pp16,dp128", 16, 8192),
    ("gpt2-medium", "tp2,pp2,dp2", 4, 1024),
    ("gpt3-13b", "tp8,sp,pp4,dp2,zero1", 8, 2048),
    ("bert-large", "dp8", 1, 512),
    ("bert-large", "tp2,dp2", 1, 512),
    ("mixtral-8x7b", "ep8,dp8,pp2", 4, 2048),
    ("mixtral-8x7b", "tp2,sp,ep4,dp8", 2, 2048),
    ("mixtral-8x7b", "tp2,dp2", 2, 2048),
    ("mixtral-8x7b", "tp2,sp,dp2", 2, 2048),
    ("deepseek-v3", "pp16,ep64,dp64,zero1", 32, 4096),
    ("deepseek-v3", "ep8,dp8,fsdp", 2, 4096),
    ("qwen3-30b-a3b", "ep8,dp8", 2, 4096),
    ("gpt-oss-120b", "ep8,dp8", 1, 4096),
    ("transformer", "tp2,dp4", 1, 128),
    ("vgg16", "dp8", 1, 1),
    ("resnet50", "dp8", 1, 1),
    ("inception-v3", "dp8", 1, 1),
    ("vit-l-16", "tp4,pp2,dp2", 4, 197),
    ("vit-h-14", "tp2,pp4,dp2,zero1", 8, 257),
    ("vit-b-16", "dp8", 1, 197),
    ("dit-xl-2", "tp4,dp2,zero1", 2, 256),
    ("dit-b-2", "dp8", 1, 256),
    ("stable-diffusion-1.5", "dp8", 1, 1),
    ("mamba-130m", "dp8,zero1", 2, 2048),
    ("mamba-130m", "dp8,fsdp", 1, 2048),
    ("dlrm-kaggle", "dp8", 2, 1),
    ("dlrm-mlperf", "dp4", 1, 1),
]
SUMMED = ("dp", "edp", "embedding")  # buckets are the policy's: compare bytes, not counts
SENT = {"shift": "send", "send-recv": "send"}
ROOFLINE = Roofline(gpu("h100"))


def generated(workload: Workload, stage: int) -> Counter[tuple[str, str, int | str]]:
    found: Counter[tuple[str, str, int]] = Counter()
    of = workload.classes[stage].name
    for payload in workload.payloads:
        times = workload.micro_batches if payload.per == "micro-batch" else 1
        if of in (payload.of, *payload.joint):
            found[payload.role, SENT.get(payload.op, payload.op), payload.size_bytes] += times
        if payload.peer == of or (payload.of == of and payload.op == "shift"):
            found[payload.role, "recv", payload.size_bytes] += times
    return folded(found)


def folded(found: Counter[tuple[str, str, int]]) -> Counter[tuple[str, str, int | str]]:
    made: Counter[tuple[str, str, int | str]] = Counter()
    for (role, op, size), count in found.items():
        if role in SUMMED:
            made[role, op, "bytes"] += size * count
        else:
            made[role, op, size] += count
    return made


def closed(name: str, step: StepSpec) -> Counter[tuple[str, str, int | str]]:
    found: Counter[tuple[str, str, int]] = Counter()
    for row in collectives(model(name), step):
        if (row.role, row.op) != ("ep", "all-gather"):  # how many tokens go where: no payload of the job
            found[row.role, row.op, row.size_bytes] += row.count
    return folded(found)


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("name", "form", "micro_batches", "sequence"), CASES, ids=str)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_training_issues_what_the_closed_form_says(
    name: str, form: str, micro_batches: int, sequence: int, recompute: str
) -> None:
    parallel = parse(form)
    made = job(model(name), StepSpec(parallel, sequence, micro_batches, 1, "training", recompute), ROOFLINE)
    for stage in {0, (parallel.pp - 1) // 2, parallel.pp - 1}:
        step = StepSpec(parallel, sequence, micro_batches, 1, "training", recompute, stage=stage)
        assert generated(made, stage) == closed(name, step), stage


@pytest.mark.sampled(20)
@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize(("name", "form", "micro_batches", "sequence"), CASES, ids=str)
def test_inference_issues_what_the_closed_form_says(
    name: str, form: str, micro_batches: int, sequence: int, mode: str
) -> None:
    parallel = parse(form)
    try:
        wanted = [
            closed(name, StepSpec(parallel, sequence, micro_batches, 1, mode, stage=at)) for at in range(parallel.pp)
        ]
    except UsageError:
        with pytest.raises(UsageError):
            job(model(name), StepSpec(parallel, sequence, micro_batches, 1, mode), ROOFLINE)
        return
    made = job(model(name), StepSpec(parallel, sequence, micro_batches, 1, mode), ROOFLINE)
    assert [generated(made, at) for at in range(parallel.pp)] == wanted


SMALL = [
    ("bert-base", "tp2,dp2", 2),
    ("gpt2", "tp2,pp2,dp2", 4),
    ("gpt2", "tp2,sg,pp2,dp2", 4),
    ("llama3-8b", "tp2,sp,pp2,dp2,zero1", 4),
    ("llama3-8b", "tp2,cp2,dp2", 2),
    ("llama3-8b", "fsdp,dp4", 2),
    ("llama3-8b", "pp4,vp2,dp2", 8),
    ("mixtral-8x7b", "ep4,dp4,pp2", 4),
    ("mixtral-8x7b", "tp2,sp,ep4,dp4", 2),
    ("vit-b-16", "tp2,pp2,dp2", 4),
    ("dit-s-2", "tp2,dp2", 2),
    ("mamba-130m", "fsdp,dp4", 2),
]


@pytest.mark.parametrize(("name", "form", "micro_batches"), SMALL)
@pytest.mark.parametrize("slow", [{}, {1: 1.5}], ids=["healthy", "slow-rank"])
def test_folded_equals_every_rank(name: str, form: str, micro_batches: int, slow: dict[int, float]) -> None:
    layers = 4 if "pp" not in form else 8
    made = job(
        model(name, layers=layers), StepSpec(parse(form), model(name).fixed_tokens or 256, micro_batches), ROOFLINE
    )
    costs = LinkCosts(20e9, 1e-5, ring=True)
    folded_, whole = (simulate(made, costs, steps=2, slowdowns=slow, folded=each) for each in (True, False))
    assert len(whole.laid.rank_classes) == made.mesh.size
    if not slow:  # a slow rank may tell all ranks of so small a mesh apart
        assert len(folded_.laid.rank_classes) < made.mesh.size
    assert folded_.window() == whole.window()
    for step in range(2):
        assert folded_.finished(step) == whole.finished(step)


def test_pipeline_bubble_is_the_closed_form() -> None:
    """(p-1)/(v m) of the ideal time, for 1F1B and interleaved, once messages and updates cost nothing."""
    for form, micro_batches, bubble in (("pp4", 8, 3 / 8), ("pp4,vp2", 8, 3 / 16), ("pp8", 8, 7 / 8)):
        made = job(
            model("llama3-8b", layers=32, vocabulary=128, hidden=1024),
            StepSpec(parse(form), 256, micro_batches),
            ROOFLINE,
        )
        run = simulate(_even(made), LinkCosts(1e30), steps=3)
        tasks = [task for task in _even(made).tasks if task.of == "stage0" and task.per == "micro-batch"]
        ideal = micro_batches * sum(task.seconds for task in tasks)
        assert run.step_s / ideal == pytest.approx(1 + bubble, rel=1e-6)


def _even(workload: Workload) -> Workload:
    """Return it with a second for each block's forward pass and two for its backward pass, nothing else."""
    import dataclasses

    tasks, seen = [], set()
    for task in workload.tasks:
        phase = {"F": "F", "dO": "B"}.get(task.kind, "")
        key = (task.of, task.layer, phase)
        block = ".layer" in task.name and phase and key not in seen
        seen.add(key)
        tasks.append(dataclasses.replace(task, seconds=(1.0 if phase == "F" else 2.0) if block else 0.0))
    return dataclasses.replace(workload, tasks=tuple(tasks))


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(1, 1, 3), (2, 1, 2), (4, 1, 8), (4, 2, 8), (2, 3, 4)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_orders_run_everything_once(stages: int, chunks: int, micro_batches: int, schedule: str) -> None:
    for stage in range(stages):
        made = order(schedule, stages, stage, micro_batches, chunks)
        every = {(phase, v, m) for phase in "FB" for v in range(chunks) for m in range(micro_batches)}
        assert len(made) == len(every)
        assert set(made) == every
        assert all(
            made.index(("F", v, m)) < made.index(("B", v, m)) for v in range(chunks) for m in range(micro_batches)
        )
