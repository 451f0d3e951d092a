"""Shifts and copies on a fabric: each rank sends once, to the rank that asks; copy engines hold no compute units."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import ringwright
from ringwright.fabrics import fabric
from ringwright.jobs.phases import rounds_of
from ringwright.jobs.pricing.copies import START_S
from ringwright.jobs.pricing.cost_cache import KnownOperations
from ringwright.jobs.pricing.costs import FabricCosts, on_fabric
from ringwright.model.stages import Stage

EIGHT = tuple(range(8))
SIZE = 16 << 20


@pytest.mark.parametrize("hops", [1, 2, 3, 4, 6, 7, -1])
def test_every_rank_gets_what_the_one_further_on_holds(hops: int) -> None:
    rounds = rounds_of(EIGHT, hops)
    assert len(rounds) == math.gcd(hops, 8)
    gets_from = {each[(at + 1) % len(each)]: rank for each in rounds for at, rank in enumerate(each)}
    assert gets_from == {rank: (rank + hops) % 8 for rank in EIGHT}


@pytest.fixture(scope="module")
def costs() -> FabricCosts:
    job = ringwright.job("llama3-8b", gpus=16, parallel="tp8,sp", micro_batches=1)
    return on_fabric(fabric("dgx-h100:2"), job)


def stage(costs: FabricCosts, op: str, ranks: tuple[int, ...] = EIGHT) -> Stage:
    (made,) = costs.stages(op, SIZE, ranks, "tp")
    return made


def test_a_shift_takes_what_one_message_takes(costs: FabricCosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links carry both directions at once, so a rank that also receives sends no more slowly: as an engine has both."""
    monkeypatch.setattr(FabricCosts, "_said_of", lambda *_: None)
    costs = replace(costs, known=KnownOperations())
    alone = stage(costs, "send-recv", (0, 1)).wire_s
    for hops in (1, 2, 3, 4):
        assert stage(costs, f"shift@{hops}").wire_s == pytest.approx(alone, rel=1e-6)


def test_copies_in_one_host_hold_no_compute_units_and_go_at_the_links_rate(costs: FabricCosts) -> None:
    copied, shifted = stage(costs, "copy"), stage(costs, "shift")
    assert copied.sms == 0 < shifted.sms
    assert copied.wire_s == pytest.approx(START_S + SIZE / 450e9 / 0.82, rel=0.05)
    assert stage(costs, "copy@3").wire_s == pytest.approx(copied.wire_s)


def test_between_hosts_the_library_sends_and_it_is_said(costs: FabricCosts) -> None:
    fresh = replace(costs)
    across = (0, 8)
    assert stage(fresh, "copy", across) == stage(fresh, "shift", across)
    assert any("no copy engine reaches another host" in each for each in fresh.told())
