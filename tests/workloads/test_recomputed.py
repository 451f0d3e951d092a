"""Selective recomputation of operations: what is kept of a block, what runs once more, and what a published job held."""

from __future__ import annotations

import pytest

from ringwright.graph.memory import memory, peak_bytes
from ringwright.ground.errors import UsageError
from ringwright.jobs import model_job
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.validity.workloads import require
from ringwright.model.workload import Workload

# torchtitan, docs/performance.md of December 2024: Llama 3.1 8B, FSDP on 8 H100 of 96 GB, 2 sequences of 8,192 tokens a GPU,
# selective recomputation (op), GiB that PyTorch's allocator had reserved: eager, compiled, compiled with FP8.
PUBLISHED_GIB = (82.4, 77.0, 76.8)
DEVICE_BYTES = 96e9
TOKENS, HIDDEN, KEYS, MIDDLE, WORDS = 2 * 8192, 4096, 1024, 14336, 128256


def llama(recompute: str) -> Workload:
    spec = WorkloadSpec("llama3-8b", 8, "fsdp", None, 2, 8192, recompute=recompute)
    return require(model_job.workload(model_job.GeneratedJobSpec(spec)))


def seconds(workload: Workload, kind: str) -> float:
    return sum(task.seconds for task in workload.tasks if task.kind == kind)


def test_a_published_job_fits_the_device_that_it_ran_on() -> None:
    """Allocators reserve more than is held: what is held lies below what they had, and not far."""
    plain, selective = (peak_bytes(llama(each)) for each in ("none", "selective-op"))
    assert plain is not None
    assert selective is not None
    assert plain > DEVICE_BYTES > selective
    assert 0.85 * min(PUBLISHED_GIB) < selective / 2**30 <= min(PUBLISHED_GIB)


def test_what_is_kept_of_a_block_is_counted_tensor_by_tensor() -> None:
    (held,) = memory(llama("selective-op"))
    stream, attention = 2 * TOKENS * HIDDEN, 2 * TOKENS * HIDDEN + 4 * TOKENS * 32
    block = stream + 2 * TOKENS * (HIDDEN + 2 * KEYS) + attention + 2 * TOKENS * MIDDLE + stream
    loss = (3 * 4 - 2) * TOKENS * WORDS
    ends = 2 * stream  # what goes into the first block as it was looked up, and what the last norm gave
    assert held.by_kind["activation"] == pytest.approx(32 * block + loss + ends, rel=0.005)


def test_what_is_not_kept_runs_once_more() -> None:
    """Three of seven matrices and all between run again: less than a whole forward pass, and attention is not among it."""
    plain, selective, full = (llama(each) for each in ("none", "selective-op", "full"))
    once = seconds(plain, "F")
    more = sum(task.seconds for task in selective.tasks) - sum(task.seconds for task in plain.tasks)
    whole = sum(task.seconds for task in full.tasks) - sum(task.seconds for task in plain.tasks)
    assert 0.2 * once < more < 0.6 * once
    assert more < 0.7 * whole
    flops = {
        each: sum(task.work.flops for task in made.tasks if task.work)
        for each, made in (("p", plain), ("s", selective))
    }
    again = 2 * TOKENS * (HIDDEN * KEYS + HIDDEN * HIDDEN + HIDDEN * MIDDLE) * 32
    assert flops["s"] - flops["p"] == pytest.approx(again, rel=1e-6)


@pytest.mark.parametrize(("model", "form"), [("llama3-8b", "tp2"), ("mixtral-8x7b", "ep8"), ("resnet50", None)])
def test_where_it_is_not_known_what_is_sent_again_it_is_refused(model: str, form: str | None) -> None:
    with pytest.raises(UsageError, match="selective-op is of dense blocks"):
        model_job.workload(model_job.GeneratedJobSpec(WorkloadSpec(model, 8, form, recompute="selective-op")))
