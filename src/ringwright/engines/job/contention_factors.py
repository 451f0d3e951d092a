"""What communication beside a matrix product was measured to cost it: a row of factors for each kind of task.

An operation holds a share of the compute units and moves bytes all the while: it is taken for a kernel that copies on as many of
them. One by copy engines holds none. A task of several products, or of products and other kernels, is their mean by time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np

from ringwright.costs.contention.movers import BUS_SHARE_OF_PRODUCT
from ringwright.costs.contention.multiprocessors import Multiprocessors, multiprocessors
from ringwright.costs.contention.products import Product
from ringwright.costs.contention.sharing import beside
from ringwright.engines.job.flat import Interference
from ringwright.model.values import MatrixProduct, Work
from ringwright.model.workload import Task, Workload

MOST_HELD = 64  # compute units of the last column; whoever holds more is taken to hold as many
TIMED = ("F", "B", "dO", "dW")


def measured(interference: Interference, workload: Workload, names: Iterable[str]) -> tuple[Interference, np.ndarray]:
    """Return the model with its factors, and the row of each task by name, from 1 on (0: none). int32 of shape (names,).

    UsageError for a device that was not measured.
    """
    on, rows = multiprocessors(interference.gpu), dict[tuple[float, ...], int]()
    row_of = dict[str, int]()
    for task in workload.tasks:
        factors = _factors(task, on)
        if factors:
            row_of[task.name] = rows.setdefault(factors, len(rows) + 1)
    made = replace(interference, units=on.sms, factors=tuple(rows))
    return made, np.array([row_of.get(name, 0) for name in names], np.int32)


def without_products(workload: Workload) -> tuple[int, int]:
    """Return how many tasks that compute have no matrix product that is known, and how many there are."""
    timed = [task for task in workload.tasks if task.kind in TIMED and task.seconds]
    return sum(not _pieces(task) for task in timed), len(timed)


def _pieces(task: Task) -> list[tuple[float, tuple[MatrixProduct, ...]]]:
    """Return the products of a task, part by part with its share of the time; none where there are none at all."""
    work = task.work or Work()
    pieces = [(part.share, part.work.products) for part in work.parts] or [(1.0, work.products)]
    return pieces if any(products for _, products in pieces) else []


def _factors(task: Task, on: Multiprocessors) -> tuple[float, ...]:
    """Return how many times as long a task takes, by compute units held; what is no product as by the share that is left."""
    pieces = _pieces(task)
    if not pieces:
        return ()
    total = np.zeros(MOST_HELD + 1)
    for share, products in pieces:
        total += share * (_slowed(products, on) if products else _by_share(on))
    return tuple(np.maximum.accumulate(total).tolist())


def _by_share(on: Multiprocessors) -> np.ndarray:
    return 1.0 / (1.0 - np.arange(MOST_HELD + 1) / on.sms)


@cache
def _slowed(products: tuple[MatrixProduct, ...], on: Multiprocessors) -> np.ndarray:
    """Return the same for products, weighted by their operations. float64 of shape (MOST_HELD + 1,)."""
    weights = np.array([each.m * each.n * each.k * each.times for each in products], float)
    slowed = [
        [1.0 + BUS_SHARE_OF_PRODUCT, *(_one(each, held, on) for held in range(1, MOST_HELD + 1))] for each in products
    ]
    made: np.ndarray = weights @ np.array(slowed) / weights.sum()
    return made


def _one(product: MatrixProduct, held: int, on: Multiprocessors) -> float:
    return beside(Product(product.m, product.n, product.k), "copy", held, on).slowdown
