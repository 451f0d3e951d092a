"""Tiles finer than a rank's block: where they gain, where what each more costs makes them lose, and waves that end together."""

from __future__ import annotations

from functools import cache

import pytest

import algebra_cases as cases
import ringwright
from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import RULES, RewriteError
from ringwright.graph.algebra.equality import prove, small
from ringwright.graph.algebra.tiles import shares_of_time
from ringwright.ground.units import PS
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose._sites import sites
from ringwright.schedulers.decompose.collective_einsum_overlap import collective_einsum_overlap
from ringwright.schedulers.decompose.t3 import t3

LATENCY_S = 1e-6


@cache
def model(sequences: int = 16) -> Workload:
    """Twelve layers on four GPUs; at 16 sequences a rank's block of each product is one wave of tiles on an H100."""
    return ringwright.job("gpt3-125m", gpus=4, parallel="tp4,sp", micro_batches=1, micro_batch_size=sequences)


def step_s(made: Workload, rate: float, latency_s: float = 0.0) -> float:
    return simulate(made, LinkCosts(rate, latency_s=latency_s, ring=True)).step_s


@cache
def windowed_s(tiles: int, rate: float, sequences: int = 16) -> float:
    costs = LinkCosts(rate, ring=True)
    return step_s(collective_einsum_overlap(model(sequences), costs, gate="off", tiles=tiles), rate)


@cache
def triggered_s(tiles: int, gpu: str, latency_s: float, sequences: int = 16) -> float:
    return step_s(t3(model(sequences), LinkCosts(1e11, ring=True), tiles=tiles, gpu=gpu), 1e11, latency_s)  # type: ignore[arg-type]


def test_finer_tiles_gain_where_the_link_is_the_bound() -> None:
    """The first message leaves sooner, and the last product behind the last message is shorter."""
    assert windowed_s(2, 2e11, 64) < 0.99 * windowed_s(1, 2e11, 64)


def test_finer_tiles_lose_where_smaller_products_do_not_fill_the_gpu() -> None:
    """On a fast link the product is the bound, and its pieces leave compute units idle at the end of their last wave."""
    assert windowed_s(4, 9e11) > 1.05 * windowed_s(1, 9e11)


def test_the_gate_knows_what_tiles_cost() -> None:
    """It leaves alone what tiles would make longer, so the step is no longer than without."""
    plain = step_s(model(), 9e11)
    gated = collective_einsum_overlap(model(), LinkCosts(9e11, ring=True), tiles=4)
    assert windowed_s(4, 9e11) > plain >= step_s(gated, 9e11)


def test_a_copy_for_each_tile_gains_until_its_start_takes_longer() -> None:
    free, slow = ([triggered_s(tiles, "none", each) for tiles in (1, 4)] for each in (0.0, 5 * LATENCY_S))
    assert free[1] < free[0]
    assert slow[1] > slow[0]


def test_messages_of_tiles_take_a_latency_more_each() -> None:
    site, costs = sites(model())[0][0], LinkCosts(1e11, latency_s=LATENCY_S, ring=True)
    blocks_s, tiles_s = (site.blocks_s(costs, tiles=tiles) for tiles in (1, 4))
    assert tiles_s - blocks_s == pytest.approx((4 - 1) * (4 - 1) * LATENCY_S, rel=1e-3)


def test_tiles_of_one_wave_are_stored_together() -> None:
    """A block that is one wave of the kernel's tiles triggers nothing sooner; a block of several does."""
    assert {site.waves("h100") for site in sites(model())[0] if site.side == "scatter"} == {1}
    assert triggered_s(4, "h100", 0.0) == pytest.approx(triggered_s(1, "h100", 0.0), rel=1e-6)
    assert triggered_s(4, "none", 0.0) < triggered_s(1, "none", 0.0) * (1 - 1e-3)
    assert max(site.waves("h100") for site in sites(model(64))[0]) > 1
    assert triggered_s(4, "h100", 0.0, 64) < triggered_s(1, "h100", 0.0, 64) * (1 - 1e-4)


@pytest.mark.parametrize(
    ("tiles", "waves", "shares"), [(2, 0, [0.5, 0.5]), (4, 1, [1, 0, 0, 0]), (2, 3, [2 / 3, 1 / 3])]
)
def test_a_tile_is_done_with_its_wave(tiles: int, waves: int, shares: list[float]) -> None:
    assert shares_of_time(tiles, waves) == pytest.approx(shares)


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("tiles", [1, 2])
@pytest.mark.parametrize("share", [0.25, 4.0])
def test_a_loop_of_tiles_takes_its_ideal_time(p: int, tiles: int, share: float) -> None:
    """The product, or all messages and the product of the last tile; ``share``: a block's message in blocks of the product."""
    step = cases.gathered_product(p)
    shift_s = share / p
    costs = LinkCosts(step.payload["whole"].size_bytes // p / shift_s, ring=True)
    looped = RULES["loop-gather"](step, "y", tiles=tiles, epsilon=1.0)
    took = simulate(looped, costs, steps=1).finished(0) / PS
    assert took == pytest.approx(1.0 + max(1.0, (p - 1) * shift_s + 1 / (p * tiles)) + 1.0)


@pytest.mark.parametrize("tiles", [0, 3])
def test_a_block_that_does_not_part_into_tiles_is_refused(tiles: int) -> None:
    with pytest.raises(RewriteError, match=f"does not part into {tiles} tiles"):
        RULES["loop-scatter"](cases.product_scattered(4), "y", tiles=tiles)
    with pytest.raises(RewriteError, match="-1 waves"):
        RULES["loop-scatter"](cases.product_scattered(4), "y", tiles=2, waves=-1)


def test_schedulers_leave_blocks_whole_that_do_not_part() -> None:
    costs = LinkCosts(1e9, ring=True)
    made = t3(cases.product_scattered(4), costs, tiles=5)
    assert "in whole blocks: 5 tiles" in " ".join(made.assumptions)
    looped = collective_einsum_overlap(cases.gathered_product(4), costs, gate="off", tiles=5)
    assert [each.rule for each in looped.applied] == ["loop-gather"]
    assert "tiles" not in looped.applied[0].settings


def test_a_model_in_tiles_computes_the_same() -> None:
    (before,) = small(ringwright.job("gpt3-125m", gpus=2, parallel="tp2,sp", micro_batches=1), at_most=4)
    costs = LinkCosts(1e9, ring=True)
    for after in (
        t3(before, costs, tiles=2),
        collective_einsum_overlap(before, costs, gate="off", tiles=2),
    ):
        assert any(each.settings.get("tiles") == 2 for each in after.applied)
        proof = prove(before, after, draws=1)
        assert proof.equal, proof.differing[:3]
