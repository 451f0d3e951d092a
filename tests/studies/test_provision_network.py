"""The network of a fabric as it is bought: ports, tiers, cables, prices; and the search for the least of a grid."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ringwright.advise.provision.network import Cabling, NetworkPlan, NetworkTiers
from ringwright.advise.provision.prices import Prices, read_prices
from ringwright.advise.provision.search import below, least
from ringwright.advise.provision.variants import with_fewer_nics
from ringwright.fabrics import fabric
from ringwright.ground.errors import InputError, UsageError

BY_HAND = [  # fabric, ports a GPU, tiers with their ratios, rails, ports of NICs and switches, cables
    ("dgx-h100:8", 1, {"spine": 1}, 8, Cabling(64, 192, 128)),
    ("fat-tree:64", 1, {"edge": 1, "spine": 1}, 1, Cabling(64, 320, 192)),
    ("leaf-spine:64,per_leaf=8,oversubscription=4", 1, {"spine": 4}, 1, Cabling(64, 96, 80)),
    ("torus:8x8", 4, {}, None, Cabling(256, 0, 128)),
    ("dragonfly:4x4x4", 1, {"local": 64 / 48, "global": 64 / 12}, 1, Cabling(64, 124, 94)),
    ("switch:64", 1, {}, 1, Cabling(64, 64, 64)),
    ("polaris:4", 0.5, {}, 1, Cabling(8, 8, 8)),
    ("rail-optimised:8,gpus_per_nic=4", 0.25, {"spine": 1}, 2, Cabling(16, 48, 32)),
]


@pytest.mark.parametrize(("spelled", "ports", "ratios", "rails", "cabling"), BY_HAND)
def test_ports_tiers_and_cables_by_hand(
    spelled: str, ports: float, ratios: dict[str, float], rails: int | None, cabling: Cabling
) -> None:
    tiers = NetworkTiers(fabric(spelled))
    assert tiers.given.nics_per_gpu == ports
    assert dict(zip(tiers.tiers, tiers.given.oversubscription, strict=True)) == pytest.approx(ratios, rel=1e-5)
    assert tiers.rails == rails
    assert tiers.cabling(tiers.given) == cabling
    whole = cabling.cables * tiers.given.nic_rate * 8 / 1e9
    assert tiers.capacity_gbits(tiers.given) == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("spelled", [each[0] for each in BY_HAND])
def test_a_sized_fabric_has_the_network_that_was_planned(spelled: str) -> None:
    tiers = NetworkTiers(fabric(spelled))
    assert tiers.sized(tiers.given) is tiers.topology
    plan = replace(
        tiers.given,
        nic_rate=tiers.given.nic_rate / 4,
        oversubscription=tuple(3 * r for r in tiers.given.oversubscription),
    )
    made = NetworkTiers(tiers.sized(plan)).given
    assert made.nic_rate == plan.nic_rate
    assert made.oversubscription == pytest.approx(plan.oversubscription, rel=1e-5)
    within = [name in ("nvlink", "pcie") for name in tiers.topology.classes]
    kept = np.array(within)[tiers.topology.link_class]
    assert np.array_equal(tiers.sized(plan).rate[kept], tiers.topology.rate[kept])


def test_a_sized_fat_tree_is_the_one_that_its_knobs_spell() -> None:
    tiers = NetworkTiers(fabric("fat-tree:16"))
    sized = tiers.sized(NetworkPlan(1.0, 25e9, (2.0, 2.0)))
    spelled = fabric("fat-tree:16,rate=25GB/s,oversubscription=2")
    assert np.allclose(sized.rate, spelled.rate, rtol=1e-12)


def test_a_capacity_that_ports_share_grows_with_them() -> None:
    tiers = NetworkTiers(fabric("switch:4,backplane=100GB/s"))
    assert tiers.scaled({"link": 0.5}).groups[0].rate == 50e9
    boxes = NetworkTiers(fabric("mi250:2"))
    assert [each.rate for each in boxes.scaled({"nic": 0.5}).groups] == [each.rate for each in boxes.topology.groups]


def test_a_fabric_without_a_network_is_told_so() -> None:
    with pytest.raises(UsageError, match="no NIC and no link between hosts") as refused:
        NetworkTiers(fabric("dgx-h100:1"))
    assert refused.value.remedy.endswith("--fabric dgx-h100:8")


def test_rates_and_ratios_begin_with_those_of_the_fabric() -> None:
    tiers = NetworkTiers(fabric("leaf-spine:64,per_leaf=8,oversubscription=4,rate=60GB/s"))
    assert [rate * 8 / 1e9 for rate in tiers.nic_rates()] == [480, 400, 200, 100, 50, 25, 10]
    assert [rate * 8 / 1e9 for rate in tiers.more_nic_rates()] == [800, 1600]
    assert tiers.ratios(0) == [4, 6, 8, 12, 16]


# ---------------------------------------------------------------------------------------------------------- fewer NICs
def test_gpus_that_share_a_nic() -> None:
    alone, shared = (fabric(f"rail-optimised:2{knob}") for knob in ("", ",gpus_per_nic=2"))
    assert [NetworkTiers(each).nics for each in (alone, shared)] == [16, 8]
    _, links = shared.routes(np.array([0, 1]), np.array([8, 9]))
    names = {shared.label(int(shared.src[link])) for link in links}
    assert "node0/nic0" in names
    assert "node0/pcie0" in names
    with pytest.raises(UsageError, match="8 GPUs with 3 to a NIC"):
        fabric("rail-optimised:2,gpus_per_nic=3")


def test_fewer_nics_where_the_family_has_them() -> None:
    listed = with_fewer_nics(fabric("rail-optimised:2,gpus_per_nic=2,nic_rate=25GB/s"))
    assert [NetworkTiers(each).given.nics_per_gpu for each in listed] == [0.5, 0.25, 0.125]
    assert {NetworkTiers(each).given.nic_rate for each in listed} == {25e9}
    assert [each.name for each in with_fewer_nics(fabric("dgx-h100:2"))] == ["dgx-h100:2"]
    changed = fabric("rail-optimised:2")
    assert with_fewer_nics(replace(changed, rate=changed.rate / 2))[0].n_links == changed.n_links
    assert len(with_fewer_nics(replace(changed, rate=changed.rate / 2))) == 1


# -------------------------------------------------------------------------------------------------------------- prices
def test_prices_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('"nic@400" = 1300\nport = 1.5\n')
    prices = read_prices([str(file), "optic=0.5"])
    assert prices is not None
    assert prices.cost(Cabling(2, 3, 4), 50e9) == 2 * 1300 + 3 * 1.5 * 400 + 8 * 0.5 * 400
    assert prices.cost(Cabling(2, 3, 4), 25e9) is None  # no NIC of 200 Gb/s has a price
    assert prices.free == []
    only = read_prices(["nic@400=1300,nic=2"])
    assert only is not None
    assert [only.cost(Cabling(1, 9, 9), rate) for rate in (50e9, 25e9)] == [1300, 400]
    assert only.free == ["port", "optic"]
    assert read_prices([]) is None


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("cable=1", "'cable' is no part of a network"),
        ("nic", "neither a file nor KEY=VALUE"),
        ("nic=", "'' is no price"),
        ("nic=-1", "'-1' is no price"),
        ("nic=inf", "'inf' is no price"),
        ("nic=nan", "'nan' is no price"),
        ("nic@x=1", "'x' in 'nic@x' is no rate"),
        ("nic@0=1", "'0' in 'nic@0' is no rate"),
        ("nic=1,nic=2", "'nic' has two prices"),
    ],
)
def test_prices_that_are_none(word: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as refused:
        read_prices([word])
    assert "--prices" in refused.value.remedy


@pytest.mark.parametrize("text", ["not toml", "nic = [1]\n", "nic = true\n", "x" * (1 << 17)])
def test_files_of_prices_that_are_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises((InputError, UsageError)):
        read_prices([str(file)])


def test_an_empty_file_prices_nothing(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text("")
    with pytest.raises(UsageError, match="no price is named"):
        read_prices([str(tmp_path / "prices.toml")])


def test_prices_are_compared_by_value() -> None:
    assert read_prices(["nic=1"]) == Prices(((("nic", None), 1.0),))


# -------------------------------------------------------------------------------------------------------------- search
@pytest.mark.parametrize("seed", range(40))
def test_the_least_of_a_grid_is_what_trying_all_gives(seed: int) -> None:
    draw = random.Random(seed)
    lengths = [draw.randint(1, 6) for _ in range(draw.randint(1, 3))]
    weights, limit = [draw.uniform(0.1, 2) for _ in lengths], draw.uniform(0, 6)
    prices = [sorted((draw.uniform(1, 9) for _ in range(length)), reverse=True) for length in lengths]
    asked: list[tuple[int, ...]] = []

    def holds(point: tuple[int, ...]) -> bool:
        asked.append(point)
        return sum(weight * at for weight, at in zip(weights, point, strict=True)) <= limit

    def size(point: tuple[int, ...]) -> float:
        return sum(axis[at] for axis, at in zip(prices, point, strict=True))

    every = list(product(*map(range, lengths)))
    best = least(lengths, holds, size)
    assert size(best) == min(size(each) for each in every if sum(map(np.multiply, weights, each)) <= limit)
    assert len(set(asked)) <= len(every)


def test_a_library_that_chooses_anew_does_not_end_the_search_early() -> None:
    """Halving believes that 2 fails because 1 does; 3 holds, and is reached from its neighbour."""
    told = {(0,): True, (1,): True, (2,): False, (3,): True}
    assert least([4], told.__getitem__, lambda point: -point[0]) == (1,)
    assert least([4], {**told, (2,): True}.__getitem__, lambda point: -point[0]) == (3,)
    both = {(0, 0): True, (1, 0): False, (0, 1): True, (1, 1): True}
    assert least([2, 2], both.__getitem__, lambda point: -sum(point)) == (1, 1)


def test_neighbours_that_are_smaller() -> None:
    assert below((0, 2), (3, 3)) == [(0, (1, 2))]
    assert below((1, 1), (3, 3)) == [(0, (2, 1)), (1, (1, 2))]
