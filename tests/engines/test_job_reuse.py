"""What is laid out of one candidate serves the next, and never a wrong one: each answer is that of a job laid out alone."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

import random_workloads as drawn
from ringwright.engines.job import layout
from ringwright.engines.job.layout import Laid, lay_out
from ringwright.engines.job.reuse import Layouts
from ringwright.engines.job.sending import Sending
from ringwright.engines.job.timed_anew import timed_anew
from ringwright.ground.errors import RingwrightError
from ringwright.jobs.study import Job, answer
from ringwright.model.stages import Costs, LinkCosts, Stage
from ringwright.model.workload import Mesh, RankClass, Workload
from ringwright.workloads.chain import ChainLayer, chain


def differs(one: Any, other: Any) -> list[str]:
    """Return the names of the columns of two laid-out jobs that are not equal."""
    found = []
    for each in fields(one):
        here, there = getattr(one, each.name), getattr(other, each.name)
        if is_dataclass(here):
            found += differs(here, there) if is_dataclass(there) else [each.name]
        elif isinstance(here, np.ndarray):
            found += [each.name] * (here.dtype != there.dtype or not np.array_equal(here, there))
        else:
            found += [each.name] * (here != there)
    return found


def laid(
    made: Workload, costs: Costs, layouts: Layouts, *, slow: dict[int, float] | None = None, folded: bool = True
) -> Laid | str:
    """Return the job laid out with what is remembered, or what is wrong with it."""
    try:
        return lay_out(made, costs, layouts.rank_classes(made, slow, (), folded=folded), 2, layouts=layouts)
    except RingwrightError as error:
        return str(error)


def check(made: Workload, costs: Costs, layouts: Layouts, where: str, **how: Any) -> None:
    found, wanted = laid(made, costs, layouts, **how), laid(made, costs, Layouts(), **how)
    if isinstance(found, str) or isinstance(wanted, str):
        assert found == wanted, where
        return
    assert not differs(found.flat, wanted.flat), where
    assert found.bands == wanted.bands, where
    assert found.operations == wanted.operations, where


# ------------------------------------------------------------------------------------------------ any order of candidates
def changed(r: random.Random, made: Workload) -> Workload:
    """Return the workload with one part of it rewritten, the others the same objects."""
    tasks, payloads = list(made.tasks), list(made.payloads)
    what = r.choice(["task", "payload", "fewer payloads", "edges", "order", "micro-batches", "none", "none"])
    if what == "task":
        at = r.randrange(len(tasks))
        tasks[at] = replace(tasks[at], seconds=tasks[at].seconds + 1e-3)
    elif what == "payload":
        at = r.randrange(len(payloads))
        payloads[at] = replace(payloads[at], size_bytes=payloads[at].size_bytes + 500)
    elif what == "fewer payloads":
        payloads = r.sample(payloads, r.randint(1, len(payloads)))
    elif what == "edges":
        return replace(made, edges=made.edges[: r.randrange(len(made.edges) + 1)])
    elif what == "micro-batches":
        return replace(made, micro_batches=1 + made.micro_batches % 3)
    elif what == "order":
        line = {each.name: tuple(reversed(made.line(each.name))) for each in made.classes}
        return replace(made, policy=replace(made.policy, order=line))
    return replace(made, tasks=tuple(tasks), payloads=tuple(payloads))


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("block", range(4))
def test_candidates_in_any_order_are_laid_out_as_each_alone(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        r, costs = random.Random(seed), drawn.Costs(seed)
        base, layouts = drawn.workload(seed), Layouts()
        candidates = [drawn.policy(97 * seed + at, base) for at in range(4)]
        candidates += [changed(r, r.choice(candidates)) for _ in range(5)]
        for at in range(16):
            how: dict[str, Any] = {"slow": {0: 1.5} if r.random() < 0.2 else None, "folded": r.random() < 0.8}
            check(r.choice(candidates), costs, layouts, f"seed {seed}, candidate {at}", **how)


def test_what_is_the_same_is_not_asked_or_written_again() -> None:
    base, costs, layouts = drawn.workload(3), drawn.Costs(3), Layouts()
    first = laid(base, costs, layouts)
    again = laid(replace(base, payloads=base.payloads[:-1]), costs, layouts)
    assert isinstance(first, Laid)
    assert isinstance(again, Laid)
    tasks = [at for at, band in enumerate(first.bands) if band.what == "task"]
    assert all(again.bands[at] is first.bands[at] for at in tasks)


def test_a_search_that_goes_to_and_fro_keeps_the_tasks_of_both() -> None:
    base, costs, layouts = drawn.workload(3), drawn.Costs(3), Layouts()
    behind, freely = (base.with_policy("one", boundary=each) for each in ("barrier", "layer"))
    first = laid(behind, costs, layouts)
    for at in range(8):
        laid(replace(freely, payloads=freely.payloads[: 1 + at % len(base.payloads)]), costs, layouts)
    again = laid(behind, costs, layouts)
    assert isinstance(first, Laid)
    assert isinstance(again, Laid)
    assert again.bands[0] is first.bands[0]


# ----------------------------------------------------------------------------------- one field changed after a first run
OTHER = {
    "barrier": "layer",
    "index": "program",
    "F": "B",
    "B": "F",
    "step": "micro-batch",
    "micro-batch": "step",
    "bytes": "operations",
}


def others(value: Any) -> Iterator[Any]:
    """Yield values of the same kind that differ in one field, however deep."""
    if is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            for new in others(getattr(value, each.name)):
                yield replace(value, **{each.name: new})
    elif isinstance(value, tuple):
        if value:
            yield value[:-1]
        for at in {0, len(value) - 1} if value else ():
            yield from ((*value[:at], new, *value[at + 1 :]) for new in others(value[at]))
    elif isinstance(value, dict):
        for key, each in list(value.items())[:2]:
            yield {name: other for name, other in value.items() if name != key}
            yield from ({**value, key: new} for new in others(each))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    elif isinstance(value, str):
        yield OTHER.get(value, value + "x")


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("seed", [0, 1, 2, 5, 8, 11])
def test_a_change_of_any_field_of_any_noun_is_seen(seed: int) -> None:
    made, costs = drawn.policy(13 * seed, drawn.workload(seed)), drawn.Costs(seed)
    layouts, seen = Layouts(), 0
    for at, other in enumerate(others(made)):
        laid(made, costs, layouts)
        try:
            check(other, costs, layouts, f"seed {seed}, change {at}")
        except (ValueError, TypeError, KeyError, IndexError):  # no workload any more: alone it fails as well
            with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
                laid(other, costs, Layouts())
        seen += 1
    assert seen > 50


def test_costs_that_change_their_mind_are_asked_again() -> None:
    class Slower:
        rate = 1e9

        def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> Any:
            return LinkCosts(self.rate).stages(op, size_bytes, ranks, role)

    made, costs, layouts = drawn.workload(1), Slower(), Layouts()
    for rate in (1e9, 1e9, 2e9, 1e9):
        costs.rate = rate
        check(made, costs, layouts, f"{rate}")


def test_what_is_changed_in_place_is_seen() -> None:
    place = {"dp": 0}
    made = replace(
        chain("job", [ChainLayer(1e-3, 2e-3, 4000), ChainLayer(1e-3, 2e-3, 8000)], 2),
        mesh=Mesh((("dp", 2), ("tp", 2))),
    )
    of = made.classes[0].name
    made = replace(made, classes=(RankClass(of, place), RankClass("rest", {"dp": 1})))
    keys: dict[str, int] = {}
    windows = {"dp": (5000.0, "bytes")}
    order = {of: tuple(made.line(of))}
    held = made.with_policy("one", boundary="layer", order=order)
    held = replace(held, policy=replace(held.policy, queue=drawn.Queue(keys=keys, windows=windows)))
    costs, layouts = LinkCosts(1e6), Layouts()
    check(held, costs, layouts, "first")
    for change in (
        lambda: keys.update({made.payloads[0].name: 3}),
        lambda: windows.update({"dp": (1.0, "operations")}),
        lambda: order.update({of: order[of][::-1]}),
        lambda: place.update({"dp": 1}) or held.classes[1].at.update({"dp": 0}),  # type: ignore[attr-defined]
    ):
        change()
        check(held, costs, layouts, "changed in place")


# ------------------------------------------------------------------------------------------------------------- memory
@pytest.mark.once
def test_a_thousand_candidates_need_no_more_memory_than_a_few() -> None:
    job = Job(chain("job", [ChainLayer(1e-3, 2e-3, 40_000)] * 2, 2), LinkCosts(1e6))
    held = []
    for at in range(1000):
        size = f"{0.001 + at * 1e-5:.6f}"
        answer(job, f"pytorch-ddp:bucket_cap_mb={size}" if at % 3 else f"bytescheduler:partition_mb={size}")
        if at in (100, 999):
            gc.collect()
            held.append(sys.getallocatedblocks())
    assert held[1] < held[0] + 1000, "a block or more is left of each"


def test_a_copy_of_a_job_is_answered_by_its_own_costs() -> None:
    job = Job(chain("job", [ChainLayer(1e-3, 2e-3, 40_000)], 2), LinkCosts(1e6))
    before = answer(job, "none").step_s
    slower = replace(job, costs=LinkCosts(1e5))
    assert answer(slower, "none").step_s == answer(replace(slower, layouts=Layouts()), "none").step_s > before


# ------------------------------------------------------------------------------------------------------- timed anew
class DrawnStages:
    """Costs that are drawn: how long each operation takes, of how many phases it is, and what it loads."""

    def __init__(self, seed: int, phases: int = 1) -> None:
        self.seed, self.phases = seed, phases

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        r = random.Random(repr((self.seed, op, size_bytes, ranks, role)))
        return tuple(
            Stage(
                r.random() * 1e-3,
                r.random() * 1e-5,
                ("push", "pull")[at] if self.phases > 1 else "",
                tuple((f"{name}.tx", r.random()) for name in ("nic", "nvlink") if r.random() < 0.7),
                r.random() / 4,
                tuple((link, r.random()) for link in r.sample(range(6), r.randrange(4))),
            )
            for at in range(self.phases)
        )


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("block", range(4))
def test_other_costs_are_laid_out_as_alone(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    anew = []
    monkeypatch.setattr(layout, "timed_anew", lambda *asked: anew.append(timed_anew(*asked)) or anew[-1])
    r = random.Random(block)
    for seed in range(block * 20, block * 20 + 20):
        made, layouts = drawn.workload(seed), Layouts()
        for at in range(5):
            costs = DrawnStages(seed * 10 + at, r.choice((1, 1, 1, 2)))
            check(made, costs, layouts, f"seed {seed}, costs {at}")
    assert sum(each is not None for each in anew) > 20
    assert any(each is None for each in anew), "costs of two phases are no costs of one"


def test_what_does_not_cost_time_is_not_laid_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(chain("job", [ChainLayer(1e-3, 2e-3, 40_000)] * 3, 2), LinkCosts(1e6))
    answer(job, "none")
    written = []
    monkeypatch.setattr(Sending, "lay", lambda *_: written.append(1))
    answer(replace(job, costs=LinkCosts(1e5)), "none")
    assert not written


def test_links_that_are_watched_stay_whoever_times_them() -> None:
    made, costs = chain("job", [ChainLayer(1e-3, 2e-3, 40_000)] * 2, 2), DrawnStages(3)
    for watched in ((0, 1, 2, 3, 4, 5), (2,)):
        layouts = Layouts()
        classes = layouts.rank_classes(made, None, (), folded=True)
        for each in (costs, DrawnStages(4), DrawnStages(5)):
            found = lay_out(made, each, classes, 2, layouts=layouts, watched=watched)
            alone = lay_out(made, each, classes, 2, watched=watched)
            assert not differs(found.flat, alone.flat)
            assert found.resource_of == alone.resource_of
