"""What the tasks of a model's segments do one after another: what is gathered enters the first part, what is scattered leaves the last."""

from __future__ import annotations

import pytest

import ringwright
from ringwright.graph.algebra import RULES, RewriteError
from ringwright.graph.algebra.equality import prove, small
from ringwright.model.validity.workloads import check
from ringwright.model.workload import Task, Workload


@pytest.fixture(scope="module", params=["llama3-8b", "gpt3-125m"])
def model(request: pytest.FixtureRequest) -> Workload:
    return ringwright.job(request.param, gpus=4, parallel="tp2,sp,dp2", micro_batches=1)


def parted(model: Workload) -> list[Task]:
    """Return the tasks whose parts hand on what they make; those of an update do not."""
    return [task for task in model.tasks if task.work and task.work.parts and task.kind != "U"]


def test_forward_and_backward_of_every_layer_have_parts(model: Workload) -> None:
    kinds = {kind: sum(task.kind == kind for task in parted(model)) for kind in ("F", "dO", "dW")}
    assert kinds["F"] == kinds["dO"] > 20
    assert kinds["dW"] == 0


def test_parts_add_up_to_their_task(model: Workload) -> None:
    assert check(model, warnings=False) == []
    for task in parted(model):
        work = task.work
        assert work is not None
        assert sum(part.share for part in work.parts) == pytest.approx(1)
        assert sum(part.work.flops for part in work.parts) == pytest.approx(work.flops)
        multiplied = sum(2 * each.m * each.n * each.k * each.times for each in work.products)
        parts = sum(2 * e.m * e.n * e.k * e.times for part in work.parts for e in part.work.products)
        assert multiplied == parts <= work.flops


def test_what_is_sent_is_at_the_ends(model: Workload) -> None:
    gathered = {each.result for each in model.payloads if each.op == "all-gather" and each.role == "tp"}
    scattered = {each.source for each in model.payloads if each.op == "reduce-scatter" and each.role == "tp"}
    ends = 0
    for task in parted(model):
        parts = task.work.parts if task.work else ()
        for at, part in enumerate(parts):
            reads, writes = [task.reads[each][0] for each in part.reads], [task.writes[each] for each in part.writes]
            assert at == 0 or not gathered & set(reads)
            assert at == len(parts) - 1 or not scattered & set(writes)
            ends += len(gathered & set(reads)) + len(scattered & set(writes))
            assert bool(part.dims) == (at < len(parts) - 1)
    assert ends == 2 * len(parted(model))


def test_each_part_reads_the_parameters_of_its_own_products(model: Workload) -> None:
    for task in parted(model):
        parts = task.work.parts if task.work else ()
        held = [name for name, _ in task.reads if name.endswith(".parameters")]
        mine = [task.reads[each][0] for part in parts for each in part.reads]
        assert [mine.count(name) for name in held] == [1] * len(held)


def test_a_task_in_parts_computes_the_same() -> None:
    (before,) = small(ringwright.job("gpt3-125m", gpus=2, parallel="tp2,sp", micro_batches=1))
    sites = [task.name for task in parted(before)]
    after = RULES["open"].everywhere(before, [*sites[:3], *sites[-3:]])
    proof = prove(before, after, draws=1)
    assert proof.equal, proof.differing[:3]


def test_a_task_of_one_kernel_is_not_opened(model: Workload) -> None:
    plain = next(task for task in model.tasks if task.work and not task.work.parts)
    with pytest.raises(RewriteError, match="nothing says that it is several kernels"):
        RULES["open"](model, plain.name)
