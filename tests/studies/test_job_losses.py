"""Jobs on links that lose packets: what the packets of an operation add, in seconds, not a thinner link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

import ringwright
from ringwright.engines.packets.carriage import without_losses
from ringwright.fabrics import fabric, faults
from ringwright.jobs import recorded_job
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.jobs.study import PolicyResult
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.registry import algorithm
from ringwright.model.stages import Costs, Stage
from ringwright.model.topology import Topology

pytestmark = pytest.mark.once  # whole jobs, many times: with the compiled loops alone


class Slower:
    """Costs ten times those of others."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases, ten times as long."""
        return tuple(replace(each, wire_s=10 * each.wire_s) for each in self.costs.stages(op, size_bytes, ranks, role))


LOSS = "link node0/nic0 loss 1%"


@cache
def step(*lines: str, model: str = "resnet18") -> PolicyResult:
    answer = ringwright.simulate(model, "dgx-h100:2", policy="pytorch-ddp:bucket_cap_mb=1000", faults=lines)
    assert isinstance(answer, PolicyResult)
    return answer


def test_a_lossy_link_costs_more_than_its_share_of_the_rate() -> None:
    calm, lossy, thinner = step(), step(LOSS), step("link node0/nic0 rate 99%")
    assert thinner.step_s >= calm.step_s
    assert lossy.exposed_s - calm.exposed_s > 10 * (thinner.exposed_s - calm.exposed_s)


def test_losses_and_neighbours_leave_the_bytes_of_links_as_they_are() -> None:
    """What keeps a link busy for a share of a longer time is as much as before."""
    top = fabric("dgx-h100:2")
    job = ringwright.job("resnet18", gpus=16)
    other = neighbour("all-to-all", range(16), 1 << 20, top)
    plain, lossy = on_fabric(top, job), on_fabric(faults.apply(top, [LOSS]), job)
    sent = []
    for costs in (plain, lossy, replace(plain, others=(other,))):
        (stage,) = costs.stages("all-reduce", 25 << 20, tuple(range(16)), "dp")
        sent.append({link: share * stage.wire_s for link, share in stage.links})
    for each in sent[1:]:
        assert each == pytest.approx(sent[0], rel=0.02)


def neighbour(op: str, group: Sequence[int], size_bytes: int, top: Topology) -> Program:
    _, make, knobs = algorithm("direct")
    program: Program = make(Collective(op, tuple(group), size_bytes), top, **knobs)
    return program


def test_the_most_probable_step_adds_seconds_and_holds_their_bounds() -> None:
    calm, lossy = (step(*lines, model="gpt3-125m") for lines in ((), (LOSS,)))
    assert calm.probable is not None
    assert lossy.probable is not None
    more_us = (lossy.step_s - calm.step_s) * 1e6
    assert more_us > 0
    assert lossy.probable.p50_us - calm.probable.p50_us == pytest.approx(more_us, rel=0.01)
    assert lossy.probable.p05_us is not None
    assert lossy.probable.p95_us is not None
    assert calm.probable.p95_us is not None
    assert lossy.probable.p95_us - calm.probable.p95_us > more_us


def test_a_small_buffer_never_makes_a_job_faster() -> None:
    assert step("switch * buffer 16KiB").step_s >= step().step_s


def test_what_packets_add_is_said_and_counted() -> None:
    top = faults.apply(fabric("dgx-h100:2"), [LOSS])
    job = ringwright.job("resnet18", gpus=16)
    costs, calm = on_fabric(top, job), on_fabric(without_losses(top), job)
    ranks = tuple(range(16))
    (lossy,), (healthy,) = (each.stages("all-reduce", 25 << 20, ranks, "dp") for each in (costs, calm))
    more = [each.seconds for each in costs.packets.added.values()]
    assert min(more) <= lossy.wire_s - healthy.wire_s <= max(more)
    assert any("sizes of operations were followed" in said for said in costs.told())
    assert not calm.told()


def test_losses_add_seconds_to_measured_times() -> None:
    """A machine ten times slower waits as long for a time-out."""
    top = faults.apply(fabric("dgx-h100:2"), [LOSS])
    job = ringwright.job("resnet18", gpus=16)
    after, calm = on_fabric(top, job), on_fabric(without_losses(top), job)
    ranks, size = tuple(range(16)), 25 << 20
    more = (
        after.stages("all-reduce", size, ranks, "dp")[0].wire_s - calm.stages("all-reduce", size, ranks, "dp")[0].wire_s
    )
    slow = recorded_job.Changed(Slower(calm), calm, after)
    (stage,) = slow.stages("all-reduce", size, ranks, "dp")
    assert stage.wire_s == pytest.approx(10 * calm.stages("all-reduce", size, ranks, "dp")[0].wire_s + more)
