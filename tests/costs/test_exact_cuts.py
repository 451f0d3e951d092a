"""The search over all cuts: between the root and all ranks in one sweep, and where it is not the whole truth."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import engine_cases as cases
from ringwright.bounds.certificates import certificate, proved_s
from ringwright.bounds.demands import demand
from ringwright.bounds.lower_bounds import UNASKED, UNSEEN, bound, bounds
from ringwright.bounds.maxflow import Cut, weakest
from ringwright.ground.errors import InfeasibleError
from ringwright.model.collective import Collective
from ringwright.model.topology import Topology


def uneven(seed: int) -> Topology:
    """A torus whose links all have rates of their own, a different one each way."""
    rng = np.random.default_rng(seed)
    top = cases.torus(3, 3)
    return dataclasses.replace(top, rate=rng.integers(1, 30, top.n_links) * 1e9)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("op", ["all-reduce", "broadcast", "reduce"])
def test_one_sweep_from_the_root_is_a_flow_for_each_rank(op: str, seed: int) -> None:
    top, root = uneven(seed), seed % 9
    collective = Collective(op, range(9), 9 << 20, root=root)
    told = demand(collective, top).exact(top)
    assert told is not None
    time_s, nodes, crossing, needed, carried = told
    rates = {(int(here), int(there)): int(rate) for here, there, rate in zip(top.src, top.dst, top.rate, strict=True)}
    away, towards = (
        [(root, rank) for rank in range(9) if rank != root],
        [(rank, root) for rank in range(9) if rank != root],
    )
    pairs = {"broadcast": away, "reduce": towards, "all-reduce": away + towards}[op]
    least = weakest(9, rates, pairs, Cut(Fraction(sum(rates.values()) + 1), frozenset()))
    assert (needed, carried) == (float(9 << 20), float(least.value))
    assert time_s == needed / carried
    ends = (top.src, top.dst) if crossing == "out of" else (top.dst, top.src)
    inside = np.isin(ends[0], list(nodes)) & ~np.isin(ends[1], list(nodes))
    assert top.rate[inside].sum() == carried


def test_capacities_that_links_share_are_not_searched() -> None:
    collective = Collective("all-gather", range(16), 16 << 20)
    plain, shared = (bound(collective, cases.nodes_of(4, 4, plane=plane), exact=True) for plane in (False, True))
    assert (plain.exact, plain.looser) == (True, "")
    assert (shared.exact, shared.looser) == (False, UNSEEN)


def test_every_bound_says_whether_all_cuts_were_searched() -> None:
    collective, top = Collective("all-gather", range(9), 9 << 20), uneven(1)
    assert {(each.exact, each.looser) for each in bounds(collective, top)} == {(True, "")}
    assert {(each.exact, each.looser) for each in bounds(collective, top, exact=False)} == {(False, UNASKED)}
    assert bound(Collective("all-gather", [2], 9), top).exact
    assert bound(Collective("all-gather", range(9), 0), top).exact


def test_a_search_beyond_minutes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringwright.bounds.lower_bounds.MOST_EXACT", 300)
    with pytest.raises(InfeasibleError, match="flows times links are 324, more than 300"):
        bound(Collective("all-gather", range(9), 9), uneven(1), exact=True)
    assert not bound(Collective("all-to-all", range(9), 81), uneven(1), exact=True).exact


@pytest.mark.parametrize("rate", [0.3, 1.5, 7.9e3, 3e18])
@pytest.mark.parametrize("op", ["all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce"])
def test_rates_of_any_size_count_as_they_are(op: str, rate: float) -> None:
    top, collective = uneven(2), Collective(op, range(9), 9 << 10)
    slow = dataclasses.replace(top, rate=top.rate * rate / 1e9)
    told, scaled = (demand(collective, each).exact(each) for each in (top, slow))
    assert told is not None
    assert scaled is not None
    assert scaled[0] == pytest.approx(told[0] * 1e9 / rate, rel=1e-8)
    assert scaled[4] == pytest.approx(scaled[3] / scaled[0])


@pytest.mark.parametrize("size", [3, 5, 1000, 4097])
@pytest.mark.parametrize("link", ["into", "out of"])
def test_an_exchange_of_unequal_blocks_carries_what_they_are(size: int, link: str) -> None:
    top = cases.torus(3, 3)
    ends = top.dst if link == "into" else top.src
    for rank in (0, 8):
        slow = dataclasses.replace(top, rate=np.where(ends == rank, 10.0, top.rate), is_symmetric=False)
        collective = Collective("all-to-all", range(9), size, "int8")
        blocks = collective.block_bytes
        crosses = 8 * blocks[rank] if link == "into" else blocks.sum() - blocks[rank]
        tight = bound(collective, slow)
        assert tight.time_s == pytest.approx(max(crosses / 40.0, bound(collective, top).time_s))
        proved = proved_s(certificate(tight), collective, slow)
        assert proved is None or proved == pytest.approx(tight.time_s)
