"""What a step was spent on, against times worked out by hand on one link of a megabyte a millisecond."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringwright.jobs.explained.account import Account
from ringwright.jobs.study import Job, answer
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Policy, Queue
from ringwright.workloads.chain import ChainLayer, chain

pytestmark = pytest.mark.once
MS = 1e-3
KEYS = {f"layer{at}": at for at in range(4)}


def spent(policy: Policy, *sizes_mb: float, update_ms: float = 0.0) -> Account:
    workload = chain("made up", [ChainLayer(MS, 2 * MS, int(size * 1e6), update_s=update_ms * MS) for size in sizes_mb])
    return answer(Job(replace(workload, policy=policy), LinkCosts(1e9)), "none").account


def test_first_come_first_served_without_a_barrier() -> None:
    """The last layer leaves at 2 ms of the backward pass, until 22; the others at 22, 23, 24; forward begins at 25."""
    found = spent(Policy(boundary="layer"), 1, 1, 1, 20)
    role = found.roles["dp"]
    assert found.step_s == pytest.approx(29 * MS)
    assert (found.compute_s, found.forward_s, found.update_s, found.idle_s) == pytest.approx((12 * MS, 4 * MS, 0, 0))
    assert found.exposed_s == role.exposed_s == pytest.approx(17 * MS)
    assert role.busy_s == pytest.approx(23 * MS)
    assert role.queued_s == pytest.approx((18 + 17 + 16) * MS)
    assert role.operations == 4
    assert role.size_bytes == 23_000_000
    assert found.overlap == pytest.approx(6 / 23)
    assert found.ceiling == pytest.approx(12 / 12 + 4 / 12)


def test_urgent_first() -> None:
    """The same bytes: the large one is being sent until 22, and waits for nobody; three leave after it, forward at 23."""
    found = spent(Policy(boundary="layer", queue=Queue(keys=KEYS)), 1, 1, 1, 20)
    assert found.step_s == pytest.approx(27 * MS)  # the first layer's forward at 23, the last layer's has come by 25
    assert found.roles["dp"].queued_s == pytest.approx((14 + 17 + 20) * MS)
    assert found.exposed_s == pytest.approx(15 * MS)
    assert found.overlap == pytest.approx(8 / 23)


def test_a_barrier_and_updates() -> None:
    """All have come at 25; each layer is then updated before anything is forward."""
    found = spent(Policy(), 1, 1, 1, 20, update_ms=0.5)
    assert found.step_s == pytest.approx(31 * MS)
    assert found.update_s == pytest.approx(2 * MS)
    assert found.exposed_s == pytest.approx(17 * MS)
    assert found.step_s == pytest.approx(found.compute_s + found.update_s + found.exposed_s + found.idle_s)


def test_all_hidden() -> None:
    found = spent(Policy(boundary="layer"), 0, 1, 1, 1)
    assert found.step_s == pytest.approx(12 * MS)
    assert found.exposed_s == 0
    assert found.overlap == pytest.approx(1)
