"""Which groups do the same at the same time as one, and share links with it."""

from __future__ import annotations

import pytest

import ringwright
from ringwright.jobs.pricing.cost_cache import TimedRanks
from ringwright.jobs.pricing.costs import FabricCosts, stages_of
from ringwright.model.workload import Mesh

GRID = Mesh((("pp", 2), ("dp", 2), ("tp", 4)))  # rank = 8 pp + 4 dp + tp


def costs(fabric: str = "ndv2:2", along: frozenset[str] = frozenset({"pp"})) -> FabricCosts:
    return FabricCosts(ringwright.fabric(fabric), GRID, along)


def together(made: FabricCosts, op: str, *ranks: int) -> set[tuple[int, ...]]:
    groups = made._together(op, (TimedRanks(ranks),))
    assert groups[-1].ranks == ranks
    return {each.ranks for each in groups}


def test_messages_from_host_to_host_share_its_one_nic() -> None:
    assert together(costs(), "send-recv", 0, 8) == {(rank, rank + 8) for rank in range(8)}


def test_where_every_gpu_has_a_nic_nobody_shares() -> None:
    assert together(costs("dgx-h100:2"), "send-recv", 0, 8) == {(0, 8)}


def test_other_stages_are_no_siblings() -> None:
    """Data parallel groups of one stage, all on its host: those of the other stage are on other links, and at other times."""
    one_host = FabricCosts(ringwright.fabric("switch:16"), GRID, frozenset({"pp"}))
    assert all(max(ranks) < 8 for ranks in together(one_host, "all-reduce", 0, 4))
    both = FabricCosts(ringwright.fabric("ndv2:2"), Mesh((("dp", 2), ("pp", 2), ("tp", 4))), frozenset({"pp"}))
    assert together(both, "all-reduce", 0, 8) == {(0, 8), (1, 9), (2, 10), (3, 11)}
    whole = FabricCosts(both.topology, both.mesh)
    assert together(whole, "all-reduce", 0, 8) == {(rank, rank + 8) for rank in range(8)}


def test_groups_of_some_ranks_of_an_axis_have_their_siblings() -> None:
    """The first and the last of four stages share the gradient of the embedding."""
    mesh = Mesh((("pp", 4), ("tp", 8)))
    made = FabricCosts(ringwright.fabric("ndv2:4"), mesh, frozenset({"pp"}))
    assert together(made, "all-reduce", 0, 24) == {(rank, rank + 24) for rank in range(8)}
    alone = FabricCosts(made.topology, Mesh((("pp", 4), ("tp", 1), ("rest", 8)))).stages(
        "all-reduce", 1 << 26, (0, 24), ""
    )
    assert made.stages("all-reduce", 1 << 26, (0, 24), "embedding")[0].wire_s == pytest.approx(alone[0].wire_s)
    rate = 12.5e9
    assert made.stages("all-reduce", 1 << 26, (0, 24), "embedding")[0].wire_s > 8 * (1 << 26) / rate


def test_all_messages_of_a_ring_of_shifts_are_siblings() -> None:
    ring = Mesh((("cp", 16),))
    made = FabricCosts(ringwright.fabric("ndv2:2"), ring)
    pairs = tuple(TimedRanks((rank, (rank + 1) % 16)) for rank in range(16))
    across = tuple(pairs[7:]) + tuple(pairs[:7])  # the one from host to host first
    shared = {each.ranks for each in made._together("send-recv", across)}
    assert (7, 8) in shared
    assert shared <= {each.ranks for each in pairs}


def test_the_axes_of_a_pipeline_are_those_that_messages_go_along() -> None:
    assert stages_of(ringwright.job("llama3-8b", gpus=16, parallel="tp4,pp2")) == {"pp"}
    assert stages_of(ringwright.job("llama3-8b", gpus=16, parallel="tp4")) == frozenset()
