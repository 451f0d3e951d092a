"""A laid-out job equals its plain definition, and stays so whatever was laid out before it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import random_workloads as drawn
from plain_layout import Plain
from ringwright.engines.job.flat import FlatJob
from ringwright.engines.job.layout import lay_out
from ringwright.engines.job.rank_classes import RankClasses, rank_classes
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.dear import dear
from ringwright.workloads.chain import ChainLayer, chain

pytestmark = pytest.mark.once  # takes nothing from compiled loops


def plainly(flat: FlatJob) -> dict[str, list[Any]]:
    """Return the columns as lists, and the compressed lists as one list for each instance."""

    def lists(starts: Any, *columns: Any) -> list[list[Any]]:
        each = columns[0].tolist() if len(columns) == 1 else list(zip(*(c.tolist() for c in columns), strict=True))
        return [each[low:high] for low, high in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]

    before, after = flat.edges()
    columns = ("work_ps", "latency_ps", "queue", "key", "size", "sms", "tag", "tiles", "waits")
    return {name: getattr(flat, name).tolist() for name in columns} | {
        "after": lists(np.searchsorted(before, np.arange(flat.n + 1)), after),
        "domain": lists(flat.domain_start, flat.domain),
        "load": lists(flat.load_start, flat.load, flat.share, flat.claim),
        "token": lists(flat.token_start, flat.token, flat.amount),
    }


def classes_of(made: Workload, r: random.Random) -> RankClasses:
    slow = {r.randrange(made.mesh.size): 1.5} if r.random() < 0.3 else None
    marked = (r.randrange(made.mesh.size),) if r.random() < 0.3 else ()
    return rank_classes(made, slow, marked=marked, folded=r.random() < 0.8)


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("block", range(6))
def test_it_equals_one_instance_and_one_edge_at_a_time(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        r = random.Random(seed)
        made = drawn.policy(7 * seed + 1, drawn.workload(seed))
        costs, classes, steps = drawn.Costs(seed), classes_of(made, r), r.choice([1, 2, 3])
        laid, plain = lay_out(made, costs, classes, steps), Plain(made, costs, classes)
        found, wanted = plainly(laid.flat), plain.flat(steps)
        assert not [name for name in wanted if found[name] != wanted[name]], f"seed {seed}"
        assert laid.flat.queues.names == ["/".join(map(str, name)) for name in plain.queues], f"seed {seed}"
        rows = [(row.what, row.name) for row in laid.rows for _ in range(row.count)]
        assert rows == [(each.what, each.name) for each in plain.step], f"seed {seed}"


@pytest.mark.parametrize("boundary", ["barrier", "layer"])
def test_work_of_the_step_before_is_laid_out_as_defined(boundary: str) -> None:
    """Gathers and updates that are done a step later have the barrier behind them, and no turn in the order of compute."""
    job = chain("job", [ChainLayer(1.0, 2.0, 1 << 20, update_s=0.5) for _ in range(5)], 4)
    costs = LinkCosts(1e6)
    made = dear(job, costs, neighbours=2).with_policy("test", boundary=boundary)
    classes = rank_classes(made)
    laid, plain = lay_out(made, costs, classes, 3), Plain(made, costs, classes)
    found, wanted = plainly(laid.flat), plain.flat(3)
    assert not [name for name in wanted if found[name] != wanted[name]]


def test_random_workloads_have_all_that_the_layout_reads() -> None:
    made = [drawn.policy(7 * seed + 1, drawn.workload(seed)) for seed in range(120)]
    laid = [lay_out(each, drawn.Costs(seed), rank_classes(each), 2) for seed, each in enumerate(made)]
    for feature in ("load", "token", "gates", "after"):
        assert sum(getattr(each.flat, feature).size > 0 for each in laid) > 20, feature
    operations = [operation for each in laid for operation in each.operations]
    assert sum(len(each.payloads) > 1 and each.pieces > 1 for each in operations) > 5
    assert {each.op for each in operations} == {"all-reduce", "push-pull", "send-recv"}
    assert {each.policy.boundary for each in made} == {None, "barrier", "layer", "reads"}
    assert {"index", None} <= {each.policy.agreement for each in made}
