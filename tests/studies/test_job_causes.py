"""Why communication was not hidden: each cause where it is made on purpose, and its advice, followed, helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ringwright.jobs.explained.why import ADVICE
from ringwright.jobs.rows import row
from ringwright.jobs.study import Job, answer
from ringwright.model.stages import Costs, LinkCosts, Stage
from ringwright.model.workload import Edge, Payload, Policy, Queue, Rewrite, Task, Workload
from ringwright.workloads.chain import ChainLayer, chain

pytestmark = pytest.mark.once
MS = 1e-3
MB = 10**6
RATE = 1e9  # B/s: a megabyte a millisecond


def layers(*sizes_mb: float, forward_ms: float = 1.0, backward_ms: float = 2.0) -> Workload:
    return chain("made up", [ChainLayer(forward_ms * MS, backward_ms * MS, int(size * MB)) for size in sizes_mb])


def under(workload: Workload, policy: Policy, costs: Costs | None = None) -> dict[str, Any]:
    job = Job(replace(workload, policy=policy), costs or LinkCosts(RATE))
    return row(answer(job, "none"))


def shares(found: dict[str, Any]) -> dict[str, float]:
    """Return the share of each cause in the exposed time."""
    assert found["why"], "nothing was exposed"
    whole = sum(each["exposed_us"] for each in found["why"])
    assert whole >= 0.98 * found["exposed_comm_us"]  # operations added up: two at once count twice
    assert all(each["advice"] == ADVICE[each["cause"]] for each in found["why"])
    return {each["cause"]: each["exposed_us"] / whole for each in found["why"]}


LAYERED = Policy(boundary="layer", agreement="leader")
CUT = Rewrite("partition", ("dp",), {"size_bytes": MB})
URGENT = replace(LAYERED, rewrites=(CUT,), queue=Queue(keys={f"layer{at}": at for at in range(8)}))
FUSED = Policy(rewrites=(Rewrite("fuse", ("dp",), {"caps_bytes": (100 * MB,)}),))


def in_order() -> tuple[dict[str, Any], dict[str, Any]]:
    """A large last layer is sent first; the first one's gradient stands behind it."""
    workload = layers(1, 1, 1, 20)
    return under(workload, LAYERED), under(workload, URGENT)


def at_the_barrier() -> tuple[dict[str, Any], dict[str, Any]]:
    workload = layers(2, 2, 2, 2, forward_ms=3, backward_ms=1)
    return under(workload, Policy()), under(workload, URGENT)


def in_buckets() -> tuple[dict[str, Any], dict[str, Any]]:
    """One bucket for all, which the last gradient completes."""
    workload = layers(1, 1, 1, 1)
    return under(workload, FUSED), under(workload, Policy())


def too_small() -> tuple[dict[str, Any], dict[str, Any]]:
    """A hundred pieces of 10 kB a layer, each with 100 us of its own."""
    workload, slow = layers(1, 1, 1), LinkCosts(RATE, overhead_s=1e-4)
    cut = replace(URGENT, rewrites=(Rewrite("partition", ("dp",), {"size_bytes": 10_000}),))
    return under(workload, cut, slow), under(workload, URGENT, slow)


def out_of_credit() -> tuple[dict[str, Any], dict[str, Any]]:
    """The link waits for the answer to each piece."""
    workload, far = layers(4, 4, 4), LinkCosts(RATE, latency_s=0.5 * MS)
    wide = replace(URGENT, queue=replace(URGENT.queue or Queue(), windows={"dp": (8.0, "operations")}))
    return under(workload, URGENT, far), under(workload, wide, far)


def at_once() -> tuple[dict[str, Any], dict[str, Any]]:
    """An operation whose result the next layer of the same pass needs."""

    def made(size: int) -> Workload:
        base = layers(0, 0)
        moved = Payload(
            "activations",
            "all",
            "all-reduce",
            size,
            ("dp",),
            "tp",
            ("F.layer0",),
            (("F.layer1", 0),),
            per="micro-batch",
        )
        return replace(base, payloads=(moved,))

    return under(made(4 * MB), Policy()), under(made(MB), Policy())


class Shared:
    """Two roles on one link, or each on its own."""

    def __init__(self, *, apart: bool) -> None:
        self.apart = apart

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        name = f"{role}.tx" if self.apart else "link.tx"
        return (Stage(size_bytes / RATE, loads=((name, 1.0),)),)


def beside_another() -> tuple[dict[str, Any], dict[str, Any]]:
    base = layers(6, 0)
    other = Payload("other", "all", "all-reduce", 6 * MB, ("dp",), "edp", ("B.layer0",), (("U.other", 0),), elements=MB)
    workload = replace(
        base,
        payloads=(*base.payloads, other),
        tasks=(*base.tasks, Task("U.other", "all", "U", 0.0, 0, ("U", 0), per="step")),
        edges=(*base.edges, Edge("U.other", "F.layer0", 1)),
    )
    return under(workload, LAYERED, Shared(apart=False)), under(workload, LAYERED, Shared(apart=True))


def too_many_bytes() -> tuple[dict[str, Any], dict[str, Any]]:
    return under(layers(90, 90), URGENT), under(layers(9, 9), URGENT)


@pytest.mark.parametrize(
    ("cause", "make", "share"),
    [
        ("order", in_order, 0.15),
        ("barrier", at_the_barrier, 0.9),
        ("bucket", in_buckets, 0.9),
        ("latency", too_small, 0.9),
        ("window", out_of_credit, 0.15),
        ("dependency", at_once, 0.99),
        ("contention", beside_another, 0.9),
        ("bandwidth", too_many_bytes, 0.9),
    ],
)
def test_a_cause_is_named_and_its_remedy_helps(
    cause: str, make: Callable[[], tuple[dict[str, Any], dict[str, Any]]], share: float
) -> None:
    before, after = make()
    found = shares(before)
    assert found.get(cause, 0.0) >= share, found
    assert after["step_us"] < 0.98 * before["step_us"]


def test_what_order_cost_is_what_order_gains() -> None:
    before, after = in_order()
    cost_us = next(each["exposed_us"] for each in before["why"] if each["cause"] == "order")
    assert before["step_us"] - after["step_us"] == pytest.approx(cost_us)


def test_a_piece_that_is_being_sent_blames_no_order() -> None:
    """With priorities there is no other order: what is left is the link's."""
    found = shares(under(layers(3, 3, 3, 20), URGENT))
    assert "order" not in found


def test_nothing_exposed_has_no_cause() -> None:
    assert under(layers(0, 0.1, 0.1), LAYERED)["why"] == []
