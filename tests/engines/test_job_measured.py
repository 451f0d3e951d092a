"""Compute beside communication as it was measured: the factor of the product that a task is, on both loops, and what has none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from ringwright.costs.contention.movers import BUS_SHARE_OF_PRODUCT
from ringwright.costs.contention.multiprocessors import multiprocessors
from ringwright.costs.contention.products import Product
from ringwright.costs.contention.sharing import beside
from ringwright.engines.job.contention_factors import MOST_HELD, measured, without_products
from ringwright.engines.job.flat import Interference
from ringwright.engines.job.run import simulate
from ringwright.ground.errors import UsageError
from ringwright.jobs.model_job import interference
from ringwright.model.stages import Stage
from ringwright.model.values import MatrixProduct, Work, WorkPart
from ringwright.model.workload import Mesh, Payload, RankClass, Task, Workload

ON_H100 = Interference("measured", gpu="h100")
PRODUCT = MatrixProduct(8192, 8192, 1024)


@dataclass(frozen=True)
class Held:
    """An operation that lasts ten seconds and holds a share of the compute units."""

    share: float

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        return (Stage(10.0, sms=self.share),)


def beside_an_operation(work: Work | None) -> Workload:
    """Return a task of a second that begins with an operation, and needs nothing of it."""
    begin = Task("begin", "all", "F", 0.0, per="step")
    task = Task("product", "all", "F", 1.0, per="step", work=work)
    sent = Payload("sent", "all", "all-reduce", 1 << 20, ("tp",), "tp", ("begin",), (("end", 0),))
    end = Task("end", "all", "U", 0.0, slot=("U", 0), per="step")
    return Workload("job", Mesh((("tp", 2),)), (RankClass("all"),), (begin, task, end), payloads=(sent,))


def took(work: Work | None, share: float, model: Interference = ON_H100, *, native: bool = True) -> float:
    run = simulate(beside_an_operation(work), Held(share), steps=1, interference=model, native=native)
    row = next(row for row in run.laid.rows if row.name == "product")
    return float(run.ends(row, 0)[0] - run.starts(row, 0)[0]) / 1e12


@pytest.mark.parametrize("held", [4, 8, 16, 32])
@pytest.mark.parametrize("native", [True, False])
def test_a_product_takes_what_it_was_measured_to_take(held: int, native: bool) -> None:
    expected = beside(Product(8192, 8192, 1024), "copy", held, multiprocessors("h100")).slowdown
    got = took(Work(products=(PRODUCT,)), held / 132, native=native)
    assert got == pytest.approx(expected, rel=1e-9)
    assert got > 1.05
    assert took(Work(products=(PRODUCT,)), held / 132, Interference()) == pytest.approx(1.0)


def test_copy_engines_hold_no_multiprocessor() -> None:
    assert took(Work(products=(PRODUCT,)), 0.0) == pytest.approx(1 + BUS_SHARE_OF_PRODUCT)


def test_what_is_no_product_keeps_the_share_that_is_left() -> None:
    assert took(Work(), 0.25) == pytest.approx(took(Work(), 0.25, Interference("share"))) == pytest.approx(4 / 3)


def test_parts_count_by_their_time() -> None:
    product = Work(products=(PRODUCT,))
    parts = (WorkPart(0.75, product, dims=(("d", 1),)), WorkPart(0.25, Work()))
    whole = took(Work(parts=parts), 16 / 132)
    assert whole == pytest.approx(0.75 * took(product, 16 / 132) + 0.25 / (1 - 16 / 132))


def test_more_compute_units_held_never_make_a_product_faster() -> None:
    for product in (
        PRODUCT,
        MatrixProduct(1024, 1024, 8192),
        MatrixProduct(8192, 128, 8192),
        MatrixProduct(256, 256, 64),
    ):
        step = beside_an_operation(Work(products=(product,)))
        model, rows = measured(ON_H100, step, ["product"])
        assert rows.dtype == np.int32
        assert rows.tolist() == [1]
        assert len(model.factors[0]) == MOST_HELD + 1
        assert list(model.factors[0]) == sorted(model.factors[0])
        assert model.factors[0][0] >= 1.0


def test_it_is_said_how_many_tasks_have_no_product() -> None:
    step = beside_an_operation(Work(products=(PRODUCT,)))
    assert without_products(step) == (0, 1)
    assert without_products(replace(step, tasks=tuple(replace(task, work=None) for task in step.tasks))) == (1, 1)


@pytest.mark.parametrize("gpu", ["a100", ""])
def test_a_device_that_was_not_measured_is_refused_with_a_remedy(gpu: str) -> None:
    with pytest.raises(UsageError, match="was not measured") as caught:
        interference("measured", Interference(gpu=gpu))
    assert "--interference share" in str(caught.value.remedy)
